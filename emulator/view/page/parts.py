"""What a page is made of: sections of text, charts and tables, as plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal


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
