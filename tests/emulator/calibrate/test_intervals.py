"""Ranges from the scatter between runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from emuchain.emulator.calibrate.constants import FLOOR, range_of, student

TABLE = {
    1: 6.3138,
    2: 2.9200,
    3: 2.3534,
    4: 2.1318,
    5: 2.0150,
    9: 1.8331,
    10: 1.8125,
    30: 1.6973,
    120: 1.6577,
}
"""Student's t at 0.95, as in tables."""


@pytest.mark.parametrize("freedom", TABLE)
def test_quantiles_are_those_of_tables(freedom: int) -> None:
    assert student(freedom) == pytest.approx(TABLE[freedom], abs=6e-5)


def test_the_quantile_without_freedom_is_the_normal_one() -> None:
    assert student(0) == pytest.approx(1.6449, abs=5e-5)
    assert student(0) < student(10_000) < student(100)


def test_alike_runs_have_the_floor() -> None:
    low, high, runs = range_of([674.0] * 4)
    half = student(3) * FLOOR * math.sqrt(1.25)
    assert runs == 4
    assert (low, high) == pytest.approx((674 * math.exp(-half), 674 * math.exp(half)))
    assert (round(low), round(high)) == (665, 683)


def test_one_run_has_the_floor_alone() -> None:
    interval = range_of([100.0])
    assert interval.high / 100 == pytest.approx(math.exp(1.6449 * FLOOR * math.sqrt(2)), rel=1e-6)
    assert interval.half_width == pytest.approx(0.0117, abs=1e-4)


@pytest.mark.parametrize("runs", [2, 5, 12])
def test_nine_of_ten_further_runs_lie_within(runs: int) -> None:
    draw = np.random.default_rng(runs)
    held = 0
    for _ in range(2000):
        *values, further = np.exp(draw.normal(0, 0.3, runs + 1))
        low, high, _ = range_of([float(value) for value in values])
        held += low <= further <= high
    assert 0.88 <= held / 2000 <= 0.92


def test_a_range_takes_in_a_value_and_changes_its_unit() -> None:
    interval = range_of([1.0, 1.1]).around(2.0)
    assert interval.high == 2
    assert interval.times(1000)[:2] == pytest.approx((1000 * interval.low, 2000))
