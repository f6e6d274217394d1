"""What travels between replicas: a block of gradients or weights, as the codec made it, with its virtual times."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ...kernels.arena import Arena

_HEADER_BYTES = 32
_NOTHING = -1


@dataclasses.dataclass(frozen=True)
class Parcel:
    """A message of a NIC: when it was ready, how long it occupies a link, its ToS, and its bytes, if there are any."""

    ready_ps: int
    transfer_ps: int
    tos: int
    payload: NDArray[np.uint8] | None


@dataclasses.dataclass(frozen=True)
class ParcelFormat:
    """How a parcel lies in a buffer: four int64, then the bytes."""

    def bytes_of(self, most_payload: int) -> int:
        """The size of the largest packed parcel."""
        return _HEADER_BYTES + most_payload

    def pack(self, parcel: Parcel, arena: Arena) -> NDArray[np.uint8]:
        """Header and bytes in one buffer from the arena."""
        size = _NOTHING if parcel.payload is None else parcel.payload.nbytes
        buffer = arena.take((self.bytes_of(max(size, 0)),), np.uint8)
        buffer[:_HEADER_BYTES].view(np.int64)[:] = parcel.ready_ps, parcel.transfer_ps, parcel.tos, size
        if parcel.payload is not None:
            buffer[_HEADER_BYTES:] = parcel.payload
        return buffer

    def unpack(self, buffer: NDArray[np.uint8]) -> Parcel:
        """The parcel at the beginning of a buffer; its payload is a view."""
        ready_ps, transfer_ps, tos, size = buffer[:_HEADER_BYTES].view(np.int64).tolist()
        payload = None if size == _NOTHING else buffer[_HEADER_BYTES : _HEADER_BYTES + size]
        return Parcel(ready_ps, transfer_ps, tos, payload)
