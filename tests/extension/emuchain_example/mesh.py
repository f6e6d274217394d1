"""A mesh: boards in rows and columns, each linked to its neighbours; `topology =
"mesh:shape=2x3"`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import ClassVar

from emuchain.comm import Topology


@dataclasses.dataclass(frozen=True)
class Mesh(Topology):
    """Nodes numbered along the rows, every other row backwards, so that neighbours of a chain are
    linked.
    """

    name: ClassVar[str] = "mesh"
    shape: tuple[int, ...] = (2, 3)

    def problem(self, nodes: int) -> str | None:
        """See `Topology`."""
        rows, columns = self.shape
        return (
            None
            if rows * columns == nodes
            else f"a mesh of {rows} x {columns} has {math.prod(self.shape)} places"
        )

    def route(self, sender: int, receiver: int) -> tuple[tuple[int, int], ...]:
        """See `Topology`: along the row, then along the column."""
        (row, column), (last_row, last_column) = self._place(sender), self._place(receiver)
        path = [(row, at) for at in _way(column, last_column)]
        path += [(at, last_column) for at in _way(row, last_row)[1:]]
        return tuple(itertools.pairwise(map(self._number, path)))

    def _place(self, node: int) -> tuple[int, int]:
        row, at = divmod(node, self.shape[1])
        return row, at if row % 2 == 0 else self.shape[1] - 1 - at

    def _number(self, place: tuple[int, int]) -> int:
        row, column = place
        return row * self.shape[1] + (column if row % 2 == 0 else self.shape[1] - 1 - column)


def _way(first: int, last: int) -> list[int]:
    return [*range(first, last, 1 if first < last else -1), last]
