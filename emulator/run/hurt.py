"""Bit flips of a plan, for the numerics of its devices and for their exchange."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...comm import Interconnect
from ...comm.exchange import Gradient, GradientMessage, Nic
from ...kernels import CodecError
from ...kernels.codec import Codec
from ..faults import Flipper, FlipTarget, Purpose
from ..plan import ChainPlan
from .segments import Segment

if TYPE_CHECKING:
    from ..device import SoftErrors


class HurtNic(Nic):
    """A NIC on which bits of the messages that it receives flip.

    One that the codec then cannot read has zeros for values, as if its sender had added nothing. `steps` are the
    mini-batches before the first one here.
    """

    def __init__(self, interconnect: Interconnect, codec: Codec, flipper: Flipper, stage: int, steps: int) -> None:
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


def _flipper(plan: ChainPlan, of: FlipTarget, purpose: Purpose, board: int, at: int | None) -> Flipper:
    """Return what flips on a board; `at` is the board or link whose faults count."""
    seed = plan.config.seed if plan.faults.seed is None else plan.faults.seed
    faults = tuple(
        (place, fault)
        for place, fault in plan.faults.flipping(of)
        if (fault.link if of == "messages" else fault.board) in (None, at)
    )
    return Flipper(seed, purpose, board, faults)


def soft_errors(segment: Segment, replica: int, stage: int) -> SoftErrors | None:
    """Return what flips on the device of a stage; None if nothing does."""
    plan = segment.plan
    if not any(plan.faults.flipping(of) for of in ("weights", "activations", "messages")):
        return None
    from ..device import SoftErrors

    device = stage % plan.devices
    board = replica * plan.devices + device
    return SoftErrors(
        _flipper(plan, "weights", Purpose.WEIGHTS, board, board),
        _flipper(plan, "activations", Purpose.ACTIVATIONS, board, board),
        _flipper(plan, "messages", Purpose.MESSAGES, board, board - 1),
        _flipper(plan, "messages", Purpose.MESSAGES, board, board),
        segment.begun(replica),
    )


def nic_of(segment: Segment, replica: int, stage: int) -> Nic:
    """Return the NIC of the device of a stage. Those of aggregators are not hurt."""
    plan = segment.plan
    interconnect, codec = plan.cluster.interconnect, plan.data_parallel.codec
    if not plan.faults.flipping("gradients"):
        return Nic(interconnect, codec)
    board = replica * plan.devices + stage % plan.devices
    flipper = _flipper(plan, "gradients", Purpose.GRADIENTS, board, board)
    if not flipper:
        return Nic(interconnect, codec)
    return HurtNic(interconnect, codec, flipper, stage, segment.begun(replica).steps)
