"""Segments of a run: the mini-batches that one plan trains, their legs, what ended them, and bits
that flip in them.

A leg lies between two checkpoints, at which the chain is empty. With `checkpoint_every`, a chain
drains after that number of mini-batches, as it does at the end of an epoch. A run's numbers and its
virtual time are therefore the same whether it is interrupted there or not.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...comm import Interconnect
from ...comm.exchange import Gradient, GradientMessage, Nic
from ...kernels import CodecError
from ...kernels.codec import Codec
from ..faults import Begun, BoardDeath, Flipper, FlipTarget, Purpose
from ..plan import ChainPlan
from ..schedule import Schedule

if TYPE_CHECKING:
    from ..device import SoftErrors


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
    """Return the positions of a replica's samples in a leg of an epoch of `samples` samples, and
    their schedule.
    """
    whole = leg.samples_of(plan.config.batch, samples)
    places = plan.data_parallel.samples_of(replica, len(whole), plan.config.batch) + whole.start
    return places, plan.schedule(len(places), micro_batch)


@dataclasses.dataclass(frozen=True)
class Death:
    """How a segment ended: the board that died, in the leg that begins at `at`, and how many boards
    are left.

    Work of `lost_ps` is lost; the others go on at the virtual time `back_ps`.
    """

    fault: BoardDeath
    at: Position
    leg: Leg
    left: int
    lost_ps: int
    back_ps: int


@dataclasses.dataclass(frozen=True)
class Segment:
    """What a plan trains: the mini-batches from `begin` to `end` of a run with `samples` samples in
    an epoch.

    Its clocks begin at 0 when the virtual time is `start_ps`. `death` is what ended it, unless it
    is the last one, or formats change after some epochs (`last`); the next one begins then once it
    has ended.
    """

    plan: ChainPlan
    samples: int
    begin: Position = START
    start_ps: int = 0
    death: Death | None = None
    last: int | None = None

    @property
    def end(self) -> Position:
        """Where the next segment goes on, or the end of the run."""
        if self.death is not None:
            return self.death.at
        return Position(self.plan.config.epochs if self.last is None else self.last)

    @property
    def all_legs(self) -> list[Leg]:
        """The legs of each epoch."""
        return legs_of(
            -(-self.samples // self.plan.config.batch), self.plan.config.checkpoint_every
        )

    def legs(self) -> list[tuple[int, Leg]]:
        """Return its legs, each with the number of its epoch."""
        every = (
            (number, leg)
            for number in range(self.begin.epoch, self.end.epoch + 1)
            for leg in self.all_legs
        )
        return [
            (number, leg) for number, leg in every if self.begin <= (number, leg.first) < self.end
        ]

    def begun(self, replica: int) -> Begun:
        """Return what a replica's chain has behind it where the clocks begin."""
        parallel, config, (epoch, step) = self.plan.data_parallel, self.plan.config, self.begin
        samples = (
            epoch * len(parallel.samples_of(replica, self.samples, config.batch)) if epoch else 0
        )
        samples += (
            len(parallel.samples_of(replica, step * config.batch, config.batch)) if step else 0
        )
        return Begun(samples, epoch * self.all_legs[-1].last + step, self.start_ps)


class FaultyNic(Nic):
    """A NIC on which bits of the messages that it receives flip.

    One that the codec then cannot read has zeros for values, as if its sender had added nothing.
    `steps` are the mini-batches before the first one here.
    """

    def __init__(
        self, interconnect: Interconnect, codec: Codec, flipper: Flipper, stage: int, steps: int
    ) -> None:
        super().__init__(interconnect, codec)
        self._flipper, self._stage = flipper, stage
        self._first, self._opened = steps << 32, 0

    def open(self, message: GradientMessage, count: int) -> NDArray[np.float32] | None:
        """Return the `count` values of a message that has arrived; None with timing only."""
        if message.payload is None:
            return None
        payload = self._flipper.payload(message.payload, self._stage, self._first + self._opened)
        self._opened += 1
        try:
            return super().open(dataclasses.replace(message, payload=payload), count)
        except CodecError:
            return np.zeros(count, np.float32)

    def round(self, gradient: Gradient, message: GradientMessage) -> None:
        """Set a block to the values that receivers get if no bit flips on the way."""
        gradient.put(super().open(message, gradient.count))

    def state(self) -> Any:
        """Return the training state."""
        return super().state(), self._opened

    def restore(self, state: Any) -> None:
        """Restore what `state` returned."""
        traffic, self._opened = state
        super().restore(traffic)


def _flipper(
    plan: ChainPlan, target: FlipTarget, purpose: Purpose, board: int, at: int | None
) -> Flipper:
    """Return what flips on a board; `at` is the board or link whose faults count."""
    seed = plan.config.seed if plan.faults.seed is None else plan.faults.seed
    faults = tuple(
        (place, fault)
        for place, fault in plan.faults.flipping(target)
        if (fault.link if target == "messages" else fault.board) in (None, at)
    )
    return Flipper(seed, purpose, board, faults)


def soft_errors(segment: Segment, replica: int, stage: int) -> SoftErrors | None:
    """Return what flips on the device of a stage; None if nothing does."""
    plan = segment.plan
    if not any(plan.faults.flipping(target) for target in ("weights", "activations", "messages")):
        return None
    from ..device import SoftErrors

    device = plan.fold.device(stage)
    board = replica * plan.devices + device
    return SoftErrors(
        _flipper(plan, "weights", Purpose.WEIGHTS, board, board),
        _flipper(plan, "activations", Purpose.ACTIVATIONS, board, board),
        _flipper(plan, "messages", Purpose.MESSAGES, board, board - 1),
        _flipper(plan, "messages", Purpose.MESSAGES, board, board),
        segment.begun(replica),
        {
            stream.key: stream
            for stream in (
                *plan.timing.sent(stage - 1, forward=True),
                *plan.timing.sent(stage, forward=False),
            )
        },
    )


def nic_of(segment: Segment, replica: int, stage: int) -> Nic:
    """Return the NIC of the device of a stage. Those of aggregators are not faulty."""
    plan = segment.plan
    interconnect, codec = plan.interconnect, plan.data_parallel.codec
    if not plan.faults.flipping("gradients"):
        return Nic(interconnect, codec)
    board = replica * plan.devices + plan.fold.device(stage)
    flipper = _flipper(plan, "gradients", Purpose.GRADIENTS, board, board)
    if not flipper:
        return Nic(interconnect, codec)
    return FaultyNic(interconnect, codec, flipper, stage, segment.begun(replica).steps)
