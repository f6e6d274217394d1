"""How operands of attention's products are rounded to a format: the shares that queries have of
values, and the errors of scores.

Blocks run along the keys of a query, from key 0 on. Of stochastic rounding, the word of a head, a
key and a query is number (head * keys + key) * rows + query of the sample, from the draws' first
element on.

Numbers that are rounded one by one may have a scale, the same for all, and the largest of them is
noted.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit import Floats
from ..number import BlockGrid, FloatGrid, Rounding
from ..quantise.element import Limits, limits_of
from ..quantise.philox import DRAWN, Draws, Source, Words, check_elements, one_threshold
from ..quantise.rounding import Blocks, Counts, Tensors, blocks_of, on_grid, tensors_of

WHOLE, BY_NUMBER, BY_BLOCK, BY_TENSOR, BY_SCALE = range(5)
"""Operands stay as they are, or are rounded number by number, or in blocks along keys, also with a
scale for all keys of a query; or number by number under a scale of all.
"""


class Scale(NamedTuple):
    """A scale 2^`exponent` of all numbers of an operand, from -126 to 126; to the one of `largest`
    goes the largest finite magnitude before they are divided, if it is larger.
    """

    exponent: int
    largest: NDArray[np.float32]


class Factors(NamedTuple):
    """The same, as kernels take it: by what numbers are multiplied before they are rounded, and
    after.
    """

    down: np.float32
    up: np.float32
    largest: NDArray[np.float32]


class Narrow(NamedTuple):
    """A rounding of operands, as kernels take it; `numbers` are those of the samples, for draws."""

    way: int
    blocks: Blocks
    tensors: Tensors
    limits: Limits
    source: Source
    numbers: NDArray[np.int64]
    counts: Counts
    scale: Factors


_NO_LIMITS = Limits(0, 0, 0, 0, 0, 0, 0, 0)
_NO_BLOCKS, _NO_TENSORS = Blocks(0, 0, 0, False, 0), Tensors(0, 0, 0, 0, 0, 0, 0, _NO_LIMITS)
_NO_SCALE = Factors(np.float32(1), np.float32(1), np.zeros(1, np.float32))


@dataclasses.dataclass(frozen=True)
class Operand:
    """A rounding of operands: to the values of a grid, and by which words, if by chance.

    Args:
        grid: the format.
        rounding: how.
        words: the draws, for stochastic rounding alone: from the element on that the first head has
            for key 0 and query 0, with the numbers of the samples.
        counts: two numbers, to which are added: values that went beyond the largest one, and those
            that became zero.
        scale: that of all numbers.

    Raises:
        ValueError: numbers go up by chance, and there are no draws, or none with samples' numbers;
            or a scale is given, and blocks have their own.
    """

    grid: FloatGrid | BlockGrid
    rounding: Rounding = Rounding.EVEN
    words: Draws | None = None
    counts: Counts | None = None
    scale: Scale | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and isinstance(self.grid, BlockGrid):
            raise ValueError("blocks have scales of their own")
        if self.rounding is Rounding.STOCHASTIC and (
            self.words is None or self.words.numbers is None
        ):
            raise ValueError("numbers that go up by chance need draws with the samples' numbers")

    def narrow(self, samples: int, heads: int, keys: int, rows: int) -> Narrow:
        """Return it as kernels of attention take it, of this number of keys and of rows of queries.

        Raises:
            ValueError: samples have another number of numbers, or heads too many elements.
        """
        return self.of_lines(samples, heads * keys * rows, rows)

    def of_lines(self, samples: int, elements: int, step: int) -> Narrow:
        """Return it as kernels take it, of samples with this number of elements each, in lines that
        are `step` elements apart.

        Raises:
            ValueError: samples have another number of numbers, or too many elements.
        """
        way, element, blocks, tensors = BY_NUMBER, self.grid, _NO_BLOCKS, _NO_TENSORS
        if isinstance(self.grid, BlockGrid):
            way, element, blocks = BY_BLOCK, self.grid.element, blocks_of(self.grid, 0, 0)
            if self.grid.scale is not None:
                way, tensors = BY_TENSOR, tensors_of(self.grid, 0, 0, 1)
        assert isinstance(element, FloatGrid)
        scale = _NO_SCALE
        if self.scale is not None:
            up, down = (np.float32(2.0 ** (sign * self.scale.exponent)) for sign in (1, -1))
            way, scale = BY_SCALE, Factors(down, up, self.scale.largest)
        source, numbers = one_threshold(0), np.zeros(1, np.int64)
        if self.rounding is Rounding.STOCHASTIC:
            assert self.words is not None and self.words.numbers is not None
            numbers = np.require(self.words.numbers, np.int64, ["C", "A", "W"])
            if numbers.shape != (samples,):
                raise ValueError(f"{samples} samples need as many numbers, not {numbers.shape}")
            check_elements(self.words.first, self.words.first + elements)
            tensor, _, key = self.words.stream.words_of
            source = Source(DRAWN, 0, self.words.first, step, tensor, key)
        counts = np.zeros(2, np.int64) if self.counts is None else self.counts
        limits = limits_of(element, self.rounding)
        return Narrow(way, blocks, tensors, limits, source, numbers, counts, scale)

    def on_grid(self, values: Floats, words: Words | None) -> Floats:
        """Return numbers that stand alone rounded in place, by their words if by chance."""
        assert isinstance(self.grid, FloatGrid)
        key: Any = {"out": values, "counts": self.counts}
        if self.scale is None:
            return on_grid(values, self.grid, self.rounding, words, **key)
        exponent, largest = self.scale
        np.maximum(largest, largest_finite(values), out=largest)
        values *= np.float32(2.0**-exponent)
        made = on_grid(values, self.grid, self.rounding, words, **key)
        made *= np.float32(2.0**exponent)
        return made


def largest_finite(values: Floats) -> np.float32:
    """Return the largest finite magnitude of some values; 0 of none."""
    magnitudes = np.abs(np.where(np.isfinite(values), values, np.float32(0)))
    return np.float32(magnitudes.max(initial=0))


@functools.cache
def whole() -> Narrow:
    """Return what leaves operands as they are; kernels write nothing to it."""
    none = np.zeros(2, np.int64)
    nothing = _NO_BLOCKS, _NO_TENSORS, _NO_LIMITS, one_threshold(0), none, none
    return Narrow(WHOLE, *nothing, _NO_SCALE)
