"""`[uncertainty]` of clusters and boards: ranges by key, those of classes, and what is refused in
one line.
"""

import datetime
import pathlib
from typing import Any

import pytest

from emuchain.emulator.cluster import ConstantRange, load_cluster
from emuchain.emulator.common import InputError

DATE = datetime.date(2026, 11, 25)


def described(**keys: Any) -> dict[str, Any]:
    links = {"bandwidth_gbps": 100, "latency_ns": 500}
    return {"name": "ours", "boards": [{"type": "vc709", "count": 2}], "links": links, **keys}


def of_one(key: str, **entry: Any) -> dict[str, Any]:
    return described(uncertainty={key: entry})


def test_range_is_relative_to_the_value() -> None:
    cluster = load_cluster(
        of_one(
            "link.latency_ns", low=475, high=600, **{"class": "measured", "from": "us"}, date=DATE
        )
    )
    assert cluster.range_of("link.latency_ns") == ConstantRange(
        "link.latency_ns", 0.95, 1.2, "measured", "us", "2026-11-25"
    )


@pytest.mark.parametrize(
    ("key", "low", "high", "kind"),
    [
        ("board.off_chip_gbytes_per_s", 0.80, 0.95, "data sheet"),
        ("link.bandwidth_gbps", 0.90, 1.00, "data sheet"),
        ("link.latency_ns", 1.0, 1.5, "assumed"),
        ("board.dsp", 1, 1, "data sheet"),
    ],
)
def test_constants_without_entry_have_the_range_of_their_class(
    key: str, low: float, high: float, kind: str
) -> None:
    entry = load_cluster("vc709").range_of(key)
    assert (entry.low, entry.high, entry.kind) == (low, high, kind)


def test_clock_that_nobody_fitted_is_assumed() -> None:
    entry = load_cluster("u280", {"board.clock_mhz": 300}).range_of("board.clock_mhz")
    assert (entry.low, entry.high, entry.kind) == (0.67, 1.5, "assumed")


def test_the_clock_of_a_board_that_is_built_is_that_of_designs() -> None:
    cluster = load_cluster("u280")
    entry = cluster.range_of("board.clock_mhz")
    assert entry.kind == "measured"
    # From 130 to 295 MHz, around 236.
    assert (entry.low, entry.high) == (130 / 236, 295 / 236)


def test_class_alone_has_the_range_of_the_class() -> None:
    entry = load_cluster(of_one("link.bandwidth_gbps", **{"class": "fitted"})).range_of(
        "link.bandwidth_gbps"
    )
    assert (entry.low, entry.high, entry.kind) == (0.95, 1.05, "fitted")


def test_board_file_has_ranges_and_the_cluster_overrides_them(tmp_path: pathlib.Path) -> None:
    board = tmp_path / "b.toml"
    board.write_text(
        'name = "b"\ndsp = 100\nclock_mhz = 100\non_chip_memory_kbit = 1000\n[uncertainty]\n'
        '"board.clock_mhz" = { low = 90, high = 100, date = 2026-11-25 }\n'
    )
    own = {"boards": [{"type": str(board)}]}
    assert load_cluster(described(**own)).range_of("board.clock_mhz").low == 0.9
    both = described(**own, uncertainty={"board.clock_mhz": {"low": 80, "high": 120}})
    assert load_cluster(both).range_of("board.clock_mhz").low == 0.8


def test_boards_of_two_types_have_ranges_of_their_own() -> None:
    boards = [{"type": "vc709", "uncertainty": {"board.clock_mhz": {"class": "assumed"}}}]
    cluster = load_cluster(described(boards=[*boards, {"type": "u280"}]))
    assert [cluster.range_of("board.clock_mhz", device).kind for device in (0, 1, 2)] == [
        "assumed",
        "measured",
        "measured",
    ]


def test_changed_value_has_the_range_of_its_class() -> None:
    entry = {"link.bandwidth_gbps": {"low": 99, "high": 101, "class": "measured", "date": DATE}}
    wide = load_cluster(described(uncertainty=entry), {"link.bandwidth_gbps": 200})
    assert wide.range_of("link.bandwidth_gbps").kind == "data sheet"
    assert (
        load_cluster("vc709", {"board.clock_mhz": 300}).range_of("board.clock_mhz").kind
        == "assumed"
    )
    other = load_cluster(described(uncertainty=entry), {"link.latency_ns": 200})
    assert other.range_of("link.bandwidth_gbps").kind == "measured"


def test_ranges_make_no_other_cluster() -> None:
    assert load_cluster(described()) == load_cluster(of_one("link.latency_ns", low=475, high=600))


@pytest.mark.parametrize(
    ("uncertainty", "message"),
    [
        (
            {"link.latency": {"low": 1, "high": 2}},
            "unknown key `link.latency`; did you mean `link.latency_ns`",
        ),
        ({"link.latency_ns": {"low": 600, "high": 475}}, "`low` = 600 is above `high` = 475"),
        (
            {"link.latency_ns": {"low": 600, "high": 700}},
            "`link.latency_ns` = 500 is outside its range, 600 to 700",
        ),
        ({"link.latency_ns": {"low": 400}}, "belong together"),
        ({"link.latency_ns": {"class": "measured"}}, "class 'measured' needs `low` and `high`"),
        ({"link.latency_ns": {"low": -1, "high": 700}}, "greater than 0"),
        ({"link.latency_ns": {"low": float("nan"), "high": 700}}, "finite"),
        (
            {"link.latency_ns": {"low": 1, "high": 700, "class": "guessed"}},
            "'measured', 'data sheet', 'assumed', 'fitted' or 'report'",
        ),
        ({"link.latency_ns": {"lo": 1, "high": 700}}, "unknown key"),
        ({"link.latency_ns": 3}, "uncertainty"),
        ({"network.bandwidth_gbps": {"low": 1, "high": 2}}, "has no value"),
        ({"board.name": {"low": 1, "high": 2}}, "unknown key `board.name`"),
        ({"resources.alpha": {"class": "fitted"}}, "has no value"),
        (3, "uncertainty"),
    ],
)
def test_wrong_ranges_are_refused_in_one_line(uncertainty: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        load_cluster(described(uncertainty=uncertainty))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
