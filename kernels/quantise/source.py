"""Where the numbers come from that decide which elements go up: all one, given words, or drawn where they are needed.

An array is taken in rows. The elements of a row follow one another in the whole tensor; from row to row, there may be a
step, where the array is a slice of the tensor, or another number of a stream, where each row is a sample's map.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit import Floats, compiled
from ..number import Rounding
from .philox import MOST_EXTRA, PhiloxStream, Words, check_elements, draw

CHUNK = 2048
"""Elements whose thresholds are held at once: a multiple of a counter's words, so that all chunks draw alike."""
ROOM = CHUNK + MOST_EXTRA

_ONE, _GIVEN, _DRAWN = range(3)
_NO_WORDS, _NO_NUMBERS = np.zeros(1, np.uint32), np.zeros(1, np.int64)


class Source(NamedTuple):
    """Numbers, as kernels take them: how; the elements of a row, the first one, the step of rows; the stream's."""

    kind: int
    row: int
    first: int
    step: int
    tensor: int
    key: int


Sources = tuple[Source, Words, NDArray[np.int64]]


@dataclasses.dataclass(frozen=True)
class Draws:
    """The words that a stream has for an array's elements, by their places in the stream's tensor.

    Args:
        stream: draws them.
        first: the place of the first element.
        stride: elements of the tensor from one row of axis 0 to the next; 0: rows follow one another.
        numbers: of the samples on axis 0, each from element `first` on, instead of the stream's own number.
    """

    stream: PhiloxStream
    first: int = 0
    stride: int = 0
    numbers: NDArray[np.int64] | None = None


def sources(values: Floats, rounding: Rounding, words: Words | Draws | None) -> Sources:
    """Return where the random numbers of an array come from.

    Raises:
        ValueError: there are none, though numbers go up by chance, or they do not suit the array.
    """
    size = max(1, values.size)
    if rounding is not Rounding.STOCHASTIC:
        return Source(_ONE, size, 0, 0, 0, 0), _NO_WORDS, _NO_NUMBERS
    if words is None:
        raise ValueError("numbers that go up by chance need `words`, random ones or those of `Draws`")
    if not isinstance(words, Draws):
        if words.size != values.size:
            raise ValueError(f"{values.size} values need as many words, not {words.size}")
        return Source(_GIVEN, size, 0, 0, 0, 0), np.ascontiguousarray(words).reshape(-1), _NO_NUMBERS
    first, stride, numbers = words.first, words.stride, words.numbers
    rows = len(values) if stride or numbers is not None else 1
    row = size // max(1, rows)
    if stride and (stride < row or numbers is not None):
        raise ValueError(f"`stride` = {stride}: rows of {row} elements are at least as far apart, and of one sample")
    if numbers is not None and numbers.shape != values.shape[:1]:
        raise ValueError(f"{len(values)} samples need as many numbers, not {numbers.shape}")
    check_elements(first, first + stride * (rows - 1) + row)
    tensor, number, key = words.stream.words_of
    each = np.array([number]) if numbers is None else np.require(numbers, np.int64, ["C", "A", "W"])
    return Source(_DRAWN, row, first, stride, tensor, key), _NO_WORDS, each


@compiled
def thresholds(place: Any, count: Any, source: Any, words: Any, numbers: Any, held: Any) -> Any:
    """Write those of the `count` elements from `place` on, all of a row; return where the first one is in `held`."""
    kind, row, first, step, tensor, key = source
    if kind == _GIVEN:
        given = words[place : place + count]
        for element in range(count):
            held[element] = given[element]
    if kind != _DRAWN:
        return 0
    number = place // row
    element = first + number * step + place - number * row
    return draw(element, count, tensor, numbers[min(number, numbers.size - 1)], key, held)
