"""Constants that no hardware has: mostly, a column holds another unit than its header says, and one
is said that fits.

What no unit explains is refused where no file could hold it, and otherwise noted where that is read
(`constants.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..cluster import EXISTING, Fpga
from ..common import InputError
from .link import LinkFit
from .reading import MESSAGE_TIMES, Row

_SECONDS = {
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "ps": 1e-12,
    "fs": 1e-15,
    "10^3 s": 1e3,
    "10^6 s": 1e6,
}
_BYTES = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
_ABOVE_LINE, _BELOW_LINE = 1.02, 0.01
"""What may be measured of the rate of a line: errors of measurement more; a hundredth, if software
is slow.
"""
_USUAL_NS = (20, 5e5)
"""Latencies of links that most clusters have, of which another unit should make one."""

_PRODUCTS_IN_S = {"ms": 1e3, "us": 1e6, "ns": 1e9, "10^3 s": 1e-3, "10^6 s": 1e-6}
_PRODUCTS_IN_GFLOPS = {"MFLOP/s": 1e-3, "FLOP/s": 1e-9, "TFLOP/s": 1e3, "PFLOP/s": 1e6}
_MEMORY_IN_MBYTES = {"GB/s": 1e3, "TB/s": 1e6, "kB/s": 1e-3, "B/s": 1e-6}
_LAYERS_IN_US = {"ns": 1e3, "ps": 1e6, "ms": 1e-3, "s": 1e-6}
_CLOCKS_IN_MHZ = {"GHz": 1e3, "kHz": 1e-3, "Hz": 1e-6}


class Line(NamedTuple):
    """The most that a link carries, in Gb/s, and what that is of; a user may have said it."""

    gbps: float
    what: str
    is_said: bool


def check_link(fit: LinkFit, line: Line | None) -> None:
    """Check that a fit is a link's.

    Raises:
        InputError: it would be one if a column were in another unit, or is above the rate of its
            line.
    """
    rates, latencies = EXISTING["link.bandwidth_gbps"], EXISTING["link.latency_ns"]
    low, high = rates.low, rates.high
    if line is not None:
        low, high = line.gbps * _BELOW_LINE if line.is_said else low, line.gbps * _ABOVE_LINE
    gbps, ns = fit.model.bytes_per_s * 8e-9, fit.model.latency_s * 1e9

    if low <= gbps <= high and latencies.holds(ns):
        return
    for column, unit, seconds, sizes, remedy in _units_of_messages(fit.messages.rows[0]):
        other = gbps * sizes / seconds, ns * seconds
        if low <= other[0] <= high and _USUAL_NS[0] <= other[1] <= _USUAL_NS[1]:
            stated = (
                ""
                if line is not None and line.is_said
                else ", or give the line's rate by `--line-gbps`"
            )
            raise InputError(
                f"{fit.evidence.files[0]}: {_link(gbps, ns)} are no link's, of {low:,.4g} to"
                f" {high:,.4g} Gb/s and {latencies}; if `{column}` were in {unit}, they would be"
                f" {_link(*other)}: {remedy}{stated}"
            )
    if line is not None and gbps > high:
        raise InputError(
            f"{fit.evidence.files[0]}: {gbps:,.4g} Gb/s is {gbps / line.gbps:.3g} times"
            f" {line.what}, {line.gbps:,.4g} Gb/s: `message_bytes` should be those of one"
            " direction, and times those of one message"
        )


def _link(gbps: float, ns: float) -> str:
    return f"{gbps:,.4g} Gb/s and {ns:,.4g} ns"


def _units_of_messages(row: Row) -> Iterator[tuple[str, str, float, float, str]]:
    """Yield other units of a row's columns, the nearest first: column, unit, what times and sizes
    change by, remedy.
    """
    column = next((column for column in MESSAGE_TIMES if row.has(column)), "transfer_s")
    own = MESSAGE_TIMES.get(column, 1.0)
    for unit, seconds in sorted(
        _SECONDS.items(), key=lambda of_unit: abs(math.log(of_unit[1] / own))
    ):
        named = f"message_{unit}"
        remedy = (
            f"name it `{named}`"
            if column != "transfer_s" and named in MESSAGE_TIMES
            else "give it in s"
        )
        yield column, unit, seconds / own, 1.0, remedy
    for unit, size in _BYTES.items():
        yield "message_bytes", unit, 1.0, size, "give it in bytes"


def check_memory(row: Row, gbytes_per_s: float, listed: float | None) -> None:
    """Check that a bandwidth is that of a board's memory, which has `listed` GB/s by its data
    sheet, if that is known.

    Raises:
        InputError: it would be if the column were in another unit, or no memory has it.
    """
    exists = EXISTING["board.off_chip_gbytes_per_s"]
    low, high = (exists.low, exists.high) if listed is None else (listed / 100, listed * 10)
    if low <= gbytes_per_s <= high:
        return
    fits = (exists.low, exists.high) if listed is None else (listed / 20, listed * 1.1)
    _check_unit(
        row, "best_mbytes_per_s", f"{gbytes_per_s:,.4g} GB/s", gbytes_per_s, fits, _MEMORY_IN_MBYTES
    )
    if not exists.holds(gbytes_per_s):
        raise InputError(
            f"{row}: {gbytes_per_s:,.4g} GB/s of memory: what exists is {exists} ({exists.source})"
        )


def check_products(row: Row, share: float, board: Fpga) -> None:
    """Check that products reach a share that can be of what the multipliers of a board allow.

    Raises:
        InputError: it would be if the column were in another unit, or it is far too much or too
            little.
    """
    if 0.001 <= share <= 10:
        return
    timed = row.has("best_s")
    column, units = ("best_s", _PRODUCTS_IN_S) if timed else ("gflops", _PRODUCTS_IN_GFLOPS)
    said = f"{share:,.4g} times what {_allowed(board)} allow"
    _check_unit(row, column, said, share, (0.01, 1.1), units)
    remedy = "give the board's `--type`" if share > 1 else "measure larger matrices"
    raise InputError(f"{row}: products reach {said}; {remedy}")


def check_layers(row: Row, products: tuple[float, float], board: Fpga) -> None:
    """Check that layers reach a share that can be of what a board allows, by multiply-accumulates
    and their us.

    Raises:
        InputError: they reach far too much, or would not be far too slow in another unit.
    """
    macs, us = products
    share = macs / (us * 1e6 * board.capacity)
    if not macs or 1e-3 <= share <= 10:
        return
    column = "us" if row.has("us") else "cycles"
    said = f"{share:,.4g} times what {_allowed(board)} allow"
    _check_unit(row, column, said, share, (0.03, 1.1), _LAYERS_IN_US if column == "us" else {})
    if share > 10:
        raise InputError(
            f"{row}: layers reach {said}; give the board's `--type`, and times of all `samples`"
        )


def _allowed(board: Fpga) -> str:
    return f"{board.multipliers:,} multipliers at {board.clock_mhz:g} MHz"


def check_clock(row: Row, mhz: float) -> None:
    """Check that a bitstream's clock is none of another unit; it raises as `check_memory`."""
    exists = EXISTING["board.clock_mhz"]
    if not exists.holds(mhz):
        _check_unit(
            row, "clock_mhz", f"{mhz:,.4g} MHz", mhz, (exists.low, exists.high), _CLOCKS_IN_MHZ
        )


