"""A mini-batch on a pair as a chart and as a trace: every task, on its resource, when the timeline
has it.
"""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.timing.pair import (
    PairTimes,
    Part,
    Phase,
    Resource,
    Task,
    TimedTask,
    Workload,
)
from emuchain.emulator.view import gantt, pair_chart, pair_timeline, write_trace

Event = dict[str, Any]


@pytest.fixture(params=["farnn", "farnn-no-overlap", "farnn-all-fpga", "gpu-standard"])
def plan(request: Any) -> emuchain.PairPlan:
    """The plan of two layers, both of whose directions make tasks."""
    layer = {"type": "lstm", "units": 64, "bidirectional": True}
    layers = [
        {"type": "sequence"},
        layer,
        layer,
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ]
    network = {"name": "two", "input": [1, 20, 64], "layers": layers}
    return emuchain.plan(network, "farnn-9p", schedule=request.param, batch=4)


@pytest.fixture
def events(plan: emuchain.PairPlan, tmp_path: Path) -> list[Event]:
    """The events of its trace."""
    write_trace(tmp_path / "run.json", pair_timeline(plan))
    found: list[Event] = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    return found


def names(events: list[Event]) -> dict[tuple[int, int | None], str]:
    """The names of processes and threads."""
    return {
        (of["pid"], of.get("tid")): of["args"]["name"]
        for of in events
        if of["name"] in ("process_name", "thread_name")
    }


def test_every_task_is_a_slice_on_its_resource(
    plan: emuchain.PairPlan, events: list[Event]
) -> None:
    of = names(events)
    found = sorted(
        (
            of[e["pid"], e["tid"]],
            e["name"],
            e["args"]["start_ps"],
            e["args"]["end_ps"],
            e["args"]["busy_ps"],
        )
        for e in events
        if e["ph"] == "X"
    )
    wanted = []
    for timed in plan.times.timed:
        task = timed.task
        for resource, busy_ps in ((task.resource, task.duration_ps), *task.streams):
            wanted.append((resource.value, task.name, timed.start_ps, timed.end_ps, busy_ps))
    assert found == sorted(wanted)
    for e in events:
        if e["ph"] == "X":
            assert e["ts"] == pytest.approx(e["args"]["start_ps"] / 1e6, abs=1e-6)
            assert e["dur"] == pytest.approx(
                (e["args"]["end_ps"] - e["args"]["start_ps"]) / 1e6, abs=1e-6
            )


def test_busy_times_add_up(plan: emuchain.PairPlan, events: list[Event]) -> None:
    of, busy = names(events), collections.Counter[str]()
    for e in events:
        if e["ph"] == "X":
            busy[of[e["pid"], e["tid"]]] += e["args"]["busy_ps"]
    assert busy == {resource.value: use.busy_ps for resource, use in plan.times.busy.items()}


def test_devices_and_their_links(plan: emuchain.PairPlan, events: list[Event]) -> None:
    of = names(events)
    boards = ["P100", "FARNN-9P LSTM"][: plan.devices]
    assert [name for (_, tid), name in of.items() if tid is None] == [
        f"device {n} ({b})" for n, b in enumerate(boards)
    ]
    below = {name: pid for (pid, tid), name in of.items() if tid is not None}
    assert below == {"GPU": 1} | (
        {"PCIe to FPGA": 1, "FPGA": 2, "PCIe to GPU": 2} if plan.devices == 2 else {}
    )


def test_an_arrow_from_each_task_that_another_waits_for(
    plan: emuchain.PairPlan, events: list[Event]
) -> None:
    starts, ends = ({e["id"]: e for e in events if e["ph"] == kind} for kind in "sf")
    assert starts.keys() == ends.keys()
    assert len(starts) == sum(len(timed.task.after) for timed in plan.times.timed)
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]


def times_of(*timed: TimedTask) -> PairTimes:
    return PairTimes(Workload("by-hand", ()), timed, None)


def test_a_chart_by_hand() -> None:
    """Twenty columns: the GPU works in the first and, in BW, in the last quarter; the link for 15 %
    of the steps.
    """
    inputs = Task(Part.INPUTS, Phase.FORWARD, "a", Resource.GPU, 500)
    streams = ((Resource.TO_FPGA, 150),)
    steps = Task(Part.STEPS, Phase.FORWARD, "a", Resource.FPGA, 1000, streams=streams)
    update = Task(Part.UPDATE, Phase.BACKWARD, "a", Resource.GPU, 500)
    times = times_of(
        TimedTask(inputs, 0, 500), TimedTask(steps, 500, 1500), TimedTask(update, 1500, 2000)
    )
    axis, gpu, link, fpga, column, meant = gantt(pair_chart(times, "by hand"), 33)[:6]
    assert axis == "             0 ps         2.00 ns"
    assert gpu == "GPU          iiiii          UUUUU"
    assert link == "PCIe to FPGA      .........."
    assert fpga == "FPGA              rrrrrrrrrr"
    assert column == "column: 100 ps; dot: busy for under half"
    assert meant.startswith("marks: i I-MVM, r R-MVM")
