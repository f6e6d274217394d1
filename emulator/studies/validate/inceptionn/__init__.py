"""INCEPTIONN (Li et al., MICRO 2018): the measures of its claims, a file for each topic."""

from __future__ import annotations

from collections.abc import Mapping

from ..measure import Measure
from . import codec, hardware, networks, nic, ring, times, training

MEASURES: Mapping[str, Measure] = {
    name: measure
    for topic in (networks, ring, codec, hardware, nic, times, training)
    for name, measure in topic.MEASURES.items()
}
