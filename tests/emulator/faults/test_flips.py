"""Bits that flip: as many as the rate says, where they may, and the same in whatever blocks samples
come.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.faults import FlipFault, Flipper, Purpose


def flipper(rate: float, **keys: Any) -> Flipper:
    """Flips of activations on a board."""
    return Flipper(
        3, Purpose.ACTIVATIONS, 1, ((0, FlipFault(of="activations", rate=rate, **keys)),)
    )


def flipped(found: Any, values: Any) -> Any:
    """The bits that differ, as one integer for each value."""
    return found.reshape(-1).view(np.uint32) ^ values.reshape(-1).view(np.uint32)


VALUES = np.linspace(-2, 2, 6 * 50, dtype=np.float32).reshape(6, 5, 10)


def test_at_rate_one_every_bit_flips() -> None:
    assert (flipped(flipper(1.0).values(VALUES, 0, 0), VALUES) == 0xFFFFFFFF).all()
    only = flipper(1.0, lowest_bit=3, highest_bit=5).values(VALUES, 0, 0)
    assert (flipped(only, VALUES) == 0b111000).all()


def test_at_rate_zero_the_values_are_the_same_object() -> None:
    assert flipper(0.0).values(VALUES, 0, 0) is VALUES
    assert flipper(0.0).samples(VALUES, 0, 0) is VALUES


def test_as_many_flip_as_the_rate_says() -> None:
    values = np.zeros(100_000, np.float32)
    count = int(
        np.unpackbits(flipped(flipper(0.01).values(values, 0, 0), values).view(np.uint8)).sum()
    )
    assert abs(count - 32_000) < 6 * (32_000 * 0.99) ** 0.5


@given(st.floats(0.0001, 1), st.sets(st.integers(1, 5)), st.integers(0, 100))
def test_samples_may_come_in_any_blocks(rate: float, cuts: set[int], first: int) -> None:
    of, ends = flipper(rate), sorted(cuts | {0, len(VALUES)})
    before = VALUES.tobytes()
    whole = of.samples(VALUES, 4, first)
    parts = [of.samples(VALUES[a:b], 4, first + a) for a, b in itertools.pairwise(ends)]
    assert whole.tobytes() == np.concatenate(parts).tobytes()
    assert VALUES.tobytes() == before


@pytest.mark.parametrize("other", [{"seed": 4}, {"board": 2}, {"purpose": Purpose.MESSAGES}])
def test_each_place_has_its_own_bits(other: dict[str, Any]) -> None:
    of = flipper(0.1)
    here = of.values(VALUES, 0, 0).tobytes()
    assert here == of.values(VALUES, 0, 0).tobytes()
    assert here != dataclasses.replace(of, **other).values(VALUES, 0, 0).tobytes()
    assert here != of.values(VALUES, 1, 0).tobytes()
    assert here != of.values(VALUES, 0, 1).tobytes()


def test_values_that_are_not_contiguous() -> None:
    part = VALUES[..., 2:5]
    found = flipper(1.0).samples(part, 0, 0)
    assert (flipped(found, np.ascontiguousarray(part)) == 0xFFFFFFFF).all()


def test_bytes_of_a_message() -> None:
    sent = np.arange(200, dtype=np.uint8)
    assert (flipper(1.0).payload(sent, 0, 0) == 255 - sent).all()
    assert flipper(0.0).payload(sent, 0, 0) is sent
    assert (sent == np.arange(200)).all()
