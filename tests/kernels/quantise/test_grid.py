"""Grids of narrow formats, against ml_dtypes, against exact arithmetic, and by their codes."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels import number
from emuchain.kernels.number import FloatGrid, Rounding, fixed_point
from emuchain.kernels.number.fp8 import E4M3, E5M2
from emuchain.kernels.number.mx import E2M1, E2M3, E3M2, INT8
from emuchain.kernels.quantise import PhiloxStream, on_grid

ml_dtypes = pytest.importorskip("ml_dtypes", reason="comes with the extra `onnx`")

BF16, FP16 = number.BF16.grid, number.FP16.grid
assert isinstance(BF16, FloatGrid) and isinstance(FP16, FloatGrid)
NARROW: dict[str, tuple[FloatGrid, Any]] = {
    "bf16": (BF16, ml_dtypes.bfloat16),
    "fp16": (FP16, np.float16),
    "e4m3": (E4M3, ml_dtypes.float8_e4m3fn),
    "e5m2": (E5M2, ml_dtypes.float8_e5m2),
    "e3m2": (E3M2, ml_dtypes.float6_e3m2fn),
    "e2m3": (E2M3, ml_dtypes.float6_e2m3fn),
    "e2m1": (E2M1, ml_dtypes.float4_e2m1fn),
}
E8M5 = FloatGrid(5, -126, 2.0**127 * (2 - 2.0**-5), overflows=True)
"""Too large to be rounded by sums, and not bf16."""
GRIDS = {
    **{name: grid for name, (grid, _) in NARROW.items()},
    "int8": INT8,
    "q2.14": fixed_point(2, 14),
    "e8m5": E8M5,
}
LOW_HALVES = (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)


@functools.cache
def patterns() -> np.ndarray:
    """All upper halves of fp32, with lower ones about the ties of bf16; ties of all formats, and
    their neighbours.
    """
    upper = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    bits = np.concatenate([upper | np.uint32(low) for low in LOW_HALVES])
    ties = upper[::16, None] | (np.uint32(1) << np.arange(16, dtype=np.uint32))
    return np.concatenate([bits, ties.reshape(-1), ties.reshape(-1) - np.uint32(1)]).view(
        np.float32
    )


def same_bits(ours: np.ndarray, theirs: np.ndarray) -> bool:
    is_nan = np.isnan(theirs)
    return bool(
        (np.isnan(ours) == is_nan).all()
        and (ours.view(np.uint32) == theirs.view(np.uint32))[~is_nan].all()
    )


def by_library(values: np.ndarray, name: str) -> np.ndarray:
    """What ml_dtypes rounds to; formats that saturate here get no more than their largest value."""
    grid, kind = NARROW[name]
    held = values if grid.overflows else np.clip(values, -grid.largest, grid.largest)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded: np.ndarray = held.astype(kind).astype(np.float32)
    return np.where(np.isnan(values), np.float32(np.nan), rounded)


@pytest.mark.parametrize("name", NARROW)
def test_nearest_values_are_those_of_ml_dtypes(name: str) -> None:
    values = patterns()
    assert same_bits(on_grid(values, GRIDS[name]), by_library(values, name))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["bf16", "e4m3"])
def test_all_numbers(name: str) -> None:
    for begin in range(0, 1 << 32, 1 << 24):
        values = (
            np.arange(begin, begin + (1 << 24), dtype=np.uint64).astype(np.uint32).view(np.float32)
        )
        assert same_bits(on_grid(values, GRIDS[name]), by_library(values, name)), hex(begin)


def exact(values: np.ndarray, grid: FloatGrid, rounding: Rounding) -> np.ndarray:
    """Round in float64, which holds each number as a multiple of its grid's spacing exactly."""
    with np.errstate(all="ignore"):
        magnitudes = np.abs(values.astype(np.float64))
        exponents = np.maximum(
            np.frexp(np.where(magnitudes > 0, magnitudes, 1))[1] - 1, grid.least_exponent
        )
        spacing = np.ldexp(1.0, exponents - grid.fraction_bits)
        steps = magnitudes / spacing
        whole = np.floor(steps + 0.5) if rounding is Rounding.AWAY else np.floor(steps)
        if rounding is Rounding.EVEN:
            whole = np.rint(steps)
        rounded = whole * spacing
    beyond = np.inf if grid.overflows and rounding is not Rounding.ZERO else grid.largest
    rounded = np.where(rounded > grid.largest, beyond, rounded)
    if grid.overflows:
        rounded = np.where(np.isinf(magnitudes), np.inf, rounded)
    with np.errstate(invalid="ignore"):
        return np.copysign(np.where(np.isnan(values), np.nan, rounded), values).astype(np.float32)


@pytest.mark.parametrize("rounding", [Rounding.EVEN, Rounding.AWAY, Rounding.ZERO])
@pytest.mark.parametrize("name", GRIDS)
def test_roundings_by_exact_arithmetic(name: str, rounding: Rounding) -> None:
    values, grid = patterns(), GRIDS[name]
    assert same_bits(on_grid(values, grid, rounding), exact(values, grid, rounding))


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("name", GRIDS)
def test_every_value_of_a_format_stays(name: str, rounding: Rounding) -> None:
    grid = GRIDS[name]
    codes = np.arange(1 << 17, dtype=np.float64) * grid.spacing
    if name in ("bf16", "fp16", "e8m5"):
        codes = np.unique(on_grid(patterns(), grid)).astype(np.float64)
    values = codes[np.isfinite(codes) & (np.abs(codes) <= grid.largest)].astype(np.float32)
    values = values[on_grid(values, grid) == values]
    assert len(values) > 4
    words = np.zeros(values.shape, np.uint32) if rounding is Rounding.STOCHASTIC else None
    for signed in (values, -values):
        assert (on_grid(signed, grid, rounding, words) == signed).all()


