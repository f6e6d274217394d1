"""The robust fit of times."""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.emulator.calibrate.robust import (
    Floats,
    fit_times,
    left_out_sizes,
    straight_pieces,
)

TERMS = np.stack([np.ones(40), np.geomspace(1, 1e5, 40)], axis=1)
VALUES = np.array([500.0, 0.25])


def noisy(seed: int, noise: float = 0.003) -> Floats:
    times: Floats = TERMS @ VALUES * np.exp(np.random.default_rng(seed).normal(0, noise, 40))
    return times


def test_exact_times_give_exact_values() -> None:
    fit = fit_times(TERMS, TERMS @ VALUES)
    assert fit.values == pytest.approx(VALUES, rel=1e-12)
    assert fit.rms < 1e-12
    assert not fit.outliers.any()


@pytest.mark.parametrize("seed", range(5))
def test_outliers_are_named_and_change_nothing_else(seed: int) -> None:
    times = noisy(seed)
    hurt = times.copy()
    hurt[[3, 30]] *= [3, 1 / 3]
    fit = fit_times(TERMS, hurt)
    assert list(np.flatnonzero(fit.outliers)) == [3, 30]
    kept = np.delete(np.arange(40), [3, 30])
    assert fit.values == pytest.approx(fit_times(TERMS[kept], times[kept]).values, rel=1e-9)
    assert fit.values == pytest.approx(VALUES, rel=0.01)


def test_the_fit_minimises_soft_l1() -> None:
    """No near values have less of the loss, with the scale at the end."""
    times = noisy(1, 0.05)
    fit = fit_times(TERMS, times)
    sigma = 1.4826 * np.median(np.abs(fit.residuals))

    def loss(values: Floats) -> float:
        residuals = np.log(times / (TERMS @ values)) / sigma
        return float(np.sum(np.sqrt(1 + residuals**2)))

    least = loss(fit.values)
    for factors in ((1.001, 1), (0.999, 1), (1, 1.001), (1, 0.999), (1.001, 0.999)):
        assert loss(fit.values * factors) > least


def test_a_scale_of_the_times_is_one_of_the_values() -> None:
    times = noisy(2)
    assert fit_times(TERMS, times * 1e-9).values == pytest.approx(
        fit_times(TERMS, times).values * 1e-9, rel=1e-11
    )


def test_terms_that_rows_do_not_tell_apart() -> None:
    with pytest.raises(ValueError, match="apart"):
        fit_times(np.ones((10, 2)), np.ones(10))


def test_a_model_that_does_not_fit_has_no_outliers() -> None:
    times = TERMS @ VALUES * np.where(np.arange(40) % 2, 3, 1 / 3)
    fit = fit_times(TERMS, times)
    assert not fit.outliers.any()
    assert fit.rms > 0.5


def test_pieces_of_lines_are_their_ends() -> None:
    sizes = np.array([1.0, 4, 16, 64, 256])
    times = np.where(sizes < 16, 2 + sizes, 12 + sizes / 2)
    assert straight_pieces(sizes[2:], times[2:], 1e-9) == [0, 2]
    assert straight_pieces(sizes, times, 1e-9) == [0, 1, 2, 4]
    # 16 bytes take 20; between 4 bytes, which take 6, and 64, which take 44, 13.6 would be.
    assert left_out_sizes(sizes, times)[1] == pytest.approx(np.log(13.6 / 20))
    assert left_out_sizes(sizes[2:], times[2:]) == pytest.approx([0], abs=1e-12)
