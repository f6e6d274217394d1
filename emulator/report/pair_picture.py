"""The timeline of a mini-batch on a pair, after FARNN's Fig. 6: a row for each resource, a box for each task."""

from __future__ import annotations

import os

from ..common import format_time_ps
from ..pair import PairTimes, Part, Phase, Resource
from .picture import new_figure, save_figure

_WIDTH_INCHES, _HEIGHT_INCHES = 9.0, 2.9
_HEIGHT, _STREAM = 0.8, 0.3
_COLOURS = {
    Part.INPUTS: "#52b788",
    Part.STEPS: "#56b4e9",
    Part.WEIGHTS: "#f0a830",
    Part.VALUES: "#e9d8a6",
    Part.TRANSPOSE: "#b08968",
    Part.GRADIENTS: "#c77dff",
    Part.UPDATE: "#7b2cbf",
    Part.OTHERS: "#999999",
}
_STREAMED = "#cfe8f6"
_MS = 1e9


def draw_pair(found: PairTimes, title: str, path: str | os.PathLike[str], flag: str = "--plot") -> None:
    """Write the picture to `path`, whose extension sets the format. Links are pale while they carry values of steps.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    figure = new_figure(_WIDTH_INCHES, _HEIGHT_INCHES, flag, layout="constrained")
    from matplotlib.patches import Patch

    axes = figure.subplots()
    rows = [each for each in Resource if each in found.busy]
    for timed in found.timed:
        task = timed.task
        span = (timed.start_ps / _MS, (timed.end_ps - timed.start_ps) / _MS)
        place = rows.index(task.resource)
        backward = task.phase is Phase.BACKWARD
        axes.broken_barh(
            [span],
            (place - _HEIGHT / 2, _HEIGHT),
            facecolor=_COLOURS[task.part],
            hatch="////" if backward else None,
            edgecolor="white",
            linewidth=0.4,
        )
        for link, _ in task.streams:
            axes.broken_barh([span], (rows.index(link) - _STREAM / 2, _STREAM), color=_STREAMED, linewidth=0)
    axes.set_yticks(range(len(rows)), [each.value for each in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, found.mini_batch_ps / _MS)
    axes.axvline(found.forward_ps / _MS, color="0.3", linewidth=0.8, linestyle=":")
    axes.set_xlabel("ms; hatched: BW, GC and WU", fontsize=7, loc="left")
    axes.tick_params(axis="x", labelsize=7)
    axes.tick_params(axis="y", length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(f"{title}: {format_time_ps(found.mini_batch_ps)} a mini-batch", fontsize=8, loc="left")
    parts = {each.task.part for each in found.timed}
    patches = [Patch(facecolor=colour, label=part.value) for part, colour in _COLOURS.items() if part in parts]
    figure.legend(handles=patches, loc="outside lower right", ncols=len(patches), fontsize=7, frameon=False)
    save_figure(figure, path, flag, dpi=150)
