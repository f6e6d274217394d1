"""Number formats: which there are, and the bytes of values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.common import InputError
from emuchain.kernels.number import FP32, Lines, NumberFormat, number_format, number_formats

from ...emulator.counted import COUNTED

COUNTS = st.integers(0, 2**40)


def test_formats_are_known_by_their_names_the_longest_first() -> None:
    bits = [number.bits for number in number_formats().values()]
    assert next(iter(number_formats().values())) == FP32 and bits == sorted(bits, reverse=True)
    assert all(number.name == name for name, number in number_formats().items())


@given(COUNTS, st.integers(1, 64))
def test_bytes_are_whole_and_hold_the_values(count: int, bits: int) -> None:
    number = NumberFormat("other", bits)
    size = number.bytes_of(count)
    assert 8 * size - 7 <= count * bits <= 8 * size
    assert count <= number.values_in(size) <= count + 7 // bits


@given(st.lists(COUNTS), st.integers(1, 64).filter(lambda bits: 2**40 * bits < 2**63))
def test_arrays_are_as_numbers(counts: list[int], bits: int) -> None:
    number, array = NumberFormat("other", bits), np.array(counts, np.int64)
    assert number.bytes_of(array).tolist() == [number.bytes_of(count) for count in counts]
    assert number.values_in(array).tolist() == [number.values_in(count) for count in counts]
    assert number.bytes_of(array).dtype == np.int64


def time_ps(precision: str | NumberFormat) -> int:
    settings = {
        "devices": 2,
        "schedule": "gpipe",
        "engines": "turns",
        "micro_batch": 8,
        "samples": 256,
    }
    # Multipliers of fp16 and of fp32 are as many where they are counted.
    planned = emuchain.plan(
        "quick-cifar", "vc709-10g", precision=precision, changes=COUNTED, **settings
    )
    return emuchain.simulate(planned).virtual_time_ps


def test_times_follow_from_the_bits_alone() -> None:
    assert time_ps(NumberFormat("other", bits=16)) == time_ps("fp16")
    assert time_ps("fp16") < time_ps(NumberFormat("other", bits=24)) < time_ps("fp32")


def test_an_unknown_format() -> None:
    with pytest.raises(
        InputError, match="`precision` = 'fp9': did you mean .fp8.. known: fp32, bf16"
    ):
        time_ps("fp9")


def test_rows_have_the_scales_of_all_blocks_that_they_touch() -> None:
    """40 channels from 10 on, of 8 columns: blocks 0 and 1."""
    assert number_format("mxfp8").row_bytes(40, 8, 10) == 40 * 8 + 2 * 8 == 336
    assert number_format("mxfp6").row_bytes(40, 8, 10) == 256
    assert number_format("bf16").row_bytes(40, 8, 10) == 640
    assert number_format("mxfp8").row_bytes(0, 8, 10) == 0


@given(st.integers(0, 2**20), st.sampled_from(["mxfp8", "mxfp6", "mxfp4", "int9@16", "e2m5@48"]))
def test_blocks_are_whole_and_hold_their_values(count: int, name: str) -> None:
    number = number_format(name)
    size = number.bytes_of(count)
    assert size == -(-count * number.bits // 8) + -(-count // number.block)
    assert (
        number.bytes_of(number.values_in(size))
        <= size
        < number.bytes_of(number.values_in(size) + 1)
    )
    assert count <= number.values_in(size)


def test_tensors_have_their_scales() -> None:
    """Of 40 channels from 10 on, of 8 columns, blocks 0 to 3; 30 elements have 2 scales."""
    number = number_format("nvfp4")
    assert number.row_bytes(40, 8, 10) == 160 + 4 * 8 + 4
    assert number.row_bytes(40, 8, 10, tensors=3) == 160 + 4 * 8 + 12
    assert number.row_bytes(0, 8, 10) == number.bytes_of(0) == 0
    assert number.bytes_of(30) == 15 + 2 + 4
    assert [number.values_in(size) for size in (0, 4, 5, 6, 13, 14, 15)] == [0, 0, 0, 2, 16, 16, 18]
    assert Lines(30, 6, 5, in_tensor=2).bytes_in(number) == 90 + 3 * 6 + 3 * 4
    assert Lines(30, 0).bytes_in(number) == 0
    assert number_format("mxfp4").tensor_bytes == 0


@given(st.integers(0, 2**20))
def test_bytes_of_a_tensor_hold_its_values(count: int) -> None:
    number = number_format("nvfp4")
    assert count <= number.values_in(number.bytes_of(count)) <= count + 1
