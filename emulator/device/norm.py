"""The sum of squares of all gradients, before each update, for clipping by their norm (`mapping/crossing.py`).

It is exact, so that its bits depend neither on the cut nor on the order. Partial sums and the total pass in a program
of their own, alongside that of the device, which offers its own sum and collects the total.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...comm import Mailbox
from ...kernels.optimizers import NOT_FINITE, added
from ..mapping import NormSum, StreamKey
from ..timing import DeviceClock, StageClock, hop
from .ports import Ports

Data = NDArray[np.float32]

LIMBS = 48
"""Numbers of a message, 16 bits each: a square takes 554 bits, and a sum of 2**40 of them 594."""
_LIMB_BITS = 16


class Squares(NamedTuple):
    """A sum of squares, and the time in ps at which it is there; None without numbers."""

    total: int | None
    at_ps: int


def to_limbs(squares: int) -> Data:
    """Return a sum of squares as float32 numbers, (1, 1, 1, LIMBS), each exact; NaN of one that is not finite."""
    mask = (1 << _LIMB_BITS) - 1
    limbs = [np.nan] * LIMBS
    if squares != NOT_FINITE:
        limbs = [squares >> _LIMB_BITS * place & mask for place in range(LIMBS)]
    return np.array(limbs, np.float32).reshape(1, 1, 1, LIMBS)


def of_limbs(limbs: Data) -> int:
    """Return the sum of squares that `to_limbs` took."""
    if np.isnan(limbs).any():
        return NOT_FINITE
    return sum(int(limb) << _LIMB_BITS * place for place, limb in enumerate(limbs.reshape(-1).tolist()))


class NormSums:
    """A device's part in the sums of squares; `norm` is None on a chain of one device."""

    def __init__(self, clock: DeviceClock | StageClock, ports: Ports, norm: NormSum | None) -> None:
        self._clock, self._ports, self._norm = clock, ports, norm
        self._device = clock.streams.device
        self._offered, self._totals = Mailbox(), Mailbox()

    def offer(self, squares: Squares) -> None:
        """Give this device's sum of a mini-batch."""
        (self._totals if self._norm is None else self._offered).put(squares)

    async def total(self) -> Squares:
        """Return the sum over all devices."""
        squares: Squares = await self._totals.get()
        return squares

    def relays(self, steps: int) -> list[Coroutine[Any, Any, None]]:
        """Return the program of an epoch of `steps` mini-batches."""
        return [] if self._norm is None else [self._relay(self._norm, steps)]

    async def _relay(self, norm: NormSum, steps: int) -> None:
        right, left = norm.key(forward=True), norm.key(forward=False)
        for step in range(steps):
            squares: Squares = await self._offered.get()
            if self._device > norm.first:
                before = await self._take(right)
                whole = None
                if squares.total is not None and before.total is not None:
                    whole = added(before.total, squares.total)
                squares = Squares(whole, max(squares.at_ps, before.at_ps))
            if self._device < norm.last:
                self._send(step, right, squares)
                squares = await self._take(left)
            self._totals.put(squares)
            if self._device > norm.first:
                self._send(step, left, squares)

    async def _take(self, key: StreamKey) -> Squares:
        times = (await self._ports.next_message(key)).times
        limbs = (await self._ports.next_message(key._replace(values=True))).data
        return Squares(None if limbs is None else of_limbs(limbs), int(times[0, 1]))

    def _send(self, step: int, key: StreamKey, squares: Squares) -> None:
        made = hop(self._clock.bursts, key, np.full((1, 2), squares.at_ps, np.int64), None)
        self._ports.send(key, step, made.sends_ps, None)
        limbs = None if squares.total is None else to_limbs(squares.total)
        self._ports.send_untimed(key._replace(values=True), step, limbs)
