"""Blocks with scales of E4M3 in tensors with a scale, against exact rational arithmetic and other
code.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels.number import BlockGrid, FloatGrid, Rounding, number_format
from emuchain.kernels.number.fp8 import E4M3
from emuchain.kernels.number.mx import E2M1
from emuchain.kernels.quantise import Draws, PhiloxStream, on_blocks

GRID = number_format("nvfp4").grid
assert isinstance(GRID, BlockGrid)
NUMBERS = st.one_of(
    st.floats(-(2.0**60), 2.0**60, width=32),
    st.floats(-8, 8, width=32),
    st.integers(-48, 48).map(lambda number: number / 8),
)


def values_of(grid: FloatGrid) -> list[Fraction]:
    """All positive values of a grid, ascending."""
    spacing, values = Fraction(grid.spacing), [Fraction(0)]
    while values[-1] < Fraction(grid.largest):
        values.append(values[-1] + spacing)
        if values[-1] >= 2 * spacing * 2**grid.fraction_bits:
            spacing *= 2
    return values[1:]


SCALES, ELEMENTS = values_of(E4M3), [Fraction(0), *values_of(E2M1)]


def nearest(value: Fraction, grid: list[Fraction]) -> Fraction:
    """The nearest of some values; of two, that whose place is even, as codes count."""
    return min(grid, key=lambda one: (abs(one - value), grid.index(one) % 2))


def exact_tensor(lines: list[list[float]]) -> list[list[Fraction]]:
    """NVFP4 by its definition in docs/numbers.md."""
    most = max((abs(Fraction(value)) for line in lines for value in line), default=Fraction(0))
    exponent = -126
    while most > 448 * 6 * Fraction(2) ** exponent and exponent < 116:
        exponent += 1
    rounded = []
    for line in lines:
        own: list[Fraction] = []
        for begin in range(0, len(line), 16):
            block = [
                Fraction(value) / Fraction(2) ** exponent for value in line[begin : begin + 16]
            ]
            # the grid from 0 on, so that the least scale is as odd as in E4M3
            scale = nearest(max(map(abs, block)) / 6, [Fraction(0), *SCALES]) or SCALES[0]
            for value in block:
                element = nearest(abs(value) / scale, ELEMENTS)
                sign = -1 if value < 0 else 1
                own.append(sign * element * scale * Fraction(2) ** exponent)
        rounded.append(own)
    return rounded


def test_grids_have_their_values() -> None:
    assert [Fraction(half, 2) for half in (0, 1, 2, 3, 4, 6, 8, 12)] == ELEMENTS
    assert (len(SCALES), SCALES[0], SCALES[-1]) == (126, Fraction(1, 512), 448)


@given(st.lists(st.lists(NUMBERS, min_size=19, max_size=19), min_size=1, max_size=3))
def test_tensors_by_exact_arithmetic(lines: list[list[float]]) -> None:
    rounded = on_blocks(np.array(lines, np.float32), GRID, -1)
    exact = exact_tensor(lines)
    assert [[Fraction(float(value)) for value in line] for line in rounded] == exact


def drawn(shape: tuple[int, ...], seed: int = 0) -> Any:
    """Numbers over many powers of two."""
    random = np.random.default_rng(seed)
    return (random.normal(size=shape) * np.exp(3 * random.normal(size=shape))).astype(np.float32)


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("length", [5, 16, 40, 2100])
def test_lines_and_columns_and_tensors_alone(rounding: Rounding, length: int) -> None:
    values = drawn((3, 4, length))
    words = np.random.default_rng(1).integers(0, 2**32, values.shape, np.uint32)
    lines = on_blocks(values, GRID, -1, rounding, words, tensor=4 * length)
    turned, turned_words = (
        np.ascontiguousarray(array.reshape(12, length).T) for array in (values, words)
    )
    columns = on_blocks(turned, GRID, 0, rounding, turned_words, tensor=4)
    assert np.array_equal(columns.T.reshape(values.shape), lines)
    for place in range(3):
        alone = on_blocks(values[place], GRID, -1, rounding, words[place])
        assert np.array_equal(alone, lines[place])
    in_place = values.copy()
    assert (
        on_blocks(in_place, GRID, -1, rounding, words, tensor=4 * length, out=in_place) is in_place
    )
    assert np.array_equal(in_place, lines)


def test_chance_decides_between_neighbours_by_the_word() -> None:
    """A block's largest number is 6; 2.5 is halfway between 2 and 3."""
    values = np.full((1, 1 << 12), 2.5, np.float32)
    values[:, ::16] = 6
    draws = Draws(PhiloxStream(5, 1, 0, 9))
    rounded = on_blocks(values, GRID, -1, Rounding.STOCHASTIC, draws)
    words = draws.stream.words(0, values.size)
    ups = np.where(words < 2**31, 3, 2)
    ups[::16] = 6
    assert np.array_equal(rounded[0], ups)


