"""All-reduces in two halves, between which each rank has the sum of a piece of its own: a
reduce-scatter and an all-gather.

Sharded optimisers work between the two (ZeRO, SC 2020, section 5): each rank updates its own
parameters from its piece of the sum, and the second half carries new parameters in place of sums.
The rounds are those of the whole collective, and so is the order of each sum:

    ring of 4    round  1   2   3   | 4   5   6
                        adds, adds, | stores, stores: parameters, which no codec takes
                                    each rank updates its piece
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar

from ..topology import Topology
from .collective import ON_SWITCH, Collective, Phase


@dataclasses.dataclass(frozen=True)
class _Halves(Collective):
    """A collective whose phases after its last sum are of weights."""

    whole: Collective

    name: ClassVar[str] = "halves"

    def problem(self, ranks: int) -> str | None:
        """See `Collective`; also if ranks have no equal pieces of the sum on the way."""
        problem = self.whole.problem(ranks)
        if problem is None and not _pieces(self.phases(ranks), self.whole.nodes(ranks), ranks):
            problem = f"its steps do not leave each of {ranks} ranks an equal piece of the sum"
        return problem

    def nodes(self, ranks: int) -> int:
        """See `Collective`."""
        return self.whole.nodes(ranks)

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        return [*_split(self.whole.phases(ranks, topology))]


def halves(collective: Collective) -> Collective:
    """Return an all-reduce in two halves: phases that add, then those that pass sums on, which are
    `of_weights`.

    It has a `problem` if each rank does not have an equal piece of the sum after the first half.
    """
    return _Halves(collective)


def own_pieces(phases: Sequence[Phase], ranks: int) -> list[int]:
    """Return the piece of each rank between the halves of a collective."""
    return _pieces(phases, ranks, ranks)


def _split(phases: Sequence[Phase]) -> Iterator[Phase]:
    adding = [
        (number, place)
        for number, phase in enumerate(phases)
        for place, steps in enumerate(phase.rounds)
        if any(step.adds for step in steps)
    ]
    last, count = max(adding, default=(-1, -1))
    for number, phase in enumerate(phases):
        first = 0 if number > last else len(phase.rounds) if number < last else count + 1
        for rounds, of_weights in ((phase.rounds[:first], False), (phase.rounds[first:], True)):
            if rounds:
                yield Phase(phase.pieces, rounds, of_weights)


def _pieces(phases: Sequence[Phase], nodes: int, ranks: int) -> list[int]:
    """Return the piece of each rank: the one that it is not sent after the last sum; [] if not all
    have one each.
    """
    if nodes != ranks or any(phase.pieces != ranks for phase in phases):
        return []
    left = [set(range(ranks)) for _ in range(ranks)]
    for phase in phases:
        for step in itertools.chain(*phase.rounds) if phase.of_weights else ():
            left[step.receiver].difference_update(range(step.first, step.stop))
    own = [min(pieces) for pieces in left if len(pieces) == 1]
    return own if len({*own}) == ranks else []
