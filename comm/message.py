"""What travels on a data path: some samples with the virtual time of each row of each sample.

"Timing is finer than numerics": the payload is one block, the clock runs row by row. Without numerics (timing only)
there is no payload.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..kernels.arena import ALIGNMENT, Arena
from .fifo import Times

_HEADER_BYTES = 16  # the first sample's number and how many there are, both int64
_TIME_BYTES = 8
_VALUE_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Message:
    """Samples from `first` on: `times` (samples, rows) in ps, `data` float32 (samples, rows, columns, channels)."""

    first: int
    times: Times
    data: NDArray[np.float32] | None


def split(message: Message, samples: int) -> tuple[Message, Message]:
    """The first samples of a message, and the rest of it; both are views."""
    data = message.data
    return (
        Message(message.first, message.times[:samples], None if data is None else data[:samples]),
        Message(message.first + samples, message.times[samples:], None if data is None else data[samples:]),
    )


def join(messages: Sequence[Message], arena: Arena) -> Message:
    """Messages one after another, as one."""
    times = np.concatenate([message.times for message in messages])
    data = None
    if messages[0].data is not None:
        data = arena.take((len(times), *messages[0].data.shape[1:]))
        np.concatenate([message.data for message in messages if message.data is not None], out=data)
    return Message(messages[0].first, times, data)


@dataclasses.dataclass(frozen=True)
class Format:
    """The maps that a stream carries; from it follow all sizes, so that receives can be posted ahead."""

    channels: int
    rows: int
    columns: int
    with_data: bool

    @property
    def payload_bytes(self) -> int:
        """What one sample costs the emulated link."""
        return _VALUE_BYTES * self.channels * self.rows * self.columns

    def bytes_of(self, samples: int) -> int:
        """The size of the packed message."""
        return self._payload_begin(samples) + samples * self.with_data * self.payload_bytes

    def _payload_begin(self, samples: int) -> int:
        """Header and times, up to the next cache line, so that kernels may work on the payload where it is."""
        return -(-(_HEADER_BYTES + samples * _TIME_BYTES * self.rows) // ALIGNMENT) * ALIGNMENT

    def pack(self, message: Message, arena: Arena) -> NDArray[np.uint8]:
        """Header, times, payload, in one buffer from the arena."""
        buffer = arena.take((self.bytes_of(len(message.times)),), np.uint8)
        buffer[:_HEADER_BYTES].view(np.int64)[:] = message.first, len(message.times)
        packed = self.unpack(buffer)
        packed.times[...] = message.times
        if packed.data is not None:
            packed.data[...] = message.data
        return buffer

    def unpack(self, buffer: NDArray[np.uint8]) -> Message:
        """The message at the beginning of a buffer; its arrays are views of the buffer."""
        first, samples = buffer[:_HEADER_BYTES].view(np.int64).tolist()
        times = buffer[_HEADER_BYTES : _HEADER_BYTES + samples * _TIME_BYTES * self.rows].view(np.int64)
        data = None
        if self.with_data:
            payload = buffer[self._payload_begin(samples) : self.bytes_of(samples)].view(np.float32)
            data = payload.reshape(samples, self.rows, self.columns, self.channels)
        return Message(first, times.reshape(samples, self.rows), data)
