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


class Lanes:
    """Jobs of F, and jobs of B and W, which the programs `serve` carry out."""

    def __init__(self) -> None:
        self._queues = {Kind.FORWARD: Mailbox(), Kind.BACKWARD: Mailbox()}
        self._forwards: dict[int, Mailbox] = collections.defaultdict(Mailbox)
        self._done, self._open = Mailbox(), 0

    def forward(self, micro_batch: int, job: Job) -> None:
        """Carry out F of a micro-batch."""

        async def then_backward() -> None:
            await job()
            self._forwards[micro_batch].put(True)

        self._put(Kind.FORWARD, then_backward)

    def backward(self, micro_batch: int, job: Job) -> None:
        """Carry out B of a micro-batch, after its F."""

        async def after_forward() -> None:
            await self._forwards[micro_batch].get()
            del self._forwards[micro_batch]
            await job()

        self._put(Kind.BACKWARD, after_forward)

    def gradient(self, job: Job) -> None:
        """Carry out W, after the B before it."""
        self._put(Kind.BACKWARD, job)

    def _put(self, lane: Kind, job: Job) -> None:
        self._open += 1
        self._queues[lane].put(job)

    async def settle(self) -> None:
        """Wait until all jobs are done."""
        while self._open:
            await self._done.get()
            self._open -= 1

    def close(self) -> None:
        """End the programs `serve` after the jobs so far."""
        for queue in self._queues.values():
            queue.put(None)

    def serve(self) -> list[Coroutine[Any, Any, None]]:
        """Return the programs of both lanes for an epoch."""
        return [self._serve(queue) for queue in self._queues.values()]

    async def _serve(self, queue: Mailbox) -> None:
        while (job := await queue.get()) is not None:
            await job()
            self._done.put(True)
