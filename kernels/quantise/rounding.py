"""Rounding onto the grid of a narrow format within fp32: number by number, or in blocks with one
scale, a power of two.

    MX    32 elements of E4M3, E5M2, E3M2, E2M3, E2M1 or INT8 (Microscaling Formats 1.0, table 1)
    BFP   B elements of fixed point

The scale is the least under which no element saturates. OCP's own, by the exponent of the largest
element alone, cuts that element by up to an eighth: `floor` has it. Scales are those of E8M0
(section 5.4.1), 2^-127 to 2^127. Scales on a grid of their own, and tensors: `tensors.py`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..jit import Floats, Kernels, address_of, dense, in_place, same_shape
from ..number import BlockGrid, FloatGrid, Rounding
from .element import BY_CUT, Limits, bits_of, limits_of
from .philox import Draws, PhiloxStream, Words, sources

Counts = NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.generic)

loops, tensors = Kernels("quantise.loops"), Kernels("quantise.tensors")


def on_grid(
    values: Floats,
    grid: FloatGrid,
    rounding: Rounding = Rounding.EVEN,
    words: Words | Draws | None = None,
    *,
    out: Floats | None = None,
    counts: Counts | None = None,
) -> Floats:
    """Return numbers rounded onto a grid; NaN stays NaN.

    Args:
        values: any shape, C-contiguous.
        grid: the format.
        rounding: how. By chance, a number goes up where its word is below the 32 bits that are cut
            off, as a fraction.
        words: random numbers, one for each value, in the order of memory, or the draws of a stream;
            for stochastic rounding alone.
        out: where the results go, C-contiguous and of the same shape; may be `values`.
        counts: two numbers, to which are added: finite values that went beyond the largest one, and
            values that are not zero, but became so.

    Raises:
        ValueError: random numbers are missing, or arguments contradict each other.
    """
    values, results, counted = arrays(values, out, counts)
    bits, rounded = values.reshape(-1).view(np.uint32), results.reshape(-1).view(np.uint32)
    drawn = sources(values, rounding, words)
    loops.round_rows(bits, rounded, values is results, limits_of(grid, rounding), *drawn, counted)
    return results


def arrays(
    values: Floats, out: Floats | None, counts: Counts | None
) -> tuple[Floats, Floats, Counts]:
    """Return the arrays of a rounding: values, results and counts.

    Raises:
        TypeError: one is of another type.
        ValueError: one has another shape or layout.
    """
    values = dense(values, "values")
    results = np.empty(values.shape, np.float32) if out is None else in_place(out, "out")
    same_shape(values, results, "values and out")
    if address_of(results) == address_of(values):
        values = results
    counted = np.zeros(2, np.int64) if counts is None else counts
    if counted.shape != (2,) or counted.dtype != np.int64:
        raise ValueError(
            f"counts must be two numbers of int64, not {counted.dtype} {counted.shape}"
        )
    return values, results, counted


class Blocks(NamedTuple):
    """Blocks, as kernels take them: elements, those of a line, and from one to the next; how the
    scale is chosen.

    `largest` is what fp32 holds of the last scale: its bits.
    """

    size: int
    length: int
    apart: int
    rises: bool
    largest: int


class Tensors(NamedTuple):
    """Blocks with scales on a grid, as kernels take them: elements of a block and of a line, from
    one to the next, and numbers or columns of a tensor.

    Of fp32 numbers, the bits: the most of a scale times an element, the largest element, and the
    least scale.
    """

    size: int
    length: int
    apart: int
    together: int
    most: int
    largest: int
    least: int
    scale: Limits


def on_blocks(
    values: Floats,
    grid: BlockGrid,
    axis: int,
    rounding: Rounding = Rounding.EVEN,
    words: Words | Draws | None = None,
    *,
    tensor: int = 0,
    out: Floats | None = None,
    counts: Counts | None = None,
) -> Floats:
    """Return numbers rounded to blocks along an axis, from its beginning; the last block may be
    shorter.

    A block with an infinity or NaN becomes NaN, and counts nothing.

    Args:
        values: any shape, C-contiguous.
        grid: the format.
        axis: along which elements share a scale.
        rounding, words, out, counts: as `on_grid` takes them.
        tensor: where tensors have scales, as many numbers that follow one another, of whole lines,
            are a tensor if `axis` is the last one, and otherwise as many columns of an array of two
            axes; 0: all.

    Raises:
        ValueError: random numbers are missing, or arguments contradict each other.
    """
    if grid.lines > 1:
        raise ValueError(f"{grid.lines} lines share scales: see `on_squares`")
    values, results, counted = arrays(values, out, counts)
    if not values.size:
        return results
    length, apart = values.shape[axis], math.prod(values.shape[axis:][1:])
    drawn = sources(values, rounding, words)
    bits, rounded = values.reshape(-1).view(np.uint32), results.reshape(-1).view(np.uint32)
    if grid.scale is not None:
        in_lines = axis in (-1, values.ndim - 1)
        form = tensors_of(grid, length, apart, tensor or (values.size if in_lines else apart))
        if in_lines and form.together % length:
            raise ValueError(f"`tensor` = {tensor}: lines of {length} are whole in one")
        round_tensors = tensors.round_tensor_lines if in_lines else tensors.round_tensor_columns
        limits = limits_of(grid.element, rounding)
        round_tensors(bits, rounded, values is results, form, limits, *drawn, counted)
        return results
    blocks = blocks_of(grid, length, apart)
    in_lines = apart == 1 and drawn[0].row % length == 0
    round_all = loops.round_lines if in_lines else loops.round_columns
    round_all(
        bits, rounded, values is results, blocks, limits_of(grid.element, rounding), *drawn, counted
    )
    return results


def in_squares(values: NDArray[_Number], side: int) -> NDArray[_Number]:
    """Return values (parts, rows, columns, places) as squares of `side` rows and columns of a part
    at a place, a line each; those at the ends are filled up with zeros.
    """
    parts, rows, columns, places = values.shape
    filled = np.pad(values, ((0, 0), (0, -rows % side), (0, -columns % side), (0, 0)))
    apart = filled.reshape(parts, -(-rows // side), side, -(-columns // side), side, places)
    return np.ascontiguousarray(apart.transpose(0, 1, 3, 5, 2, 4)).reshape(-1, side * side)


def from_squares(squares: Floats, side: int, shape: tuple[int, ...]) -> Floats:
    """Return values of a shape from `in_squares` of them."""
    parts, rows, columns, places = shape
    down, across = -(-rows // side), -(-columns // side)
    apart = squares.reshape(parts, down, across, places, side, side).transpose(0, 1, 4, 2, 5, 3)
    filled = apart.reshape(parts, down * side, across * side, places)
    return np.ascontiguousarray(filled[:, :rows, :columns])


def on_squares(
    values: Floats,
    grid: BlockGrid,
    rounding: Rounding = Rounding.EVEN,
    words: Words | None = None,
    *,
    counts: Counts | None = None,
) -> Floats:
    """Return numbers (parts, rows, columns, places) rounded to squares of as many rows and columns
    of a part at a place, whose number is that of `grid.lines`; squares at the ends may be smaller.

    Args:
        values: C-contiguous or not.
        grid: the format, whose `lines` are its `size`.
        rounding, counts: as `on_grid` takes them.
        words: random numbers, one for each value.

    Raises:
        ValueError: random numbers are missing, or blocks are not square.
    """
    if grid.lines != grid.size:
        raise ValueError(f"blocks of {grid.lines} lines of {grid.size} are not square")
    line = dataclasses.replace(grid, size=grid.size**2, lines=1)
    drawn = None if words is None else in_squares(words, grid.size)
    squares = in_squares(values, grid.size)
    on_blocks(squares, line, -1, rounding, drawn, out=squares, counts=counts)
    return from_squares(squares, grid.size, values.shape)


def blocks_of(grid: BlockGrid, length: int, apart: int) -> Blocks:
    """Return the blocks of a grid in lines of `length` elements, each `apart` from the next."""
    most_held = bits_of((2 - 2.0**-grid.element.fraction_bits) * 2.0**127)
    return Blocks(grid.size, length, apart, not grid.floor, most_held)


def tensors_of(grid: BlockGrid, length: int, apart: int, together: int) -> Tensors:
    """Return the blocks and tensors of a grid whose scales have a grid, too.

    Raises:
        ValueError: its elements or scales are too small to be rounded by sums.
    """
    assert grid.scale is not None
    element, scale = grid.element, limits_of(grid.scale, Rounding.EVEN)
    if BY_CUT in (limits_of(element, Rounding.ZERO).way, limits_of(grid.scale, Rounding.ZERO).way):
        raise ValueError(f"{grid}: elements and scales should be above fp32's least numbers")
    return Tensors(
        size=grid.size,
        length=length,
        apart=apart,
        together=together,
        most=bits_of(element.largest * grid.scale.largest),
        largest=bits_of(element.largest),
        least=bits_of(grid.scale.spacing),
        scale=scale,
    )


def warm() -> None:
    """Compile the kernels, or load them."""
    values, stream = np.ones((2, 2), np.float32), PhiloxStream(0, 0, 0, 0)
    element = FloatGrid(3, -6, 448.0)
    on_grid(values, element, Rounding.STOCHASTIC, Draws(stream))
    for axis in (0, 1):
        for grid in (BlockGrid(element), BlockGrid(element, scale=element)):
            on_blocks(values, grid, axis, Rounding.STOCHASTIC, Draws(stream))
    stream.words(0, 4)
