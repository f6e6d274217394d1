"""Boards that die: the others notice it, are cut anew, loaded, and resume from the last checkpoint."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from ..common import NotNegative, format_time_ps
from .span import Microseconds, picoseconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoardDeath:
    """A board that dies at a virtual time and stays dead.

    All others stop: what they have computed since the last checkpoint is lost. They notice it `detect_us` later, and
    have their new slices, configured and loaded, `reload_us` after that.
    """

    board: NotNegative
    at_us: Microseconds
    detect_us: Microseconds = 1e6
    reload_us: Microseconds = 1e6

    @property
    def at_ps(self) -> int:
        """When it dies, in ps."""
        return picoseconds(self.at_us)

    @property
    def detect_ps(self) -> int:
        """Time in ps from then until the others notice it."""
        return picoseconds(self.detect_us)

    @property
    def reload_ps(self) -> int:
        """Time in ps in which the others are configured anew and loaded."""
        return picoseconds(self.reload_us)

    def __str__(self) -> str:
        return f"board {self.board} dies at {format_time_ps(self.at_ps)}"


def left_alive(boards: int, dead: Sequence[BoardDeath]) -> list[int]:
    """Return the boards of a chain that are left, in its order."""
    gone = {death.board for death in dead}
    return [board for board in range(boards) if board not in gone]


def joined_links(alive: Sequence[int]) -> list[range]:
    """Return for each link between boards that are left the former links that it consists of."""
    return [range(left, right) for left, right in itertools.pairwise(alive)]
