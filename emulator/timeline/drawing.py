"""A timeline as text: a row for each device, or two where actions run side by side."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from fractions import Fraction

from ..schedule import Engines, Kind
from ..timing import Timed

_MARKS = {Kind.FORWARD: string.digits, Kind.BACKWARD: string.ascii_lowercase, Kind.GRADIENT: string.ascii_uppercase}
_IDLE = "."
_LEAST_COLUMNS, _MOST_OF_ONE = 10, 3
LEGEND = "F: digits 0-9, B: letters a-z, W: A-Z, each by micro-batch in turn; dot: idle"


def draw(timed: Sequence[Timed], devices: int, engines: Engines, width: int) -> list[str]:
    """Return the rows of a timeline, at most `width` columns if there is room for ten beside the labels.

    Where all times are multiples of a column's, a row is exact. Otherwise a column shows what takes most of it.
    """
    end = max(each.end_ps for each in timed)
    apart = engines is not Engines.TURNS
    label = len(f"device {devices - 1}") + 2 * apart + 1
    room = max(width - label, _LEAST_COLUMNS)
    slots = end // math.gcd(end, *(each.start_ps for each in timed), *(each.end_ps for each in timed))
    columns = min(room // slots, _MOST_OF_ONE) * slots if slots <= room else room
    rows = []
    for device in range(devices):
        here = [each for each in timed if each.device == device]
        kinds = [kind for kind in _MARKS if any(each.step.kind is kind for each in here)]
        for place, group in enumerate([[kind] for kind in kinds] if apart else [kinds]):
            name = f"device {device}" if place == 0 else ""
            name = f"{name:{label - 2}}{group[0].value} " if apart else f"{name:{label}}"
            rows.append(name + _row([each for each in here if each.step.kind in group], end, columns))
    return rows


def _row(timed: Sequence[Timed], end: int, columns: int) -> str:
    """Return the marks of actions of which no two overlap."""
    busy = [dict[str, Fraction]() for _ in range(columns)]
    for each in timed:
        begin, done = Fraction(each.start_ps * columns, end), Fraction(each.end_ps * columns, end)
        mark = _MARKS[each.step.kind][each.step.micro_batch % len(_MARKS[each.step.kind])]
        for column in range(int(begin), math.ceil(done)):
            share = min(done, Fraction(column + 1)) - max(begin, Fraction(column))
            busy[column][mark] = busy[column].get(mark, Fraction(0)) + share
    return "".join(_mark(shares) for shares in busy)


def _mark(shares: dict[str, Fraction]) -> str:
    if 2 * sum(shares.values()) < 1:
        return _IDLE
    return max(shares, key=lambda mark: shares[mark])
