"""A pipeline's timeline as a picture: a row for each device, a box for each action with its micro-batch's number."""

from __future__ import annotations

import collections
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..schedule import Engines, Kind, Shape
from ..timing import PipelineResult, Timed
from .picture import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

_WIDTH_INCHES, _ROW_INCHES, _MOST_INCHES = 7.2, 0.26, 40.0
_HEIGHT = 0.84
_COLOURS = {Kind.FORWARD: "#56b4e9", Kind.BACKWARD: "#f0a830", Kind.GRADIENT: "#52b788"}
_IDLE = "#eeeeee"
_PALEST = 0.4
"""Share of the colour in that of the last of several chunks; the rest is white."""

_LABEL_POINTS, _INCHES_OF_DIGIT = 6, 0.06
"""Size of the numbers, and the width of a box for each digit, below which it has none."""


def draw_pipeline(
    shape: Shape, result: PipelineResult, unit_ps: int, title: str, path: str | os.PathLike[str], flag: str = "--plot"
) -> None:
    """Write the picture to `path`, whose extension sets the format; the time axis counts units of `unit_ps`.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    rows = _rows(shape, result.timed)
    figure = new_figure(_WIDTH_INCHES, min(1.0 + _ROW_INCHES * len(rows), _MOST_INCHES), flag, layout="constrained")
    from matplotlib import rc_context

    axes = figure.subplots()
    end = result.makespan_ps / unit_ps
    for place, timed in enumerate(rows.values()):
        axes.broken_barh([(0, end)], (place - _HEIGHT / 2, _HEIGHT), color=_IDLE, linewidth=0)
        _draw_boxes(axes, shape, timed, unit_ps, place, end)
    axes.set_yticks(range(len(rows)), rows.keys(), fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, end)
    axes.set_xlabel("time; numbers are micro-batches", fontsize=7, loc="left")
    axes.tick_params(axis="x", labelsize=7)
    axes.tick_params(axis="y", length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=8, loc="left")
    patches = _patches(shape, result.timed)
    figure.legend(handles=patches, loc="outside lower right", ncols=len(patches), fontsize=7, frameon=False)
    with rc_context({"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}):  # text as text, and short
        save_figure(figure, path, flag, dpi=200)


def _draw_boxes(axes: Axes, shape: Shape, timed: Sequence[Timed], unit_ps: int, place: int, end: float) -> None:
    """Draw the actions of a row of `end` units, with the numbers for which their boxes have room."""
    least = end / (_WIDTH_INCHES - 1.0) * _INCHES_OF_DIGIT
    boxes = collections.defaultdict(list)
    for each in timed:
        start, width = each.start_ps / unit_ps, (each.end_ps - each.start_ps) / unit_ps
        boxes[each.step.kind, each.step.stage // shape.devices].append((start, width))
        label = str(each.step.micro_batch)
        if width >= least * len(label):
            at = start + width / 2, place
            axes.text(*at, label, ha="center", va="center_baseline", fontsize=_LABEL_POINTS)
    for (kind, chunk), spans in boxes.items():
        axes.broken_barh(
            spans,
            (place - _HEIGHT / 2, _HEIGHT),
            facecolor=_shade(kind, chunk, shape.chunks),
            edgecolor="white",
            linewidth=0.6,
        )


def _patches(shape: Shape, timed: Sequence[Timed]) -> list[Patch]:
    """Return the legend's patches: kinds of actions by chunk, and idle."""
    from matplotlib.patches import Patch

    kinds = {each.step.kind for each in timed}
    patches = [
        Patch(
            facecolor=_shade(kind, chunk, shape.chunks),
            label=kind.value + (f", chunk {chunk}" if shape.chunks > 1 else ""),
        )
        for kind in _COLOURS
        if kind in kinds
        for chunk in range(shape.chunks)
    ]
    patches.append(Patch(facecolor=_IDLE, label="idle"))
    return patches


def _rows(shape: Shape, timed: Sequence[Timed]) -> dict[str, list[Timed]]:
    """Return the actions of each row, by its label: those of a device, or of each kind where they run side by side."""
    rows: dict[str, list[Timed]] = {}
    apart = shape.machine.engines is not Engines.TURNS
    kinds = [kind for kind in _COLOURS if any(each.step.kind is kind for each in timed)]
    for device in range(shape.devices):
        here = [each for each in timed if each.device == device]
        for group in [[kind] for kind in kinds] if apart else [kinds]:
            label = f"device {device}" + (f" {group[0].value}" if apart else "")
            rows[label] = [each for each in here if each.step.kind in group]
    return rows


def _shade(kind: Kind, chunk: int, chunks: int) -> tuple[float, float, float]:
    """Return the colour of a kind, paler from chunk to chunk."""
    from matplotlib.colors import to_rgb

    share = 1 - (1 - _PALEST) * chunk / max(chunks - 1, 1)
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(_COLOURS[kind]))
    return red, green, blue
