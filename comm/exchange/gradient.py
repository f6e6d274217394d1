"""The data that replicas exchange: all values of a device's gradients in one row, in blocks."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...kernels.number import FP32

Values = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Gradient:
    """`count` float32 values, which exchanges change in place; None with timing only."""

    count: int
    values: Values | None

    def block(self, number: int, blocks: int) -> Gradient:
        """Return one of `blocks` blocks of equal size, the first ones a value longer (Algorithm 1, line 8); a view."""
        size, longer = divmod(self.count, blocks)
        begin, end = (place * size + min(place, longer) for place in (number, number + 1))
        return Gradient(end - begin, None if self.values is None else self.values[begin:end])

    def put(self, values: Values | None) -> None:
        """Overwrite the values with these."""
        if self.values is not None:
            self.values[...] = values

    def add(self, values: Values | None) -> None:
        """Add a received sum to the worker's own values, in place (Algorithm 1, line 11)."""
        if self.values is not None:
            np.add(values, self.values, out=self.values)  # type: ignore[arg-type]  # both have values, or neither

    @property
    def bytes(self) -> int:
        """Size as float32."""
        return FP32.bytes_of(self.count)


_HEADER_BYTES = 32
_NO_PAYLOAD = -1


@dataclasses.dataclass(frozen=True)
class GradientMessage:
    """A message of a NIC: when it was ready, how long it occupies a link, its ToS, and its bytes, if there are any."""

    ready_ps: int
    transfer_ps: int
    tos: int
    payload: NDArray[np.uint8] | None


@dataclasses.dataclass(frozen=True)
class GradientFormat:
    """Layout of a gradient message in a buffer: four int64, then the payload."""

    def bytes_of(self, most_payload: int) -> int:
        """Return the size of the largest packed message in bytes."""
        return _HEADER_BYTES + most_payload

    def pack(self, message: GradientMessage, arena: Arena) -> NDArray[np.uint8]:
        """Put header and bytes into one buffer from the arena."""
        size = _NO_PAYLOAD if message.payload is None else message.payload.nbytes
        buffer = arena.take((self.bytes_of(max(size, 0)),), np.uint8)
        buffer[:_HEADER_BYTES].view(np.int64)[:] = message.ready_ps, message.transfer_ps, message.tos, size
        if message.payload is not None:
            buffer[_HEADER_BYTES:] = message.payload
        return buffer

    def unpack(self, buffer: NDArray[np.uint8]) -> GradientMessage:
        """Return the message at the beginning of a buffer; its payload is a view."""
        ready_ps, transfer_ps, tos, size = buffer[:_HEADER_BYTES].view(np.int64).tolist()
        payload = None if size == _NO_PAYLOAD else buffer[_HEADER_BYTES : _HEADER_BYTES + size]
        return GradientMessage(ready_ps, transfer_ps, tos, payload)
