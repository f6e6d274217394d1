"""FPDeep (Wang et al., TC 2020): the measures of its claims, a file for each topic."""

from __future__ import annotations

from collections.abc import Mapping

from ..measure import Measure
from . import (
    arithmetic,
    convergence,
    datapaths,
    engines,
    memory,
    methods,
    partitioning,
    phases,
    pipeline,
    resources,
    scaling,
    throughput,
    topologies,
    whole_engines,
)

MEASURES: Mapping[str, Measure] = {
    name: measure
    for topic in (
        throughput,
        scaling,
        resources,
        memory,
        partitioning,
        phases,
        methods,
        topologies,
        pipeline,
        convergence,
        datapaths,
        engines,
        whole_engines,
        arithmetic,
    )
    for name, measure in topic.MEASURES.items()
}