def test_numbers_of_formats() -> None:
    counts = {"e4m3": 253, "e3m2": 63, "e2m3": 63, "e2m1": 15, "int8": 255}
    for name, count in counts.items():
        assert len(np.unique(on_grid(patterns(), GRIDS[name])[~np.isnan(patterns())])) == count, (
            name
        )
    assert fixed_point(2, 14) == FloatGrid(15, 1, 2 - 2.0**-14)
    assert fixed_point(1, 7).spacing == 2**-7


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("name", GRIDS)
def test_counts_and_results_in_place(name: str, rounding: Rounding) -> None:
    grid, values = GRIDS[name], patterns()
    words = (
        np.full(values.shape, 0xFFFFFFFF, np.uint32) if rounding is Rounding.STOCHASTIC else None
    )
    counts = np.array([3, 4])
    rounded = on_grid(values, grid, rounding, words, counts=counts)
    exactly = (
        Rounding.ZERO if rounding is Rounding.STOCHASTIC else rounding
    )  # these words let no number go up
    unlimited = exact(
        values,
        dataclasses.replace(grid, largest=2.0**127 * (2 - 2.0**-grid.fraction_bits)),
        exactly,
    )
    over = np.isfinite(values) & (np.abs(unlimited.astype(np.float64)) > grid.largest)
    assert (counts == [3 + over.sum(), 4 + ((values != 0) & (rounded == 0)).sum()]).all()
    for out in (np.empty_like(values), values.copy()):
        is_same = on_grid(values if out[0] != values[0] else out, grid, rounding, words, out=out)
        assert is_same is out and same_bits(out, rounded)


def test_what_is_no_place_for_results() -> None:
    values = np.ones((4, 4), np.float32)
    for out in (
        np.ones((4, 5), np.float32),
        np.ones((4, 4), np.float32).T[:, ::2],
        np.ones((4, 8), np.float32)[:, ::2],
    ):
        with pytest.raises(ValueError):
            on_grid(values, E4M3, out=out)
    with pytest.raises(ValueError, match="counts must be two numbers"):
        on_grid(values, E4M3, counts=np.zeros(3, np.int64))


def test_a_grid_that_no_rounding_takes() -> None:
    with pytest.raises(ValueError, match="`least_exponent` should be -126, or above -120"):
        on_grid(np.ones(1, np.float32), FloatGrid(7, -123, 1.0), Rounding.ZERO)


@given(
    st.floats(-400, 400, width=32).filter(lambda value: abs(value) > 2**-9),
    st.sampled_from([E4M3, E5M2, FP16, INT8]),
    st.integers(0, 2**20),
)
def test_a_number_goes_up_as_often_as_it_is_far(value: float, grid: FloatGrid, seed: int) -> None:
    count = 1 << 14
    words = PhiloxStream(seed, 1, 2, 3).words(0, count)
    rounded = on_grid(np.full(count, value, np.float32), grid, Rounding.STOCHASTIC, words)
    down = on_grid(np.full(1, value, np.float32), grid, Rounding.ZERO)[0]
    others = rounded[rounded != down]
    if not len(others):
        return
    up = others[0]
    assert (others == up).all() and abs(up) > abs(value)
    share = (value - float(down)) / (float(up) - float(down))
    deviation = np.sqrt(share * (1 - share) / count)
    assert abs(len(others) / count - share) < 6 * deviation + 2 / count


def test_the_share_that_goes_up() -> None:
    count = 1 << 20
    words = PhiloxStream(5, 0, 0, 0).words(0, count)
    for share in (1 / 3, 0.01, 0.9):
        rounded = on_grid(
            np.full(count, 1 + share / 8, np.float32), E4M3, Rounding.STOCHASTIC, words
        )
        exactly = (float(np.float32(1 + share / 8)) - 1) * 8
        assert abs((rounded > 1).mean() - exactly) < 4 * np.sqrt(exactly * (1 - exactly) / count)


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5, 7), (1023,), (1025,), (2, 2048)])
def test_shapes(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).normal(0, 100, shape).astype(np.float32)
    for grid in (BF16, E4M3):
        rounded = on_grid(values, grid)
        assert rounded.shape == shape and rounded is not values
        assert same_bits(rounded, exact(values, grid, Rounding.EVEN))


@pytest.mark.parametrize(
    "wrong",
    [
        (-1, 0, 1.0),
        (23, 0, 1.0),
        (3, -127, 1.0),
        (3, 128, 1.0),
        (3, 0, 0.0),
        (3, 0, 0.1),
        (3, 0, np.inf),
    ],
)
def test_what_is_no_grid(wrong: tuple[int, int, float]) -> None:
    with pytest.raises(ValueError):
        FloatGrid(*wrong)


@pytest.mark.parametrize("wrong", [(0, 8), (1, 0), (2, -1), (12, 12)])
def test_what_is_no_fixed_point(wrong: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="q"):
        fixed_point(*wrong)
