"""How messages get to other ranks: by MPI, in streams between neighbours, or held back as on the modelled links.

Sends do not block, and receives are posted ahead. All messages use a clone of the given communicator.

With `--throttle wall`, a link's bandwidth and latency are enforced in real time, on the sender's side. A message
occupies its direction of the link for bytes on the wire / bandwidth, after the messages before it, and is delivered
when the latency has passed too. So a run on real machines is slowed by the modelled links, where those are slower than
the real ones.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..kernels import Arena
from .host import Mailbox, Pump

_POSTED_AHEAD = 2


class Form(Protocol):
    """Layout of one kind of message in a buffer."""

    def bytes_of(self, most: int, /) -> int:
        """Return the size of the largest message in bytes."""

    def pack(self, message: Any, arena: Arena, /) -> NDArray[np.uint8]:
        """Pack a message into a buffer from the arena."""

    def unpack(self, buffer: NDArray[np.uint8], /) -> Any:
        """Return the message at the beginning of a buffer."""


class Sender:
    """Packs messages and sends them to another rank; keeps each buffer until MPI has sent it."""

    def __init__(self, comm: Any, rank: int, tag: int, form: Form, arena: Arena) -> None:
        self._comm, self._rank, self._tag, self._form, self._arena = comm, rank, tag, form, arena
        self._pending: collections.deque[tuple[Any, NDArray[np.uint8]]] = collections.deque()

    def put(self, message: Any) -> None:
        """Send a message without waiting."""
        buffer = self._form.pack(message, self._arena)
        self._pending.append((self._comm.Isend(buffer, self._rank, self._tag), buffer))

    def poll(self) -> bool:
        """Release the buffers of messages that have been sent; return whether there were any."""
        moved = False
        while self._pending and self._pending[0][0].Test():
            self._pending.popleft()
            moved = True
        return moved

    @property
    def is_idle(self) -> bool:
        """Whether MPI has sent all messages, as of the last poll."""
        return not self._pending


class Receiver:
    """Keeps receives posted for a stream and puts what arrives into a mailbox."""

    def __init__(self, comm: Any, rank: int, tag: int, form: Form, most: int, mailbox: Mailbox, arena: Arena) -> None:
        self._comm, self._rank, self._tag, self._form, self._arena = comm, rank, tag, form, arena
        self._bytes = form.bytes_of(most)
        self._mailbox = mailbox
        self._posted: collections.deque[tuple[Any, NDArray[np.uint8]]] = collections.deque()
        for _ in range(_POSTED_AHEAD):
            self._post()

    def _post(self) -> None:
        buffer = self._arena.take((self._bytes,), np.uint8)
        self._posted.append((self._comm.Irecv(buffer, self._rank, self._tag), buffer))

    def poll(self) -> bool:
        """Deliver what has arrived, in order, and post new receives; return whether anything had arrived."""
        moved = False
        while self._posted and self._posted[0][0].Test():
            _, buffer = self._posted.popleft()
            self._mailbox.put(self._form.unpack(buffer))
            self._post()
            moved = True
        return moved

    def close(self) -> None:
        """Cancel the receives that are still posted."""
        for request, _ in self._posted:
            request.Cancel()
            request.Wait()
        self._posted.clear()


def drain(pumps: Iterable[Pump]) -> bool:
    """Take what has arrived, for a run that has failed; return whether all that was sent from here has left."""
    ends = [pump for pump in pumps if isinstance(pump, Sender | Receiver)]
    for end in ends:
        end.poll()
    return all(end.is_idle for end in ends if isinstance(end, Sender))


class Gate:
    """One direction of one link; messages leave in order, each when it is due. A pump of the host."""

    def __init__(self, bandwidth_mbps: int, latency_ps: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._seconds_per_byte = 8e-6 / bandwidth_mbps
        self._latency_s = latency_ps * 1e-12
        self._clock = clock
        self._free_s = 0.0
        self._held: collections.deque[tuple[float, Callable[[], None]]] = collections.deque()

    def pass_through(self, wire_bytes: int, deliver: Callable[[], None]) -> None:
        """Call `deliver` when `wire_bytes`, headers included, have crossed the link."""
        self.hold(wire_bytes * self._seconds_per_byte, deliver)

    def hold(self, occupied_s: float, deliver: Callable[[], None]) -> None:
        """Call `deliver` when the link has been occupied for `occupied_s`, and the latency has passed."""
        self._free_s = max(self._free_s, self._clock()) + occupied_s
        self._held.append((self._free_s + self._latency_s, deliver))

    def poll(self) -> bool:
        """Deliver the messages that are due; return whether there were any."""
        moved = False
        while self._held and self._held[0][0] <= self._clock():
            self._held.popleft()[1]()
            moved = True
        return moved

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not self._held
