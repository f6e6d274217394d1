"""What a page is made of: sections of text, charts and tables, as plain data, and how numbers are
written in them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ...common import Mean, format_time_ps, percent

TIME_UNITS_PS = {
    "ps": 1,
    "ns": 10**3,
    "µs": 10**6,
    "ms": 10**9,
    "s": 10**12,
    "min": 6 * 10**13,
    "h": 36 * 10**14,
}

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure that answers a question: its name, its value with unit, and a note."""

    name: str
    value: str
    note: str = ""
    is_warning: bool = False
    is_wide: bool = False


MOST_CURVES = 12
"""Largest number of runs that a page tells apart: that of colours."""


@dataclasses.dataclass(frozen=True)
class CurveMark:
    """How a run's curve is drawn: its colour, and in greys the shape of its points with the dashes
    of its line.

    `colour` is a CSS variable, `symbol` a name of Observable Plot, `path` the same shape around
    (13, 5) in SVG's words.
    """

    colour: str
    symbol: str
    path: str
    dashes: str

    @classmethod
    def of(cls, place: int) -> CurveMark:
        """Return the mark of the run at a place on the page, from 0."""
        dashed, shape = divmod(place % MOST_CURVES, len(_SHAPES))
        symbol, path = _SHAPES[shape]
        return cls(f"run-{place % MOST_CURVES}", symbol, path, _DASHES[dashed])


_SHAPES = (
    ("circle", "M9.6 5a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0"),
    ("square", "M9.9 1.9h6.2v6.2h-6.2z"),
    ("triangle", "M13 .7L17 8.2H9z"),
    ("diamond", "M13 0L16.2 5L13 10L9.8 5z"),
    ("cross", "M11.9 1h2.2v2.9h2.9v2.2h-2.9v2.9h-2.2v-2.9h-2.9v-2.2h2.9z"),
    ("star", "M13 0l1.2 3.4h3.6l-2.9 2.2l1.1 3.5l-3 -2.1l-3 2.1l1.1 -3.5l-2.9 -2.2h3.6z"),
)
_DASHES = ("", "6 3")


@dataclasses.dataclass(frozen=True)
class Key:
    """An entry of a legend: a name, the CSS variable of its colour, and the mark that it stands
    for.
    """

    name: str
    colour: str
    mark: Literal["box", "line", "dashes", "curve"] = "box"
    curve: CurveMark | None = None

    @classmethod
    def of_curve(cls, name: str, place: int) -> Key:
        """Return the entry of the run at a place on the page, from 0."""
        mark = CurveMark.of(place)
        return cls(name, mark.colour, "curve", mark)


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart: `kind` names what draws `data` (static/*.js); `title` says what it shows, with
    units.
    """

    kind: str
    title: str
    data: dict[str, Any]
    legend: tuple[Key, ...] = ()
    is_wide: bool = True


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of text, with a note on it; the columns named in `left` are left-aligned.

    `marks` are those of rows that stand for curves; rows in `below` are parts of the one before
    them.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: tuple[str, ...] = ()
    marks: Mapping[int, Key] = dataclasses.field(default_factory=dict)
    below: frozenset[int] = frozenset()
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Text:
    """A text of several lines, shown as it is."""

    title: str
    text: str


@dataclasses.dataclass(frozen=True)
class Section:
    """A section: its title, what it says in a sentence or two, and what shows it; `legend` is that
    of all charts.
    """

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
    """What a page says about a run: its name, what ran on what, what came of it; `note`: of which
    seed the rest is.
    """

    name: str
    title: str
    headline: str
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]
    mark: Key
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Page:
    """A page: its title, the answer, what compares the runs, a part for each of them, and what its
    terms mean.
    """

    title: str
    headline: str
    comparison: tuple[Table, ...]
    shared: tuple[Section, ...]
    runs: tuple[RunPart, ...]
    version: str
    terms: str = ""


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
    return (
        f"{samples_per_s:,.0f} {noun}s/s"
        if samples_per_s >= 100
        else f"{samples_per_s:.3g} {noun}s/s"
    )


def finite(value: float) -> float | None:
    """Return a number; None where it is NaN or infinite, which JSON has no number for."""
    return float(value) if math.isfinite(value) else None


def share_text(share: Mean) -> str:
    """Return a share as text in percent, with its standard error over seeds, if there are several;
    "–" for NaN.
    """
    if math.isnan(share.value):
        return "–"
    return (
        percent(share.value)
        if math.isinf(share.error)
        else f"{100 * share.value:.1f} ± {100 * share.error:.1f} %"
    )


def time_text(ps: Mean) -> str:
    """Return a time in ps as text, with its standard error over seeds, if that can be seen; "–" for
    NaN.
    """
    if math.isnan(ps.value):
        return "–"
    text = time(round(ps.value))
    number, *units = text.split()
    if len(units) > 1:  # minutes and seconds, or hours and minutes
        return (
            text
            if math.isinf(ps.error) or ps.error < 10**12
            else f"{text} ± {time(round(ps.error))}"
        )
    error = ps.error / TIME_UNITS_PS[units[0]]
    digits = len(number.partition(".")[2])
    if math.isinf(error) or error < 0.5 * 10**-digits:
        return text
    return f"{number} ± {error:.{digits}f} {units[0]}"
