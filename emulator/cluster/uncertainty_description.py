"""The description of `[uncertainty]`, as in the files of clusters and boards (`uncertainty.py`)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import pydantic

from ..common import InputError, Model, PositiveFinite, did_you_mean
from .uncertainty import ConstantRange, RangeClass, range_of_class


class RangeDescription(Model):
    """An entry of `[uncertainty]`."""

    low: PositiveFinite | None = None
    high: PositiveFinite | None = None
    kind: Annotated[RangeClass, pydantic.Field(alias="class")] = "measured"
    source: Annotated[str, pydantic.Field(alias="from")] = ""
    date: datetime.date | str | None = None

    @pydantic.model_validator(mode="after")
    def _has_range(self) -> RangeDescription:
        if (self.low is None) != (self.high is None):
            raise ValueError("`low` and `high` belong together; one of them is missing")
        if self.low is None and self.kind == "measured":
            raise ValueError("class 'measured' needs `low` and `high`")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"`low` = {self.low:g} is above `high` = {self.high:g}")
        return self


_SLACK = 1e-9
"""Share by which a value may be outside its range: of what rounds when files are written."""


def constant_ranges(
    described: Mapping[str, RangeDescription] | None,
    known: Iterable[str],
    values: Mapping[str, Iterable[Any]],
    source: str,
) -> tuple[ConstantRange, ...]:
    """Return the ranges of an `[uncertainty]` table.

    Args:
        described: the table, if there is any.
        known: keys that may stand in it.
        values: those of each key, on all boards or links that have it.
        source: beginning of messages.

    Raises:
        InputError: a key is unknown, has no value, or one outside its range.
    """
    ranges = []
    for key, entry in (described or {}).items():
        if key not in known:
            hint = did_you_mean(key, list(known))
            raise InputError(f"{source}: uncertainty: unknown key `{key}`; {hint}known keys: {', '.join(known)}")
        numbers = [value for value in values.get(key, ()) if _is_number(value)]
        if not numbers:
            raise InputError(f"{source}: uncertainty: `{key}` has no value in this file that could be uncertain")
        date = "" if entry.date is None else str(entry.date)
        if entry.low is None or entry.high is None:
            low, high = range_of_class(key, entry.kind)
            ranges.append(ConstantRange(key, low, high, entry.kind, entry.source, date))
            continue
        for value in numbers:
            if not entry.low * (1 - _SLACK) <= value <= entry.high * (1 + _SLACK):
                raise InputError(
                    f"{source}: uncertainty: `{key}` = {value:g} is outside its range, {entry.low:g} to {entry.high:g}"
                )
        if len(set(numbers)) > 1:
            raise InputError(f"{source}: uncertainty: `{key}` has several values; give the range in each board's file")
        [value] = set(numbers)
        ranges.append(ConstantRange(key, entry.low / value, entry.high / value, entry.kind, entry.source, date))
    return tuple(ranges)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
