"""Which device holds which channels of which layers, what its engines take, and what its links carry."""

from .engines import Engines, SliceEngines, allocate, engines_in_turn, idle_share
from .partition import partition
from .slices import Balance, Cut, Mapping, Slice, cut_channels, cut_of, imbalance
from .traffic import VALUE_BYTES, DataPath, Lane, Stream, streams

__all__ = [
    "VALUE_BYTES",
    "Balance",
    "Cut",
    "DataPath",
    "Engines",
    "Lane",
    "Mapping",
    "Slice",
    "SliceEngines",
    "Stream",
    "allocate",
    "cut_channels",
    "cut_of",
    "engines_in_turn",
    "idle_share",
    "imbalance",
    "partition",
    "streams",
]
