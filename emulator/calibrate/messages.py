"""Messages over a link: rows of sizes and times, in bytes and seconds, whatever units the files have."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..common import InputError
from .reading import MESSAGE_TIMES, SINGLE_MESSAGES, VERSION, Kind, Row, Table, version_of
from .robust import Floats

Places = NDArray[np.intp]

OTHER_UNIT = 100.0
"""Ratio of two times of one message size above which their units differ."""

_AGREE = 0.01
_LEAST_LOOPS = 1.5
"""Least ratio of the longest to the shortest loop at which the start of kernels can be told from the latency."""


@dataclasses.dataclass(frozen=True)
class Messages:
    """Rows of a link: the size in bytes, the loop's length (infinite where it is not known), and the time in s.

    `assumed` says what was assumed of how they were measured; empty if all is known.
    """

    rows: tuple[Row, ...]
    sizes: Floats
    loops: Floats
    times: Floats
    assumed: str = ""

    @functools.cached_property
    def runs(self) -> dict[str, Places]:
        """The places of each run's rows, by the runs in the order of their first rows."""
        places: dict[str, list[int]] = defaultdict(list)
        for place, row in enumerate(self.rows):
            places[row.run].append(place)
        return {run: np.array(own, np.intp) for run, own in places.items()}

    def of_run(self, run: str) -> Messages:
        """Return the rows of a run."""
        return self._at(self.runs[run])

    def without(self, run: str) -> Messages:
        """Return the rows of all other runs."""
        return self._at(np.delete(np.arange(len(self.rows)), self.runs[run]))

    def _at(self, places: Places) -> Messages:
        rows = tuple(self.rows[place] for place in places)
        return Messages(rows, self.sizes[places], self.loops[places], self.times[places])

    @property
    def starts(self) -> bool:
        """Whether the start of kernels can be told from the latency: rows differ in the length of their loop."""
        return bool(np.isfinite(self.loops).all() and self.loops.max() >= _LEAST_LOOPS * self.loops.min())


def messages_of(tables: Sequence[Table], from_bytes: int = 0, b_eff_version: str | None = None) -> Messages:
    """Return the rows of links with messages of `from_bytes` and more.

    `b_eff_version` is that of files which do not say it.

    Raises:
        InputError: a table measures something else, a row has no valid number, or none is left.
    """
    rows: list[Row] = []
    values: list[tuple[float, float, float]] = []
    assumed: list[str] = []
    for table in tables:
        if table.kind is not Kind.LINK:
            hint = "" if table.kind is Kind.LAYERS else "; `emuchain calibrate board` takes it"
            raise InputError(f"{table.name}: measures {table.kind.value}, not {Kind.LINK.value}{hint}")
        if not b_eff_version and not any(map(table.rows[0].has, (VERSION, *MESSAGE_TIMES))):
            assumed.append(table.name)
        for row in table.rows:
            size, loop, time = row.count("message_bytes"), *_loop_and_time(row, b_eff_version)
            if size >= from_bytes:
                rows.append(row)
                values.append((size, loop, time))
    if not rows:
        raise InputError(f"no messages of {from_bytes:,} bytes and more: `--from-bytes` leaves no row")
    sizes, loops, times = (np.array(column, np.float64) for column in zip(*values, strict=True))
    messages = Messages(tuple(rows), sizes, loops, times, _assumption(assumed))
    _check_units(messages)
    return messages


def _assumption(files: Sequence[str]) -> str:
    if not files:
        return ""
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return (
        f"{files[0]}{more}: says no version of b_eff; {_spelt(SINGLE_MESSAGES)} or later is assumed, with one message a"
        f" loop; earlier ones have two: say so by `--b-eff-version X`, or a column `{VERSION}`"
    )


def _spelt(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _messages_of_loop(row: Row, given: str | None) -> int:
    """Return how many messages one after the other a loop has, by the version of b_eff."""
    said = row.cells.get(VERSION) or given
    if given and said != given:
        raise InputError(f"{row}: `{VERSION}` = {said!r}: `b_eff_version` has {given!r}; leave it out")
    return 1 if said is None or version_of(said, str(row)) >= SINGLE_MESSAGES else 2


def _loop_and_time(row: Row, version: str | None) -> tuple[float, float]:
    """Return how many messages go one after the other from a start of kernels on, and the time of one in s."""
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
    loop *= _messages_of_loop(row, version)
    time = row.number("transfer_s") / loop
    if stated is not None and abs(stated / time - 1) > _AGREE:
        raise InputError(
            f"{row}: mixed units: `{units[0]}` is {stated / time:.3g} times what a message takes by `transfer_s` and"
            " `loop_length`"
        )
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
