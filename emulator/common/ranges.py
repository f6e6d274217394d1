"""Lists and ranges of values as text: `1-64`, `1-64:4` with a step, `1,2,4,8`, `0.5-2:0.5`, `sync,fpdeep`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

Value = int | float | str | bool

_MOST_VALUES = 100_000
_NUMBER = r"\d{1,15}(?:\.\d+)?"
_RANGE = re.compile(rf"({_NUMBER})-({_NUMBER})(?::({_NUMBER}))?", re.ASCII)
_SINGLE = re.compile(rf"{_NUMBER}(?:[eE][+-]?\d{{1,3}})?", re.ASCII)
_LIKE_NUMBERS = re.compile(r"[\d.:+-]+")
_TRUTHS = {"true": True, "false": False}


def parse_values(text: str) -> tuple[Value, ...]:
    """Return the values of a list: numbers in ascending order, words in the order given, each once.

    A range includes its end, if the steps reach it. A number without a decimal point is an int.

    Raises:
        ValueError: the list has another form; the message says what is wrong with it.
    """
    values: dict[Value, None] = {}
    for item in text.split(","):
        for value in _values_of(item.strip(), text):
            values[value] = None
            if len(values) > _MOST_VALUES:
                raise ValueError(f"{text!r}: more than {_MOST_VALUES} values")
    words = [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if not isinstance(value, (str, bool))]
    if words and numbers:
        raise ValueError(f"{text!r}: mixes the word {words[0]!r} with numbers")
    return tuple(sorted(numbers)) if numbers else tuple(values)


def parse_counts(text: str, noun: str, most: int = 999_999) -> tuple[int, ...]:
    """Return a list of numbers of `of`, such as "devices", from 1 to `most`, in ascending order, each once.

    Raises:
        ValueError: the list has another form, or a number is out of range.
    """
    form = f"{text!r} is not a list of numbers of {noun} such as 2,4,8 or 2-8 or 2-64:4"
    try:
        values = parse_values(text)
    except ValueError as error:
        raise ValueError(f"{form}: {error}") from None
    counts = tuple(value for value in values if isinstance(value, int) and not isinstance(value, bool))
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
    value, end, by = Decimal(first), Decimal(last), Decimal(step or 1)
    if value > end:
        raise ValueError(f"{item!r}: runs downwards; write {last}-{first}{f':{step}' if step else ''}")
    if not by:
        raise ValueError(f"{item!r}: a step of 0 never ends")
    while value <= end:
        yield int(value) if whole else float(value)
        value += by
