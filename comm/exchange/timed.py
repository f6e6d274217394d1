"""The timed exchange: computed for all replicas at once, not message by message.

With numerics, the steps of `groups.py` carry it out. Times are the same to the picosecond.
"""

from __future__ import annotations

import functools

import numpy as np

from ...kernels.number import FP32
from ..host import Mailbox
from ..interconnect import Interconnect
from .gradient import Gradient
from .groups import DataParallel, OnExchange
from .time import (
    Compressed,
    Times,
    aggregator_ends_ps,
    bytes_at_ratio,
    hierarchy_ends_ps,
    ring_of_nodes_ps,
)


def exchange_ends_ps(
    data_parallel: DataParallel, interconnect: Interconnect, count: int, ready_ps: Times, free_ps: int = 0
) -> tuple[Times, int]:
    """Return when each replica has finished an exchange, and when the aggregator has, in ps.

    Args:
        of: the replicas, and how they exchange.
        interconnect: between them.
        count: number of values in a gradient.
        ready_ps: when each replica is ready.
        free_ps: when the aggregator is free, if there is one.
    """
    compressed = _compressed(data_parallel)
    if data_parallel.groups > 1:
        in_groups = ready_ps.reshape(data_parallel.groups, data_parallel.members)
        ends, free_ps = hierarchy_ends_ps(interconnect, in_groups, count, data_parallel.exchange, compressed, free_ps)
        return ends.reshape(-1), free_ps
    if data_parallel.exchange == "ring":
        return ring_of_nodes_ps(interconnect, ready_ps, count, compressed), free_ps
    gradients = None if compressed is None else compressed(np.full(data_parallel.replicas, FP32.bytes_of(count)))
    return aggregator_ends_ps(interconnect, ready_ps, count, gradients, free_ps=free_ps)


def exchange_ps(data_parallel: DataParallel, interconnect: Interconnect, count: int) -> int:
    """Return the duration of an exchange of `count` values for which all replicas are ready at once, in ps."""
    return int(
        exchange_ends_ps(data_parallel, interconnect, count, np.zeros(data_parallel.replicas, np.int64))[0].max()
    )


def _compressed(data_parallel: DataParallel) -> Compressed | None:
    """Return the codec's assumed sizes, or None without a codec; sizes that depend on values need a ratio."""
    codec = data_parallel.codec
    if not codec.compresses:
        return None
    if data_parallel.ratio is not None:
        return functools.partial(bytes_at_ratio, ratio=data_parallel.ratio)
    return lambda message_bytes: codec.expected_bytes(FP32.values_in(message_bytes))


class TimedExchange:
    """The timed exchange of `count` values among all replicas' devices of one number."""

    def __init__(self, data_parallel: DataParallel, interconnect: Interconnect, count: int) -> None:
        self.replicas = data_parallel.replicas
        self._data_parallel, self._interconnect, self._count = data_parallel, interconnect, count
        self._ready_ps = np.zeros(data_parallel.replicas, np.int64)
        self._expected, self.aggregator_ps = data_parallel.replicas, 0
        self._mailboxes = [Mailbox() for _ in range(data_parallel.replicas)]

    async def end_ps(self, replica: int, ready_ps: int) -> int:
        """Return when a replica has finished the exchange, in ps; wait for the ready times of all others."""
        self._ready_ps[replica] = ready_ps
        self._expected -= 1
        if not self._expected:
            self._expected = self.replicas
            ends, self.aggregator_ps = exchange_ends_ps(
                self._data_parallel, self._interconnect, self._count, self._ready_ps, self.aggregator_ps
            )
            for mailbox, end_ps in zip(self._mailboxes, ends.tolist(), strict=True):
                mailbox.put(end_ps)
        return int(await self._mailboxes[replica].get())


class TimedMember:
    """One replica's timed exchanges, one after another, with the interface of `GradientExchange`."""

    def __init__(self, exchange: TimedExchange, replica: int) -> None:
        self.replicas = exchange.replicas
        self.spent_ps = 0
        self.observer: OnExchange | None = None
        self._exchange, self._replica, self._done_ps = exchange, replica, 0

    async def total(self, gradient: Gradient, ready_ps: int) -> int:
        """Return the finish time in ps; there are no values."""
        begin_ps = max(ready_ps, self._done_ps)
        self._done_ps = await self._exchange.end_ps(self._replica, begin_ps)
        self.spent_ps += self._done_ps - begin_ps
        if self.observer is not None:
            self.observer(begin_ps, self._done_ps)
        return self._done_ps

    def state(self) -> dict[str, int]:
        """Return the training state."""
        return {"done_ps": self._done_ps, "spent_ps": self.spent_ps, "aggregator_ps": self._exchange.aggregator_ps}

    def restore(self, state: dict[str, int]) -> None:
        """Restore what `state` returned."""
        self._done_ps, self.spent_ps = state["done_ps"], state["spent_ps"]
        self._exchange.aggregator_ps = state["aggregator_ps"]
