"""Devices that share a recurrent layer: F and B beside one another, and the states that they
exchange at every step; and F of a device's program ahead of its other actions (`device.py`).

Devices that share a layer exchange states within an action. So each action needs the same action of
a neighbour, whose program may have other actions before it. FP and EB are separate engines, and
here separate coroutines: F of a micro-batch waits for no B, and B only for its own F.

States of earlier units come from the left on path 2, those of later units from the right on path 7.
Sums of errors of states come from the right on path 4, and complete ones from the left on path 8
(`timing.lockstep`). These messages carry values only: their times are in those of rows. Of a step
of FP, on three devices:

    units       0            1            2
    path 2      s0 --------> s0 s1 -----> .           then device 2 has all, and sends back
    path 7      . <--------- s1 s2 <----- s2
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...comm import Mailbox
from ..mapping import DataPath, Slice, StreamKey
from ..schedule import Action, Kind, SampleSpan, with_versions
from .ports import Ports

Job = Callable[[], Coroutine[Any, Any, None]]


class InTurn:
    """Jobs are carried out at once, in the order of the device's program."""

    def forward(self, micro_batch: int, job: Job) -> Coroutine[Any, Any, None]:
        """Return the coroutine that carries out F of a micro-batch."""
        return job()

    def recompute(self, micro_batch: int, job: Job) -> Coroutine[Any, Any, None]:
        """Return the coroutine that carries out R of a micro-batch, after its F."""
        return job()

    def backward(self, micro_batch: int, job: Job) -> Coroutine[Any, Any, None]:
        """Return the coroutine that carries out B of a micro-batch, after its F."""
        return job()

    def gradient(self, job: Job) -> Coroutine[Any, Any, None]:
        """Return the coroutine that carries out W, after the B before it."""
        return job()

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
            # B of the micro-batch reads what this F keeps.
            self._forwards[micro_batch].put(True)

        self._put(Kind.FORWARD, then_backward)

    async def recompute(self, micro_batch: int, job: Job) -> None:
        """See `InTurn`."""

        async def after_forward() -> None:
            await self._forwards[micro_batch].get()
            await job()
            self._forwards[micro_batch].put(True)  # B still waits for it

        self._put(Kind.BACKWARD, after_forward)

    async def backward(self, micro_batch: int, job: Job) -> None:
        """See `InTurn`."""

        async def after_forward() -> None:
            await self._forwards[micro_batch].get()
            del self._forwards[micro_batch]
            await job()

        self._put(Kind.BACKWARD, after_forward)

    async def gradient(self, job: Job) -> None:
        """See `InTurn`."""
        # W reads the errors that its B keeps: it stands behind B in one lane.
        self._put(Kind.BACKWARD, job)

    def _put(self, lane: Kind, job: Job) -> None:
        self._count += 1
        self._open[self._count] = lane
        self._queues[lane].put((self._count, job))

    async def settle(self, *, forwards: bool) -> None:
        """See `InTurn`."""
        while any(forwards or lane is Kind.BACKWARD for lane in self._open.values()):
            # Words of jobs that ended before are still in the mailbox: they cause one more look
            # each.
            await self._done.get()

    def afterwards(self, call: Callable[[], None]) -> None:
        """See `InTurn`."""
        if self._open:
            # A copy: jobs that are put later do not hold the call up.
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
        while (entry := await queue.get()) is not None:
            number, job = entry
            await job()
            del self._open[number]
            for jobs, call in self._deferred:
                jobs.discard(number)
                if not jobs:
                    call()
            self._deferred = [waiting for waiting in self._deferred if waiting[0]]
            self._done.put(number)


Data = NDArray[np.float32]


def shares_states(slices: Sequence[Slice]) -> bool:
    """Return whether a device with these slices shares a recurrent layer with a neighbour."""
    return any(
        part.layer.operation.recurs and not (part.is_first and part.is_last) for part in slices
    )


