"""Number formats as codecs: a message's values rounded to a format, in the bits that it has.

Codes and scales are those of `quantise/codes.py`. Blocks are of values that follow one another in
the message; their scales come after all codes. Where tensors have a scale, the message is one, and
its scale, of fp32, comes last.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np
from numpy.typing import NDArray

from ..inceptionn.format import Buffer, CodecError, opened, values_of
from ..number import (
    FP32,
    FRACTION_BITS,
    BlockGrid,
    Count,
    FloatGrid,
    NumberFormat,
    number_format,
    number_formats,
    number_patterns,
)
from ..quantise import Coded, codes_of, decoded, encoded, on_blocks, on_grid
from ..quantise import values_of as code_values
from .codec import Codec

_EXPONENT = np.uint32(0xFF)


@dataclasses.dataclass(frozen=True)
class Narrow(Codec):
    """Rounds values to even onto a format's grid, one by one or in blocks with a scale."""

    number: NumberFormat

    kinds = tuple(name for name in number_formats() if name != FP32.name)
    spelling = "a number format, such as bf16, mxfp8 or q2.6"

    @classmethod
    def is_kind(cls, word: str) -> bool:
        """See `Codec`; families, such as q2.6, have more names than `kinds`."""
        return word in cls.kinds or any(re.fullmatch(family, word) for family in number_patterns())

    @classmethod
    def parse(cls, kind: str, argument: str) -> Codec:
        """See `Codec`."""
        if argument:
            raise CodecError("it takes no argument")
        try:
            return cls(number_format(kind))
        except ValueError as error:
            raise CodecError(str(error)) from None

    def compress(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """See `Codec`."""
        plain, grid, bits = values_of(values), self.number.grid, self.number.bits
        if isinstance(grid, FloatGrid):
            return _packed(codes_of(on_grid(plain, grid), grid, bits), bits)
        assert isinstance(grid, BlockGrid)
        coded = encoded(on_blocks(plain, grid, -1)[None], self.number)
        parts = [_packed(coded.codes[0], bits), coded.scales[0].astype(np.uint8)]
        if plain.size and self.number.tensor_bytes:
            parts.append((coded.tensors << np.uint32(FRACTION_BITS)).astype("<u4").view(np.uint8))
        return np.concatenate(parts)

    def decompress(self, buffer: Buffer, count: int) -> NDArray[np.float32]:
        """See `Codec`."""
        data, count = opened(buffer, count)
        if data.size != self.largest_bytes(count):
            raise CodecError(
                f"{count} values are {self.largest_bytes(count)} bytes, but the buffer has"
                f" {data.size}"
            )
        grid, bits = self.number.grid, self.number.bits
        if isinstance(grid, FloatGrid):
            return code_values(_unpacked(data, bits, count), grid, bits)
        assert isinstance(grid, BlockGrid)
        first = (count * bits + 7) // 8
        codes, scales, tensor = np.split(data, [first, first - (-count // grid.size)])
        tensors = tensor.copy().view("<u4").astype(np.uint32) >> np.uint32(FRACTION_BITS)
        coded = Coded(
            _unpacked(codes, bits, count)[None], scales.astype(np.uint32)[None], tensors & _EXPONENT
        )
        return decoded(coded, self.number)[0]

    def largest_bytes(self, count: int) -> int:
        """See `Codec`."""
        return self.number.bytes_of(count)

    def expected_bytes(self, count: Count) -> Count:
        """See `Codec`."""
        return self.number.bytes_of(count)

    def __str__(self) -> str:
        return self.number.name


def _packed(codes: NDArray[np.uint32], bits: int) -> NDArray[np.uint8]:
    """Return codes one after the other, the highest bit of each first."""
    if bits == 16:
        return codes.astype(">u2").view(np.uint8)
    if bits == 8:
        return codes.astype(np.uint8)
    places = np.arange(bits - 1, -1, -1, dtype=np.uint32)
    return np.packbits((codes[:, None] >> places & np.uint32(1)).astype(np.uint8).reshape(-1))


def _unpacked(data: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.uint32]:
    if bits == 16:
        return data.copy().view(">u2").astype(np.uint32)
    if bits == 8:
        return data.astype(np.uint32)
    digits = np.unpackbits(data)[: count * bits].reshape(count, bits).astype(np.uint32)
    codes: NDArray[np.uint32] = (digits << np.arange(bits - 1, -1, -1, dtype=np.uint32)).sum(
        axis=1, dtype=np.uint32
    )
    return codes
