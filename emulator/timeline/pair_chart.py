"""A mini-batch on a GPU and an FPGA as text: a line for each resource, a column for each stretch of time."""

from __future__ import annotations

import textwrap

import numpy as np
from numpy.typing import NDArray

from ..common import format_time_ps
from ..pair import PairTimes, Part, Phase, Resource
from .gantt import LEAST_COLUMNS, axis, marked

_MARKS = {
    Part.INPUTS: "i",
    Part.STEPS: "r",
    Part.WEIGHTS: "w",
    Part.VALUES: "v",
    Part.TRANSPOSE: "t",
    Part.GRADIENTS: "g",
    Part.UPDATE: "u",
    Part.OTHERS: "o",
}
"""Of FW; in BW, GC and WU they are capitals."""


def pair_gantt(times: PairTimes, width: int) -> list[str]:
    """Return the lines of the chart, at most `width` columns wide if there is room for ten columns beside the labels.

    A column has the mark of the kind of task with the longest work in it, a dot if there is work for less than half of
    it. Links have the marks of the tasks whose values they carry.
    """
    indent = max(len(resource.value) for resource in times.busy)
    columns = max(width - indent - 1, LEAST_COLUMNS)
    edges = np.linspace(0, times.mini_batch_ps, columns + 1)
    parts = {timed.task.part for timed in times.timed}
    meant = ", ".join(f"{mark} {part.value}" for part, mark in _MARKS.items() if part in parts)
    return [
        f"{'':{indent}} {axis(0, times.mini_batch_ps, columns)}",
        *(f"{each.value:{indent}} {marked(_works(times, each, edges), edges)}".rstrip() for each in times.busy),
        f"column: {format_time_ps(round(times.mini_batch_ps / columns))}; dot: busy for under half",
        *textwrap.wrap(f"marks: {meant}; capitals in BW, GC and WU", width, subsequent_indent="  "),
    ]


def _works(times: PairTimes, resource: Resource, edges: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return the work of each mark on a resource between each pair of edges; that of a stream is evenly spread."""
    works: dict[str, NDArray[np.float64]] = {}
    for timed in times.timed:
        task = timed.task
        busy_ps = task.duration_ps if task.resource is resource else dict(task.streams).get(resource)
        if busy_ps is None or not task.duration_ps:
            continue
        within = np.diff(np.clip(edges, timed.start_ps, timed.end_ps)) * (busy_ps / task.duration_ps)
        mark = _MARKS[task.part] if task.phase is Phase.FORWARD else _MARKS[task.part].upper()
        works[mark] = works.get(mark, 0) + within
    return works
