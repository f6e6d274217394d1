"""Choices of a sweep by the same draws: points distinguished though ranges overlap, ties, and what
is not distinguished.
"""

from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.cluster import ConstantRange
from emuchain.emulator.studies.sweep import choose
from emuchain.emulator.timing import Roofs

from ...counted import counted

CLOCK = (ConstantRange("board.clock_mhz", 0.8, 1.2, "assumed"),)
LINK = (ConstantRange("link.bandwidth_gbps", 0.8, 1.2, "assumed"),)


def cluster(name: str, clock_mhz: float) -> dict[str, Any]:
    links = {"bandwidth_gbps": 150, "latency_ns": 1000}
    return {"name": name, "boards": [{"type": "vc709", "clock_mhz": clock_mhz}], "links": links}


def point(
    rate: float, speed: tuple[ConstantRange, ...], boards: int = 1
) -> tuple[dict[str, Any], str]:
    row = {"images_per_s": rate, "boards": boards, "devices": boards, "error": None}
    return row, Roofs.of([{speed: 1e12}]).at_rate(rate).text


def test_clusters_with_overlapping_ranges_are_distinguished() -> None:
    slow, fast = cluster("slow", 196), cluster("fast", 200)
    result = emuchain.sweep("quick-cifar", [slow, fast], devices=3)
    low, high = sorted(result.rows, key=lambda row: row["images_per_s"])
    assert low["range_high"] > high["images_per_s"] > low["images_per_s"]
    assert result.best is high and high["cluster"] == "fast"
    assert result.choice is not None and (result.choice.best_share, result.choice.rivals) == (
        1.0,
        (),
    )


def test_constants_of_their_own_decide_by_draw() -> None:
    (first, of_first), (second, of_second) = point(100, CLOCK), point(98, LINK)
    choice = choose([first, second], [of_first, of_second], first)
    assert choice is not None and 0.5 < choice.best_share < 0.9
    assert choice.rivals == (second,) and not choice.is_sure


def test_gain_below_a_hundredth_is_not_distinguishable() -> None:
    (first, of_first), (second, of_second) = point(100, CLOCK), point(99.5, CLOCK)
    choice = choose([first, second], [of_first, of_second], first)
    assert choice is not None and (choice.best_share, choice.rivals) == (1.0, (second,))


def test_tied_boards_are_no_rivals() -> None:
    points = [point(100 + count * 1e-4, CLOCK, count) for count in (64, 68, 72, 96)]
    points[0] = point(97, CLOCK, 64)
    rows, roofs = zip(*points, strict=True)
    choice = choose(rows, roofs, rows[1])
    assert choice is not None and (choice.best_share, choice.rivals) == (1.0, ())


def test_of_tied_boards_the_fewest_are_the_best() -> None:
    """Links limit from some number of boards on: more of them are not slower, and none is
    chosen.
    """
    links = {"bandwidth_gbps": 4, "latency_ns": 1000}
    narrow = {"name": "narrow", "boards": [{"type": "vc709"}], "links": links}
    result, plain = (
        emuchain.sweep("quick-cifar", narrow, devices=range(1, 9), ranged=ranged)
        for ranged in (True, False)
    )
    best, most = result.best, max(row["images_per_s"] for row in plain.rows)
    assert best is not None
    tied = [row["boards"] for row in plain.rows if row["images_per_s"] > 0.999 * most]
    assert best["boards"] == min(tied)
    assert plain.choice is None and plain.best_range is None
    assert not any(key.startswith("range") or key == "roofs" for row in plain.rows for key in row)


def test_number_of_processes_changes_no_digit_and_a_file_is_resumed(tmp_path: Path) -> None:
    results = [
        emuchain.sweep("quick-cifar", devices=range(1, 7), jobs=jobs, csv=path)
        for jobs, path in ((1, None), (2, tmp_path / "x.csv"), (1, tmp_path / "x.csv"))
    ]
    assert results[0].rows == results[1].rows == results[2].rows
    assert results[0].choice == results[1].choice == results[2].choice
    assert results[0].best_range == results[1].best_range == results[2].best_range


def test_knee_has_its_share() -> None:
    choice = emuchain.sweep("quick-cifar", counted(), devices=range(1, 17)).choice
    assert choice is not None and choice.knee_share == pytest.approx(0.86, abs=0.1)
