"""What devices keep over time, against a replay of their actions one after another, and against
the memory that plans reserve.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import emuchain
from emuchain.comm import Served
from emuchain.emulator.config import load_config
from emuchain.emulator.mapping import activation_bytes
from emuchain.emulator.plan import make_plan
from emuchain.emulator.run import simulate
from emuchain.emulator.schedule import (
    Backward,
    Engines,
    Kind,
    Machine,
    Schedule,
    Shape,
    StageCosts,
    Transport,
    pipeline_kind,
)
from emuchain.emulator.timing import Course, FeatureBytes, kept_courses, schedule_of, time_pipeline

from ..commands.running import status_of

KINDS = ("gpipe", "1f1b-sno", "1f1b-so", "zero-bubble", "interleaved", "pipedream")


def replayed(schedule: Schedule, device: int, sizes: list[FeatureBytes], *, apart: bool) -> Any:
    """Return the most that a device keeps if it does its actions one after another."""
    held, most = Fraction(0), Fraction(0)
    [program] = schedule.programs([device]).values()
    for action in program:
        if action.kind is Kind.UPDATE:
            continue
        size = sizes[schedule.fold.stage(device, action.chunk)]
        if action.kind is Kind.FORWARD:
            held += size.kept
        elif action.kind is Kind.BACKWARD:
            held += size.again
        most = max(most, held)
        if action.kind is Kind.BACKWARD:
            held -= size.kept + size.again - (size.late if apart else 0)
        elif action.kind is Kind.GRADIENT:
            held -= size.late if apart else 0
        most = max(most, held)
    assert held == 0
    return most


@st.composite
def shapes(draw: st.DrawFn) -> tuple[str, Shape, list[FeatureBytes]]:
    name, devices = draw(st.sampled_from(KINDS)), draw(st.integers(1, 4))
    kind = pipeline_kind(name)
    times, sizes = st.integers(1, 9), st.integers(0, 50)
    costs, bytes_of = [], []
    for _ in range(devices * kind.chunks):
        costs.append(StageCosts(draw(times), 9 + draw(times), draw(times), draw(sizes)))
        kept, again = draw(sizes), draw(sizes)
        bytes_of.append(FeatureBytes(kept, again, draw(st.integers(0, kept + again))))
    transport = draw(st.sampled_from([Transport.STORED, Transport.HIDDEN]))
    machine = Machine(Engines.TURNS, transport, draw(st.sampled_from(Backward)))
    count = devices * draw(st.integers(1, 3))
    return name, Shape(devices, count, tuple(costs), machine, kind.chunks), bytes_of


@hypothesis.given(shapes())
@hypothesis.settings(deadline=None, max_examples=60)
def test_the_peak_is_that_of_the_actions_in_order(drawn: tuple[str, Shape, list[Any]]) -> None:
    name, shape, sizes = drawn
    schedule, _ = schedule_of(pipeline_kind(name), shape)
    result = time_pipeline(schedule, shape.costs, shape.machine)
    last = shape.machine.frees_features
    apart = last is Kind.GRADIENT
    courses = kept_courses(result.timed, shape.devices, last, lambda step: sizes[step.stage])
    for device, course in enumerate(courses):
        assert course.peak_bytes == replayed(schedule, device, sizes, apart=apart)
        assert list(course.times_ps) == sorted({*course.times_ps})
        assert not course.times_ps or course.kept_bytes[-1] == 0, "all is let go"


def test_a_course_by_hand() -> None:
    """F 0-2 and 2-4, B 4-6 and 6-8, W 8-9 and 9-10: 10 bytes each from F on, 5 more from B on, and
    6 of the 15 until W.
    """
    shape = Shape(1, 2, (StageCosts(2, 3, 1),), Machine(backward=Backward.SPLIT))
    result = emuchain_order(shape, "0F0v0 0F1v0 0B0v0 0B1v0 0W0 0W1 0U1")
    [course] = kept_courses(result.timed, 1, Kind.GRADIENT, lambda step: FeatureBytes(10, 5, 6))
    assert course == Course((0, 2, 4, 6, 8, 9, 10), (10, 20, 25, 21, 12, 6, 0))
    assert course.peak_bytes == 25
    [whole] = kept_courses(
        result.timed, 1, Kind.GRADIENT, lambda step: FeatureBytes(Fraction(1, 2))
    )
    assert whole == Course((0, 2, 6, 8), (1, 1, 1, 0)), "bytes are rounded up"


def emuchain_order(shape: Shape, actions: str) -> Any:
    from emuchain.emulator.schedule import parse

    order = parse(f"schedule own, 1 device\nmicro-batches 0:1 1:2\n{actions}\n")
    return time_pipeline(order, shape.costs, shape.machine)


ROWS: dict[str, dict[str, Any]] = {
    "drains": {"schedule": "sync", "devices": 3},
    "never empty": {"schedule": "fpdeep", "devices": 3},
    "a slice on each": {"schedule": "fpdeep", "devices": 5, "stages": "layers"},
    "two stages on each": {"schedule": "interleaved", "devices": 2, "micro_batch": 2},
    "attention": {"network": "char-gpt", "schedule": "sync", "devices": 2},
    "frozen": {"schedule": "sync", "devices": 2, "freeze": "conv1,conv2"},
}


def served_of(plan: Any, samples: int) -> dict[str, list[tuple[int, int]]]:
    """Return from when to when each resource is at work on each sample, in ps."""
    served: dict[str, list[tuple[int, int]]] = {}

    def observe(one: Served) -> None:
        spans = [(min(left) - one.row_ps, max(left)) for left in one.left_ps.tolist()]
        served.setdefault(one.resource, []).extend(spans)

    simulate(plan, samples, observe)
    return served


@pytest.mark.parametrize("case", ROWS)
def test_features_of_samples_on_boards_that_stream_rows(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the first row of a sample's FP on a slice to the last one of its EB and PG: never more
    than the samples in flight that a plan has room for, and as many where a board has one slice.
    """
    keys = {"network": "quick-cifar", "batch": 8, **ROWS[case]}
    plan = make_plan(load_config(None, keys), timing_only=True)
    fill = 0 if plan.config.schedule.drains else -(-max(plan.steady.in_flight) // plan.batch)
    served = served_of(plan, (fill + 1) * plan.batch)
    network = keys.pop("network")
    words = [w for key, value in keys.items() for w in (f"--{key.replace('_', '-')}", str(value))]
    assert status_of("plan", network, *words, "--json", "--range", "none") == 0
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert [course["device"] for course in memory] == [*range(plan.devices)]
    for device, course in enumerate(memory):
        kept, most, slices = [], 0, 0
        for stage in plan.fold.stages(device):
            clock = plan.timing.clock(stage)
            for part, engines in zip(clock.streams.slices, clock.slices, strict=True):
                size = activation_bytes(part)
                most, slices = most + plan.steady.in_flight[stage] * size, slices + 1
                times = [served[engine.name] for _, engine in engines.engines()]
                for forward, *others in zip(*times, strict=True) if size else ():
                    kept.append((forward[0], max(end for _, end in (forward, *others)), size))
        changes = sorted({time_ps for begin, end, _ in kept for time_ps in (begin, end)})
        amounts = []
        for now in changes:
            amounts.append(sum(size for begin, end, size in kept if begin <= now < end))
        changed = [n for n, amount in enumerate(amounts) if n == 0 or amount != amounts[n - 1]]
        held = dict(zip(course["times_ps"], course["kept_bytes"], strict=True))
        assert {changes[n]: amounts[n] for n in changed}.items() <= held.items()
        assert course["peak_bytes"] == max(amounts) <= most and course["kept_bytes"][-1] == 0
        assert slices > 1 or course["peak_bytes"] == most


PLANS: dict[str, dict[str, Any]] = {
    "gpipe": {"schedule": "gpipe"},
    "1f1b": {"schedule": "1f1b-sno"},
    "W apart": {"schedule": "zero-bubble"},
    "never empty": {"schedule": "pipedream", "devices": 3},
    "recomputed": {"schedule": "1f1b-sno", "recompute": "all"},
    "attention": {"network": "llama-tiny", "schedule": "1f1b-sno", "recompute": "all"},
}


def planned(capsys: pytest.CaptureFixture[str], keys: dict[str, Any]) -> tuple[Any, Any]:
    usual = {"network": "quick-cifar", "devices": 2, "engines": "turns", "batch": 8}
    keys = {**usual, "micro_batch": 2, **keys}
    stages = emuchain.plan(**keys).stages
    assert stages is not None
    network = keys.pop("network")
    words = [w for key, value in keys.items() for w in (f"--{key.replace('_', '-')}", str(value))]
    assert status_of("plan", network, *words, "--json", "--range", "none") == 0
    return stages, json.loads(capsys.readouterr().out)["memory"]


@pytest.mark.parametrize("case", PLANS)
def test_the_peak_is_what_a_plan_reserves(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    stages, memory = planned(capsys, PLANS[case])
    for device, course in enumerate(memory):
        reserved = stages.stage(device, stages.samples).kept_bytes
        assert course["device"] == device and course["peak_bytes"] == reserved > 0
        assert course["peak_bytes"] == max(course["kept_bytes"]) and course["kept_bytes"][-1] == 0


def test_recomputed_features_last_until_w(capsys: pytest.CaptureFixture[str]) -> None:
    """With W apart, features of several micro-batches that B has computed again wait for W."""
    stages, memory = planned(capsys, {"schedule": "zero-bubble", "recompute": "all", "devices": 4})
    assert max(stages.redone) > 1
    for device, course in enumerate(memory):
        stage = stages.stage(device, stages.samples)
        again = stages.redone[device] * stage.recomputed_bytes
        assert again <= course["peak_bytes"] <= stage.kept_bytes
