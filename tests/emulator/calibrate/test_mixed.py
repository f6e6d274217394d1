"""The mixed model: its ranges beside those of statisticians, and how many further rows they
hold.
"""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from emuchain.emulator.calibrate.mixed import GROUP, Floats, MixedModel, Mixture, Rows

LOW, HIGH = 0.05, 0.95


def rows_at(sizes: Floats, runs: int, of_run: int | None = None) -> Rows:
    """Rows of a link whose latency and bytes take equally long at 4 KiB, at each size in each run;
    or those of no run.
    """
    share = 4096 / (4096 + sizes)
    terms = np.tile(np.column_stack([share, 1 - share]), (runs, 1))
    labels = np.repeat(np.arange(runs), len(sizes)) if of_run is None else np.full(len(terms), -1)
    octaves = np.tile(np.log2(sizes), runs)
    return Rows(terms, octaves, labels.astype(np.intp), np.zeros(len(terms), np.intp))


def one_thing(runs: int, times: int = 1, further: bool = False) -> Rows:
    """Rows of one thing without a size, some times a run."""
    labels = np.repeat(np.arange(runs), times)
    labels = np.full(1, -1) if further else labels
    zeros = np.zeros(len(labels))
    return Rows(np.ones((len(labels), 1)), zeros, labels.astype(np.intp), zeros.astype(np.intp))


def ends(mixture: Mixture) -> tuple[Floats, Floats]:
    return mixture.quantile(LOW), mixture.quantile(HIGH)


def test_quantiles_are_those_of_normal_distributions() -> None:
    one = Mixture(np.ones(1), np.array([[0.2, -3.0]]), np.array([[0.1, 2.0]]))
    for share in (0.01, 0.05, 0.5, 0.9):
        wanted = [statistics.NormalDist(*of).inv_cdf(share) for of in ((0.2, 0.1), (-3, 2))]
        assert one.quantile(share) == pytest.approx(wanted, abs=1e-6)
    two = Mixture(np.array([0.5, 0.5]), np.array([[-1.0], [1.0]]), np.full((2, 1), 0.1))
    assert two.quantile(0.5) == pytest.approx([0], abs=0.3)
    assert two.quantile(0.25) == pytest.approx([-1], abs=1e-6)


@pytest.mark.parametrize("runs", [15, 40])
def test_of_many_runs_a_range_is_students(runs: int) -> None:
    """A row a run: mean ± t(0.95, R - 1) s sqrt(1 + 1 / R); the priors hardly matter."""
    values = np.random.default_rng(runs).normal(0, 0.01, runs)
    values -= values.mean()
    low, high = ends(MixedModel(values, one_thing(runs)).next_rows(one_thing(0, further=True)))
    deviation = values.std(ddof=1) * math.sqrt(1 + 1 / runs)
    half = stats.t(runs - 1).ppf(HIGH) * deviation
    assert [low[0], high[0]] == pytest.approx([-half, half], rel=0.06)


def test_variances_are_those_of_an_analysis_of_variance() -> None:
    """Of equally many rows a run: rows scatter by what is within runs, runs by the rest
    (Snedecor and Cochran, 1989, chapter 13).
    """
    runs, times = 40, 6
    draw = np.random.default_rng(8)
    values = draw.normal(0, 0.02, (runs, 1)) + draw.normal(0, 0.01, (runs, times))
    values -= values.mean()
    within = values.var(axis=1, ddof=1).mean()
    between = values.mean(axis=1).var(ddof=1) - within / times
    model = MixedModel(values.ravel(), one_thing(runs, times))
    low, high = ends(model.next_rows(one_thing(0, further=True)))
    normal = stats.norm.ppf(HIGH)
    of_row = math.sqrt(between * (1 + 1 / runs) + within * (1 + 1 / (runs * times)))
    assert (high[0] - low[0]) / 2 == pytest.approx(normal * of_row, rel=0.08)
    low, high = ends(model.constants())
    of_run = math.sqrt(between * (1 + 1 / runs) + within / (runs * times))
    assert (high[0] - low[0]) / 2 == pytest.approx(normal * of_run, rel=0.08)


