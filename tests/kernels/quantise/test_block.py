"""Blocks with a scale, against exact rational arithmetic: OCP's scales and those under which
nothing saturates.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels.number import BF16, BlockGrid, FloatGrid, Rounding, fixed_point
from emuchain.kernels.number.fp8 import E4M3, E5M2
from emuchain.kernels.number.mx import E2M1, E2M3, E3M2, INT8
from emuchain.kernels.quantise import on_blocks, on_grid

GRID_OF_BF16 = BF16.grid
assert isinstance(GRID_OF_BF16, FloatGrid)
ELEMENTS = [E4M3, E5M2, E3M2, E2M3, E2M1, INT8, fixed_point(1, 8)]
NUMBERS = st.floats(-(2.0**60), 2.0**60, width=32)


def floor_log2(value: Fraction) -> int:
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def exact_element(value: Fraction, grid: FloatGrid) -> Fraction:
    """The nearest value of a grid, ties to even; beyond the largest, the largest."""
    if not value:
        return value
    exponent = max(floor_log2(abs(value)), grid.least_exponent)
    spacing = Fraction(2) ** (exponent - grid.fraction_bits)
    rounded = round(value / spacing) * spacing
    largest = Fraction(grid.largest)
    return max(-largest, min(largest, rounded))


def exact_block(values: list[float], grid: BlockGrid) -> list[Fraction]:
    exact = [Fraction(value) for value in values]
    most = max(map(abs, exact))
    if not most:
        return exact
    scale = floor_log2(most) - floor_log2(Fraction(grid.element.largest))
    if not grid.floor and most > Fraction(grid.element.largest) * Fraction(2) ** scale:
        scale += 1
    unit = Fraction(2) ** max(-127, min(127, scale))
    return [exact_element(value / unit, grid.element) * unit for value in exact]


def saturated(values: np.ndarray, grid: BlockGrid) -> int:
    """How many numbers of a block would round to more than the largest element."""
    largest = grid.element.largest
    scale = floor_log2(Fraction(float(np.abs(values).max()))) - floor_log2(Fraction(largest))
    unit = np.float32(2.0 ** (scale + (not grid.floor)))
    wider = FloatGrid(grid.element.fraction_bits, grid.element.least_exponent, 2 * largest)
    return int((np.abs(on_grid(np.ascontiguousarray(values) / unit, wider)) > largest).sum())


@given(
    st.lists(NUMBERS, min_size=1, max_size=40),
    st.sampled_from(ELEMENTS),
    st.booleans(),
    st.sampled_from([1, 4, 32]),
)
def test_blocks_by_exact_arithmetic(
    values: list[float], element: FloatGrid, floor: bool, size: int
) -> None:
    grid = BlockGrid(element, size, floor)
    rounded = on_blocks(np.array(values, np.float32), grid, axis=0)
    exact = [
        value
        for begin in range(0, len(values), size)
        for value in exact_block(values[begin : begin + size], grid)
    ]
    # a result below fp32's least number is rounded to it; what is on the grid above is exact
    assert [Fraction(float(value)) for value in rounded] == [
        Fraction(float(np.float32(float(value)))) for value in exact
    ]


@given(st.lists(NUMBERS, min_size=1, max_size=64), st.sampled_from(ELEMENTS))
def test_scales_that_round_up_never_saturate_and_stay(
    values: list[float], element: FloatGrid
) -> None:
    array = np.array(values, np.float32)
    rounded = on_blocks(array, BlockGrid(element), axis=0)
    for begin in range(0, len(values), 32):
        most, kept = (np.abs(of[begin : begin + 32]).max() for of in (array, rounded))
        if most > 2.0**-100:  # below, the least scale bounds what is kept
            assert kept >= most * np.float32(1 - 2.0**-element.fraction_bits), "half a step at most"
    assert (on_blocks(rounded, BlockGrid(element), axis=0) == rounded).all()


def test_ocp_cuts_the_largest_element() -> None:
    block = np.linspace(0, 511, 32, dtype=np.float32)
    assert on_blocks(block, BlockGrid(E4M3, floor=True), axis=0).max() == 448
    assert on_blocks(block, BlockGrid(E4M3), axis=0).max() == 512
    assert (
        on_blocks(np.float32([127 / 64, 1 / 64]), BlockGrid(INT8), axis=0)
        == np.float32([127 / 64, 1 / 64])
    ).all()


def test_axes_and_last_blocks() -> None:
    values = np.random.default_rng(0).normal(0, 1, (2, 40, 3)).astype(np.float32)
    rounded = on_blocks(values, BlockGrid(E2M1), axis=1)
    for sample in range(2):
        for column in range(3):
            alone = [
                np.ascontiguousarray(values[sample, begin:end, column])
                for begin, end in ((0, 32), (32, 40))
            ]
            parts = np.concatenate([on_blocks(part, BlockGrid(E2M1), axis=0) for part in alone])
            assert (rounded[sample, :, column] == parts).all()
    assert on_blocks(np.empty((2, 0), np.float32), BlockGrid(E4M3), axis=1).shape == (2, 0)


def test_a_block_with_infinity_is_nan() -> None:
    values = np.ones(96, np.float32)
    values[40], values[70] = np.inf, np.nan
    rounded = on_blocks(values, BlockGrid(E4M3), axis=0)
    assert np.isnan(rounded[32:]).all() and (rounded[:32] == 1).all()


def test_extremes() -> None:
    tiny = np.full(32, 2.0**-149, np.float32)
    assert (on_blocks(tiny, BlockGrid(E4M3), axis=0) >= 0).all()
    huge = np.full(32, np.finfo(np.float32).max, np.float32)
    assert np.isfinite(on_blocks(huge, BlockGrid(E5M2), axis=0)).all()


@pytest.mark.parametrize("floor", [True, False])
@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("axis", [0, 1])
def test_counts_and_results_in_place(element: FloatGrid, floor: bool, axis: int) -> None:
    values = np.random.default_rng(3).normal(0, 1, (70, 70)).astype(np.float32)
    values[:33] *= np.exp2(np.arange(70, dtype=np.float32))
    values[40, 40], values[5, 60] = np.nan, 0
    grid, counts = BlockGrid(element, 32, floor), np.array([3, 4])
    rounded = on_blocks(values, grid, axis, counts=counts)
    flushed = (values != 0) & (rounded == 0)
    assert counts[1] == 4 + flushed.sum()
    blocks = [
        line[begin : begin + 32] for line in (values if axis else values.T) for begin in (0, 32, 64)
    ]
    assert counts[0] == 3 + sum(
        saturated(block, grid) for block in blocks if np.isfinite(block).all()
    )
    assert counts[0] == 3 or floor
    for out in (np.empty_like(values), values.copy()):
        held = on_blocks(values if out[0, 0] != values[0, 0] else out, grid, axis, out=out)
        assert held is out and same(out, rounded)


def same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return bool((ours.view(np.uint32) == theirs.view(np.uint32)).all())


@pytest.mark.parametrize("shape", [(4, 3), (7, 40), (3, 2500), (2, 3, 33), (9, 64), (2, 2592)])
@pytest.mark.parametrize("size", [1, 5, 32, 2048])
def test_lines_of_any_length(shape: tuple[int, ...], size: int) -> None:
    values = np.random.default_rng(4).normal(0, 1, shape).astype(np.float32)
    along = on_blocks(values, BlockGrid(E2M1, size), axis=-1)
    across = on_blocks(
        np.ascontiguousarray(values.reshape(-1, shape[-1]).T), BlockGrid(E2M1, size), axis=0
    )
    assert same(along.reshape(-1, shape[-1]), np.ascontiguousarray(across.T))


def test_other_roundings() -> None:
    values = np.random.default_rng(1).normal(0, 1, 64).astype(np.float32)
    cut = on_blocks(values, BlockGrid(E4M3), axis=0, rounding=Rounding.ZERO)
    assert (np.abs(cut) <= np.abs(values)).all()
    words = np.full(64, 0xFFFFFFFF, np.uint32)
    assert (on_blocks(values, BlockGrid(E4M3), 0, Rounding.STOCHASTIC, words) == cut).all()
    assert (on_grid(cut, GRID_OF_BF16) == cut).all()


@pytest.mark.parametrize("wrong", [lambda: BlockGrid(E4M3, 0), lambda: BlockGrid(GRID_OF_BF16)])
def test_what_is_no_block(wrong: object) -> None:
    with pytest.raises(ValueError):
        wrong()  # type: ignore[operator]
