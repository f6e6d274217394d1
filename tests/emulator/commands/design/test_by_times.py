"""Kinds with an order for equal stages, which `emuchain pipeline` orders by the times of stages that
differ.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.commands.design.searched import searched_of
from emuchain.emulator.schedule import (
    Backward,
    Machine,
    Shape,
    StageCosts,
    Transport,
    check_complete,
    dry_run,
    pipeline_kind,
)
from emuchain.emulator.timing import schedule_of, time_pipeline, time_shape

from .test_pipeline import FOR_TIMES, UNEQUAL, as_json, command, on


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_fbp_as_follows_the_times_of_its_stages(data: st.DataObject) -> None:
    """It takes no longer than with the warm-up of equal stages, and than 1F1B on its machine."""
    stages, micro_batches = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 9))
    times = st.lists(st.integers(1, 12), min_size=stages, max_size=stages, unique=True)
    words = []
    for name in ("--forward", "--backward"):
        words += [name, ",".join(map(str, data.draw(times)))]

    def taken(*more: str) -> Any:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            assert command(*more, *words, "--json") == 0
        return json.loads(printed.getvalue())["time"]

    found = taken(*on("fbp-as", stages, micro_batches))
    assert found <= taken(*on("fbp-as", stages, micro_batches), "--warm-up", "2(N-i+1)")
    plain = ("--engines", "shared", "--transport", "hidden")
    assert found <= taken(*on("1f1b-sno", stages, micro_batches), *plain)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_interleaved_follows_the_times_of_its_stages(data: st.DataObject) -> None:
    """In the memory of the fullest device of the order of equal stages, and never longer."""
    devices, count = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 8))
    time = st.integers(1, 12)
    costs = [StageCosts(data.draw(time), data.draw(time), 0) for _ in range(2 * devices)]
    sent = data.draw(st.integers(0, 3))
    costs = [dataclasses.replace(cost, transfer_ps=sent) for cost in costs]
    kind = pipeline_kind("interleaved")
    shape = Shape(devices, count, tuple(costs), kind.machine, 2)
    of_equal = time_shape(kind, shape)
    columns = {"--forward": [one.forward_ps for one in costs]}
    columns["--backward"] = [one.backward_ps for one in costs]
    words = [w for name, row in columns.items() for w in (name, ",".join(map(str, row)))]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        flags = ("--transfer", str(sent), "--json")
        assert command(*on("interleaved", devices, count), *words, *flags) == 0
    found = json.loads(printed.getvalue())
    assert found["time"] <= of_equal.makespan_ps
    assert max(found["features"]) <= max(of_equal.features)
    if not shape.uniform:
        assert found["bound"] <= found["time"] == found["makespan"]
        assert found["features"] == found["memory"]


def check_2bw(shape: Shape) -> None:
    """It takes no longer than the order of equal stages, which is that of 1F1B; no device keeps
    more micro-batches than the first one under 1F1B, or more than two versions of its weights.
    """
    kind, machine = pipeline_kind("2bw"), shape.machine
    flags = {"schedule": "2bw", "memory": None, "gradient_features": None}
    found = searched_of(shape, flags, None)
    assert (found is None) == (shape.uniform is not None)
    if found is None:
        return
    dry_run(found.schedule, aligned=True)
    check_complete(found.schedule)
    timed = time_pipeline(found.schedule, shape.costs, machine)
    assert found.bound_ps <= found.time_ps == timed.makespan_ps
    for of_equal in (kind, pipeline_kind("1f1b-sno")):
        assert found.time_ps <= time_shape(of_equal, shape).makespan_ps
    assert max(timed.features) <= max(found.memory) <= shape.devices
    assert max(timed.weight_copies) <= 2
    schedule, _ = schedule_of(kind, shape)
    assert found.schedule.micro_batches == schedule.micro_batches


@st.composite
def unequal_stages(draw: st.DrawFn) -> Shape:
    devices, count, time = draw(st.integers(1, 6)), draw(st.integers(1, 14)), st.integers(1, 12)
    costs = []
    for _ in range(devices):
        errors, gradients, sent = draw(time), draw(time), draw(st.integers(0, 5))
        costs.append(StageCosts(draw(time), errors + gradients, gradients, sent))
    machine = Machine(
        transport=draw(st.sampled_from([Transport.STORED, Transport.HIDDEN])),
        backward=draw(st.sampled_from(list(Backward))),
        latency_ps=draw(st.integers(0, 3)),
    )
    return Shape(devices, count, tuple(costs), machine)


@settings(max_examples=30, deadline=None)
@given(unequal_stages())
def test_2bw_follows_the_times_of_its_stages(shape: Shape) -> None:
    check_2bw(shape)


@pytest.mark.exhaustive
@settings(max_examples=2000, deadline=None)
@given(unequal_stages())
def test_2bw_follows_the_times_of_2000(shape: Shape) -> None:
    check_2bw(shape)


def test_2bw_beside_1f1b(capsys: pytest.CaptureFixture[str]) -> None:
    """The order of equal stages is that of 1F1B, which takes 220 here, in less memory."""
    found = as_json(capsys, *on("2bw", 5, 12), *UNEQUAL)
    plain = as_json(capsys, *on("1f1b-sno", 5, 12), *UNEQUAL)
    assert (found["time"], found["bound"], plain["time"]) == (212, 200, 220)
    assert max(found["memory"]) <= 5 and found["weight_copies"] == [2] * 5
    assert command(*on("2bw", 5, 12), *UNEQUAL) == 0
    assert FOR_TIMES in capsys.readouterr().out.splitlines()


def test_zero_bubble_follows_the_times_of_its_stages(capsys: pytest.CaptureFixture[str]) -> None:
    """In the memory that it has on equal stages: 1F1B takes 127, the order of equal stages 141."""
    found = as_json(capsys, *on("zero-bubble", 5, 7), *UNEQUAL)
    assert (found["time"], found["plain_1f1b"], max(found["memory"])) == (115, 127, 5)
    assert command(*on("zero-bubble", 5, 7), *UNEQUAL) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "bound: 115; no order is shorter" in lines and FOR_TIMES in lines
