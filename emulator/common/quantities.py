"""Quantities as text: numbers with units, means with their errors, and lists and ranges of values
as users write them.

Lists and ranges: `1-64`, `1-64:4` with a step, `1,2,4,8`, `0.5-2:0.5`, `sync,fpdeep`.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

IMAGENET_IMAGES = 1_281_167
"""Training images of ImageNet, the epoch that hours are given for unless another one is asked for.
"""

_TIME_UNITS = (("ps", 1), ("ns", 10**3), ("us", 10**6), ("ms", 10**9), ("s", 10**12))
_BYTE_UNITS = (("B", 1), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("TiB", 2**40))
_MINUTE = 60 * 10**12


def format_time_ps(ps: int) -> str:
    """Return a time in ps as text in a suitable unit, to three digits: `12.3 ms`; from two minutes
    `2 min 05 s`.
    """
    if ps < 0:
        return "-" + format_time_ps(-ps)
    if ps >= 2 * _MINUTE:
        # Rounded to whole seconds before it is divided, so that no text says 60 s.
        minutes, seconds = divmod((ps + 10**12 // 2) // 10**12, 60)
        if minutes < 120:
            return f"{minutes} min {seconds:02d} s"
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes:02d} min"
    return _scaled(ps, _TIME_UNITS, 1000)


def format_bytes(count: int) -> str:
    """Return a number of bytes as text in a suitable binary unit, to three digits: `512 B`, `1.50
    MiB`.
    """
    if count < 0:
        return "-" + format_bytes(-count)
    return _scaled(count, _BYTE_UNITS, 1024)


def _scaled(value: int, units: tuple[tuple[str, int], ...], step: int) -> str:
    for unit, size in units:
        number = value / size
        # The next unit starts where this one would round up to a full step: 999 999 ns are 1.00 ms.
        if round(number) < step or unit == units[-1][0]:
            break
    if size == 1:
        return f"{value} {unit}"
    # Not 10, since 9.996 would be shown as 10.00, with a digit too many.
    if number < 9.995:
        return f"{number:.2f} {unit}"
    if number < 99.95:
        return f"{number:.1f} {unit}"
    return f"{number:.0f} {unit}"


def percent(share: float) -> str:
    """Return a share as text in percent; "-" for NaN."""
    return "-" if math.isnan(share) else f"{100 * share:,.1f} %"


def number(value: float) -> str:
    """Return a number as text: to four digits, and to the whole from 1,000 on, with separators."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    ending = "es" if noun.endswith(("tch", "ss")) else "s"
    return f"{count:,} {noun}{ending * (count != 1)}"


def either(words: Sequence[str]) -> str:
    """Return words of which one holds: `a`, `a or b`, `a, b or c`."""
    *firsts, last = words
    return f"{', '.join(firsts)} or {last}" if firsts else last


def an(noun: str) -> str:
    """Return a noun with its article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def gops(operations: int, period_ps: float) -> float:
    """Return the rate in GOP/s (10^9 operations a second) of `operations` in a period."""
    return 1000 * operations / period_ps


def gbps(count: int, period_ps: float) -> float:
    """Return the rate in Gb/s (10^9 bits a second) of `count` bytes in a period."""
    return 8000 * count / period_ps


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean over seeds, and its standard error; infinite with one seed, so that no difference
    counts.
    """

    value: float
    error: float

    @classmethod
    def over(cls, values: Sequence[float]) -> Mean:
        """Return the mean of values, one for each seed; NaN where one of them is."""
        import statistics

        if any(map(math.isnan, values)):
            return cls(math.nan, math.inf)
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
        return cls(statistics.mean(values), error)

    def differs(self, other: Mean) -> bool:
        """Return whether the difference exceeds both standard errors."""
        return abs(self.value - other.value) > max(self.error, other.error)

    def times(self, factor: float) -> Mean:
        """Return the mean in another unit."""
        return Mean(self.value * factor, self.error * factor)

    def shown(self, digits: int) -> str:
        """Return the mean as text, with `digits` decimals."""
        error = f"± {self.error:.{digits}f}" if self.error < math.inf else "(one seed)"
        return f"{self.value:.{digits}f} {error}"

    def __str__(self) -> str:
        return self.shown(1)