def test_what_is_counted() -> None:
    values = np.zeros((1, 32), np.float32)
    values[0, :4] = 448 * 6, -1, 0.25, 100
    # 200 / 6 is 33.3, whose nearest scale is 32: 200 / 32 = 6.25 goes to 6, and 8 / 32 to 0
    values[0, 16:20] = 200, 1, 8, 9
    counts = np.zeros(2, np.int64)
    rounded = on_blocks(values, GRID, -1, counts=counts)
    assert rounded[0, :4].tolist() == [2688, 0, 0, 0]
    assert rounded[0, 16:20].tolist() == [192, 0, 0, 16]
    assert counts.tolist() == [0, 5]
    by_chance = np.full((1, 4096), 202.0, np.float32)  # of 32, 6.31: up to 8, which saturates
    words = np.zeros(by_chance.shape, np.uint32)
    on_blocks(by_chance, GRID, -1, Rounding.STOCHASTIC, words, counts=counts)
    assert counts.tolist() == [4096, 5]


def test_infinity_and_nan_hit_their_blocks_alone() -> None:
    values = np.full((2, 48), 1.5, np.float32)
    values[0, 5], values[1, 20] = np.inf, np.nan
    rounded = on_blocks(values, GRID, -1, tensor=96)
    hit = np.isnan(rounded)
    assert hit[0, :16].all() and hit[1, 16:32].all() and hit.sum() == 32
    assert (rounded[~hit] == 1.5).all()
    counts = np.zeros(2, np.int64)
    on_blocks(values, GRID, -1, counts=counts)
    assert not counts.any()


def test_extremes() -> None:
    tiny = np.full((1, 16), 2.0**-149, np.float32)
    assert not on_blocks(tiny, GRID, -1).any()
    huge = np.full((1, 16), np.finfo(np.float32).max, np.float32)
    assert (on_blocks(huge, GRID, -1) == np.float32(2688 * 2.0**116)).all()
    assert not on_blocks(np.zeros((2, 16), np.float32), GRID, -1).any()
    assert on_blocks(np.empty((2, 0), np.float32), GRID, 1).shape == (2, 0)


def test_other_code_rounds_alike() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="comes with the extra `onnx`")
    values = drawn((64, 1024), 3)
    tensor = 2.0 ** np.ceil(np.log2(np.abs(values).max(axis=1, keepdims=True) / 2688))
    blocks = (values / tensor.astype(np.float32)).reshape(64, 64, 16)
    scales = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(6)
    scales = scales.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    scales = np.maximum(scales, np.float32(2.0**-9))
    elements = np.clip(blocks / scales, -6, 6).astype(ml_dtypes.float4_e2m1fn)
    expected = (elements.astype(np.float32) * scales).reshape(values.shape) * tensor
    rounded = on_blocks(values, GRID, -1, tensor=1024)
    assert np.array_equal(rounded, expected.astype(np.float32))


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ({"scale": E4M3, "floor": True}, "nearest"),
        ({"scale": FloatGrid(3, -6, 448.0, overflows=True)}, "saturate"),
    ],
)
def test_what_is_no_grid(grid: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BlockGrid(E2M1, 16, **grid)
    with pytest.raises(ValueError, match="lines of 16 are whole"):
        on_blocks(np.zeros((2, 16), np.float32), GRID, -1, tensor=8)
