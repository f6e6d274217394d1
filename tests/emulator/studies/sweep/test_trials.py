"""Fronts of large spaces: which points are tried, whatever computes them, and what is said of
them.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain import InputError
from emuchain.emulator.studies.sweep import Space, objectives_of
from emuchain.emulator.studies.sweep.trials import Trials

from ...commands.running import status_of
from .drawn_trials import stand_in

LARGE = {"devices": range(1, 41), "link.bandwidth_gbps": range(1, 31), "schedule": ["sync"]}
SMALL: dict[str, Any] = {
    "devices": range(1, 5),
    "schedule": ["sync", "fpdeep"],
    "changes": {"link.bandwidth_gbps": [10, 40, 100]},
}
NAMES = ("rate", "boards")


@pytest.fixture
def optuna(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = stand_in()
    monkeypatch.setitem(sys.modules, "optuna", module)
    return module


def row_at(place: int) -> dict[str, Any]:
    """Return a row as a function of its place; each seventh fails."""
    error = None if place % 7 else "too small"
    rate = float(place * place % 997)
    return {"error": error, "fits": place % 5 > 0, "images_per_s": rate, "boards": place // 30 + 1}


def tried(count: int, seed: int, at_a_time: int, space: Space | None = None) -> list[int]:
    """Return the places that are tried, if as many are computed at a time."""
    space = space or Space.of(LARGE)
    search = Trials(space, objectives_of(NAMES), count, seed)
    rows: list[Any] = [None] * space.points
    order = []
    while places := search.next(rows):
        assert len({*places}) == len(places) and all(rows[place] is None for place in places)
        for begin in range(0, len(places), at_a_time):
            for place in reversed(places[begin : begin + at_a_time]):
                rows[place] = row_at(place)
        order += places
    return order


@pytest.mark.parametrize("count", [1, 49, 50, 51, 230])
def test_as_many_points_are_tried(optuna: Any, count: int) -> None:
    first = tried(count, 1, 1)
    assert len({*first}) == len(first) == count
    assert first == tried(count, 1, 4) and (count == 1 or first != tried(count, 2, 1))
    assert optuna.logging.levels[-1] == 20, "how much Optuna says is the user's"


def test_a_search_without_new_points_ends(optuna: Any) -> None:
    """Of 6 points 5: all are drawn soon, and then no other one may be tried."""
    space = Space.of({"devices": range(1, 7)})
    assert len(tried(5, 0, 1, space)) == 5
    search = Trials(space, objectives_of(NAMES), 7, 0)  # never enough
    rows = [row_at(place) for place in range(6)]
    assert search.next(rows) == []


def test_places_are_those_of_combinations() -> None:
    space = Space.of({"schedule": ["sync", "fpdeep"], "devices": [1, 2, 5], "batch": [8, 16]})
    combinations, places = [*space.combinations()], []
    for one in itertools.product(*(range(len(space.values[key])) for key in space.varied)):
        numbers = dict(zip(space.varied, one, strict=True))
        places.append(space.place(numbers))
        values = combinations[places[-1]]
        assert [values[key] for key in numbers] == [space.values[k][n] for k, n in numbers.items()]
    assert sorted(places) == [*range(12)]


def test_the_front_is_that_of_any_number_of_processes(optuna: Any, tmp_path: Path) -> None:
    """And of a sweep that goes on where it was interrupted."""
    csv = tmp_path / "rows.csv"
    one, four, kept = (
        emuchain.sweep("quick-cifar", pareto=NAMES, trials=9, seed=3, ranged=False, **how, **SMALL)
        for how in ({"jobs": 1}, {"jobs": 4}, {"jobs": 1, "csv": csv})
    )
    assert one.front is not None and four.front is not None and kept.front is not None
    assert one.front.to_dict() == four.front.to_dict() == kept.front.to_dict()
    assert (one.front.points, one.front.whole, len(one.rows)) == (9, 24, 9)
    lines = csv.read_text().splitlines(keepends=True)
    csv.write_text("".join(lines[:5]))
    again = emuchain.sweep(
        "quick-cifar", pareto=NAMES, trials=9, seed=3, ranged=False, jobs=1, csv=csv, **SMALL
    )
    assert again.front is not None and again.front.to_dict() == one.front.to_dict()
    assert csv.read_text() == "".join(lines)


def test_it_says_how_much_was_tried(optuna: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = "quick-cifar --devices 1-4 --replicas 1,2 --pareto rate,boards --jobs 1 --range none"
    assert status_of("sweep", *words.split(), "--trials", "3", "--seed", "1") == 0
    assert "; 3 points tried, 37.50 % of the 8 of the space" in capsys.readouterr().out


def test_a_small_space_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    found = emuchain.sweep(
        "quick-cifar", devices=[1, 2], pareto=NAMES, trials=2, jobs=1, ranged=False
    )
    assert found.front is not None and found.front.points == found.front.whole == 2


def test_bad_trials(monkeypatch: pytest.MonkeyPatch, one_line: Callable[..., str]) -> None:
    with pytest.raises(InputError) as bad:
        emuchain.sweep("quick-cifar", devices=[1, 2], trials=1)
    assert "`trials` = 1: are those of a front; give `pareto`, too" in one_line(bad)
    with pytest.raises(InputError) as bad:
        emuchain.sweep("quick-cifar", devices=[1, 2], pareto=NAMES, trials=0)
    assert "`trials` = 0: should be a number, at least 1" in one_line(bad)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError) as bad:
        emuchain.sweep("quick-cifar", devices=[1, 2], pareto=NAMES, trials=1)
    assert one_line(bad) == "`trials` = 1: needs Optuna: pip install 'emuchain[search]'"


def test_with_optuna_itself() -> None:
    pytest.importorskip("optuna")
    for count in (49, 230):
        first = tried(count, 1, 1)
        assert len({*first}) == len(first) == count
        assert first == tried(count, 1, 4)
