from .comparison import (
    METRICS,
    Comparison,
    Metric,
    compare_methods,
    draw_comparison,
    method_ranges,
)
from .exchange import ExchangeTimes, draw_exchanges, exchange_times, groups_of
from .formats import FormatOutcome, draw_formats, narrowest, train_formats
from .formats_by_layer import FormatSearch, JudgedMapping, draw_search, search_formats
from .methods import Method, Outcome, Workload, whole_layers
from .retime import Retiming, label_of, retime
from .topology import (
    Ports,
    Topology,
    chain_topology,
    direct_topology,
    draw_topologies,
    other_topologies,
    section,
)
from .trained import Study, Trained, run_study, study_keys
from .what_if import Compared, WhatIf, compare_runs, parse_what_if

__all__ = [
    "METRICS",
    "Compared",
    "Comparison",
    "ExchangeTimes",
    "FormatOutcome",
    "FormatSearch",
    "JudgedMapping",
    "Method",
    "Metric",
    "Outcome",
    "Ports",
    "Retiming",
    "Study",
    "Topology",
    "Trained",
    "WhatIf",
    "Workload",
    "chain_topology",
    "compare_methods",
    "compare_runs",
    "direct_topology",
    "draw_comparison",
    "draw_exchanges",
    "draw_formats",
    "draw_search",
    "draw_topologies",
    "exchange_times",
    "groups_of",
    "label_of",
    "method_ranges",
    "narrowest",
    "other_topologies",
    "parse_what_if",
    "retime",
    "run_study",
    "search_formats",
    "section",
    "study_keys",
    "train_formats",
    "whole_layers",
]