class Gather:
    """A slice's exchange with those of the same layer on neighbouring devices."""

    def __init__(self, part: Slice, ports: Ports) -> None:
        self._part, self._ports = part, ports

    def _key(self, path: DataPath) -> StreamKey:
        return StreamKey(path, self._part.layer.makes.number, values=True)

    def _send(self, path: DataPath, span: SampleSpan, values: Data) -> None:
        self._ports.send_untimed(self._key(path), span.first, values[:, None, None, :])

    async def _receive(self, path: DataPath, span: SampleSpan) -> Data:
        message = await self._ports.receive(self._key(path), span)
        assert message.data is not None
        return message.data[:, 0, 0, :]

    async def states(self, span: SampleSpan, own: Data) -> Data:
        """Return the states (samples, hidden) of all units after a step, from those of the own
        ones.
        """
        part = self._part
        parts = [own]
        if not part.is_first:
            parts.insert(0, await self._receive(DataPath.PARTIAL_ACTIVATIONS, span))
        if not part.is_last:
            # Sent before anything is awaited from the right: the device there sends back only once
            # it has these.
            self._send(DataPath.PARTIAL_ACTIVATIONS, span, np.concatenate(parts, axis=1))
            parts.append(await self._receive(DataPath.STATES, span))
        if not part.is_first:
            self._send(
                DataPath.STATES, span, np.concatenate(parts[1:], axis=1)
            )  # `parts[0]` came from there
        return np.concatenate(parts, axis=1)

    async def error_sums(self, span: SampleSpan) -> Data | None:
        """Return the errors of all states (samples, hidden) that slices of later units have summed;
        None if none.
        """
        return None if self._part.is_last else await self._receive(DataPath.INPUT_ERRORS, span)

    async def errors(self, span: SampleSpan, sums: Data) -> Data:
        """Return the complete errors of the own units' states, from the sums with those of this
        slice.
        """
        part = self._part
        if part.is_first:
            complete = sums
        else:
            self._send(DataPath.INPUT_ERRORS, span, sums)
            complete = await self._receive(DataPath.STATE_ERRORS, span)
        if not part.is_last:
            self._send(
                DataPath.STATE_ERRORS, span, np.ascontiguousarray(complete[:, part.channels :])
            )
        return np.ascontiguousarray(complete[:, : part.channels])


AHEAD = 4
"""Most actions that F goes ahead of: B and W of two micro-batches, whose maps are in memory
meanwhile.
"""


class _Step(NamedTuple):
    """An action to carry out, if any, and versions to free, once `after` steps of the other lane
    are done.
    """

    action: Action | None
    after: int
    keeps: bool = False
    frees: tuple[int, ...] = ()


class _Lane:
    """The steps of a lane that are read and not yet begun; `read` counts all that were read."""

    def __init__(self) -> None:
        self.waiting = collections.deque[_Step]()
        self.read = 0
        self._done, self._seen = Mailbox(), 0

    def add(self, step: _Step) -> None:
        """Add a step."""
        self.waiting.append(step)
        self.read += 1

    def note(self) -> None:
        """Take note that the next step is done."""
        self._done.put(None)

    async def reach(self, count: int) -> None:
        """Wait until `count` steps are done; for the other lane alone."""
        while self._seen < count:
            await self._done.get()
            self._seen += 1


class Split:
    """A program in two lanes, F and all other actions, each in order; it is read no further than
    needed.
    """

    def __init__(self, program: Iterable[Action]) -> None:
        self.forwards, self.others = _Lane(), _Lane()
        self._program = with_versions(program)
        self._updated = 0  # steps up to the last update

    def steps(self, lane: _Lane) -> Iterator[_Step]:
        """Yield the steps of a lane."""
        while lane.waiting or self._read():
            if lane.waiting:
                yield lane.waiting.popleft()

    def _read(self) -> bool:
        entry = next(self._program, None)
        if entry is None:
            return False
        action, keeps, frees = entry
        if action.kind is Kind.FORWARD:
            #     program    F0 F1 B0 W0 F2 B1 W1 U1 F3
            #     forwards   F0 F1       F2          F3     F3 comes after U1
            #     others           B0 W0    B1 W1 U1        B0 comes after F0 and F1, as above
            self.forwards.add(_Step(action, max(self._updated, self.others.read - AHEAD)))
            if frees:  # an action that F is ahead of may still use them
                self.others.add(_Step(None, self.forwards.read, frees=frees))
        else:
            self.others.add(_Step(action, self.forwards.read, keeps, frees))
            if action.kind is Kind.UPDATE:
                self._updated = self.others.read
        return True
