"""Which device holds which channels of which layers, what its engines take, and what its links carry."""

from .engines import Engines, SliceEngines, allocate, engines_in_turn
from .partition import Cut, Mapping, Slice, partition
from .traffic import VALUE_BYTES, DataPath, Lane, Stream, streams

__all__ = [
    "VALUE_BYTES",
    "Cut",
    "DataPath",
    "Engines",
    "Lane",
    "Mapping",
    "Slice",
    "SliceEngines",
    "Stream",
    "allocate",
    "engines_in_turn",
    "partition",
    "streams",
]
