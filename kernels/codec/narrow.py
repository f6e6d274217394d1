"""Number formats as codecs: a message's values rounded to a format, in the bits that it has.

A code is a sign and the place of a magnitude among those of the format, in ascending order: for
floats that is their exponent and fraction. Infinity follows the largest magnitude where the format
has it, and the last code is NaN, which in fixed point is -0. Blocks are of values that follow one
another in the message; their scales, of 8 bits, come after all codes, and 255 makes a block NaN.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np
from numpy.typing import NDArray

from ..inceptionn.format import Buffer, CodecError, opened, values_of
from ..number import (
    FP32,
    BlockGrid,
    Count,
    FloatGrid,
    NumberFormat,
    number_format,
    number_formats,
    number_patterns,
)
from ..quantise import on_blocks, on_grid
from .codec import Codec

_SCALE_BIAS, _NAN_SCALE = 127, 255


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
        plain, grid = values_of(values), self.number.grid
        if isinstance(grid, FloatGrid):
            return _packed(_codes(on_grid(plain, grid), grid, self.number.bits), self.number.bits)
        assert isinstance(grid, BlockGrid)
        rounded = on_blocks(plain, grid, -1)
        scales = _scales(rounded, grid)
        with np.errstate(under="ignore"):
            elements = np.ldexp(rounded, -np.repeat(scales, grid.size)[: plain.size])
        is_nan = np.isnan(elements)
        codes = _codes(np.where(is_nan, np.float32(0), elements), grid.element, self.number.bits)
        of_blocks = (scales + _SCALE_BIAS).astype(np.uint8)
        of_blocks[np.flatnonzero(is_nan) // grid.size] = _NAN_SCALE
        return np.concatenate([_packed(codes, self.number.bits), of_blocks])

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
            return _values(_unpacked(data, bits, count), grid, bits)
        assert isinstance(grid, BlockGrid)
        codes, scales = np.split(data, [(count * bits + 7) // 8])
        elements = _values(_unpacked(codes, bits, count), grid.element, bits)
        exponents = np.repeat(scales.astype(np.int32) - _SCALE_BIAS, grid.size)[:count]
        with np.errstate(over="ignore", under="ignore"):
            values: NDArray[np.float32] = np.ldexp(elements, exponents)
        values[np.repeat(scales == _NAN_SCALE, grid.size)[:count]] = np.nan
        return values

    def largest_bytes(self, count: int) -> int:
        """See `Codec`."""
        return self.number.bytes_of(count)

    def expected_bytes(self, count: Count) -> Count:
        """See `Codec`."""
        return self.number.bytes_of(count)

    def __str__(self) -> str:
        return self.number.name


def _scales(values: NDArray[np.float32], grid: BlockGrid) -> NDArray[np.int32]:
    """Return the exponent of each block's scale: the least under which no element is beyond the
    largest.
    """
    if not values.size:
        return np.zeros(0, np.int32)
    most = np.maximum.reduceat(np.nan_to_num(np.abs(values)), np.arange(0, values.size, grid.size))
    fractions, exponents = np.frexp(most)
    of_largest, exponent_of_largest = np.frexp(np.float32(grid.element.largest))
    scales = exponents - exponent_of_largest + (fractions > of_largest)
    return np.where(most > 0, np.clip(scales, -_SCALE_BIAS, _SCALE_BIAS), -_SCALE_BIAS).astype(
        np.int32
    )


def _is_fixed(grid: FloatGrid) -> bool:
    return grid.largest < 2.0 ** (grid.least_exponent + 1)


def _codes(values: NDArray[np.float32], grid: FloatGrid, bits: int) -> NDArray[np.uint32]:
    """Return the codes of values that are on a grid."""
    magnitudes = np.abs(values).astype(np.float64)
    is_nan = np.isnan(magnitudes)
    magnitudes[is_nan] = 0
    is_infinite = np.isinf(magnitudes)
    magnitudes[is_infinite] = 0
    _, exponents = np.frexp(magnitudes)
    above = np.where(magnitudes > 0, np.maximum(exponents - 1 - grid.least_exponent, 0), 0)
    steps = magnitudes / (grid.spacing * np.exp2(above))
    codes = (steps + above * 2.0**grid.fraction_bits).astype(np.uint32)
    codes[is_infinite] = _largest_code(grid) + 1
    sign = np.uint32(1 << (bits - 1))
    signs = np.signbit(values) & ~is_nan
    if _is_fixed(grid):
        signs &= codes > 0  # -0 is NaN
        codes[is_nan] = sign
    else:
        codes[is_nan] = sign - 1
    return codes | np.where(signs, sign, np.uint32(0))


def _values(codes: NDArray[np.uint32], grid: FloatGrid, bits: int) -> NDArray[np.float32]:
    """Return the values of codes."""
    sign = np.uint32(1 << (bits - 1))
    places, negative = codes & (sign - np.uint32(1)), (codes & sign) > 0
    of_step = 1 << grid.fraction_bits
    above = np.maximum(places.astype(np.int64) // of_step - 1, 0)
    steps = places - above * of_step
    with np.errstate(over="ignore"):
        values = np.ldexp(steps * grid.spacing, above.astype(np.int32)).astype(np.float32)
    largest = _largest_code(grid)
    if _is_fixed(grid):
        values[(places == 0) & negative] = np.nan
    else:
        values[places > largest] = np.nan
        if grid.overflows:
            values[places == largest + 1] = np.inf
    result: NDArray[np.float32] = np.where(negative, -values, values)
    return result


def _largest_code(grid: FloatGrid) -> int:
    _, exponent = np.frexp(grid.largest)
    above = max(int(exponent) - 1 - grid.least_exponent, 0)
    return int(grid.largest / (grid.spacing * 2.0**above)) + above * 2**grid.fraction_bits


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
