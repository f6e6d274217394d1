"""Knees, where memory fits, and where the rate falls, from rows made by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.studies.sweep import knee

from .rows import line, result, row


@pytest.mark.parametrize(
    ("amounts", "rates", "place"),
    [
        (range(1, 9), [10, 20, 30, 40, 40, 40, 40, 40], 3),  # linear, then flat
        (range(1, 9), [10, 20, 30, 40, 44, 48, 52, 56], 3),  # then with less than half of the slope
        (range(1, 9), [10, 20, 30, 40, 46, 52, 58, 64], None),  # then with more than half
        (range(1, 9), [10, 20, 30, 40, 50, 60, 70, 80], None),  # linear
        (range(1, 9), [10, 20, 20, 20, 50, 60, 70, 80], None),  # a step on the way
        (range(1, 5), [40, 30, 20, 10], 0),  # more is worse
        ([1, 2, 4, 8, 16], [10, 20, 40, 50, 55], 2),
        ([10, 40, 100], [100, 300, 310], 1),
        ([1, 2], [10, 10], None),
        ([], [], None),
    ],
)
def test_knees(amounts: list[float], rates: list[float], place: int | None) -> None:
    assert knee(amounts, rates) == place


@given(
    st.lists(st.floats(1, 1e6), min_size=3, max_size=20), st.floats(0.01, 100), st.floats(0.01, 100)
)
def test_a_knee_does_not_depend_on_units(rates: list[float], scale: float, unit: float) -> None:
    """Powers of two, so that nothing is rounded."""
    amounts = [float(n) for n in range(1, len(rates) + 1)]
    scale, unit = 2.0 ** round(scale), 2.0 ** round(unit)
    assert knee([unit * n for n in amounts], [scale * rate for rate in rates]) == knee(
        amounts, rates
    )


def test_series_are_those_of_the_other_keys() -> None:
    rows = [row(n, 10.0 * n * batch, batch=batch) for batch in (8, 16) for n in (1, 2, 3)]
    rows[4] = row(2, None, batch=16)
    first, second = result(rows, batch=(8, 16)).series
    assert (first.others, [r["devices"] for r in first.rows]) == ({"batch": 8}, [1, 2, 3])
    assert (second.others, [r["devices"] for r in second.rows]) == ({"batch": 16}, [1, 3])


def test_series_in_which_all_fail_are_left_out() -> None:
    rows = [row(n, rate, batch=batch) for batch, rate in ((8, None), (16, 5.0)) for n in (1, 2)]
    [series] = result(rows, batch=(8, 16)).series
    assert series.others == {"batch": 16}


@pytest.mark.parametrize(
    ("fits", "start"),
    [("nnyy", 3), ("nyny", 4), ("yyyy", 1), ("yyyn", None), ("nnnn", None), ("nnny", 4)],
)
def test_from_where_on_all_is_on_chip(fits: str, start: int | None) -> None:
    for less in ({"fits": False, "missing_mib": 1.0}, {"off_chip_mib": 1.0}):
        rows = [row(n, 1.0, **({} if letter == "y" else less)) for n, letter in enumerate(fits, 1)]
        assert result(rows).series[0].on_chip_from == start


def test_falls() -> None:
    [series] = line([10, 20, 15, 20, 30, 29, 28]).series
    assert [(slower["devices"], better["devices"]) for slower, better in series.falls()] == [
        (3, 2),
        (6, 5),
        (7, 5),
    ]
    [level] = line([1000, 999.5, 1000, 998.5]).series
    assert [slower["devices"] for slower, _ in level.falls()] == [4], (
        "placements are found to a thousandth"
    )


def test_the_best_has_the_fewest_boards() -> None:
    assert line([10, 30, 30, 20]).best["devices"] == 2  # type: ignore[index]
    assert line([None, None]).best is None
