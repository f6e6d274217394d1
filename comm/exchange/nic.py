"""A worker's NIC: messages whose ToS says so go through the codec, all others as they are (INCEPTIONN, section VI)."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ...kernels.codec.codec import Codec, Inceptionn, NoCodec, Truncation
from ..interconnect import COMPRESSIBLE_TOS, Network
from .gradient import Gradient, Values
from .message import Parcel
from .time import VALUE_BYTES

ORDINARY_TOS = 0


@dataclasses.dataclass
class Traffic:
    """What a port has sent with the ToS of gradients: float32 bytes, and what the codec made of them, in bytes.

    `widths` counts the values that took 0, 8, 16 and 32 bits (Table III), if the codec has such classes.
    """

    value_bytes: int = 0
    made_bytes: int = 0
    widths: tuple[int, ...] = (0, 0, 0, 0)

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.value_bytes + other.value_bytes,
            self.made_bytes + other.made_bytes,
            tuple(a + b for a, b in zip(self.widths, other.widths, strict=True)),
        )

    def __sub__(self, other: Traffic) -> Traffic:
        return self + Traffic(-other.value_bytes, -other.made_bytes, tuple(-width for width in other.widths))

    @property
    def ratio(self) -> float:
        """Bytes before over bytes after."""
        return self.value_bytes / self.made_bytes if self.made_bytes else 1.0


class Port:
    """Sends and receives parcels; counts what the codec does.

    Without values, INCEPTIONN's codec is taken to make nothing smaller.
    """

    def __init__(self, network: Network, codec: Codec) -> None:
        self.network = network
        self.traffic = Traffic()
        self._codec = codec

    def parcel(self, gradient: Gradient, tos: int, copies: int = 1) -> Parcel:
        """A block as a message, ready at time 0, which goes to so many."""
        compressible = tos == COMPRESSIBLE_TOS
        if not compressible or isinstance(self._codec, NoCodec):
            payload = None if gradient.values is None else gradient.values.view(np.uint8).copy()
            if compressible:
                self._count(copies, gradient.bytes, gradient.bytes, (0, 0, 0, 0))
            return Parcel(0, self.network.transfer_ps(gradient.bytes), tos, payload)
        if gradient.values is None:
            payload, made_bytes = None, self._made_bytes(gradient)
        else:
            payload = self._codec.compress(gradient.values)
            made_bytes = payload.nbytes
        self._count(copies, gradient.bytes, made_bytes, self._widths(payload, gradient.count))
        return Parcel(0, self.network.transfer_ps(gradient.bytes, made_bytes), tos, payload)

    def _made_bytes(self, gradient: Gradient) -> int:
        return self._codec.made_bytes(gradient.count) if isinstance(self._codec, Truncation) else gradient.bytes

    def _count(self, copies: int, value_bytes: int, made_bytes: int, widths: tuple[int, ...]) -> None:
        self.traffic += Traffic(copies * value_bytes, copies * made_bytes, tuple(copies * width for width in widths))

    def open(self, parcel: Parcel, count: int) -> Values | None:
        """The values of a message."""
        if parcel.payload is None:
            return None
        if parcel.tos != COMPRESSIBLE_TOS or isinstance(self._codec, NoCodec):
            return parcel.payload[: VALUE_BYTES * count].view(np.float32)
        return self._codec.decompress(parcel.payload, count)

    def round(self, gradient: Gradient, parcel: Parcel) -> None:
        """Give a block the values that those get to whom the parcel goes, so that all replicas stay alike."""
        gradient.put(self.open(parcel, gradient.count))

    def _widths(self, payload: NDArray[np.uint8] | None, count: int) -> tuple[int, ...]:
        if payload is None or not isinstance(self._codec, Inceptionn):
            return (0, 0, 0, 0)
        from ...kernels.inceptionn.inceptionn import width_counts

        return width_counts(payload, count)
