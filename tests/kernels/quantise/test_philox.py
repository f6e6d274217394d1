"""Philox4x32-10: published known answers, and the same words for any cut of a tensor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels.quantise import PhiloxStream, philox

ONES = 0xFFFFFFFF
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (PI, (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_known_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], words: tuple[int, ...]
) -> None:
    """Random123's kat_vectors."""
    assert philox(counter, key) == words


def test_counters_are_those_of_the_element() -> None:
    stream = PhiloxStream(seed=(7 << 32) + 5, tensor=3, purpose=9, number=(2 << 32) + 1)
    words = stream.words(0, 12)
    for block in range(3):
        assert tuple(words[4 * block : 4 * block + 4]) == philox((block, 3 * 256 + 9, 1, 2), (5, 7))


@given(st.integers(0, 100), st.integers(0, 100))
def test_any_part_has_the_words_of_the_whole(first: int, count: int) -> None:
    stream = PhiloxStream(1, 2, 3, 4)
    assert (stream.words(first, count) == stream.words(0, 256)[first : first + count]).all()


def test_words_are_even() -> None:
    words = PhiloxStream(1, 0, 0, 0).words(0, 1 << 18)
    counts = np.bincount(words >> np.uint32(24), minlength=256)
    expected = len(words) / 256
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * np.sqrt(2 * 255)


@pytest.mark.parametrize("wrong", [{"tensor": 1 << 24}, {"purpose": 256}, {"tensor": -1}])
def test_what_no_counter_holds(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        PhiloxStream(**{"seed": 0, "tensor": 0, "purpose": 0, "number": 0, **wrong})
    with pytest.raises(ValueError):
        PhiloxStream(0, 0, 0, 0).words(4 << 32, 1)
