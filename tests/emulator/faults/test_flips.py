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

from emuchain.emulator.faults import FlipFault, Flipper, LineFormat, Purpose
from emuchain.kernels.number import BlockGrid, NumberFormat, number_format
from emuchain.kernels.quantise import decoded, encoded, on_blocks, on_grid


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


NARROW = ["bf16", "fp16", "fp8", "q2.6", "mxfp8", "mxfp4", "mxint8", "nvfp4"]


def held(name: str, values: np.ndarray = VALUES) -> tuple[NumberFormat, LineFormat, np.ndarray]:
    """A format, lines of it from a pixel's third channel on, two pixels a tensor, and values in
    it.
    """
    number = number_format(name)
    if isinstance(number.grid, BlockGrid):
        made = on_blocks(values, number.grid, -1, tensor=2 * values.shape[-1])
    else:
        assert number.grid is not None
        made = on_grid(values, number.grid)
    return number, LineFormat(number, 3, 2), made


@pytest.mark.parametrize("name", NARROW)
def test_what_flips_is_in_the_format(name: str) -> None:
    number, form, values = held(name, np.tile(VALUES, (20, 1, 1)))
    hit = flipper(0.01).values(values, 4, 9, form)
    tensors = hit.reshape(-1, 2, values.shape[-1])
    beyond = np.nan_to_num(np.abs(tensors)).max(axis=(1, 2)) > 2.0**100
    assert beyond.mean() < 0.1, "where fp32 ends, values are cut off"
    lines = tensors[~beyond].reshape(-1, values.shape[-1])
    assert np.isnan(hit).mean() < 0.3 and 0.005 < (hit != values).mean() < 0.9
    back = decoded(encoded(lines, number, 2, 3), number, 2, 3)
    np.testing.assert_array_equal(back, lines)


@pytest.mark.parametrize("name", NARROW)
def test_of_codes_every_bit_flips_at_rate_one(name: str) -> None:
    """The bits of codes but the sign, where a scale that is hit, too, would hide them."""
    number, form, values = held(name)
    if isinstance(number.grid, BlockGrid):
        return
    hit = flipper(1.0, highest_bit=number.bits - 2).values(values, 0, 0, form)
    codes = [encoded(own.reshape(-1, 10), number).codes for own in (values, hit)]
    flags = codes[0] ^ codes[1]
    numbers = ~np.isnan(hit.reshape(-1, 10)) & (hit.reshape(-1, 10) != 0)
    assert numbers.any() and (flags[numbers] == 2 ** (number.bits - 1) - 1).all()


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4"])
def test_a_scale_that_is_hit_changes_its_block(name: str) -> None:
    """Bits 4 to 7 are those of scales alone where elements have four bits; of E4M3 elements,
    too.
    """
    number, form, values = held(name, np.full((50, 4, 10), 1.5, np.float32))
    hit = flipper(0.002, lowest_bit=4).values(values, 0, 0, form)
    moved = (hit != values).reshape(-1, 10)
    together = moved.all(axis=1).sum()
    assert together > 0
    if number.bits == 4:
        blocks = moved.reshape(-1, 20) if name == "nvfp4" else moved
        assert set(blocks.mean(axis=1).tolist()) <= {0.0, 0.5, 1.0}


@pytest.mark.parametrize("name", NARROW)
def test_narrow_samples_may_come_in_any_blocks(name: str) -> None:
    _, form, values = held(name, np.tile(VALUES, (1, 2, 1)))
    before, of = values.tobytes(), flipper(0.02)
    whole = of.samples(values, 4, 3, form)
    parts = [of.samples(values[a:b], 4, 3 + a, form) for a, b in ((0, 1), (1, 4), (4, 6))]
    assert whole.tobytes() == np.concatenate(parts).tobytes() != before
    assert values.tobytes() == before
    assert flipper(1e-9).values(values, 0, 0, form) is values


def test_bits_that_a_format_lacks_do_not_flip() -> None:
    _, form, values = held("fp8")
    assert flipper(1.0, lowest_bit=8).values(values, 0, 0, form) is values
