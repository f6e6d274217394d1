"""What travels on a data path: a span of samples with the virtual time of each row of each sample.

Timing is finer than numerics: the payload is one block, the clock runs row by row. Without numerics (timing only) there
is no payload.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..kernels import ALIGNMENT, Arena
from ..kernels.number import FP32
from .fifo import Times

_HEADER_BYTES = 16  # the first sample's number and the number of samples, both int64
_TIME_BYTES = 8


@dataclasses.dataclass(frozen=True)
class Message:
    """Samples from `first` on: `times` (samples, rows) in ps, `data` float32 (samples, rows, columns, channels)."""

    first: int
    times: Times
    data: NDArray[np.float32] | None


def split(message: Message, samples: int) -> tuple[Message, Message]:
    """Return the first `samples` samples of a message, and the rest; both are views."""
    data = message.data
    return (
        Message(message.first, message.times[:samples], None if data is None else data[:samples]),
        Message(message.first + samples, message.times[samples:], None if data is None else data[samples:]),
    )


def join_messages(messages: Sequence[Message], arena: Arena) -> Message:
    """Return consecutive messages as one."""
    times = np.concatenate([message.times for message in messages])
    data = None
    if messages[0].data is not None:
        data = arena.take((len(times), *messages[0].data.shape[1:]))
        np.concatenate([message.data for message in messages if message.data is not None], out=data)
    return Message(messages[0].first, times, data)


@dataclasses.dataclass(frozen=True)
class Format:
    """Shape of the maps that a stream carries; it determines all sizes, so that receives can be posted ahead."""

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
        """Return the size of header and times, up to the next cache line: kernels work on the payload in place."""
        return -(-(_HEADER_BYTES + samples * _TIME_BYTES * self.rows) // ALIGNMENT) * ALIGNMENT

    def pack(self, message: Message, arena: Arena) -> NDArray[np.uint8]:
        """Put header, times and payload into one buffer from the arena."""
        buffer = arena.take((self.bytes_of(len(message.times)),), np.uint8)
        buffer[:_HEADER_BYTES].view(np.int64)[:] = message.first, len(message.times)
        packed = self.unpack(buffer)
        packed.times[...] = message.times
        if packed.data is not None:
            packed.data[...] = message.data
        return buffer

    def unpack(self, buffer: NDArray[np.uint8]) -> Message:
        """Return the message at the beginning of a buffer; its arrays are views of the buffer."""
        first, samples = buffer[:_HEADER_BYTES].view(np.int64).tolist()
        times = buffer[_HEADER_BYTES : _HEADER_BYTES + samples * _TIME_BYTES * self.rows].view(np.int64)
        data = None
        if self.with_data:
            payload = buffer[self._payload_begin(samples) : self.bytes_of(samples)].view(np.float32)
            data = payload.reshape(samples, self.rows, self.columns, self.channels)
        return Message(first, times.reshape(samples, self.rows), data)
