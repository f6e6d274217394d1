"""Two lanes of a device that shares a recurrent layer: F and B, each in order, beside one another.

Devices that share a layer exchange states within an action. So each action needs the same action of a neighbour, whose
program may have other actions before it. FP and EB are separate engines, and here separate coroutines: F of a
micro-batch waits for no B, and B only for its own F.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Coroutine
from typing import Any

from ...comm import Mailbox
from ..schedule import Kind

Job = Callable[[], Coroutine[Any, Any, None]]


class InTurn:
    """Jobs are carried out at once, in the order of the device's program."""

    async def forward(self, micro_batch: int, job: Job) -> None:
        """Carry out F of a micro-batch."""
        await job()

    async def backward(self, micro_batch: int, job: Job) -> None:
        """Carry out B of a micro-batch, after its F."""
        await job()

    async def gradient(self, job: Job) -> None:
        """Carry out W, after the B before it."""
        await job()

    async def settle(self, *, forwards: bool) -> None:
        """Wait until all jobs of B and W are done, and with `forwards` those of F."""

    def afterwards(self, call: Callable[[], None]) -> None:
        """Make a call once all jobs so far are done."""
        call()

    def close(self) -> None:
        """End the programs `serve` after the jobs so far."""

    def serve(self) -> list[Coroutine[Any, Any, None]]:
        """Return the programs that carry out jobs in an epoch, alongside the device's own."""
        return []


class Lanes(InTurn):
    """Jobs of F, and jobs of B and W, which the programs `serve` carry out."""

    def __init__(self) -> None:
        self._queues = {Kind.FORWARD: Mailbox(), Kind.BACKWARD: Mailbox()}
        self._forwards: dict[int, Mailbox] = collections.defaultdict(Mailbox)
        self._done, self._open = Mailbox(), dict[int, Kind]()
        self._count = 0
        self._deferred: list[tuple[set[int], Callable[[], None]]] = []

    async def forward(self, micro_batch: int, job: Job) -> None:
        """See `InTurn`."""

        async def then_backward() -> None:
            await job()
            self._forwards[micro_batch].put(True)

        self._put(Kind.FORWARD, then_backward)

    async def backward(self, micro_batch: int, job: Job) -> None:
        """See `InTurn`."""

        async def after_forward() -> None:
            await self._forwards[micro_batch].get()
            del self._forwards[micro_batch]
            await job()

        self._put(Kind.BACKWARD, after_forward)

    async def gradient(self, job: Job) -> None:
        """See `InTurn`."""
        self._put(Kind.BACKWARD, job)

    def _put(self, lane: Kind, job: Job) -> None:
        self._count += 1
        self._open[self._count] = lane
        self._queues[lane].put((self._count, job))

    async def settle(self, *, forwards: bool) -> None:
        """See `InTurn`."""
        while any(forwards or lane is Kind.BACKWARD for lane in self._open.values()):
            await self._done.get()

    def afterwards(self, call: Callable[[], None]) -> None:
        """See `InTurn`."""
        if self._open:
            self._deferred.append((set(self._open), call))
        else:
            call()

    def close(self) -> None:
        """See `InTurn`."""
        for queue in self._queues.values():
            queue.put(None)

    def serve(self) -> list[Coroutine[Any, Any, None]]:
        """See `InTurn`; a program for each lane."""
        return [self._serve(queue) for queue in self._queues.values()]

    async def _serve(self, queue: Mailbox) -> None:
        while (found := await queue.get()) is not None:
            number, job = found
            await job()
            del self._open[number]
            for jobs, call in self._deferred:
                jobs.discard(number)
                if not jobs:
                    call()
            self._deferred = [waiting for waiting in self._deferred if waiting[0]]
            self._done.put(number)
