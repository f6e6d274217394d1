"""Philox4x32-10, random numbers by their place (Salmon et al., SC 2011): four words of each counter, under a key.

Stochastic rounding takes a word for each element of a layer's map or weights, whichever board has it:

    key      the run's seed
    counter  element // 4; 256 times the tensor's number, plus what it is rounded for; the sample or update, low, high
    word     element % 4

so the same number is drawn under any cut, and hardware can draw it, too.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit import compiled

Words = NDArray[np.uint32]

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_WORD = 0xFFFFFFFF
_MOST_TENSORS, _PURPOSES = 1 << 24, 256


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the four words of a counter under a key, each of 32 bits."""
    words = np.empty(4, np.uint32)
    _draw(counter[0], counter[1], counter[2], counter[3], key[0], key[1], words)
    first, second, third, fourth = map(int, words)
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

    def words(self, first: int, count: int) -> Words:
        """Return those of `count` elements from `first` on, an index into the whole tensor."""
        if not 0 <= first <= first + count <= 4 << 32:
            raise ValueError(f"elements {first} to {first + count}: a tensor has at most 2^34")
        begin = first // 4
        words = np.empty(-(-(first + count) // 4) * 4 - begin * 4, np.uint32)
        low, high = self.number & _WORD, self.number >> 32 & _WORD
        key = self.seed & _WORD, self.seed >> 32 & _WORD
        _draw(begin, self.tensor * _PURPOSES + self.purpose, low, high, *key, words)
        return words[first - 4 * begin :][:count]


@compiled
def _draw(begin: Any, second: Any, third: Any, fourth: Any, key_low: Any, key_high: Any, words: Any) -> None:
    for block in range(words.size // 4):
        c0, c1 = np.uint64(begin + block), np.uint64(second)
        c2, c3 = np.uint64(third), np.uint64(fourth)
        k0, k1 = np.uint64(key_low), np.uint64(key_high)
        for _ in range(_ROUNDS):
            one, two = c0 * np.uint64(_MULTIPLIERS[0]), c2 * np.uint64(_MULTIPLIERS[1])
            c0 = (two >> np.uint64(32)) ^ c1 ^ k0
            c2 = (one >> np.uint64(32)) ^ c3 ^ k1
            c1, c3 = two & np.uint64(_WORD), one & np.uint64(_WORD)
            k0, k1 = (k0 + np.uint64(_WEYL[0])) & np.uint64(_WORD), (k1 + np.uint64(_WEYL[1])) & np.uint64(_WORD)
        words[4 * block] = np.uint32(c0)
        words[4 * block + 1] = np.uint32(c1)
        words[4 * block + 2] = np.uint32(c2)
        words[4 * block + 3] = np.uint32(c3)
