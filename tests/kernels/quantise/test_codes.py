"""Codes and scales of rounded values: they say the same values, whatever bits they have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels.number import BlockGrid, NumberFormat, Rounding, number_format
from emuchain.kernels.quantise import decoded, encoded, on_blocks, on_grid

NAMES = [
    "fp32",
    "bf16",
    "fp16",
    "fp8",
    "q2.6",
    "shift4",
    "mxfp8",
    "mxfp4",
    "mxint8",
    "e2m5@48",
    "nvfp4",
]


def rounded(
    values: np.ndarray, number: NumberFormat, rounding: Rounding, in_tensor: int
) -> np.ndarray:
    words = np.random.default_rng(7).integers(0, 2**32, values.shape, np.uint32)
    if number.grid is None:
        return values
    if not isinstance(number.grid, BlockGrid):
        return on_grid(values, number.grid, rounding, words)
    tensor = in_tensor * values.shape[1]
    return on_blocks(values, number.grid, -1, rounding, words, tensor=tensor)


@pytest.mark.parametrize("rounding", [Rounding.EVEN, Rounding.ZERO, Rounding.STOCHASTIC])
@pytest.mark.parametrize("name", NAMES)
def test_values_come_back(name: str, rounding: Rounding) -> None:
    random, number = np.random.default_rng(2), number_format(name)
    for shape in ((1, 1), (4, 31), (6, 100), (40, 16)):
        values = random.normal(size=shape) * np.exp(4 * random.normal(size=shape))
        made = rounded(values.astype(np.float32), number, rounding, 2)
        coded = encoded(made, number, 2)
        assert coded.codes.shape == shape and int(coded.codes.max()) < 2**number.bits
        assert coded.scales.shape == (shape[0], number.blocks(shape[1]))
        assert len(coded.tensors) == (-(-shape[0] // 2) if number.tensor_bytes else 0)
        np.testing.assert_array_equal(decoded(coded, number, 2), made)


@pytest.mark.parametrize("name", NAMES)
@given(begin=st.integers(0, 70), end=st.integers(1, 90))
def test_parts_of_lines_have_their_blocks(name: str, begin: int, end: int) -> None:
    values = np.random.default_rng(3).normal(size=(4, 160)).astype(np.float32)
    number = number_format(name)
    made = rounded(values, number, Rounding.EVEN, 2)[:, begin : begin + end]
    coded = encoded(made, number, 2, begin)
    assert coded.scales.shape[1] == number.blocks(made.shape[1], begin)
    np.testing.assert_array_equal(decoded(coded, number, 2, begin), made)


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "mxint8"])
def test_nan_is_a_scale_or_a_code(name: str) -> None:
    number = number_format(name)
    values = np.ones((1, 96), np.float32)
    values[0, 40] = np.nan
    made = rounded(values, number, Rounding.EVEN, 1)
    np.testing.assert_array_equal(decoded(encoded(made, number), number), made)


def test_scales_are_those_of_the_standards() -> None:
    """NVFP4 of 6: the scale of its tensor is 2^-8, and 256 of E4M3 is 0x78."""
    values = np.array([[6, 3 / 256]], np.float32)
    number = number_format("nvfp4")
    coded = encoded(on_blocks(values, number.grid, -1), number)
    assert coded.tensors.tolist() == [127 - 8]
    assert coded.codes.tolist() == [[0b0111, 0]] and coded.scales.tolist() == [[0x78]]
    coded = encoded(np.array([[1.0, -0.5]], np.float32), number_format("mxfp4"))
    assert coded.codes.tolist() == [[0b0110, 0b1100]] and coded.scales.tolist() == [[125]]
