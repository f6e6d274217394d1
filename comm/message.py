"""What travels on a data path, a span of samples with the virtual time of each row of each sample;
and how messages get to other ranks: by MPI, in streams between neighbours, or held back as on the
modelled links.

Timing is finer than numerics: the payload is one block, the clock runs row by row. Without numerics
(timing only) there is no payload.

Sends do not block, and receives are posted ahead. All messages use a clone of the given
communicator.

With `--throttle wall`, a link's bandwidth and latency are enforced in real time, on the sender's
side. A message occupies its direction of the link for bytes on the wire / bandwidth, after the
messages before it, and is delivered when the latency has passed too. So a run on real machines is
slowed by the modelled links, where those are slower than the real ones.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..kernels import ALIGNMENT, Arena
from ..kernels.number import FP32
from .fifo import Times
from .host import Mailbox, Pump

_HEADER_BYTES = 24  # the first sample's number, how many there are, and the scale, all int64
_TIME_BYTES = 8


@dataclasses.dataclass(frozen=True)
class Message:
    """Samples from `first` on: `times` (samples, rows) in ps, `data` float32 (samples, rows,
    columns, channels), all of a mini-batch; of maps that have a `scale`, its exponent.
    """

    first: int
    times: Times
    data: NDArray[np.float32] | None
    scale: int = 0


def split(message: Message, samples: int) -> tuple[Message, Message]:
    """Return the first `samples` samples of a message, and the rest; both are views."""
    data, times = message.data, message.times
    parts = (None, None) if data is None else (data[:samples], data[samples:])
    return (
        Message(message.first, times[:samples], parts[0], message.scale),
        Message(message.first + samples, times[samples:], parts[1], message.scale),
    )


def join_messages(messages: Sequence[Message], arena: Arena) -> Message:
    """Return consecutive messages as one."""
    times = np.concatenate([message.times for message in messages])
    data = None
    if messages[0].data is not None:
        data = arena.take((len(times), *messages[0].data.shape[1:]))
        np.concatenate([message.data for message in messages if message.data is not None], out=data)
    return Message(messages[0].first, times, data, messages[0].scale)


@dataclasses.dataclass(frozen=True)
class Format:
    """Shape of the maps that a stream carries; it determines all sizes, so that receives can be
    posted ahead.
    """

    channels: int
    rows: int
    columns: int
    with_data: bool

    @functools.cached_property
    def payload_bytes(self) -> int:
        """Bytes of one sample on the emulated link."""
        return FP32.bytes_of(self.channels * self.rows * self.columns)

    def bytes_of(self, samples: int) -> int:
        """Return the size of the packed message in bytes."""
        return self._payload_begin(samples) + samples * self.with_data * self.payload_bytes

    def _payload_begin(self, samples: int) -> int:
        """Return the size of header and times, up to the next cache line: kernels work on the
        payload in place.
        """
        return -(-(_HEADER_BYTES + samples * _TIME_BYTES * self.rows) // ALIGNMENT) * ALIGNMENT

    def pack(self, message: Message, arena: Arena) -> NDArray[np.uint8]:
        """Put header, times and payload into one buffer from the arena."""
        buffer = arena.take((self.bytes_of(len(message.times)),), np.uint8)
        buffer[:_HEADER_BYTES].view(np.int64)[:] = (
            message.first,
            len(message.times),
            message.scale,
        )
        # Its views say where times and payload go: one layout for both directions.
        packed = self.unpack(buffer)
        packed.times[...] = message.times
        if packed.data is not None:
            packed.data[...] = message.data
        return buffer

    def unpack(self, buffer: NDArray[np.uint8]) -> Message:
        """Return the message at the beginning of a buffer; its arrays are views of the buffer."""
        # A receive is posted for the largest message; the header says how much of the buffer this
        # one has filled.
        first, samples, scale = buffer[:_HEADER_BYTES].view(np.int64).tolist()
        times = buffer[_HEADER_BYTES : _HEADER_BYTES + samples * _TIME_BYTES * self.rows].view(
            np.int64
        )
        data = None
        if self.with_data:
            payload = buffer[self._payload_begin(samples) : self.bytes_of(samples)].view(np.float32)
            data = payload.reshape(samples, self.rows, self.columns, self.channels)
        return Message(first, times.reshape(samples, self.rows), data, scale)


# With one alone, MPI would have no buffer for what comes between a message's arrival and the next
# poll.
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
        # Only the oldest is tested: a later one that MPI has sent before it keeps its buffer until
        # then.
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

    def __init__(
        self, comm: Any, rank: int, tag: int, form: Form, most: int, mailbox: Mailbox, arena: Arena
    ) -> None:
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
        """Deliver what has arrived, in order, and post new receives; return whether anything had
        arrived.
        """
        moved = False
        # MPI matches messages of one sender and tag with receives in the order in which these were
        # posted, so that the next message is in the oldest.
        while self._posted and self._posted[0][0].Test():
            _, buffer = self._posted.popleft()
            # A message is views of its buffer, so the next receive takes another one; the arena
            # hands this one out again once the message is gone.
            self._mailbox.put(self._form.unpack(buffer))
            self._post()
            moved = True
        return moved

    def close(self) -> None:
        """Cancel the receives that are still posted."""
        for request, _ in self._posted:
            request.Cancel()
            # Until a cancelled receive has completed, MPI may write to its buffer.
            request.Wait()
        self._posted.clear()


def drain(pumps: Iterable[Pump]) -> bool:
    """Take what has arrived, for a run that has failed; return whether all that was sent from here
    has left.
    """
    ends = [pump for pump in pumps if isinstance(pump, Sender | Receiver)]
    for end in ends:
        end.poll()
    return all(end.is_idle for end in ends if isinstance(end, Sender))


class Gate:
    """One direction of one link; messages leave in order, each when it is due. A pump of the
    host.
    """

    def __init__(
        self, bandwidth_mbps: int, latency_ps: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        # A byte at 1 Mb/s takes 8 us.
        self._seconds_per_byte = 8e-6 / bandwidth_mbps
        self._latency_s = latency_ps * 1e-12
        self._clock = clock
        self._free_s = 0.0
        self._held: collections.deque[tuple[float, Callable[[], None]]] = collections.deque()

    def pass_through(self, wire_bytes: int, deliver: Callable[[], None]) -> None:
        """Call `deliver` when `wire_bytes`, headers included, have crossed the link."""
        self.hold(wire_bytes * self._seconds_per_byte, deliver)

    def hold(self, occupied_s: float, deliver: Callable[[], None]) -> None:
        """Call `deliver` when the link has been occupied for `occupied_s`, and the latency has
        passed.
        """
        # A link that has been idle is free from now on, not since its last message. Latency delays
        # what is delivered, but does not occupy the link.
        self._free_s = max(self._free_s, self._clock()) + occupied_s
        self._held.append((self._free_s + self._latency_s, deliver))

    def poll(self) -> bool:
        """Deliver the messages that are due; return whether there were any."""
        moved = False
        # All have the same latency, so they are due in the order in which they came.
        while self._held and self._held[0][0] <= self._clock():
            self._held.popleft()[1]()
            moved = True
        return moved

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not self._held
