from .comparison import METRICS, Comparison, MethodRanges, Metric, compare_methods, draw_comparison, method_ranges
from .exchange import ExchangeTimes, draw_exchanges, exchange_times, groups_of
from .explored import Explored, explored
from .formats import FormatOutcome, draw_formats, narrowest, train_formats
from .methods import Method, Outcome, Workload, whole_layers
from .retime import Retiming, label_of, retime
from .topology import Ports, Topology, chain_topology, direct_topology, draw_topologies, other_topologies, section
from .what_if import Compared, WhatIf, compare_runs, parse_what_if

__all__ = [
    "METRICS",
    "Compared",
    "Comparison",
    "ExchangeTimes",
    "Explored",
    "FormatOutcome",
    "Method",
    "MethodRanges",
    "Metric",
    "Outcome",
    "Ports",
    "Retiming",
    "Topology",
    "WhatIf",
    "Workload",
    "chain_topology",
    "compare_methods",
    "compare_runs",
    "direct_topology",
    "draw_comparison",
    "draw_exchanges",
    "draw_formats",
    "draw_topologies",
    "exchange_times",
    "explored",
    "groups_of",
    "label_of",
    "method_ranges",
    "narrowest",
    "other_topologies",
    "parse_what_if",
    "retime",
    "section",
    "train_formats",
    "whole_layers",
]
