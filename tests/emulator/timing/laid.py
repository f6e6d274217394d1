"""Topologies after docs/time-model.md: the links that a message takes. Imports nothing of
emuchain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from .described import Table

Hop = tuple[int, int]


class Laid(NamedTuple):
    """Boards, or replicas, on a topology."""

    kind: str
    boards: int
    shape: tuple[int, int]

    @classmethod
    def of(cls, table: Table, boards: int, *, shaped: bool = True) -> Laid:
        """Read a table of links, or of a network, for a number of boards."""
        rows = max(
            rows for rows in range(1, boards + 1) if boards % rows == 0 and rows * rows <= boards
        )
        shape = table.get("shape") if shaped else None
        return cls(
            table.get("topology", "chain"),
            boards,
            tuple(shape) if shape else (rows, boards // rows),
        )

    def way(self, sender: int, receiver: int) -> list[Hop]:
        """The links of a message; through a switch it is one."""
        if self.kind == "chain":
            step = 1 if receiver > sender else -1
            stops = list(range(sender, receiver + step, step))
        elif self.kind == "switch":
            stops = [sender, receiver]
        elif self.kind == "ring":
            stops = list(around(sender, receiver, self.boards))
        else:
            walk = list(self.walk())
            lines, length = (1 + max(place[axis] for place in walk) for axis in (0, 1))
            (line, place), (to_line, to_place) = walk[sender], walk[receiver]
            corners = [(line, at) for at in around(place, to_place, length)]
            corners += [(at, to_place) for at in around(line, to_line, lines) if at != line]
            stops = [walk.index(corner) for corner in corners]
        return list(itertools.pairwise(stops))

    def wires(self, hop: Hop) -> list[tuple[str, int] | Hop]:
        """What streams on a link share: the link, or ports of the two boards."""
        return [("out of", hop[0]), ("into", hop[1])] if self.kind == "switch" else [hop]

    def hops(self, sender: int, receiver: int) -> int:
        """The latencies between two nodes."""
        return len(self.way(sender, receiver)) if sender != receiver else 0

    def ring(self, replicas: int) -> list[int]:
        """Replicas in the order of their ring: folded in a chain, in their own order anywhere
        else.
        """
        own = list(range(replicas))
        return [*own[::2], *own[1::2][::-1]] if self.kind == "chain" else own

    def walk(self) -> Iterator[tuple[int, int]]:
        """The places of a torus as boards are numbered: lines, each walked all round from where the
        last one ended.
        """
        rows, columns = self.shape
        along_rows = rows % 2 == 0 or (columns % 2 == 1 and rows >= columns)
        lines, length = (rows, columns) if along_rows else (columns, rows)
        in_turns, place = lines if lines % 2 == 0 else lines - length, 0
        for line in range(lines):
            up = line < in_turns and line % 2 == 0
            for _ in range(length):
                yield line, place % length
                place += 1 if up else -1
            place -= 1 if up else -1
        assert math.prod(self.shape) == self.boards


def around(begin: int, end: int, length: int) -> Iterator[int]:
    """The places of a ring on the shorter way from one to another; of two equal ones, that of
    rising numbers.
    """
    up = (end - begin) % length
    step = 1 if up <= length - up else -1
    while begin != end:
        yield begin
        begin = (begin + step) % length
    yield end
