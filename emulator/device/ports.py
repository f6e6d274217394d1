"""A device's interconnection: the ends of its streams (FPDeep, section 5.2.1).

A message holds one or more samples; its bounds need not match the spans in which the receiver
works.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...comm import Mailbox, Message, Times, join_messages, split
from ...kernels import Arena
from ..mapping import StreamKey
from ..schedule import SampleSpan


class Maps(dict[StreamKey, NDArray[np.float32]]):
    """Maps of some samples, by stream; `scales` are the exponents of those that have a scale."""

    def __init__(self, maps: Mapping[StreamKey, NDArray[np.float32]] | None = None) -> None:
        super().__init__(maps or {})
        self.scales: dict[StreamKey, int] = {}


class Scales(Protocol):
    """What a device knows of the scales of maps, as exponents."""

    def of(self, key: StreamKey) -> int:
        """Return that of what a stream carries; 0 without a scale."""

    def hear(self, key: StreamKey, exponent: int) -> None:
        """Take that of what a stream has brought."""


class Outlet(Protocol):
    """Destination of a device's messages to a neighbour."""

    def put(self, message: Message) -> None:
        """Send without waiting."""


class Ports:
    """The ends of a device's streams, by their keys."""

    def __init__(
        self,
        device: int,
        inlets: Mapping[StreamKey, Mailbox],
        outlets: Mapping[StreamKey, Outlet],
        arena: Arena,
    ) -> None:
        self.device, self._arena = device, arena
        self._inlets, self._outlets = inlets, outlets
        self._rest: dict[StreamKey, Message] = {}
        self.goes_apart, self.comes_apart = _apart(outlets), _apart(inlets)
        """Streams that carry times alone, while their values travel apart, in no virtual time, out
        and in.

        So it is between devices that share a recurrent layer: values then need others of the same
        action in return.
        """

    def send(
        self,
        key: StreamKey,
        first: int,
        arrives: Times,
        data: NDArray[np.float32] | None,
        scale: int = 0,
    ) -> None:
        """Send samples from `first` on, whose rows arrive at the times `arrives` (samples, rows) in
        ps.
        """
        self._outlets[key].put(Message(first, arrives, data, scale))

    def send_untimed(
        self, key: StreamKey, first: int, data: NDArray[np.float32] | None, scale: int = 0
    ) -> None:
        """Send outside virtual time; without data, an empty message."""
        shape = (1, 1) if data is None else data.shape[:2]
        self._outlets[key].put(Message(first, np.zeros(shape, np.int64), data, scale))

    async def receive(self, key: StreamKey, span: SampleSpan) -> Message:
        """Return a span's samples, joining or splitting messages as needed."""
        # What the span before left of its last message comes first.
        got = self._rest.pop(key, None) or await self._inlets[key].get()
        if got.first != span.first:
            raise RuntimeError(
                f"device {self.device}: {key} of sample {got.first} came, {span.first} was expected"
            )
        if len(got.times) < span.samples:
            parts = [got]
            while sum(len(part.times) for part in parts) < span.samples:
                parts.append(await self._inlets[key].get())
            got = join_messages(parts, self._arena)
        if len(got.times) > span.samples:
            got, self._rest[key] = split(got, span.samples)
        return got

    async def next_message(self, key: StreamKey) -> Message:
        """Return the next message unchanged."""
        return await self._inlets[key].get()


def _apart(ends: Collection[StreamKey]) -> frozenset[StreamKey]:
    return frozenset(
        key._replace(values=False) for key in ends if key.values and not key.path.is_balanced
    )


class Values:
    """The maps of a span that an action takes in and makes: those that came with their times, and
    those apart.

    `made` are to be sent with their times. Maps bring their `scales` along.
    """

    def __init__(
        self, span: SampleSpan, arrived: Maps, ports: Ports | None, scales: Scales | None
    ) -> None:
        self.made = Maps()
        self._span, self._arrived, self._ports, self._scales = span, arrived, ports, scales
        for key, exponent in arrived.scales.items():
            self._hear(key, exponent)

    def _hear(self, key: StreamKey, exponent: int) -> None:
        if self._scales is not None:
            self._scales.hear(key, exponent)

    async def take(self, key: StreamKey) -> NDArray[np.float32]:
        """Return maps that arrive, which nothing else takes."""
        if self._ports is None or key not in self._ports.comes_apart:
            return self._arrived.pop(key)
        message = await self._ports.receive(key._replace(values=True), self._span)
        assert message.data is not None
        self._hear(key, message.scale)
        return message.data

    def put(self, key: StreamKey, maps: NDArray[np.float32]) -> None:
        """Send maps: at once, if they travel apart from their times."""
        scale = 0 if self._scales is None else self._scales.of(key)
        if self._ports is not None and key in self._ports.goes_apart:
            self._ports.send_untimed(key._replace(values=True), self._span.first, maps, scale)
        else:
            self.made[key], self.made.scales[key] = maps, scale
