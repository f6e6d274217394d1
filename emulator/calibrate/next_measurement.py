"""The next measurement: what a file of constants says of it, and how well that holds.

Such a file ends with tables `[[next_measurement]]`: of what, such as a message, which value is
expected at each size, and between which ends 90 % of further measurements lie. Measurements that
were not fitted are compared with it, and with a null model: of messages the straight line of the
constants, of memory what the board's data sheet says, of products a multiplier a DSP.

    low ---- value ------ high        a row lies within, or outside
     64 .... 90 bytes ..... 128       between two sizes, ratios to the null model are interpolated
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..common import toml_value
from .mixed import Floats

MESSAGE = "message"


@dataclasses.dataclass(frozen=True)
class NextMeasurement:
    """What is expected at some sizes, in bytes; of what has none, at one.

    `what` is "message", in ns, a function of memory, in GB/s, or "products", in 10^9 MACs/s.
    `where` has the columns by which this set-up differs from others of the file. `null` is the null
    model's. `start_ns` is taken once for each loop of messages, and is in none of the values.
    """

    what: str
    where: Mapping[str, str]
    sizes: Floats
    values: Floats
    lows: Floats
    highs: Floats
    null: Floats
    start_ns: float = 0.0

    @classmethod
    def single(
        cls,
        what: str,
        where: Mapping[str, str],
        value: float,
        ends: tuple[float, float],
        null: float | None,
    ) -> NextMeasurement:
        """Return what is expected of what has no size; without a null model, that is its own."""
        low, high = (np.array([end]) for end in ends)
        listed = np.array([value if null is None else null])
        return cls(what, where, np.ones(1), np.array([value]), low, high, listed)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> NextMeasurement:
        """Return what a table of a file says, which is valid."""
        names = ("sizes", "values", "lows", "highs", "null")
        sizes, values, lows, highs, null = (np.array(table[name], np.float64) for name in names)
        where, start_ns = table.get("where", {}), table.get("start_ns", 0.0)
        return cls(table["what"], where, sizes, values, lows, highs, null, start_ns)

    def at(self, size: float, loop: float = math.inf) -> Outlook:
        """Return what is expected at a size; a kernel that sends `loop` messages starts once."""
        start = self.start_ns / loop
        place = math.log(size)
        null = self._null(size)
        ratios = (
            math.exp(np.interp(place, np.log(self.sizes), np.log(values / self.null)))
            for values in (self.values, self.lows, self.highs)
        )
        value, low, high = (null * ratio for ratio in ratios)
        added = (value + start) / value
        return Outlook(value * added, low * added, high * added, null + start)

    def _null(self, size: float) -> float:
        """Return the null model's value: a line between two sizes, and on beyond them."""
        if len(self.sizes) == 1:
            return float(self.null[0])
        after = int(np.clip(np.searchsorted(self.sizes, size), 1, len(self.sizes) - 1))
        (x, y), (x2, y2) = ((self.sizes[place], self.null[place]) for place in (after - 1, after))
        return float(max(y + (y2 - y) * (size - x) / (x2 - x), 1e-9))

    def toml(self) -> list[str]:
        """Return the lines of its table."""
        lines = ["", "[[next_measurement]]", f"what = {toml_value(self.what)}"]
        lines += [f"where = {toml_value(dict(self.where))}"] if self.where else []
        lines += [f"start_ns = {self.start_ns:.6g}"] if self.start_ns else []
        for key, values in self._columns.items():
            lines.append(f"{key} = [{', '.join(f'{value:.6g}' for value in values.tolist())}]")
        return lines

    @property
    def _columns(self) -> dict[str, Floats]:
        return {
            "sizes": self.sizes,
            "values": self.values,
            "lows": self.lows,
            "highs": self.highs,
            "null": self.null,
        }


@dataclasses.dataclass(frozen=True)
class Outlook:
    """What a measurement is expected to be, between which ends with 90 %, and by the null model."""

    value: float
    low: float
    high: float
    null: float
