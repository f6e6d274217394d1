"""The exchange where there is timing alone: worked out for all replicas when the last is ready, not message by message.

With numbers, `replicas.py` has it carried out. Times are the same to the picosecond.
"""

from __future__ import annotations

import functools

import numpy as np

from ...kernels.codec.codec import NoCodec, Truncation
from ..host import Mailbox
from ..interconnect import Network
from .gradient import Gradient
from .groups import DataParallel
from .time import (
    VALUE_BYTES,
    Made,
    Times,
    aggregator_ends_ps,
    compressed_bytes,
    hierarchy_ends_ps,
    ring_messages,
    ring_of_nodes_ps,
)


def exchange_ends_ps(
    of: DataParallel, network: Network, count: int, ready_ps: Times, free_ps: int = 0
) -> tuple[Times, int]:
    """When each replica is through with an exchange of so many values for which it is ready at `ready_ps`, in ps.

    And when the aggregator is, if there is one; it is free from `free_ps` on.
    """
    made = _made(of)
    if of.groups > 1:
        in_groups = ready_ps.reshape(of.groups, of.members)
        ends, free_ps = hierarchy_ends_ps(network, in_groups, count, of.exchange, made, free_ps)
        return ends.reshape(-1), free_ps
    if of.exchange == "ring":
        blocks = None if made is None else made(ring_messages(count, of.replicas))
        return ring_of_nodes_ps(network, ready_ps, count, blocks), free_ps
    gradients = None if made is None else made(np.full(of.replicas, VALUE_BYTES * count))
    return aggregator_ends_ps(network, ready_ps, count, gradients, free_ps=free_ps)


def exchange_ps(of: DataParallel, network: Network, count: int) -> int:
    """What an exchange of so many values takes where all replicas are ready at once: until the last is through."""
    return int(exchange_ends_ps(of, network, count, np.zeros(of.replicas, np.int64))[0].max())


def _made(of: DataParallel) -> Made | None:
    """What the codec is taken to make of messages. INCEPTIONN's needs a ratio, for that is up to the values."""
    codec = of.codec
    if isinstance(codec, NoCodec):
        return None
    if of.ratio is not None:
        return functools.partial(compressed_bytes, ratio=of.ratio)
    if isinstance(codec, Truncation):
        return lambda message_bytes: codec.made_bytes(message_bytes // VALUE_BYTES)
    return lambda message_bytes: message_bytes


class Meeting:
    """Where all replicas' devices of one number meet for an exchange of so many values."""

    def __init__(self, of: DataParallel, network: Network, count: int) -> None:
        self.replicas = of.replicas
        self._of, self._network, self._count = of, network, count
        self._ready_ps = np.zeros(of.replicas, np.int64)
        self._expected, self._aggregator_ps = of.replicas, 0
        self._mailboxes = [Mailbox() for _ in range(of.replicas)]

    async def through_ps(self, replica: int, ready_ps: int) -> int:
        """When a replica is through that is ready then; it has to wait for the others to say when they are."""
        self._ready_ps[replica] = ready_ps
        self._expected -= 1
        if not self._expected:
            self._expected = self.replicas
            ends, self._aggregator_ps = exchange_ends_ps(
                self._of, self._network, self._count, self._ready_ps, self._aggregator_ps
            )
            for mailbox, end_ps in zip(self._mailboxes, ends.tolist(), strict=True):
                mailbox.put(end_ps)
        return int(await self._mailboxes[replica].get())


class Attendance:
    """One replica's exchanges at a meeting, one after another, as `replicas.Exchange`."""

    def __init__(self, meeting: Meeting, replica: int) -> None:
        self.replicas = meeting.replicas
        self.spent_ps = 0
        self._meeting, self._replica, self._done_ps = meeting, replica, 0

    async def total(self, gradient: Gradient, ready_ps: int) -> int:
        """When the sum is there; there are no values."""
        begin_ps = max(ready_ps, self._done_ps)
        self._done_ps = await self._meeting.through_ps(self._replica, begin_ps)
        self.spent_ps += self._done_ps - begin_ps
        return self._done_ps
