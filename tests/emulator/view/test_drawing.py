"""Timelines as text."""

from __future__ import annotations

import pytest

from emuchain.emulator.schedule import StageCosts
from emuchain.emulator.view import PipelineDrawing, gantt_lines

from ..timing.shapes import SPLIT, shape_of, timed


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
