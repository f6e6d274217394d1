"""The picture of a pipeline: boxes at the times of their actions, with numbers; the same file
again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import Engines, Machine, Shape, StageCosts, Transport, pipeline_kind
from emuchain.emulator.timing import Course, PipelineResult, time_shape
from emuchain.emulator.view import PipelineDrawing, draw_chart
from emuchain.emulator.view.timeline import spans

from ...timing.shapes import shape_of

pytest.importorskip("matplotlib")


def timed(
    name: str, machine: Machine | None = None, chunks: int = 1, count: int = 4
) -> tuple[Shape, PipelineResult]:
    shape = shape_of(name, 2, count, StageCosts(10, 20, 10), machine, chunks=chunks)
    return shape, time_shape(pipeline_kind(name), shape)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Draws a timeline in units of 10 ps and returns the axes."""

    def draw(shape: Shape, result: PipelineResult, courses: Sequence[Course] = ()) -> Any:
        kept: list[Any] = []
        monkeypatch.setattr(spans, "save_figure", lambda figure, *_, **__: kept.append(figure))
        draw_chart(PipelineDrawing(shape, result, 10, courses).chart("title"), "x.svg")
        return kept[0].axes[0]

    return draw


def boxes(axes: Any) -> list[tuple[int, float, float]]:
    """Row, begin and end of each box but those of idle rows."""
    found = []
    for collection in axes.collections:
        for path in collection.get_paths():
            (left, low), (right, high) = path.vertices.min(0), path.vertices.max(0)
            if (left, right) != axes.get_xlim():
                found.append((round((low + high) / 2), left, right))
    return sorted(found)


CASES = {
    "by turns": ("1f1b-so", None, 1, ["device 0", "device 1"]),
    "side by side": ("fbp-as", None, 1, ["device 0 F", "device 0 B", "device 1 F", "device 1 B"]),
    "three kinds": (
        "zero-bubble",
        Machine(Engines.SPLIT, Transport.HIDDEN, pipeline_kind("zero-bubble").machine.backward),
        1,
        [f"device {device} {kind}" for device in range(2) for kind in "FBW"],
    ),
    "chunks": ("interleaved", None, 2, ["device 0", "device 1"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_box_for_each_action(drawn: Any, case: str) -> None:
    name, machine, chunks, labels = CASES[case]
    shape, result = timed(name, machine, chunks)
    axes = drawn(shape, result)
    assert [label.get_text() for label in axes.get_yticklabels()] == labels
    rows = {label: row for row, label in enumerate(labels)}
    expected = []
    for each in result.timed:
        label = f"device {each.device}" + (f" {each.step.kind.value}" if len(labels) > 2 else "")
        expected.append((rows[label], each.start_ps / 10, each.end_ps / 10))
    assert [tuple(map(pytest.approx, box)) for box in sorted(expected)] == boxes(axes)
    numbers = [(round(text.get_position()[1]), int(text.get_text())) for text in axes.texts]
    assert len(numbers) == len(result.timed)
    assert axes.get_title(loc="left") == "title"
    assert axes.get_xlim() == (0, result.makespan_ps / 10)


def test_colours_are_of_kinds_and_paler_by_chunk(drawn: Any) -> None:
    axes = drawn(*timed("interleaved", chunks=2))
    legend = {
        text.get_text(): patch.get_facecolor()
        for one in axes.figure.legends
        for text, patch in zip(one.get_texts(), one.get_patches(), strict=True)
    }
    assert list(legend) == ["F, chunk 0", "F, chunk 1", "B, chunk 0", "B, chunk 1", "idle"]
    assert len(set(legend.values())) == 5
    assert all(sum(legend[f"{kind}, chunk 1"]) > sum(legend[f"{kind}, chunk 0"]) for kind in "FB")
    used = {tuple(color) for collection in axes.collections for color in collection.get_facecolor()}
    assert used == set(legend.values())


def test_what_devices_keep_is_below(drawn: Any) -> None:
    """To one scale, from each time on: of 300 of 400 bytes three quarters of a line."""
    shape, result = timed("1f1b-so", count=2)
    courses = Course((0, 10, 40), (100, 400, 0)), Course((20, 30), (300, 0))
    axes = drawn(shape, result, courses)
    below = axes.figure.axes[1]
    assert [label.get_text() for label in below.get_yticklabels()] == [
        "device 0: 400 B",
        "device 1: 300 B",
    ]
    assert below.get_xlim() == axes.get_xlim()
    assert below.get_xlabel() == "time; numbers are micro-batches" and not axes.get_xlabel()
    bar = spans.Style(0, 0, 0, bar=0.84).bar
    for place, (course, area) in enumerate(zip(courses, below.collections, strict=True)):
        [path] = area.get_paths()
        assert path.vertices[:, 1].max() == pytest.approx(place + bar / 2)
        high = bar * course.peak_bytes / 400
        assert path.vertices[:, 1].min() == pytest.approx(place + bar / 2 - high)
        peak = course.kept_bytes.index(course.peak_bytes)
        full = path.vertices[path.vertices[:, 1] < place + bar / 2 - high + 1e-9]
        begin, end = (time / 10 for time in course.times_ps[peak : peak + 2])
        assert (full[:, 0].min(), full[:, 0].max()) == (begin, end)


def test_boxes_without_room_have_no_number(drawn: Any) -> None:
    assert list(drawn(*timed("gpipe", count=200)).texts) == []


@pytest.mark.parametrize("suffix", ["svg", "pdf", "png"])
def test_the_same_file_again(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = []
    for number, epoch in enumerate(
        ("0", "1000000000")
    ):  # a date, if it had one, would be of this second
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        files.append(tmp_path / f"{number}.{suffix}")
        draw_chart(PipelineDrawing(*timed("1f1b-so"), 1).chart("title"), files[-1])
    assert files[0].read_bytes() == files[1].read_bytes()


def test_text_is_text(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    draw_chart(PipelineDrawing(*timed("1f1b-so"), 10).chart("a title"), path)
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", path.read_text())
    assert "a title" in texts and texts.count("3") >= 4


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`--plot` .* does not exist"):
        draw_chart(PipelineDrawing(*timed("1f1b-so"), 1).chart("title"), tmp_path / "no" / "x.svg")
