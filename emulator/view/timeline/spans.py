"""Spans and flows: what each lane of a run did when, and what fed what.

Three adapters make them: of rows on engines (`rows`), of whole actions (`actions`), of the tasks of a GPU with an FPGA
(`tasks`). A trace, a chart as text and a picture show them, whoever made them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True)
class Lane:
    """A line of a timeline on which one thing is done at a time: an engine, a queue of actions, a link of `device`."""

    device: int
    title: str


class Look(NamedTuple):
    """How a span is drawn: its mark as text; in a picture its colour, its text, hatching, share of a line's height."""

    mark: str
    colour: str
    text: str = ""
    hatch: str | None = None
    height: float = 1.0


@dataclasses.dataclass(frozen=True, eq=False)
class Span:
    """The work of a lane on one thing, from `start_ps` to `end_ps`.

    `label`, `category` and `args` are those of its slice in a trace. `pieces_ps` (n, 2) are the times in between in
    which the lane was busy, where it was not all the time. Where only `busy_ps` of the time is known, it is evenly
    spread.
    """

    lane: Lane
    start_ps: int
    end_ps: int
    label: str
    category: str
    args: Mapping[str, Any]
    look: Look
    pieces_ps: NDArray[np.int64] | None = None
    busy_ps: int | None = None


class Flow(NamedTuple):
    """An arrow from the span on lane `source` at `leaves_ps` to the one on `target` at `enters_ps`."""

    source: Lane
    leaves_ps: int
    target: Lane
    enters_ps: int


@dataclasses.dataclass(frozen=True, eq=False)
class Timeline:
    """A run's devices by name, their lanes in the order in which they are shown, and what happened on these.

    `micro_ps` is shown as a microsecond: where times are in a user's unit, that unit.
    """

    devices: Sequence[str]
    lanes: Sequence[Lane]
    spans: Iterable[Span]
    flows: Iterable[Flow]
    micro_ps: int = 10**6


@dataclasses.dataclass(frozen=True, eq=False)
class ChartLine:
    """A line of a chart: its title as text and in a picture, and its spans; a heading, in text alone, has None."""

    title: str
    label: str
    spans: Sequence[Span] | None


class Style(NamedTuple):
    """Sizes of a picture: its width, the height of a line and of what is around all lines, in inches; `bar` of a line.

    A span has its text if it is wide enough, `digit_inches` for each digit; `edge` is the width of the white line
    around it. Where nothing is done, lines have the colour `idle`.
    """

    width_inches: float
    line_inches: float
    others_inches: float
    bar: float = 0.9
    points: float = 5.0
    digit_inches: float = 0.0
    edge: float = 0.0
    idle: str = ""
    dpi: int = 200


_OF_ROWS = Style(7.2, 0.16, 0.9)


@dataclasses.dataclass(frozen=True, eq=False)
class Chart:
    """Lines from `begin_ps` to `end_ps`.

    As text: `marks` says what marks mean, or below all `notes` do; `idle` stands where nothing is done, and where all
    times are multiples of `grid_ps`, columns are parts of it. In a picture: `axis` is the title of the time axis, whose
    unit is `unit_ps`, `keys` gives colours their meanings, and a rule stands at `rule_ps`.
    """

    lines: Sequence[ChartLine]
    begin_ps: int
    end_ps: int
    axis: str
    marks: str = ""
    notes: str = ""
    unit_ps: int = 10**6
    idle: str = " "
    grid_ps: int | None = None
    title: str = ""
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rule_ps: int | None = None
    style: Style = _OF_ROWS


def lines_by_device(lines: Iterable[tuple[int, str, Sequence[Span]]], label: str) -> Iterator[ChartLine]:
    """Yield the lines of a chart from (device, what, spans), with the device named on its first line.

    `label` is the title in a picture, with places for `device` and `what`.
    """
    given = list(lines)
    ahead = len(f"device {given[-1][0]}")
    width = max(len(what) for _, what, _ in given)
    for device, group in itertools.groupby(given, key=lambda line: line[0]):
        for place, (_, what, spans) in enumerate(group):
            name = f"device {device}" if place == 0 else ""
            title = f"{name:{ahead + 1 + width - len(what)}}{what}" if width else name
            yield ChartLine(title, label.format(device=device, what=what).strip(), spans)
