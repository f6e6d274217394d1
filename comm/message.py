"""What travels on a data path: a micro-batch of samples with the virtual time of each row of each sample.

"Timing is finer than numerics": the payload is one block, the clock runs row by row. Without numerics (timing only)
there is no payload.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from .clock import Times

_HEADER_BYTES = 8
_TIME_BYTES = 8
_VALUE_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Message:
    """Rows of a micro-batch: `times` int64 (samples, rows) in ps, `data` float32 (samples, channels, rows, columns)."""

    micro_batch: int
    times: Times
    data: NDArray[np.float32] | None


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
        return _HEADER_BYTES + samples * (_TIME_BYTES * self.rows + self.with_data * self.payload_bytes)

    def pack(self, message: Message) -> NDArray[np.uint8]:
        """Header, times, payload, in one buffer."""
        samples = message.times.shape[0]
        buffer = np.empty(self.bytes_of(samples), np.uint8)
        buffer[:_HEADER_BYTES].view(np.int64)[0] = message.micro_batch
        times = buffer[_HEADER_BYTES : _HEADER_BYTES + samples * self.rows * _TIME_BYTES]
        times.view(np.int64).reshape(samples, self.rows)[...] = message.times
        if message.data is not None:
            shape = (samples, self.channels, self.rows, self.columns)
            buffer[_HEADER_BYTES + times.size :].view(np.float32).reshape(shape)[...] = message.data
        return buffer

    def unpack(self, buffer: NDArray[np.uint8], size: int) -> Message:
        """The message in the first `size` bytes of a buffer, without a copy."""
        samples = (size - _HEADER_BYTES) // (self.bytes_of(1) - _HEADER_BYTES)
        micro_batch = int(buffer[:_HEADER_BYTES].view(np.int64)[0])
        middle = _HEADER_BYTES + samples * self.rows * _TIME_BYTES
        times = buffer[_HEADER_BYTES:middle].view(np.int64).reshape(samples, self.rows)
        data = None
        if self.with_data:
            shape = (samples, self.channels, self.rows, self.columns)
            data = buffer[middle:size].view(np.float32).reshape(shape)
        return Message(micro_batch, times, data)