def _check_unit(
    row: Row,
    column: str,
    said: str,
    value: float,
    fits: tuple[float, float],
    units: Mapping[str, float],
) -> None:
    """Refuse a value that lies within what `fits` in another unit, each with the factor that it
    changes values by.
    """
    unit = next(
        (unit for unit, factor in units.items() if fits[0] <= value * factor <= fits[1]), None
    )
    if unit is not None:
        raise InputError(
            f"{row}: `{column}` gives {said}, as if it were in {unit}; give it in the unit of its"
            " header"
        )


def check_scatter(values: Sequence[tuple[str, float]], most: float, what: str, remedy: str) -> None:
    """Check that one constant explains values, of which each has the name of its row.

    Raises:
        InputError: the root mean square of their logarithms about the mean is above `most`; it
            names the worst rows.
    """
    logs = [math.log(value) for _, value in values]
    mean = math.fsum(logs) / len(logs)
    rms = math.sqrt(math.fsum((log - mean) ** 2 for log in logs) / len(logs))
    if rms > most:
        (lowest, least), (highest, largest) = (
            chosen(values, key=lambda value: value[1]) for chosen in (min, max)
        )
        raise InputError(
            f"{lowest} and {highest}: no constant is both {least:,.5g} and {largest:,.5g} {what}:"
            f" rms {100 * rms:,.0f} % (at most {100 * most:.0f} %); {remedy}"
        )
