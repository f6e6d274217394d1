"""The ends of a pair's streams on one of its two devices."""

from __future__ import annotations

import collections
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...comm import Mailbox, Message
from ..pair import PairKey
from .ports import Outlet

Data = NDArray[np.float32]
"""Values (samples, steps, values); of weights, (1, 1, weights). Once sent, they belong to the receiver."""


class PairPorts:
    """The ends of a device's streams, by their keys; `sent_bytes` have left through each of them."""

    def __init__(self, inlets: Mapping[PairKey, Mailbox], outlets: Mapping[PairKey, Outlet]) -> None:
        self.sent_bytes: collections.Counter[PairKey] = collections.Counter()
        self._inlets, self._outlets = inlets, outlets

    def send(self, key: PairKey, first: int, values: Data) -> None:
        """Send values of samples from `first` on; of weights, `first` is the mini-batch's number."""
        self.sent_bytes[key] += values.nbytes
        no_times = np.zeros((len(values), 1), np.int64)  # the pair's timeline has them
        self._outlets[key].put(Message(first, no_times, values[:, None]))

    async def receive(self, key: PairKey, first: int) -> Data:
        """Return the next values, which begin with sample `first`, or are those of mini-batch `first`."""
        message: Message = await self._inlets[key].get()
        if message.first != first or message.data is None:
            raise RuntimeError(f"{key}: {message.first} came, {first} was expected")
        return message.data[:, 0]

    def take_sent_bytes(self) -> collections.Counter[PairKey]:
        """Return the bytes that have left since the last call."""
        sent, self.sent_bytes = self.sent_bytes, collections.Counter()
        return sent
