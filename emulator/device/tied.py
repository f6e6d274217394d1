"""The exchange of tied weights' gradients, before each update, between their devices (`mapping/crossing.py`).

Each direction of an exchange is a program of its own on every device that it passes, alongside the device's program:
this one offers the device's gradients when they are there, and collects what came before it updates. Times travel as
those of a table's first and last row, and the table as a whole.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...comm import Mailbox, Message, Times
from ..mapping import TiedWeights
from ..timing import DeviceClock, StageClock, hop
from .ports import Ports

if TYPE_CHECKING:
    from .device_numerics import DeviceNumerics

Data = NDArray[np.float32]
_WAYS = True, False  # forward, and back


class _Held(NamedTuple):
    """What the programs of a device exchange with its own program, for weights of which it holds a part.

    By direction, forward or not: the device's own part, and what came from the other end.
    """

    tied: TiedWeights
    offered: Mapping[bool, Mailbox]
    came: Mapping[bool, Mailbox]


class Tied:
    """The tied weights whose gradients a device sends, takes or relays."""

    def __init__(
        self,
        clock: DeviceClock | StageClock,
        numerics: DeviceNumerics | None,
        ports: Ports,
        tied: Sequence[TiedWeights],
    ) -> None:
        self._clock, self._numerics, self._ports = clock, numerics, ports
        self._device = device = clock.streams.device
        self._held = [
            _Held(own, {way: Mailbox() for way in _WAYS}, {way: Mailbox() for way in _WAYS})
            for own in tied
            if own.has_embedding(device) or own.has_head(device)
        ]
        self._passing = [own for own in tied if own.first <= device <= own.last]

    @property
    def holds(self) -> bool:
        """Whether the device holds tied weights."""
        return bool(self._held)

    def offer(self, step: int, ready_ps: int) -> None:
        """Give a mini-batch's gradients, which are there at `ready_ps`, to the exchange."""
        for held in self._held:
            for forward, mailbox in held.offered.items():
                if self._ends(held.tied, forward)[0]:
                    part = (
                        None if self._numerics is None else self._numerics.tied_gradient(held.tied, of_head=not forward)
                    )
                    mailbox.put(Message(step, np.full((1, 2), ready_ps, np.int64), part))

    async def collect(self) -> int:
        """Take the gradients of the other ends, and add them; return when they had come, in ps, 0 if none do."""
        came_ps = 0
        for held in self._held:
            tables = []
            for forward, mailbox in held.came.items():
                message = await mailbox.get()
                if self._ends(held.tied, forward)[1]:
                    came_ps = max(came_ps, int(message.times[0, 1]))
                tables.append(message.data)
            if self._numerics is not None:
                self._numerics.take_tied(held.tied, *tables)
        return came_ps

    def _ends(self, tied: TiedWeights, forward: bool) -> tuple[bool, bool]:
        """Return whether this device adds a part to what goes in a direction, and whether it needs the sum."""
        ends = tied.has_embedding(self._device), tied.has_head(self._device)
        return ends if forward else ends[::-1]

    def relays(self, steps: int) -> list[Coroutine[Any, Any, None]]:
        """Return the programs of an epoch of `steps` mini-batches."""
        return [self._relay(tied, steps, forward=forward) for tied in self._passing for forward in _WAYS]

    async def _relay(self, tied: TiedWeights, steps: int, *, forward: bool) -> None:
        """Take what comes in a direction, add this device's part, if it has one, and pass it on."""
        key, adds = tied.key(forward=forward), self._ends(tied, forward)[0]
        ends = (tied.first, tied.last) if forward else (tied.last, tied.first)
        held = next((held for held in self._held if held.tied == tied), None)
        for step in range(steps):
            times: Times | None = None
            table: Data | None = None
            if self._device != ends[0]:
                times = (await self._ports.next_message(key)).times
                table = (await self._ports.next_message(key._replace(values=True))).data
            own = await held.offered[forward].get() if held is not None and adds else None
            if own is not None and self._numerics is not None:
                table = self._numerics.with_part(tied, table, own.data, of_head=not forward)
            made = hop(self._clock.bursts, key, times, None if own is None else own.times)
            if held is not None:
                held.came[forward].put(Message(step, made.came_ps, table))
            if self._device != ends[1]:
                self._ports.send(key, step, made.sends_ps, None)
                self._ports.send_untimed(key._replace(values=True), step, table)
