"""Lists and ranges of values as arguments of flags (`emulator/inputs/ranges.py` parses them)."""

from __future__ import annotations

from typing import Any

import click

from ..common import NO_FILE, Role

_LARGEST = 999_999


class Counts(click.ParamType):
    """Numbers of `of`, such as "devices": 2,4,8 or 2-8 or 2-64:4, or all mixed; a tuple in ascending order."""

    name = "counts"

    def __init__(self, of: str = "devices", most: int = _LARGEST) -> None:
        self._of, self._most = of, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the numbers in ascending order, each once."""
        if isinstance(value, tuple):
            return value
        from ..inputs import parse_counts

        try:
            return parse_counts(value, self._of, self._most)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class CountOrRange(click.ParamType):
    """One number of devices, an int; or a range or list of them, a tuple, which sweeps."""

    name = "count or range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or the numbers in ascending order, each once."""
        try:
            return int(value)
        except (TypeError, ValueError):
            counts = Counts().convert(value, param, ctx)
        return counts[0] if len(counts) == 1 else counts


class Values(click.ParamType):
    """Values of any key: numbers and ranges of numbers, or words, which name files in a `role`; a tuple."""

    name = "values"

    def __init__(self, role: Role = NO_FILE) -> None:
        self.role = role

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return numbers in ascending order, words in the order given, each once."""
        if isinstance(value, tuple):
            return value
        from ..inputs import parse_values

        try:
            return parse_values(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
