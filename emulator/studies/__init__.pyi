from .exchange import ExchangeTimes, exchange_times, groups_of
from .exchange_picture import draw_exchanges
from .retime import retime
from .retiming import Retiming, label_of
from .rtl import trained_mini_batch
from .section import section
from .topology import Ports, Topology, chain_topology, direct_topology
from .what_if import Compared, WhatIf, compare_runs, parse_what_if

__all__ = [
    "Compared",
    "ExchangeTimes",
    "Ports",
    "Retiming",
    "Topology",
    "WhatIf",
    "chain_topology",
    "compare_runs",
    "direct_topology",
    "draw_exchanges",
    "exchange_times",
    "groups_of",
    "label_of",
    "parse_what_if",
    "retime",
    "section",
    "trained_mini_batch",
]
