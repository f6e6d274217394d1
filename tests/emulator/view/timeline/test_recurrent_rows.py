"""Wavefronts of recurrent layers: forward in little more than the steps of one layer, errors from
the last step on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.view import LaneKind, Level, Window
from emuchain.emulator.view.timeline.rows import RecordedRows, RowLane

from ...counted import counted
from .runs import events, simulated

LAYERS = 5


def network(steps: int, units: int) -> dict[str, Any]:
    lstms = [
        {"type": "lstm", "units": units, "name": f"lstm{number}"} for number in range(1, LAYERS + 1)
    ]
    ends = [{"type": "last-step"}, {"type": "fc", "features": 4, "name": "fc"}, {"type": "softmax"}]
    return {"name": "deep", "input": [units, steps, 1], "layers": [*lstms, *ends]}


def planned(described: str | dict[str, Any]) -> ChainPlan:
    keys: dict[str, Any] = {
        "devices": LAYERS,
        "batch": 1,
        "samples": 1,
        "schedule": "sync",
        "memory": "fpdeep",
    }
    return emuchain.plan(described, counted(), **keys)


def one_sample(plan: ChainPlan) -> RecordedRows:
    return simulated(plan, Window(0, 0), 1)[0]


def lanes(timeline: RecordedRows, kind: LaneKind, layer: str) -> list[RowLane]:
    return [lane for lane in timeline.run.lanes if lane.kind is kind and f"{layer}[" in lane.title]


def check_wavefront(described: str | dict[str, Any], steps: int) -> None:
    plan = planned(described)
    assert [part.layer.name for slices in plan.mapping.devices for part in slices][:LAYERS] == [
        f"lstm{number}" for number in range(1, LAYERS + 1)
    ]
    timeline = one_sample(plan)
    [last], step_ps = lanes(timeline, LaneKind.FP, f"lstm{LAYERS}"), 0
    for slices in plan.timing.engines:
        step_ps = max(step_ps, slices[0].fp.row_ps)
    hops_ps = sum(
        lane.latency_ps + timeline.by_resource[lane.resource][0].row_ps
        for lane in timeline.run.lanes
        if lane.kind is LaneKind.LINK and lane.key is not None and lane.key.path == 1
    )
    [span] = timeline.by_resource[last.resource]
    assert steps * step_ps < span.end_ps <= 1.05 * (steps + LAYERS - 1) * step_ps + hops_ps
    for number in range(1, LAYERS + 1):
        for kind in (LaneKind.EB, LaneKind.PG):
            [lane] = lanes(timeline, kind, f"lstm{number}")
            [span] = timeline.by_resource[lane.resource]
            rows = [each.row for each in span.at(Level.ROW)]
            assert rows == list(reversed(range(steps)))
        [lane] = lanes(timeline, LaneKind.FP, f"lstm{number}")
        assert [each.row for each in timeline.by_resource[lane.resource][0].at(Level.ROW)] == list(
            range(steps)
        )
    # The layer before the last gets the error of the last step while the last layer is at the next
    # one.
    [behind], [before] = (
        lanes(timeline, LaneKind.EB, f"lstm{number}") for number in (LAYERS, LAYERS - 1)
    )
    assert (
        timeline.by_resource[before.resource][0].start_ps
        < timeline.by_resource[behind.resource][0].end_ps - step_ps
    )


def test_a_wavefront() -> None:
    check_wavefront(network(steps=400, units=64), 400)


@pytest.mark.slow
def test_the_wavefront_of_five_layers_of_1024_cells() -> None:
    check_wavefront("lstm-5x1024", 1600)


def test_rows_of_errors_in_a_trace(tmp_path: Path) -> None:
    """What travels and what is computed of errors is named by its time step, and the last one comes
    first.
    """
    steps = 6
    timeline = one_sample(planned(network(steps, units=16)))
    by_title = {lane.title: lane for lane in timeline.run.lanes}
    assert [title for title in by_title if "path 4" in title] == [
        f"link {number} -> {number - 1}, path 4 #{number} (input errors)"
        for number in range(1, LAYERS)
    ]
    found: dict[tuple[int, int], list[int]] = {}
    for event in events(timeline, tmp_path, Level.ROW):
        if event["ph"] == "X":
            assert event["name"].endswith(f", row {event['args']['row']}")
            found.setdefault((event["pid"], event["tid"]), []).append(event["args"]["row"])
    backwards = [number for number, lane in enumerate(timeline.run.lanes, 1) if lane.last_first]
    assert backwards
    for (_, thread), rows in found.items():
        expected = range(len(rows))
        assert rows == list(reversed(expected) if thread in backwards else expected)
        lane = timeline.run.lanes[thread - 1]
        is_of_errors = lane.kind in (LaneKind.EB, LaneKind.PG) or (
            lane.key is not None and lane.key.path in (3, 4, 8)
        )
        assert (thread in backwards) == is_of_errors
