"""Types of keys with their ranges, which validation enforces (`validation.py`).

Classes that describe user input are plain dataclasses, so that ranks that read no files need no
validation library. Ranges are annotations: those of `annotated_types`, and markers that give
pydantic their schema.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, Lt, MinLen

from .messages import InputError, one_line


class _Finite:
    """A marker of numbers that are neither infinite nor NaN."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "allow_inf_nan": False}


class _Before:
    """A marker of values that are converted before they are validated."""

    def __init__(self, convert: Any) -> None:
        self._convert = convert

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self._convert, handler(source))


def _as_pair(value: object) -> object:
    """Return one number as a pair, for rows and columns alike; TOML's lists become tuples."""
    return (
        (value, value)
        if isinstance(value, int)
        else tuple(value)
        if isinstance(value, list)
        else value
    )


def _as_names(value: object) -> object:
    """Return one name as a tuple of one; TOML's lists become tuples."""
    return (
        (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
    )


class _OneLine:
    """A marker of texts that are one line of printable characters."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(_as_name, handler(source))


_LONGEST_NAME = 200


def _as_name(value: str) -> str:
    """Return a name, which is written into files of other languages, and shown.

    Raises:
        ValueError: it is no name.
    """
    if not value.strip() or not value.isprintable() or len(value) > _LONGEST_NAME:
        raise ValueError(f"a name is one line of 1 to {_LONGEST_NAME} printable characters")
    return value


def name_of(path: pathlib.PurePath) -> str:
    """Return the name of what a file holds that says none: the file's, without its ending."""
    return one_line(path.stem)[:_LONGEST_NAME] or "unnamed"


def check_names(what: str, names: Iterable[object]) -> None:
    """Check the names of `what` was made in Python, as those of files are checked.

    Raises:
        InputError: one of them is no name.
    """
    for name in names:
        try:
            _as_name(name if isinstance(name, str) else "")
        except ValueError as error:
            raise InputError(f"{what}: `name` = {name!r}: {error}") from None


FINITE, AS_PAIR, AS_NAMES = _Finite(), _Before(_as_pair), _Before(_as_names)

Positive = Annotated[int, Ge(1)]
NotNegative = Annotated[int, Ge(0)]
Channels = Annotated[int, Ge(1), Le(1_000_000)]
PositivePair = Annotated[tuple[Positive, Positive], AS_PAIR]
NotNegativePair = Annotated[tuple[NotNegative, NotNegative], AS_PAIR]
Sizes = Annotated[tuple[Positive, Positive, Positive], AS_NAMES]
"""Of maps: (channels, rows, columns)."""
Name = Annotated[str, _OneLine()]
Names = Annotated[tuple[Name, ...], AS_NAMES, MinLen(1)]

Finite = Annotated[float, FINITE]
Numbers = Annotated[tuple[Finite, ...], AS_NAMES, MinLen(1)]
PositiveFinite = Annotated[float, FINITE, Gt(0)]
NotNegativeFinite = Annotated[float, FINITE, Ge(0)]
Rate = Annotated[float, FINITE, Ge(0), Lt(1)]
Share = Annotated[float, FINITE, Ge(1e-9), Le(1)]
"""A fraction of a whole, which may be all of it."""

Megahertz = Annotated[float, FINITE, Ge(0.001), Le(1e6)]
Gbps = Annotated[float, FINITE, Ge(0.001), Le(1e6)]
GbytesPerSecond = Annotated[float, FINITE, Ge(0.001), Le(1e6)]
Nanoseconds = Annotated[float, FINITE, Ge(0), Le(1e12)]
Microseconds = Annotated[float, FINITE, Ge(0), Le(1e6)]
Watts = Annotated[float, FINITE, Ge(1e-6), Le(1e6)]
PositiveNumber = Annotated[float, FINITE, Ge(1e-9), Le(1e9)]
