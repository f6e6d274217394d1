"""The range of an answer as lines below its first: from where to where, on what grounds, and what to measure first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..common import number, percent
from ..run import AnswerRange
from .answer import Line

_GROUPS = {"board.off_chip": "memory", "board.memory": "memory", "link.": "links", "network.": "network"}
"""What constants are of, by how their keys begin; other constants of boards are of engines."""
_WORDS = {"assumed": "assumed", "data sheet": "by data sheet", "fitted": "fitted to a paper", "measured": "measured"}
"""Classes, the least certain first."""
_ALL = 0.995


def range_lines(answer: AnswerRange | None, shown: Callable[[float], str] = number) -> list[Line]:
    """Return the lines of a range; none without one. `shown` writes a rate, or what is written in its place."""
    if answer is None:
        return []
    low, high = shown(answer.low), shown(answer.high)
    timed = f", by {answer.draws} draws of the timing" if answer.by_timing and answer.classes else ""
    grounds = class_words(answer.classes)
    lines = [f"range: 90 % from {low} to {high}{timed}{'; ' if grounds else ''}{grounds}"]
    if answer.first is not None and answer.first[1] > 0:
        key, share = answer.first
        lines.append(f"measure first: {key} ({'all' if share >= _ALL else percent(share)} of the width)")
    return [Line(text, beside=True) for text in lines]


def at_values(answer: AnswerRange | None) -> str:
    """Return at which values of the constants an answer stands that has a range, with a blank before it.

    It is that of the values in files, and no middle of its range: what a data sheet promises is seldom reached.
    """
    if answer is None or answer.low == answer.high:
        return ""
    return " at measured values" if {*answer.classes.values()} == {"measured"} else " at data-sheet values"


def class_words(classes: Mapping[str, str]) -> str:
    """Return of what class memory, links and engines are, as text; of several, the least certain."""
    order = list(_WORDS)
    groups: dict[str, str] = {}
    for key, kind in classes.items():
        group = next((name for begin, name in _GROUPS.items() if key.startswith(begin)), "engines")
        groups[group] = min(kind, groups.get(group, kind), key=order.index)
    sequence = [*dict.fromkeys(_GROUPS.values()), "engines"]
    return ", ".join(f"{group} {_WORDS[groups[group]]}" for group in sequence if group in groups)
