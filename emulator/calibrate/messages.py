"""Messages over a link: rows of sizes and times, in bytes and seconds, whatever units the files have."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ..common import InputError
from .reading import MESSAGE_TIMES, Kind, Row, Table
from .robust import Flags, Floats

OTHER_UNIT = 100.0
"""Ratio of two times of one message size above which their units differ."""

_AGREE = 0.01
_LEAST_LOOPS = 1.5
"""Least ratio of the longest to the shortest loop at which the start of kernels can be told from the latency."""


@dataclasses.dataclass(frozen=True)
class Messages:
    """Rows of a link: the size in bytes, the loop's length (infinite where it is not known), and the time in s."""

    rows: tuple[Row, ...]
    sizes: Floats
    loops: Floats
    times: Floats

    @property
    def runs(self) -> list[str]:
        """The runs in the order of their first rows."""
        return list(dict.fromkeys(row.run for row in self.rows))

    def where(self, chosen: Flags) -> Messages:
        """Return some of the rows."""
        rows = tuple(row for row, keeps in zip(self.rows, chosen, strict=True) if keeps)
        return Messages(rows, self.sizes[chosen], self.loops[chosen], self.times[chosen])

    def of_run(self, run: str) -> Flags:
        """Return which rows are of a run."""
        return np.array([row.run == run for row in self.rows], np.bool_)

    @property
    def starts(self) -> bool:
        """Whether the start of kernels can be told from the latency: rows differ in the length of their loop."""
        return bool(np.isfinite(self.loops).all() and self.loops.max() >= _LEAST_LOOPS * self.loops.min())


def messages_of(tables: Sequence[Table], from_bytes: int = 0) -> Messages:
    """Return the rows of links with messages of `from_bytes` and more.

    Raises:
        InputError: a table measures something else, a row has no valid number, or none is left.
    """
    rows: list[Row] = []
    values: list[tuple[float, float, float]] = []
    for table in tables:
        if table.kind is not Kind.LINK:
            hint = "" if table.kind is Kind.LAYERS else "; `emuchain calibrate board` takes it"
            raise InputError(f"{table.name}: measures {table.kind.value}, not {Kind.LINK.value}{hint}")
        for row in table.rows:
            size, loop, time = row.count("message_bytes"), *_loop_and_time(row)
            if size >= from_bytes:
                rows.append(row)
                values.append((size, loop, time))
    if not rows:
        raise InputError(f"no messages of {from_bytes:,} bytes and more: `--from-bytes` leaves no row")
    sizes, loops, times = (np.array(column, np.float64) for column in zip(*values, strict=True))
    messages = Messages(tuple(rows), sizes, loops, times)
    _check_units(messages)
    return messages


def _loop_and_time(row: Row) -> tuple[float, float]:
    """Return the length of a row's loop, and the time of one message in s."""
    units = [column for column in MESSAGE_TIMES if row.has(column)]
    if len(units) > 1:
        raise InputError(f"{row}: `{units[0]}` and `{units[1]}`: one unit to a file; leave one out")
    loop = float(row.count("loop_length")) if row.has("loop_length") else math.inf
    stated = row.number(units[0]) * MESSAGE_TIMES[units[0]] if units else None
    if not row.has("transfer_s"):
        assert stated is not None
        return loop, stated
    if math.isinf(loop):
        raise InputError(f"{row}: `transfer_s` is the time of all messages of a loop; `loop_length` is missing")
    time = row.number("transfer_s") / loop
    if stated is not None and abs(stated / time - 1) > _AGREE:
        raise InputError(f"{row}: mixed units: `{units[0]}` is {stated / time:.3g} times `transfer_s` / `loop_length`")
    return loop, time


def _check_units(messages: Messages) -> None:
    """Refuse rows of one size that differ as units do."""
    by_size: dict[float, list[int]] = defaultdict(list)
    for place, size in enumerate(messages.sizes):
        by_size[size].append(place)
    for size, places in by_size.items():
        first, last = (chosen(places, key=lambda place: messages.times[place]) for chosen in (min, max))
        ratio = messages.times[last] / messages.times[first]
        if ratio > OTHER_UNIT:
            raise InputError(
                f"{messages.rows[last]}: mixed units: {size:,.0f} bytes take {ratio:,.0f} times as long as in"
                f" {messages.rows[first]}"
            )
