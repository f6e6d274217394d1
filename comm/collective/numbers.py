"""What a collective makes of values: its steps, carried out with arrays.

Sums are formed in the order of the steps, received values added to a node's own: bits depend on the
collective alone, not on how many processes run it or when messages come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from .collective import Phase, Round

Values = NDArray[np.float32]


def piece_bounds(count: int, pieces: int) -> list[int]:
    """Return where pieces of `count` values begin, and the last one ends: of equal size, the first
    ones a value longer (INCEPTIONN, Algorithm 1, line 8).
    """
    size, longer = divmod(count, pieces)
    return [place * size + min(place, longer) for place in range(pieces + 1)]


def carry_out(phases: Iterable[Phase], values: Sequence[Values]) -> None:
    """Carry phases out on the values of all nodes, in place."""
    for phase in phases:
        bounds = piece_bounds(values[0].size, phase.pieces)
        for steps in phase.rounds:
            _carry_out(steps, values, bounds)


def _carry_out(steps: Round, values: Sequence[Values], bounds: Sequence[int]) -> None:
    parts = [slice(bounds[step.first], bounds[step.stop]) for step in steps]
    # Of before the round: partners exchange what they both had.
    moved = [values[step.sender][part].copy() for step, part in zip(steps, parts, strict=True)]
    for step, part, sent in zip(steps, parts, moved, strict=True):
        own = values[step.receiver][part]
        own[...] = sent + own if step.adds else sent
