"""BaPipe (Zhao et al., 2020): the measures of its claims, a file for each topic."""

from __future__ import annotations

from collections.abc import Mapping

from ..measure import Measure
from . import boards, largest, partitions, schedules, speedups, timelines

MEASURES: Mapping[str, Measure] = {
    name: measure
    for topic in (schedules, timelines, partitions, speedups, largest, boards)
    for name, measure in topic.MEASURES.items()
}
