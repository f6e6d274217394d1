"""Charts as text: marks by hand, widths, what a chart of a run shows, and pipelines of whole
actions.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.schedule import StageCosts
from emuchain.emulator.view import Chart, LaneKind, PipelineDrawing, Window, gantt, gantt_lines
from emuchain.emulator.view.timeline.rows import RecordedRows, RowLane, Rows
from emuchain.emulator.view.timeline.samples import Place, Versions

from ...timing.shapes import SPLIT, shape_of, timed
from .conftest import TracedPlan
from .runs import RUNS, simulated

NS = 1000


def lane(kind: LaneKind, device: int = 0, title: str = "FP of conv1") -> RowLane:
    return RowLane(device, title, f"{kind.value} {device}", kind, device)


def work(on: RowLane, number: int, *rows_ns: tuple[int, int]) -> Rows:
    """The work on a sample, from the begin and end of its rows, all of one duration."""
    [row_ns] = {end - begin for begin, end in rows_ns}
    left = np.array([end for _, end in rows_ns]) * NS
    return Rows(on, number, left - row_ns * NS, left, row_ns * NS)


def chart(
    served: dict[RowLane, tuple[Rows, ...]], *, end_ns: int, all_lanes: bool = False
) -> Chart:
    """The chart of what two boards have served, from 0 on."""
    samples: Any = SimpleNamespace(
        plan=SimpleNamespace(devices=2, stage_count=0),
        devices=["device 0 (board0)", "device 1 (board1)"],
        place=lambda _: Place(1, 0, 0),
        versions=lambda numbers: [dict.fromkeys(numbers, Versions(0, 0))] * 2,
    )
    run: Any = SimpleNamespace(samples=samples, window=Window(0, 99), lanes=tuple(served))
    recorded = RecordedRows(run, {lane.resource: rows for lane, rows in served.items()})
    return dataclasses.replace(
        recorded.chart(Window(0, 99), all_lanes=all_lanes), begin_ps=0, end_ps=end_ns * NS
    )


def test_marks_by_hand() -> None:
    """Ten columns of 10 ns: sample 0 in two, 1 in half of one, 10 in most of one, and 62 with the
    mark of 0.
    """
    fp, eb = lane(LaneKind.FP), lane(LaneKind.EB, 1)
    spans = (
        work(fp, 0, (0, 20)),
        work(fp, 1, (25, 30)),
        work(fp, 10, (42, 44), (45, 47), (48, 50)),
    )
    few = (
        work(eb, 62, (50, 60)),
        work(eb, 1, (71, 75)),
        work(eb, 2, (90, 93), (93, 96)),
        work(eb, 3, (96, 100)),
    )
    lines = gantt(chart({fp: spans, eb: few}, end_ns=100), width=22)
    assert lines[1] == "device 0 FP 001 a"
    assert lines[2] == "device 1 EB      0 . 2"
    assert lines[0] == "            0 ps 100 ns"
    assert (
        lines[3] == "column: 10.0 ns; marks: samples 0-9 a-z A-Z in turn; dot: busy for under half"
    )
    assert len(lines) == 4


def test_samples_that_share_a_column() -> None:
    """The one with the longest work has it, whichever lanes it is on; idle time between rows is no
    work.
    """
    fp = lane(LaneKind.FP)
    spans = (work(fp, 3, (0, 4), (96, 100)), work(fp, 4, (1, 5)), work(fp, 4, (5, 9)))
    line = gantt(chart({fp: spans}, end_ns=100), width=22)[1]
    assert line == "device 0 FP 4        ."


def test_each_lane_has_its_line_below_its_device() -> None:
    first, second = (
        lane(LaneKind.FP, title="FP of conv1, long enough to be cut"),
        lane(LaneKind.FP, 1),
    )
    found = gantt(
        chart({first: (work(first, 7, (0, 100)),), second: ()}, end_ns=100, all_lanes=True),
        width=48,
    )
    assert found[1:5] == [
        "device 0 (board0)",
        f"  FP of conv1, long enough to be c {'7' * 13}",
        "device 1 (board1)",
        "  FP of conv1",
    ]


@pytest.mark.parametrize("width", [45, 80, 200])
@pytest.mark.parametrize("all_lanes", [False, True])
@pytest.mark.parametrize("run", RUNS)
def test_it_is_as_wide_as_asked(
    traced_plan: TracedPlan, run: str, all_lanes: bool, width: int
) -> None:
    timeline, _ = simulated(traced_plan(run), Window(0, 20))
    lines = gantt(timeline.chart(Window(0, 5), all_lanes=all_lanes), width)
    assert max(map(len, lines[:-1])) == width
    assert len(lines[-1]) < 80
    assert all(line == line.rstrip() for line in lines)


def test_a_chart_shows_all_that_runs_while_its_samples_do(traced_plan: TracedPlan) -> None:
    timeline, _ = simulated(traced_plan("fpdeep"), Window(0, 20))
    found = timeline.chart(Window(2, 3), all_lanes=False)
    assert [line.label for line in found.lines] == [
        f"{phase}, device {device}" for device in range(4) for phase in ("FP", "EB", "PG")
    ]
    fp = timeline.run.lanes[0]
    assert (fp.device, fp.kind) == (0, LaneKind.FP)
    assert found.begin_ps == timeline.by_resource[fp.resource][2].start_ps
    assert found.end_ps == max(
        span.end_ps for spans in timeline.by_resource.values() for span in spans if span.number == 3
    )
    shown = set(
        "".join(gantt(found, 80)[1:-1]).replace("device", "").replace("FP", "").replace("EB", "")
    )
    assert {"2", "3", "4", "5"} <= shown
    assert "0" not in gantt(found, 80)[1][len("device 0") :], "sample 0 has left device 0's FP"


def test_exchanges_have_a_mark_of_their_own(traced_plan: TracedPlan) -> None:
    """They are of mini-batches, not of samples."""
    timeline, _ = simulated(traced_plan("replicas"), Window(0, 20))
    lines = gantt(timeline.chart(Window(0, 12), all_lanes=True), 80)
    exchanges = [line for line in lines if line.startswith("  exchange of gradients")]
    assert len(exchanges) == 3
    assert any("=" in line for line in exchanges)
    for line in exchanges:
        assert set(line.removeprefix("  exchange of gradients")) <= set(" .=")


def test_by_turns() -> None:
    shape = shape_of("1f1b-sno", 2, 3, StageCosts(1, 2, transfer_ps=1))
    result, _ = timed("1f1b-sno", shape)
    assert gantt_lines(PipelineDrawing(shape, result, 1).chart(), 30) == [
        "device 0 01....aa2bb...cc",
        "device 1 ..0aa1bb..2cc...",
    ]


def test_side_by_side() -> None:
    shape = shape_of("fbp-as", 2, 3, StageCosts(1, 1), SPLIT)
    result, _ = timed("fbp-as", shape)
    assert gantt_lines(PipelineDrawing(shape, result, 1).chart(), 18) == [
        "device 0 F 012...",
        "         B ...abc",
        "device 1 F .012..",
        "         B ..abc.",
    ]


@pytest.mark.parametrize("width", [20, 40, 80, 133])
def test_width(width: int) -> None:
    shape = shape_of("zero-bubble", 11, 30, StageCosts(7, 12, 5, 1))
    result, _ = timed("zero-bubble", shape)
    rows = gantt_lines(PipelineDrawing(shape, result, 1).chart(), width)
    assert len(rows) == 11 and {len(row) for row in rows} == {width}
    assert rows[10].startswith("device 10 .")
