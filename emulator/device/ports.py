"""A device's interconnection: what it sends and receives, on the lanes of its links (FPDeep, section 5.2.1).

A message holds some samples. A device that does a micro-batch in portions may get it in other ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...comm.fifo import Server, Times
from ...comm.host import Mailbox
from ...comm.message import Message, join, split
from ...kernels.arena import Arena
from ..mapping.traffic import DataPath, Lane
from ..network.layers import Tensor
from ..schedule.action import Portion

Maps = NDArray[np.float32] | None


class Outlet(Protocol):
    """Where a device leaves a message for a neighbour."""

    def put(self, message: Message) -> None:
        """Send without waiting."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Maps on their way, with the time of each row of each sample."""

    times: Times
    data: Maps


class Held:
    """The tensors at hand by their numbers, or errors of these: the times of their rows, and their maps."""

    def __init__(self) -> None:
        self.times: dict[int, Times] = {}
        self.data: dict[int, Maps] = {}

    def put(self, tensor: Tensor, times: Times, data: Maps) -> None:
        """Hold a tensor."""
        self.times[tensor.number], self.data[tensor.number] = times, data

    def pop(self, tensor: Tensor) -> Rows:
        """Hold a tensor no longer."""
        return Rows(self.times.pop(tensor.number), self.data.pop(tensor.number, None))

    def rows(self, tensor: Tensor) -> Rows:
        """A tensor that is held."""
        return Rows(self.times[tensor.number], self.data.get(tensor.number))

    def keep(self, tensors: Sequence[Tensor]) -> None:
        """Let go of all others."""
        numbers = {tensor.number for tensor in tensors}
        for held in (self.times, self.data):
            for number in held.keys() - numbers:
                del held[number]


class Ports:
    """The ends of a device's lanes; those on which it sends take their time (`servers`)."""

    def __init__(
        self,
        device: int,
        inlets: Mapping[Lane, Mailbox],
        outlets: Mapping[Lane, Outlet],
        servers: Mapping[Lane, Server],
        arena: Arena,
    ) -> None:
        self._device, self._arena = device, arena
        self._inlets, self._outlets, self._servers = inlets, outlets, servers
        self._rest: dict[Lane, Message] = {}

    def sends_on(self, path: DataPath) -> bool:
        """Whether a data path leads from here to a neighbour."""
        return any(lane.path is path for lane in self._outlets)

    def send(self, lane: Lane, first: int, ready: Times, data: Maps) -> None:
        """Send rows of the samples from `first` on, as they become ready; the message says when they arrive."""
        self._outlets[lane].put(Message(first, self._servers[lane].serve(ready), data))

    def shrink(self, lane: Lane, share: float) -> None:
        """From now on the rows of a lane have this share of their bytes."""
        self._servers[lane].shrink(share)

    def send_untimed(self, lane: Lane, first: int, samples: int, rows: int, data: Maps) -> None:
        """Send outside virtual time."""
        self._outlets[lane].put(Message(first, np.zeros((samples, rows), np.int64), data))

    async def receive(self, lane: Lane, portion: Portion) -> Rows:
        """A portion's samples, which may come in several messages, and more with them."""
        got = self._rest.pop(lane, None) or await self._inlets[lane].get()
        if got.first != portion.first:
            raise RuntimeError(f"device {self._device}: {lane} of sample {got.first} came, {portion.first} was due")
        if len(got.times) < portion.samples:
            parts = [got]
            while sum(len(part.times) for part in parts) < portion.samples:
                parts.append(await self._inlets[lane].get())
            got = join(parts, self._arena)
        if len(got.times) > portion.samples:
            got, self._rest[lane] = split(got, portion.samples)
        return Rows(got.times, got.data)

    async def receive_all(self, path: DataPath, tensors: Sequence[Tensor], portion: Portion) -> Held:
        """A portion of several tensors, or of their errors, which the images need not."""
        held = Held()
        for tensor in tensors:
            if path is DataPath.ACTIVATIONS or not tensor.is_images:
                rows = await self.receive(Lane(path, tensor.number), portion)
                held.put(tensor, rows.times, rows.data)
        return held

    async def next_message(self, lane: Lane) -> Message:
        """The next one, as it comes."""
        return await self._inlets[lane].get()