Value = int | float | str | bool

_MOST_VALUES = 100_000
# 15 digits before the point: as many as a float is sure to keep.
_NUMBER = r"\d{1,15}(?:\.\d+)?"
_RANGE = re.compile(rf"({_NUMBER})-({_NUMBER})(?::({_NUMBER}))?", re.ASCII)
_SINGLE = re.compile(rf"{_NUMBER}(?:[eE][+-]?\d{{1,3}})?", re.ASCII)
_LIKE_NUMBERS = re.compile(r"[\d.:+-]+")
_TRUTHS = {"true": True, "false": False}


def items_of(text: str) -> tuple[str, ...]:
    """Return the items of a list with commas; those between keys of one item, as in
    `dynamic:every=20,first=1024`, divide nothing.
    """
    items: list[str] = []
    for part in text.split(","):
        word = items[-1].split(" ")[-1] if items else ""
        if re.search(r":\w+=", word) and re.fullmatch(r"\w+=\S+", part):
            items[-1] += f",{part}"
        else:
            items.append(part)
    return tuple(item.strip() for item in items)


def parse_values(text: str) -> tuple[Value, ...]:
    """Return the values of a list: numbers in ascending order, words in the order given, each once.

    A range includes its end, if the steps reach it. A number without a decimal point is an int.

    Raises:
        ValueError: the list has another form; the message says what is wrong with it.
    """
    values: dict[Value, None] = {}
    for item in items_of(text):
        for value in _values_of(item, text):
            values[value] = None
            if len(values) > _MOST_VALUES:
                raise ValueError(f"{text!r}: more than {_MOST_VALUES} values")
    words = [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if not isinstance(value, (str, bool))]
    if words and numbers:
        raise ValueError(f"{text!r}: mixes the word {words[0]!r} with numbers")
    return tuple(sorted(numbers)) if numbers else tuple(values)


def parse_counts(text: str, noun: str, most: int = 999_999) -> tuple[int, ...]:
    """Return a list of numbers of `of`, such as "devices", from 1 to `most`, in ascending order,
    each once.

    Raises:
        ValueError: the list has another form, or a number is out of range.
    """
    form = f"{text!r} is not a list of numbers of {noun} such as 2,4,8 or 2-8 or 2-64:4"
    try:
        values = parse_values(text)
    except ValueError as error:
        raise ValueError(f"{form}: {error}") from None
    counts = tuple(
        value for value in values if isinstance(value, int) and not isinstance(value, bool)
    )
    if len(counts) != len(values):
        raise ValueError(form)
    if not 1 <= counts[0] <= counts[-1] <= most:
        raise ValueError(f"{form}: must be from 1 to {most} {noun}")
    return counts


def _values_of(item: str, text: str) -> Iterator[Value]:
    if bounds := _RANGE.fullmatch(item):
        yield from _range(item, *bounds.groups())
    elif _SINGLE.fullmatch(item):
        yield int(item) if item.isdigit() else float(item)
    elif not item:
        raise ValueError(f"{text!r}: has an empty item; a list is 1,2,4 or 1-64 or 1-64:4")
    elif _LIKE_NUMBERS.fullmatch(item):
        raise ValueError(f"{item!r} is neither a number nor a range such as 1-64 or 1-64:4")
    else:
        yield _TRUTHS.get(item, item)


def _range(item: str, first: str, last: str, step: str | None) -> Iterator[Value]:
    whole = all(part is None or part.isdigit() for part in (first, last, step))
    if not whole and step is None:
        raise ValueError(f"{item!r}: needs a step, as in {item}:0.5")
    # In decimals, so that steps of 0.1 meet the end, and are the numbers that one would write.
    value, end, by = Decimal(first), Decimal(last), Decimal(step or 1)
    if value > end:
        raise ValueError(
            f"{item!r}: runs downwards; write {last}-{first}{f':{step}' if step else ''}"
        )
    if not by:
        raise ValueError(f"{item!r}: a step of 0 never ends")
    while value <= end:
        yield int(value) if whole else float(value)
        value += by
