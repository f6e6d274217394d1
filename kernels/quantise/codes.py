"""Values of a format as memories and links hold them: codes, scales of blocks, and of tensors.

A code is a sign and the place of a magnitude among those of the format, in ascending order: for
floats that is their exponent and fraction. Infinity follows the largest magnitude where the format
has it, and the last code is NaN, which in fixed point is -0. The scale of a block, of 8 bits, is a
power of two with a bias of 127, and 255 makes the block NaN; or a code of the scales' own grid, of
which the last one does. The scale of a tensor is the biased exponent of an fp32 number that has no
fraction.

Scales are found from values that are rounded already. Under the least scale at which none is beyond
the largest element, all are on the grid of elements. Of scales on a grid of their own, a block has
the least one of which all its numbers are multiples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..number import BIAS, SCALE_BITS, BlockGrid, FloatGrid, NumberFormat
from .rounding import on_grid

Codes = NDArray[np.uint32]
Values = NDArray[np.float32]

_NAN_SCALE = 255
_LEAST_TENSOR, _MOST_TENSOR = -126, 116
"""Exponents of the scales of tensors (`tensors.py`)."""


class Coded(NamedTuple):
    """Lines of values in a format: codes (lines, length), scales of blocks (lines, blocks), and of
    tensors (tensors).

    Formats without scales have no blocks, and those without scales of tensors no tensors.
    """

    codes: Codes
    scales: Codes
    tensors: Codes


def encoded(values: Values, number: NumberFormat, in_tensor: int = 1, begin: int = 0) -> Coded:
    """Return lines of values (lines, length) that are on a format's grid, as codes.

    Args:
        values: lines, along which blocks run.
        number: the format.
        in_tensor: lines of a tensor, of which the last one may have fewer.
        begin: the place of the first value in its line, from which blocks are counted.
    """
    grid, lines = number.grid, len(values)
    none = np.zeros((lines, 0), np.uint32), np.zeros(0, np.uint32)
    if grid is None:
        return Coded(np.ascontiguousarray(values).view(np.uint32), *none)
    if isinstance(grid, FloatGrid):
        return Coded(codes_of(values, grid, number.bits), *none)
    blocks, first = _in_blocks(values, grid.size, begin), begin % grid.size
    lacks = ~np.isfinite(blocks)
    is_nan = lacks.any(axis=-1)
    if _largest_code(grid.element) + 1 < 1 << number.bits - 1:  # elements may be NaN by themselves
        held = _in_blocks(np.ones_like(values), grid.size, begin) > 0
        is_nan &= (lacks | ~held).all(axis=-1)
    blocks[is_nan] = 0
    most = np.abs(np.where(lacks, np.float32(0), blocks)).max(axis=-1, initial=0)
    if grid.scale is None:
        exponents = _exponents(most, grid)
        scales, tensors = (exponents + BIAS).astype(np.uint32), none[1]
        with np.errstate(under="ignore"):
            elements = np.ldexp(blocks, -exponents[..., None])
        scales[is_nan] = _NAN_SCALE
    else:
        scales, tensors, elements = _in_tensors(blocks, most, number, in_tensor)
        scales[is_nan] = 2 ** (SCALE_BITS - 1) - 1
    codes = codes_of(elements, grid.element, number.bits).reshape(lines, -1)
    return Coded(np.ascontiguousarray(codes[:, first:][:, : values.shape[1]]), scales, tensors)


def decoded(coded: Coded, number: NumberFormat, in_tensor: int = 1, begin: int = 0) -> Values:
    """Return the values of codes, as `encoded` takes them; those beyond fp32 are its largest."""
    grid, codes = number.grid, coded.codes
    if grid is None:
        return codes.view(np.float32)
    if isinstance(grid, FloatGrid):
        return values_of(codes, grid, number.bits)
    elements = values_of(codes, grid.element, number.bits)
    if not codes.size:
        return elements
    if grid.element.is_fixed_point:
        elements[np.isnan(elements)] = 0  # of a block, the scale is NaN
    blocks, first = _in_blocks(elements, grid.size, begin), begin % grid.size
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if grid.scale is None:
            most = np.float32((2 - 2.0**-grid.element.fraction_bits) * 2.0**BIAS)
            blocks = np.ldexp(blocks, coded.scales.astype(np.int32)[..., None] - BIAS)
            blocks[coded.scales == _NAN_SCALE] = np.nan
        else:
            most = np.float32(grid.element.largest * grid.scale.largest * 2.0**_MOST_TENSOR)
            of_lines = np.repeat(coded.tensors.astype(np.int32), in_tensor)[: len(blocks)]
            scales = np.ldexp(
                values_of(coded.scales, grid.scale, SCALE_BITS), of_lines[:, None] - BIAS
            )
            blocks *= scales[..., None]
    lines = np.clip(blocks, -most, most).reshape(len(codes), -1)
    return np.ascontiguousarray(lines[:, first:][:, : codes.shape[1]])


def _in_blocks(values: Values, size: int, begin: int) -> Values:
    """Return a copy of lines of values as (lines, blocks, size), with zeros around."""
    first, length = begin % size, values.shape[1]
    count = -(-(first + length) // size) if length else 0
    padded = np.zeros((len(values), count * size), np.float32)
    padded[:, first:][:, :length] = values
    return padded.reshape(len(values), count, size)


def _exponents(most: Values, grid: BlockGrid) -> NDArray[np.int32]:
    """Return the exponent of each block's scale: the least under which no element is beyond the
    largest.
    """
    fractions, exponents = np.frexp(most)
    of_largest, exponent_of_largest = np.frexp(np.float32(grid.element.largest))
    scales = exponents - exponent_of_largest + (fractions > of_largest)
    return np.where(most > 0, np.clip(scales, -BIAS, BIAS), -BIAS).astype(np.int32)


def _in_tensors(
    blocks: Values, most: Values, number: NumberFormat, in_tensor: int
) -> tuple[Codes, Codes, Values]:
    """Return the codes of blocks' and tensors' scales, and the elements."""
    grid, tensor_of = number.grid, np.arange(len(blocks)) // in_tensor
    assert isinstance(grid, BlockGrid) and grid.scale is not None
    begins = np.arange(0, len(blocks), in_tensor)
    of_lines = most.max(axis=1, initial=0)
    of_tensors = np.maximum.reduceat(of_lines, begins) if len(begins) else of_lines
    fractions, exponents = np.frexp(of_tensors)
    top, exponent_of_top = np.frexp(np.float32(grid.element.largest * grid.scale.largest))
    least = np.where(of_tensors > 0, exponents - exponent_of_top + (fractions > top), 0)
    tensors = np.clip(least, _LEAST_TENSOR, _MOST_TENSOR).astype(np.int32)
    scales, fits = _scales_under(blocks, most, tensors[tensor_of], number)
    # By chance, the largest number of a tensor may have become less: its scale was the next one.
    lacks = ~fits.all(axis=1)
    if lacks.any():
        tensors += np.logical_or.reduceat(lacks, begins)
        scales, _ = _scales_under(blocks, most, tensors[tensor_of], number)
    shares = np.ldexp(blocks, -tensors[tensor_of][:, None, None])
    elements = np.divide(shares, scales[..., None], dtype=np.float32)
    codes = codes_of(scales, grid.scale, SCALE_BITS)
    return codes, (tensors + BIAS).astype(np.uint32), on_grid(elements, grid.element)


def _scales_under(
    blocks: Values, most: Values, exponents: NDArray[np.int32], number: NumberFormat
) -> tuple[Values, NDArray[np.bool_]]:
    """Return a scale for each block, relative to that of its tensor, and whether its numbers are
    multiples of it.

    `exponents` are those of the tensor of each line.
    """
    grid = number.grid
    assert isinstance(grid, BlockGrid) and grid.scale is not None
    scales = np.full(most.shape, grid.scale.spacing, np.float32)
    fits = most == 0
    largest, shares = (
        np.ldexp(most, -exponents[:, None]),
        np.ldexp(blocks, -exponents[:, None, None]),
    )
    tops = values_of(np.arange(1, 1 << number.bits - 1, dtype=np.uint32), grid.element, number.bits)
    for top in tops[::-1]:
        tried = np.maximum(np.divide(largest, top, dtype=np.float32), grid.scale.spacing)
        elements = np.divide(shares, tried[..., None], dtype=np.float32)
        is_one = (on_grid(tried, grid.scale) == tried) & (tried * top == largest) & ~fits
        is_one &= (on_grid(elements, grid.element) == elements).all(axis=-1)
        scales[is_one] = tried[is_one]
        fits |= is_one
    return scales, fits


def codes_of(values: Values, grid: FloatGrid, bits: int) -> Codes:
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
    if grid.is_fixed_point:
        signs &= codes > 0  # -0 is NaN
        codes[is_nan] = sign
    else:
        codes[is_nan] = sign - 1
    return codes | np.where(signs, sign, np.uint32(0))


def values_of(codes: Codes, grid: FloatGrid, bits: int) -> Values:
    """Return the values of codes."""
    sign = np.uint32(1 << (bits - 1))
    places, negative = codes & (sign - np.uint32(1)), (codes & sign) > 0
    of_step = 1 << grid.fraction_bits
    above = np.maximum(places.astype(np.int64) // of_step - 1, 0)
    steps = places - above * of_step
    with np.errstate(over="ignore"):
        values = np.ldexp(steps * grid.spacing, above.astype(np.int32)).astype(np.float32)
    largest = _largest_code(grid)
    if grid.is_fixed_point:
        values[(places == 0) & negative] = np.nan
    else:
        values[places > largest] = np.nan
        if grid.overflows:
            values[places == largest + 1] = np.inf
    result: Values = np.where(negative, -values, values)
    return result


def _largest_code(grid: FloatGrid) -> int:
    _, exponent = np.frexp(grid.largest)
    above = max(int(exponent) - 1 - grid.least_exponent, 0)
    return int(grid.largest / (grid.spacing * 2.0**above)) + above * 2**grid.fraction_bits
