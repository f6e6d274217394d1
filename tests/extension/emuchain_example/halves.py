"""A number format of 12 bits, and a codec that sends gradients in half precision."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from emuchain.kernels import CodecError
from emuchain.kernels.codec import Codec
from emuchain.kernels.number import FloatGrid, NumberFormat

HALF_WIDE = NumberFormat("fp12", bits=12, grid=FloatGrid(6, -14, 65024.0, overflows=True))


@dataclasses.dataclass(frozen=True)
class Halves(Codec):
    """Rounds to half precision; what is too large becomes infinite."""

    kinds = ("halves",)
    spelling = "halves"

    @classmethod
    def parse(cls, kind: str, argument: str) -> Codec:
        """See `Codec`."""
        if argument:
            raise CodecError("it takes no argument")
        return cls()

    def compress(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """See `Codec`."""
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(values).ravel().astype(np.float16).view(np.uint8)

    def decompress(self, buffer: NDArray[np.uint8], count: int) -> NDArray[np.float32]:  # type: ignore[override]
        """See `Codec`."""
        return np.frombuffer(bytes(buffer), np.float16, count).astype(np.float32)

    def largest_bytes(self, count: int) -> int:
        """See `Codec`."""
        return 2 * count

    def expected_bytes(self, count):  # type: ignore[no-untyped-def]  # an integer, or an array of them
        """See `Codec`."""
        return 2 * count

    def __str__(self) -> str:
        return self.spelling
