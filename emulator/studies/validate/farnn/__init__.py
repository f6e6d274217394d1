"""FARNN (Cho et al., IEEE TPDS 2022): the measures of its claims, a file for each topic."""

from __future__ import annotations

from collections.abc import Mapping

from ..measure import Measure
from . import applications, chains, energy, equations, platforms, subtasks, synthetic

MEASURES: Mapping[str, Measure] = {
    name: measure
    for topic in (equations, subtasks, chains, synthetic, applications, energy, platforms)
    for name, measure in topic.MEASURES.items()
}
