"""How far the constants of boards and links may be wrong: their `[uncertainty]`, or else the range of their class.

[uncertainty]                 # of a cluster's file, or of a board's; keys as in `--what-if`
"link.latency_ns" = { low = 665, high = 683, class = "measured", from = "ping.csv: 84 rows, 4 runs", date = 2026-11-25 }
"board.clock_mhz" = { class = "data sheet" }                  # without `low` and `high`: the range of the class

A range holds a constant in nine of ten cases: `low` is its 5th and `high` its 95th percentile, as a calibration's are.
Without an entry, a constant is of the class that its key has below:

- a bandwidth of memory is a data sheet's, of which programs reach 0.80 to 0.95;
- a bandwidth of links is a data sheet's, of which messages get 0.90 to 1.00;
- a latency is assumed, and software and switches make it 1.0 to 1.5 times as long, as beside a data sheet;
- a clock is assumed, as are rates of gradient sums and what a packet takes: 0.67 to 1.5 times;
- what is fitted to a paper's figures is 0.95 to 1.05 times. Of shipped constants only those have an entry.

What is counted, such as DSPs, has no range: it is what the user builds. Nor has a value that a study changes
(`--set`, `--what-if`, `--link.bandwidth_gbps`) the entry that its file has: the file's is of another value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal, TypeAlias

RangeClass: TypeAlias = Literal["measured", "data sheet", "assumed", "fitted"]

EXACT = (1.0, 1.0)
_ASSUMED, _FITTED = (0.67, 1.5), (0.95, 1.05)
_MEMORY, _BANDWIDTH, _LATENCY = (0.80, 0.95), (0.90, 1.00), (1.0, 1.5)

_DATA_SHEET = {
    "board.off_chip_gbytes_per_s": _MEMORY,
    "board.memory_gbytes_per_s": _MEMORY,
    "link.bandwidth_gbps": _BANDWIDTH,
    "network.bandwidth_gbps": _BANDWIDTH,
    "link.latency_ns": _LATENCY,
    "network.latency_us": _LATENCY,
}
"""What data sheets promise, by key; they are exact about all else."""

_CLASSES: dict[str, RangeClass] = {
    **dict.fromkeys(_DATA_SHEET, "data sheet"),
    "link.latency_ns": "assumed",
    "network.latency_us": "assumed",
    "network.packet_stack_ns": "assumed",
    "network.sum_gbytes_per_s": "assumed",
    "board.clock_mhz": "assumed",
}
"""The class of a constant without an entry; those that are not here are exact."""


@dataclasses.dataclass(frozen=True)
class ConstantRange:
    """The range of a constant, `low` and `high` as multiples of its value; `key` as in `--what-if`."""

    key: str
    low: float
    high: float
    kind: RangeClass
    source: str = ""
    date: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether the range is a point."""
        return self.low == self.high == 1


def range_of_class(key: str, kind: RangeClass) -> tuple[float, float]:
    """Return the range of a constant that is not measured, as multiples of its value."""
    if kind == "fitted":
        return _FITTED
    if kind == "assumed" and _DATA_SHEET.get(key) != _LATENCY:
        return _ASSUMED
    return _DATA_SHEET.get(key, EXACT)


def find_range(key: str, given: Iterable[ConstantRange]) -> ConstantRange:
    """Return the range of a constant: of those `given`, or else that of its class."""
    for entry in given:
        if entry.key == key:
            return entry
    kind = _CLASSES.get(key)
    if kind is None:
        return ConstantRange(key, *EXACT, "data sheet")
    return ConstantRange(key, *range_of_class(key, kind), kind)
