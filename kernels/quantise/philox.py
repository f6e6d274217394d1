"""Philox4x32-10, random numbers by their place (Salmon et al., SC 2011), and where roundings take
thresholds from.

Stochastic rounding takes a word for each element of a layer's map or weights, whichever board has
it:

    key      the run's seed
    counter  element // 4; 256 times the tensor's number, plus what it is rounded for; the sample or update, low, high
    word     element % 4

so the same number is drawn under any cut, and hardware can draw it, too.

The numbers that decide which elements go up are all one, given words, or drawn where they are
needed. An array is taken in rows. The elements of a row follow one another in the whole tensor;
from row to row, there may be a step, where the array is a slice of the tensor, or another number of
a stream, where each row is a sample's map:

    a slice of columns 2 to 4 of a tensor of 6:         maps of samples 7 and 9:

         0  1 [2  3  4] 5     row 0: from 2 on            [0 1 2 3]     row 0: from 0 on, number 7
         6  7 [8  9 10] 11    row 1: a step of 6 later    [0 1 2 3]     row 1: from 0 on again, number 9
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit import Floats, Kernels, compiled
from ..number import Rounding

Words = NDArray[np.uint32]

ROUNDS = 10
MOST_EXTRA = 68
"""Words that may be drawn beside those that are asked for."""
MOST_ELEMENTS = 4 << 32
_MOST_TENSORS, _PURPOSES = 1 << 24, 256

draw = Kernels("quantise.draws").draw


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the four words of a counter under a key, each of 32 bits."""
    words = np.empty(4 + MOST_EXTRA, np.uint32)
    begin, tensor, low, high = counter
    draw(4 * begin, 4, tensor, as_signed(low | high << 32), as_signed(key[0] | key[1] << 32), words)
    first, second, third, fourth = map(int, words[:4])
    return first, second, third, fourth


@dataclasses.dataclass(frozen=True)
class PhiloxStream:
    """The words of one tensor, rounded for one purpose, in one sample or update.

    Args:
        seed: the run's, of 64 bits.
        tensor: the tensor's number in the network, below 2^24.
        purpose: what it is rounded for, below 256.
        number: of the sample, or of the update, of 64 bits.
    """

    seed: int
    tensor: int
    purpose: int
    number: int

    def __post_init__(self) -> None:
        if not 0 <= self.tensor < _MOST_TENSORS or not 0 <= self.purpose < _PURPOSES:
            raise ValueError(
                f"tensor {self.tensor}, purpose {self.purpose}: should be below 2^24 and"
                f" {_PURPOSES}"
            )

    @property
    def words_of(self) -> tuple[int, int, int]:
        """The counter's second word, its two last ones, and the key, as kernels take them."""
        return self.tensor * _PURPOSES + self.purpose, as_signed(self.number), as_signed(self.seed)

    def words(self, first: int, count: int) -> Words:
        """Return those of `count` elements from `first` on, an index into the whole tensor."""
        check_elements(first, first + count)
        words = np.empty(count + MOST_EXTRA, np.uint32)
        tensor, number, key = self.words_of
        place = draw(first, count, tensor, number, key, words)
        return words[place:][:count]


def check_elements(first: int, end: int) -> None:
    """Raise ValueError for elements that no counter has."""
    if not 0 <= first <= end <= MOST_ELEMENTS:
        raise ValueError(f"elements {first} to {end}: a tensor has at most 2^34")


def as_signed(value: int) -> int:
    """Return the 64 bits of a number, as kernels take them."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


CHUNK = 2048
"""Elements whose thresholds are held at once: a multiple of a counter's words, so that all chunks
draw alike.
"""
ROOM = CHUNK + MOST_EXTRA

_ONE, _GIVEN, DRAWN = range(3)
"""One threshold for all numbers, given words, or those that a stream draws."""
_NO_WORDS, _NO_NUMBERS = np.zeros(1, np.uint32), np.zeros(1, np.int64)


class Source(NamedTuple):
    """Numbers, as kernels take them: how; the elements of a row, the first one, the step of rows;
    the stream's.
    """

    kind: int
    row: int
    first: int
    step: int
    tensor: int
    key: int


def one_threshold(size: int) -> Source:
    """Return the source of an array of this size whose numbers have one threshold."""
    return Source(_ONE, size, 0, 0, 0, 0)


Sources = tuple[Source, Words, NDArray[np.int64]]


@dataclasses.dataclass(frozen=True)
class Draws:
    """The words that a stream has for an array's elements, by their places in the stream's tensor.

    Args:
        stream: draws them.
        first: the place of the first element.
        stride: elements of the tensor from one row of axis 0 to the next; 0: rows follow one
            another.
        numbers: of the samples on axis 0, each from element `first` on, instead of the stream's own
            number.
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
        return one_threshold(size), _NO_WORDS, _NO_NUMBERS
    if words is None:
        raise ValueError(
            "numbers that go up by chance need `words`, random ones or those of `Draws`"
        )
    if not isinstance(words, Draws):
        if words.size != values.size:
            raise ValueError(f"{values.size} values need as many words, not {words.size}")
        return (
            Source(_GIVEN, size, 0, 0, 0, 0),
            np.ascontiguousarray(words).reshape(-1),
            _NO_NUMBERS,
        )
    first, stride, numbers = words.first, words.stride, words.numbers
    rows = len(values) if stride or numbers is not None else 1
    row = size // max(1, rows)
    if stride and (stride < row or numbers is not None):
        raise ValueError(
            f"`stride` = {stride}: rows of {row} elements are at least as far apart, and of one"
            " sample"
        )
    if numbers is not None and numbers.shape != values.shape[:1]:
        raise ValueError(f"{len(values)} samples need as many numbers, not {numbers.shape}")
    check_elements(first, first + stride * (rows - 1) + row)
    tensor, number, key = words.stream.words_of
    counters = (
        np.array([number]) if numbers is None else np.require(numbers, np.int64, ["C", "A", "W"])
    )
    return Source(DRAWN, row, first, stride, tensor, key), _NO_WORDS, counters


@compiled
def thresholds(place: Any, count: Any, source: Any, words: Any, numbers: Any, held: Any) -> Any:
    """Write those of the `count` elements from `place` on, all of a row; return where the first one
    is in `held`.
    """
    kind, row, first, step, tensor, key = source
    if kind == _GIVEN:
        given = words[place : place + count]
        for element in range(count):
            held[element] = given[element]
    if kind != DRAWN:
        return 0
    number = place // row
    element = first + number * step + place - number * row
    return draw(element, count, tensor, numbers[min(number, numbers.size - 1)], key, held)
