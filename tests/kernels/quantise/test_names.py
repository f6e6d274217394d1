"""Names of formats, and the grids that they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.kernels.number import (
    BlockGrid,
    FloatGrid,
    Grid,
    Rounding,
    fixed_point,
    number_format,
    number_spellings,
)
from emuchain.kernels.number.fp8 import E4M3, E5M2
from emuchain.kernels.number.mx import E2M1, E2M3, E3M2, INT8
from emuchain.kernels.quantise import encoded, on_grid


def grid_of(name: str) -> Grid:
    grid = number_format(name).grid
    assert grid is not None
    return grid


def test_published_formats() -> None:
    assert grid_of("fp8") == grid_of("fp8-e4m3") == E4M3
    assert grid_of("fp8-e5m2") == E5M2
    for name, element in (
        ("mxfp8", E4M3),
        ("mxfp6", E2M3),
        ("mxfp6-e3m2", E3M2),
        ("mxfp4", E2M1),
        ("mxint8", INT8),
    ):
        assert grid_of(name) == BlockGrid(element, 32)
    assert grid_of("nvfp4") == BlockGrid(E2M1, 16, scale=E4M3)
    assert grid_of("q2.14") == fixed_point(2, 14)


@pytest.mark.parametrize(
    ("name", "element"), [("e2m1@32", E2M1), ("e2m3@32", E2M3), ("e3m2@32", E3M2)]
)
def test_floats_by_their_bits_are_ocps(name: str, element: FloatGrid) -> None:
    assert grid_of(name) == BlockGrid(element, 32)


def test_block_floating_point() -> None:
    grid = grid_of("int9@16")
    assert isinstance(grid, BlockGrid) and grid.size == 16
    steps = on_grid(np.arange(-300, 300, dtype=np.float32) / 256, grid.element) * 256
    assert len(np.unique(steps)) == 511 and np.abs(steps).max() == 255
    bounds = grid_of("e2m5@48")
    assert isinstance(bounds, BlockGrid) and bounds.size == 48
    assert bounds.element == FloatGrid(5, 0, 4 * (2 - 2.0**-5))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *[
            (name, "known: fp32, bf16, fp16")
            for name in ("", "fp64", "mxfp9", "q2", "q2.14.1", "int9", "int9@", "e2m5", "FP8")
        ],
        *[
            ("q0.8", "q0.8"),
            ("q30.30", "q30.30"),
            ("int1@16", "q1.0"),
            ("int9@0", "a block has an element"),
        ],
        *[("shift2", "should have 3 to 6 bits"), ("shift7", "should have 3 to 6 bits")],
        *[("e0m3@8", "e0m3"), ("e9m3@8", "e9m3"), ("e3m30@8", "`fraction_bits` = 30")],
    ],
)
def test_what_is_no_format(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        grid_of(name)


@pytest.mark.parametrize(
    ("name", "bits", "multiplier"),
    [
        *[
            ("fp32", 32, "fp32"),
            ("bf16", 16, "half"),
            ("mxfp6", 6, "fp8"),
            ("mxfp4", 4, "int4"),
            ("mxint8", 8, "int8"),
            ("nvfp4", 4, "half"),
        ],
        *[
            ("q2.14", 16, "half"),
            ("int9@16", 9, "half"),
            ("int8@16", 8, "int8"),
            ("q1.3", 4, "int4"),
            ("shift3", 3, "int4"),
            ("shift4", 4, "fp8"),
            ("shift5", 5, "fp8"),
            ("shift6", 6, "half"),
        ],
        *[("e2m5@48", 8, "half"), ("e4m3@8", 8, "fp8"), ("q2.20", 22, "fp32")],
    ],
)
def test_bits_and_multipliers(name: str, bits: int, multiplier: str) -> None:
    number = number_format(name)
    assert (number.bits, number.multiplier) == (bits, multiplier)


def test_every_spelling_is_known() -> None:
    for name in number_spellings():
        number_format(
            name.replace("shiftN", "shift4")
            .replace("M.N", "2.5")
            .replace("N@B", "8@4")
            .replace("X", "2")
            .replace("Y@B", "1@4")
        )


@pytest.mark.parametrize("bits", [3, 4, 5, 6])
def test_powers_of_two(bits: int) -> None:
    """Every code but the last is a value; of two powers, the nearer one, halfway the larger."""
    number = number_format(f"shift{bits}")
    powers = 2.0 ** -np.arange(2 ** (bits - 1) - 2)
    assert isinstance(number.grid, FloatGrid)
    every = np.concatenate([powers, -powers, [0.0]]).astype(np.float32)
    assert np.array_equal(on_grid(every, number.grid), every)
    codes = encoded(every[None], number).codes
    assert sorted(codes[0, : len(powers)]) == list(range(1, 2 ** (bits - 1) - 1))
    given = np.array([2, 1.5, 0.76, 0.75, 0.74, powers[-1] * 0.51, powers[-1] / 2], np.float32)
    near = [1, 1, 1, 1, 0.5, powers[-1], 0]
    assert on_grid(given, number.grid).tolist() == near
    words = np.full(4, 2**31, np.uint32)  # half of the way
    drawn = np.array([0.74, 0.76, 0.99, 0.51], np.float32)
    assert on_grid(drawn, number.grid, Rounding.STOCHASTIC, words).tolist() == [0.5, 1, 1, 0.5]