@pytest.mark.parametrize("runs", [2, 5, 12])
def test_nine_of_ten_further_rows_lie_within(runs: int) -> None:
    draw = np.random.default_rng(runs)
    inside = 0
    for _ in range(200):
        *values, further = draw.normal(0, 0.01, runs + 1)
        mean = float(np.mean(values))
        model = MixedModel(np.array(values) - mean, one_thing(runs))
        low, high = ends(model.next_rows(one_thing(0, further=True)))
        inside += bool(low[0] <= further - mean <= high[0])
    assert 0.85 <= inside / 200 <= 0.97


def test_what_one_run_cannot_tell_the_prior_says() -> None:
    """0.5 % between runs, and more for a set-up that was not measured."""
    sizes = 2.0 ** np.arange(6, 21)
    noise = np.random.default_rng(1).normal(0, 1e-4, len(sizes))
    further = MixedModel(noise, rows_at(sizes, 1)).next_rows(rows_at(sizes, 1, of_run=-1))
    low, high = ends(further)
    assert all((high - low) / 2 > 0.005) and all((high - low) / 2 < 0.03)
    low, high = ends(further.widened(GROUP))
    assert all((high - low) / 2 > 0.06) and all((high - low) / 2 < 0.15)


def test_a_wrong_form_widens_ranges_between_sizes_not_at_them() -> None:
    """A hump of 20 % that four runs agree on: it is expected again, and the unknown is between."""
    sizes = 4.0 ** np.arange(3, 11)
    hump = 0.2 * np.exp(-((np.log2(sizes) - 13) ** 2) / 8)
    draw = np.random.default_rng(2)
    values = (hump + draw.normal(0, 0.002, (4, len(sizes)))).ravel()
    model = MixedModel(values, rows_at(sizes, 4))
    at_sizes = model.next_rows(rows_at(sizes, 1, of_run=-1))
    between = model.next_rows(rows_at(2 * sizes[:-1], 1, of_run=-1))
    assert at_sizes.quantile(0.5) == pytest.approx(hump, abs=0.01)
    (low, high), (low_between, high_between) = ends(at_sizes), ends(between)
    assert np.median(high_between - low_between) > 3 * np.median(high - low)
    beyond = ends(model.next_rows(rows_at(sizes[-1:] * 1024, 1, of_run=-1)))
    assert beyond[1] - beyond[0] > np.median(high_between - low_between)


def test_a_run_left_out_tells_nothing() -> None:
    sizes = 2.0 ** np.arange(6, 18)
    draw = np.random.default_rng(3)
    values = draw.normal(0, 0.005, (3, 1)) + draw.normal(0, 0.001, (3, len(sizes)))
    changed = values.copy()
    changed[2] += 1e-9
    further = rows_at(sizes, 1, of_run=-1)
    middles = [
        MixedModel(each.ravel(), rows_at(sizes, 3)).next_rows(further, 2).quantile(0.5)
        for each in (values, changed)
    ]
    assert middles[0] == pytest.approx(middles[1], abs=1e-8)
    assert middles[0] == pytest.approx(values[:2].mean(axis=0), abs=0.005)


@pytest.mark.parametrize("count", [2, 3])
def test_as_many_rows_as_constants_give_a_range(count: int) -> None:
    rows = rows_at(2.0 ** np.arange(6, 6 + count), 1)
    low, high = ends(MixedModel(np.zeros(count), rows).constants())
    assert np.isfinite(low).all() and np.isfinite(high).all()


def test_rows_of_what_only_one_run_has_measured_are_not_predicted() -> None:
    runs, nowhere = np.array([0, 0, 1]), np.zeros(3, np.intp)
    rows = Rows(np.eye(2)[[0, 1, 0]], np.zeros(3), runs, nowhere)
    model = MixedModel(np.array([0.1, 0.0, 0.1]), rows)
    assert model.determines(rows, 0).tolist() == [True, False, True]
    assert model.determines(rows, 1).all()
    predicted = model.next_rows(rows.at(np.array([2])).further(), 0)
    assert predicted.quantile(0.5) == pytest.approx([0.1], abs=0.01)
