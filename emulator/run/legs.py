"""Legs of an epoch: mini-batches between two checkpoints, at which the chain is empty.

With `checkpoint_every`, a chain drains after that number of mini-batches, as it does at the end of an epoch. A run's
numbers and its virtual time are therefore the same whether it is interrupted there or not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..plan import ChainPlan
from ..schedule import Schedule


class Position(NamedTuple):
    """How far a run is: the epoch, counted from 0, and how many mini-batches of it are done."""

    epoch: int = 0
    step: int = 0


START = Position()


class Leg(NamedTuple):
    """The mini-batches [first, last) of an epoch."""

    first: int
    last: int

    def samples_of(self, batch: int, samples: int) -> range:
        """Return the positions of its samples in an epoch of `samples` samples."""
        return range(self.first * batch, min(self.last * batch, samples))


def legs_of(steps: int, every: int | None) -> list[Leg]:
    """Return the legs of an epoch of `steps` mini-batches; a single one if `every` is None."""
    size = every or max(steps, 1)
    return [Leg(first, min(first + size, steps)) for first in range(0, steps, size)]


def replica_leg(
    plan: ChainPlan, replica: int, samples: int, leg: Leg, micro_batch: int | None = None
) -> tuple[NDArray[np.int64], Schedule]:
    """Return the positions of a replica's samples in a leg of an epoch of `samples` samples, and their schedule."""
    whole = leg.samples_of(plan.config.batch, samples)
    places = plan.data_parallel.samples_of(replica, len(whole), plan.config.batch) + whole.start
    return places, plan.schedule(len(places), micro_batch)
