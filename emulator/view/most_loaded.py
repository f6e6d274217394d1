"""The rows of a table that matter first: those of the most loaded devices, links or slices."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

MOST_ROWS = 5

T = TypeVar("T")


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
