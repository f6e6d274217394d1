"""A table on the screen, drawn by rich: in parts where it is too wide, and short, of the rows that matter first."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..common import escaped
from .terminal import is_terminal, screen_width, wrapped

_GAP = 2

MOST_ROWS = 5
_MOST_DRAWN = 1000
"""Rows that rich draws, at half a millisecond each; further ones are aligned alike, and wrap nothing."""
T = TypeVar("T")


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Sequence[str] = (),
    names: Sequence[str] = (),
) -> None:
    """Print a table under a blank line; columns named in `left` hold words, which may wrap, and in `names`, which not.

    These are left-aligned, all others right-aligned. Where the screen is narrower than all columns, those that find no
    room follow in a second table, with the first column repeated.
    """
    rows = [[escaped(cell) for cell in row] for row in rows]
    sizes = [_least_and_most(title, [row[i] for row in rows], title in left) for i, title in enumerate(columns)]
    width = screen_width()
    for number, part in enumerate(_parts([least for least, _ in sizes], width)):
        words = [columns[i] in left or columns[i] in names for i in part]
        widths = _widths([sizes[i] for i in part], words, width)
        cells = [[row[i] for i in part] for row in rows]
        shown = f"{title} (continued)" if number else title
        _draw(shown, [columns[i] for i in part], cells, words, widths)


def _least_and_most(title: str, cells: Sequence[str], wraps: bool) -> tuple[int, int]:
    """Return the least width of a column, in which no word and no number breaks, and the width without any wrap."""
    words = title.split()
    for cell in cells:
        words += cell.split() if wraps else cell.splitlines()
    lines = [line for cell in cells for line in cell.splitlines()]
    return max(map(len, words), default=0), max(map(len, [title, *lines]))


def _parts(least: Sequence[int], width: int) -> list[list[int]]:
    """Return the columns of each part; the first column stands in all of them."""
    parts, taken = [[0]], least[0]
    for column in range(1, len(least)):
        needed = _GAP + least[column]
        if taken + needed > width and len(parts[-1]) > 1:
            parts.append([0])
            taken = least[0]
        parts[-1].append(column)
        taken += needed
    return parts


def _widths(sizes: Sequence[tuple[int, int]], words: Sequence[bool], width: int) -> list[int]:
    """Return the widths of a part's columns: room that is left goes to words first, to all alike, then to titles."""
    widths = [least for least, _ in sizes]
    spare = max(0, width - sum(widths) - _GAP * (len(widths) - 1))
    for kind in (True, False):
        while spare and (short := [i for i, (_, most) in enumerate(sizes) if words[i] is kind and widths[i] < most]):
            for column in short[:spare]:
                widths[column] += 1
            spare -= len(short[:spare])
    return widths


def _draw(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Sequence[bool],
    widths: Sequence[int],
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    padding = (0, _GAP - 1, 0, 0)  # beside the blank that the box puts between two columns
    drawn = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=padding)
    for column, holds_words, width in zip(columns, words, widths, strict=True):
        drawn.add_column(Text(column), justify="left" if holds_words else "right", width=width, overflow="fold")
    for row in rows[:_MOST_DRAWN]:
        drawn.add_row(*map(Text, row))
    on_terminal = is_terminal()
    console = Console(
        file=sys.stdout,
        width=max(screen_width(), sum(widths) + _GAP * len(widths)),
        force_terminal=on_terminal,  # Open MPI gives ranks a terminal of their own
        highlight=False,
    )
    with console.capture() as captured:
        for line in wrapped(title, screen_width()):
            console.print(Text(escaped(line), style="bold"))
        console.print(drawn)
    print(file=console.file)
    lines = captured.get().splitlines()
    for row in rows[_MOST_DRAWN:]:
        cells = zip(row, words, widths, strict=True)
        aligned = [cell.ljust(width) if holds_words else cell.rjust(width) for cell, holds_words, width in cells]
        lines.append((" " * _GAP).join(aligned))
    print("\n".join(line.rstrip() for line in lines), file=console.file)


def most_loaded(
    title: str, kind: str, items: Sequence[T], load: Callable[[T], float], full: bool
) -> tuple[str, list[T]]:
    """Return a table's title and the items that it shows, in their order: the most loaded ones, or all if `full`.

    The title says how many there are of this `kind`, where some are left out.
    """
    if full or len(items) <= MOST_ROWS:
        return title, list(items)
    chosen = sorted(heapq.nlargest(MOST_ROWS, range(len(items)), key=lambda place: load(items[place])))
    left_out = f"{MOST_ROWS} of {len(items):,} {kind}, the most loaded; --full shows all"
    return f"{title}: {left_out}", [items[place] for place in chosen]
