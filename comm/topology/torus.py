"""A torus: boards in lines, each line and each column across the lines closed to a ring."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from .cycle import shorter_way
from .topology import Topology

Place = tuple[int, int]
"""A line of the torus, and a place in it."""


@dataclasses.dataclass(frozen=True)
class Torus(Topology):
    """Nodes in the lines of a grid, all of whose rows and columns are rings; by default as square
    as they can be.

    Nodes are numbered along one closed walk over all of them, so those of a chain, and of a ring,
    are one link apart.
    """

    name: ClassVar[str] = "torus"
    links_of_node: ClassVar[int] = 4

    shape: tuple[int, int] | None = None
    """Rows and columns."""

    def problem(self, nodes: int) -> str | None:
        """See `Topology`; a shape must have as many places."""
        if self.shape is None or math.prod(self.shape) == nodes:
            return None
        rows, columns = self.shape
        return f"a torus of {rows} x {columns} has {rows * columns} places"

    def route(self, sender: int, receiver: int) -> tuple[tuple[int, int], ...]:
        """See `Topology`: along the line, then across the lines, the shorter way round each."""
        (line, place), (last_line, last_place) = self._places[sender], self._places[receiver]
        lines, length = self._size
        way = [(line, at) for at in shorter_way(place, last_place, length)]
        # The place where the line is left ends the first part, and would begin the second one
        # again.
        way += [(at, last_place) for at in shorter_way(line, last_line, lines)[1:]]
        numbers = [self._numbers[at] for at in way]
        return tuple(itertools.pairwise(numbers))

    def shares(self, messages: Sequence[tuple[int, int]]) -> list[int]:
        """See `Topology`: routes of a tree's messages, or of several rings, may meet."""
        routes = [self.route(sender, receiver) for sender, receiver in messages]
        # A message that stays at its node passes no link, and shares none.
        load = Counter(link for route in routes for link in route)
        return [max(map(load.__getitem__, route), default=1) for route in routes]

    @functools.cached_property
    def _size(self) -> tuple[int, int]:
        """Lines, and places in each: an even number of lines or, of two odd numbers, the larger
        one.
        """
        assert self.nodes is not None
        rows, columns = self.shape or squarest(self.nodes)
        is_walked_by_rows = rows % 2 == 0 or (columns % 2 == 1 and rows >= columns)
        return (rows, columns) if is_walked_by_rows else (columns, rows)

    @functools.cached_property
    def _places(self) -> tuple[Place, ...]:
        """The place of each node on the walk, such as in 4 lines of 3, and in 3 of 3:

         0  1  2        0  2  1
         5  4  3        4  3  5
         6  7  8        8  7  6
        11 10  9

        Each line is walked all the way round, so that the next one begins a place before, or
        behind, where this one began. The walk closes once these steps add up to a whole line: half
        of an even number of lines go each way; of an odd number, one line's length more go
        backwards.
        """
        lines, length = self._size
        onwards = lines // 2 if lines % 2 == 0 else (lines - length) // 2
        walk, begin = [], 0
        for line in range(lines):
            step = 1 if (line % 2 == 0 if line < 2 * onwards else False) else -1
            walk += [(line, (begin + step * at) % length) for at in range(length)]
            begin = (begin - step) % length
        return tuple(walk)

    @functools.cached_property
    def _numbers(self) -> dict[Place, int]:
        return {place: number for number, place in enumerate(self._places)}


def squarest(nodes: int) -> tuple[int, int]:
    """Return rows and columns that are as near to each other as this number of nodes allows."""
    rows = max(rows for rows in range(1, math.isqrt(nodes) + 1) if nodes % rows == 0)
    return rows, nodes // rows
