"""Philox4x32-10, random numbers by their place (Salmon et al., SC 2011): four words of each counter, under a key.

Stochastic rounding takes a word for each element of a layer's map or weights, whichever board has it:

    key      the run's seed
    counter  element // 4; 256 times the tensor's number, plus what it is rounded for; the sample or update, low, high
    word     element % 4

so the same number is drawn under any cut, and hardware can draw it, too.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ..jit import Kernels

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
            raise ValueError(f"tensor {self.tensor}, purpose {self.purpose}: should be below 2^24 and {_PURPOSES}")

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
