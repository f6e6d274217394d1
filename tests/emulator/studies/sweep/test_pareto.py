"""Fronts of sweeps: those of brute force, in any number of processes; prices with ranges."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emuchain
from emuchain import InputError
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.studies.sweep import (
    Space,
    find_front,
    front_places,
    objectives_of,
    points_of,
)

from ...commands.running import status_of
from .rows import result, row

VALUES = st.integers(0, 4)


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[VALUES] * n), max_size=12)))
def test_a_front_has_what_nothing_dominates(costs: Sequence[tuple[int, ...]]) -> None:
    if not costs:
        return

    def dominates(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        return one != other and all(a <= b for a, b in zip(one, other, strict=True))

    wanted = [
        place
        for place, cost in enumerate(costs)
        if not any(dominates(other, cost) for other in costs)
    ]
    places = front_places(np.array(costs, np.float64))
    assert sorted(places) == wanted
    assert [costs[place] for place in places] == sorted(costs[place] for place in wanted)


PRICED = """
name = "priced"
[[boards]]
type = "vc709"
price = 5000
uncertainty = { "board.price" = { low = 4000, high = 6000, class = "assumed" } }
[links]
bandwidth_gbps = 40
latency_ns = 500
"""
SIGNS = {"images_per_s": -1, "boards": 1, "memory_mib": 1, "images_per_j": -1, "price": 1}
OBJECTIVES = dict(zip(("rate", "boards", "memory", "joules", "price"), SIGNS, strict=True))
SPACES: dict[str, dict[str, Any]] = {
    "rows": {"devices": range(1, 6), "replicas": [1, 2], "schedule": ["sync", "fpdeep"]},
    "links": {
        "devices": [1, 2, 4],
        "changes": {"link.bandwidth_gbps": [1, 40], "board.price": [900, 1000]},
    },
    "actions": {
        "devices": [1, 2, 3],
        "engines": "turns",
        "schedule": ["gpipe", "1f1b-sno", "zero-bubble"],
        "precision": ["fp32", "fp16"],
    },
}
LISTS = [("rate", "boards"), ("rate", "memory", "joules"), ("price", "rate", "memory", "boards")]


@pytest.fixture
def priced(tmp_path: Path) -> str:
    path = tmp_path / "priced.toml"
    path.write_text(PRICED)
    return str(path)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("names", LISTS, ids=",".join)
def test_fronts_of_small_spaces(priced: str, space: str, names: Sequence[str]) -> None:
    found = emuchain.sweep(
        "quick-cifar", priced, pareto=names, jobs=1, ranged=False, **SPACES[space]
    )
    rows = [one for one in found.rows if one["error"] is None and one["fits"]]
    assert rows and found.front is not None
    columns = [OBJECTIVES[name] for name in names]

    def is_dominated(one: dict[str, Any]) -> bool:
        signed = [[SIGNS[column] * other[column] for column in columns] for other in (one, *rows)]
        own, others = signed[0], signed[1:]
        return any(
            other != own and all(a <= b for a, b in zip(other, own, strict=True))
            for other in others
        )

    wanted = [one for one in rows if not is_dominated(one)]
    assert sorted(map(id, found.front.rows)) == sorted(map(id, wanted))
    assert (found.front.tried, found.front.points) == (len(rows), found.space.points)
    firsts = [SIGNS[columns[0]] * one[columns[0]] for one in found.front.rows]
    assert firsts == sorted(firsts)


def test_any_number_of_processes_gives_the_same_front(priced: str) -> None:
    one, four = (
        emuchain.sweep("quick-cifar", priced, pareto=LISTS[2], jobs=jobs, **SPACES["rows"]).front
        for jobs in (1, 4)
    )
    assert one is not None and four is not None
    assert one.to_dict() == four.to_dict()


def test_prices_are_those_of_all_boards_with_their_range(priced: str) -> None:
    found = emuchain.sweep(
        "quick-cifar", priced, devices=2, replicas=[1, 3], pareto=["rate", "price"], jobs=1
    )
    assert found.front is not None
    for one, ranges in zip(found.front.rows, found.front.ranges, strict=True):
        assert one["price"] == 5000 * one["boards"]
        assert ranges["price"] == pytest.approx((4000 * one["boards"], 6000 * one["boards"]))
        assert ranges["rate"] == (one["range_low"], one["range_high"])


@pytest.mark.parametrize("keys", [{}, {"schedule": "zero-bubble", "engines": "turns"}])
def test_memory_is_that_of_the_fullest_board(
    plan_of: Callable[..., ChainPlan], keys: dict[str, Any]
) -> None:
    plan = plan_of(network="vgg16-cifar", devices=3, **keys)
    [one] = emuchain.sweep("vgg16-cifar", devices=3, jobs=1, ranged=False, **keys).rows
    assert one["memory_mib"] == max(plan.memory_bytes) / 2**20
    for kept, off_chip in zip(plan.memory_bytes, plan.off_chip_bytes, strict=True):
        board = plan.cluster.board(0)
        assert off_chip < kept <= off_chip + board.on_chip_memory_bytes
    weights = 4 * sum(layer.parameters for layer in plan.network.layers)
    assert sum(plan.memory_bytes) >= 2 * weights


def test_points_without_a_place_are_none_of_it() -> None:
    rows = [row(1, 5.0), row(2, 9.0, fits=False), row(3, 4.0), row(4, None)]
    points = points_of(Space.of({"devices": range(1, 5)}))
    front = find_front(objectives_of(["rate", "boards"]), points, rows)
    assert front.rows == [rows[0]] and (front.tried, front.points) == (2, 4)
    assert result(rows).front is None


def test_it_is_printed_and_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("priced.toml").write_text(PRICED)
    words = "quick-cifar --cluster priced.toml --devices 1-3 --pareto rate,price --jobs 1".split()
    assert status_of("sweep", *words, "--plot", "front.svg") == 0
    said = capsys.readouterr().out
    assert "front: 3 points of rate and price, of 3 that have all figures; 3 points tried" in said
    assert "Front: quick-cifar on priced" in said and "15,000 (12,000 to 18,000)" in said
    assert Path("front.svg").read_text().startswith("<?xml")
    assert status_of("sweep", *words, "--json") == 0
    front = json.loads(capsys.readouterr().out)["front"]
    assert front["objectives"] == ["rate", "price"]
    assert [one["objectives"]["price"] for one in front["rows"]] == [15000, 10000, 5000]


BAD: dict[str, tuple[Sequence[str], str]] = {
    "name": (["rates"], "`pareto` = 'rates': did you mean `rate`? must be of rate, boards, memory"),
    "twice": (["rate", "rate"], "`pareto` = 'rate,rate': must have objectives, each once"),
    "price": (["price"], "`pareto`: price needs `board.price`, which VC709 does not have"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, one_line: Callable[..., str]) -> None:
    names, message = BAD[name]
    with pytest.raises(InputError) as error:
        emuchain.sweep("quick-cifar", devices=[1, 2], pareto=names, jobs=1, ranged=False)
    assert message in one_line(error)
