"""Where the numbers come from that decide which elements go up: all one, given words, or drawn where they are needed.

An array is taken in rows. The elements of a row follow one another in the whole tensor; from row to row, there may be a
step, where the array is a slice of the tensor, or another number of a stream, where each row is a sample's map.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit import Floats, compiled
from ..number import Rounding
from .philox import MOST_EXTRA, PhiloxStream, Words, check_elements, draw

CHUNK = 1024
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


def sources(
    values: Floats,
    rounding: Rounding,
    words: Words | None,
    stream: PhiloxStream | None,
    first: int,
    stride: int,
    numbers: NDArray[np.int64] | None,
) -> Sources:
    """Return where the random numbers of an array come from, as `on_grid` takes them.

    Raises:
        ValueError: there are none, though numbers go up by chance, or the arguments contradict each other.
    """
    size = max(1, values.size)
    if rounding is not Rounding.STOCHASTIC:
        return Source(_ONE, size, 0, 0, 0, 0), _NO_WORDS, _NO_NUMBERS
    if (words is None) == (stream is None):
        raise ValueError("numbers that go up by chance need either `words` or a `stream`")
    if stream is None:
        assert words is not None
        if words.size != values.size:
            raise ValueError(f"{values.size} values need as many words, not {words.size}")
        return Source(_GIVEN, size, 0, 0, 0, 0), np.ascontiguousarray(words).reshape(-1), _NO_NUMBERS
    rows = len(values) if stride or numbers is not None else 1
    row = size // max(1, rows)
    if stride and (stride < row or numbers is not None):
        raise ValueError(f"`stride` = {stride}: rows of {row} elements are at least as far apart, and of one sample")
    if numbers is not None and numbers.shape != values.shape[:1]:
        raise ValueError(f"{len(values)} samples need as many numbers, not {numbers.shape}")
    check_elements(first, first + stride * (rows - 1) + row)
    tensor, number, key = stream.words_of
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
