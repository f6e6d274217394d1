"""What a page is made of: sections of text, charts and tables, as plain data, and how numbers are written in them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

from ...common import format_time_ps

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure that answers a question: its name, its value with unit, and a note."""

    name: str
    value: str
    note: str = ""
    is_warning: bool = False
    is_wide: bool = False


@dataclasses.dataclass(frozen=True)
class Key:
    """An entry of a legend: a name, the CSS variable of its colour, and the mark that it stands for."""

    name: str
    colour: str
    mark: Literal["box", "line", "dashes"] = "box"


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart: `kind` names what draws `data` (static/*.js); `title` says what it shows, with units."""

    kind: str
    title: str
    data: dict[str, Any]
    legend: tuple[Key, ...] = ()
    is_wide: bool = True


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of text; the columns named in `left` are left-aligned."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Text:
    """A text of several lines, shown as it is."""

    title: str
    text: str


@dataclasses.dataclass(frozen=True)
class Section:
    """A section: its title, what it says in a sentence or two, and what shows it; `legend` is that of all charts."""

    title: str
    said: str
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    texts: tuple[Text, ...] = ()
    legend: tuple[Key, ...] = ()

    @property
    def anchor(self) -> str:
        """Its title as a part of an address."""
        return self.title.lower().replace(" ", "-")


@dataclasses.dataclass(frozen=True)
class RunPart:
    """What a page says about one run: its name, what ran on what, what came of it."""

    name: str
    title: str
    headline: str
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]


@dataclasses.dataclass(frozen=True)
class Page:
    """A page: its title, the answer, what compares the runs, and a part for each of them."""

    title: str
    headline: str
    comparison: tuple[Table, ...]
    shared: tuple[Section, ...]
    runs: tuple[RunPart, ...]
    version: str


def time(ps: int) -> str:
    """Return a time in ps as text, with its unit."""
    return with_micro(format_time_ps(ps))


def with_micro(text: str) -> str:
    """Return a time as text with its unit spelt as pages have it."""
    return text.replace(" us", " µs")


def power_of_two(exponent: int) -> str:
    """Return 2 to the power of `exponent` as text."""
    return f"2{str(exponent).translate(_SUPERSCRIPTS)}"


def rate(samples_per_s: float, noun: str) -> str:
    """Return a rate as text, with its unit; `noun` is what a sample is called."""
    return f"{samples_per_s:,.0f} {noun}s/s" if samples_per_s >= 100 else f"{samples_per_s:.3g} {noun}s/s"


def finite(value: float) -> float | None:
    """Return a number; None where it is NaN or infinite, which JSON has no number for."""
    return float(value) if math.isfinite(value) else None
