"""A segment of a run: the mini-batches that one plan trains, and what ended it."""

from __future__ import annotations

import dataclasses

from ..faults import Begun, BoardDeath
from ..plan import ChainPlan
from .legs import START, Leg, Position, legs_of


@dataclasses.dataclass(frozen=True)
class Death:
    """How a segment ended: the board that died, in the leg that begins at `at`, and how many boards are left.

    Work of `lost_ps` is lost; the others go on at the virtual time `back_ps`.
    """

    of: BoardDeath
    at: Position
    leg: Leg
    left: int
    lost_ps: int
    back_ps: int


@dataclasses.dataclass(frozen=True)
class Segment:
    """What a plan trains: the mini-batches from `begin` to `end` of a run with `samples` samples in an epoch.

    Its clocks begin at 0 when the virtual time is `start_ps`. `death` is what ended it, unless it is the last one.
    """

    plan: ChainPlan
    samples: int
    begin: Position = START
    start_ps: int = 0
    death: Death | None = None

    @property
    def end(self) -> Position:
        """Where the next segment goes on, or the end of the run."""
        return Position(self.plan.config.epochs) if self.death is None else self.death.at

    @property
    def all_legs(self) -> list[Leg]:
        """The legs of each epoch."""
        return legs_of(-(-self.samples // self.plan.config.batch), self.plan.config.checkpoint_every)

    def legs(self) -> list[tuple[int, Leg]]:
        """Return its legs, each with the number of its epoch."""
        every = ((number, leg) for number in range(self.begin.epoch, self.end.epoch + 1) for leg in self.all_legs)
        return [(number, leg) for number, leg in every if self.begin <= (number, leg.first) < self.end]

    def begun(self, replica: int) -> Begun:
        """Return what a replica's chain has behind it where the clocks begin."""
        of, config, (epoch, step) = self.plan.data_parallel, self.plan.config, self.begin
        samples = epoch * len(of.samples_of(replica, self.samples, config.batch)) if epoch else 0
        samples += len(of.samples_of(replica, step * config.batch, config.batch)) if step else 0
        return Begun(samples, epoch * self.all_legs[-1].last + step, self.start_ps)
