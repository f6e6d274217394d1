"""The timeline engine on random unequal stages, beside longest paths in a graph."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.schedule import (
    Backward,
    Engines,
    Machine,
    Shape,
    StageCosts,
    Transport,
    pipeline_kind,
    pipelines,
)
from emuchain.emulator.timing import run_timeline, schedule_of

from .longest_path import ends_by_longest_path

NAMES = sorted(pipelines())
TIMES = st.integers(1, 40)


@st.composite
def shapes(draw: st.DrawFn, name: str, engines: Engines, transport: Transport) -> Shape:
    """Draw unequal stages, with errors that take another time than features; at most 5 stages, 8
    micro-batches.
    """
    chunks = (
        draw(st.integers(1, 2))
        if pipeline_kind(name).chunks > 1 and engines is Engines.TURNS
        else 1
    )
    devices, count = draw(st.integers(1, 5 // chunks)), draw(st.integers(1, 8))
    backward = draw(st.sampled_from(Backward)) if engines is Engines.TURNS else Backward.FUSED
    rows = draw(st.integers(1, 4))
    costs = []
    for _ in range(devices * chunks):
        errors, gradients = draw(TIMES), draw(TIMES)
        sent_errors = draw(st.none() | st.integers(0, 60))
        costs.append(
            StageCosts(
                draw(TIMES),
                errors + gradients,
                gradients,
                draw(st.integers(0, 60)),
                sent_errors,
                rows=rows,
            )
        )
    return Shape(
        devices,
        count,
        costs,
        Machine(engines, transport, backward, draw(st.integers(0, 9))),
        chunks,
    )


def check(name: str, shape: Shape) -> None:
    schedule, _ = schedule_of(pipeline_kind(name), shape)
    found = run_timeline(schedule, shape.costs, shape.machine).timed
    ends = {
        (each.step.kind.value, each.step.micro_batch, each.step.stage): each.end_ps
        for each in found
    }
    assert ends == ends_by_longest_path(schedule, shape.costs, shape.machine)


@given(st.sampled_from(NAMES), st.data())
@settings(max_examples=300)
def test_by_turns_and_stored(name: str, data: st.DataObject) -> None:
    check(name, data.draw(shapes(name, Engines.TURNS, Transport.STORED)))


@given(st.sampled_from(NAMES), st.data())
@settings(max_examples=150)
def test_by_turns_and_streamed(name: str, data: st.DataObject) -> None:
    check(name, data.draw(shapes(name, Engines.TURNS, Transport.STREAMED)))


@given(st.sampled_from(NAMES), st.data())
@settings(max_examples=150)
def test_split_and_streamed(name: str, data: st.DataObject) -> None:
    check(name, data.draw(shapes(name, Engines.SPLIT, Transport.STREAMED)))
