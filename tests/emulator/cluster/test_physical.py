"""Physical constants that no hardware has: each is noted once, by key and value, with what
exists.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.cluster import (
    DSP_TYPES,
    EXISTING,
    board_keys,
    board_types,
    clusters,
    load_cluster,
    load_named,
)
from emuchain.emulator.common import InputError, Note

LINKS = {"bandwidth_gbps": 10, "latency_ns": 1000}


def notes_of(cluster: Any, *changes: Any, **more: Any) -> list[str]:
    """The notes with which a cluster is loaded."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_cluster(cluster, *changes, **more)
    assert all(warning.category is Note for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("name", clusters())
def test_clusters_that_come_with_emuchain_exist(name: str) -> None:
    assert notes_of(name) == []


@pytest.mark.parametrize("name", board_types())
def test_boards_that_come_with_emuchain_exist(name: str) -> None:
    assert notes_of({"name": "c", "boards": [{"type": name}], "links": LINKS}) == []


@pytest.mark.parametrize("name", DSP_TYPES)
def test_types_of_dsps_exist(name: str) -> None:
    rates = {kind: {"per_dsp": count} for kind, count in DSP_TYPES[name].per_dsp.items()}
    assert (
        notes_of({"name": "c", "boards": [{"type": "vc709", "multipliers": rates}], "links": LINKS})
        == []
    )


WHOLE = (
    "dsp",
    "on_chip_memory_kbit",
    "lut",
    "lut_per_dsp",
    "ff",
    "bram",
    "bram_kbit",
    "uram",
    "transceivers",
)
CASES = [
    *(
        (key, value)
        for key, existing in EXISTING.items()
        for value in (existing.low / 2, existing.high * 2)
    ),
    *((key, bound) for key, existing in EXISTING.items() for bound in existing[:2]),
]


@pytest.mark.parametrize(("key", "value"), CASES)
def test_what_is_far_from_all_hardware_is_noted(key: str, value: float) -> None:
    """Half and twice of each range's bounds; what lies on them exists. What no file may have,
    readers refuse.
    """
    table, _, name = key.partition(".")
    existing, given = EXISTING[key], int(value) if name in WHOLE else value
    gpu = table == "board" and name in board_keys("p100") and name not in board_keys("vc709")
    try:
        caught = notes_of("p100" if gpu else "titan-xp-10gbe", {key: given})
    except InputError:
        assert not existing.holds(value)
        return
    if existing.holds(given) or not given:
        assert caught == []
    else:
        [line] = caught
        assert line.startswith(f"changes: `{key}` = ")
        assert f"what exists is {existing} ({existing.source})" in line


def test_a_latency_of_nothing_is_none_that_is_modelled() -> None:
    assert notes_of("vc709", {"link.latency_ns": 0}) == []


def test_the_file_and_the_key_are_named(tmp_path: Path) -> None:
    """Of several boards the one that has it, and of a type's constant the type; what is changed is
    of the change.
    """
    board, cluster = tmp_path / "fast.toml", tmp_path / "c.toml"
    board.write_text('name = "fast"\nclock_mhz = 300_000\ndsp = 100\non_chip_memory_kbit = 1000\n')
    cluster.write_text(
        'name = "c"\n[[boards]]\ntype = "vc709"\n[[boards]]\ntype ='
        f' "{board}"\n[[links]]\nbandwidth_gbps = 100_000\nlatency_ns ='
        " 1\n[[links]]\nbandwidth_gbps = 1\nlatency_ns = 6e8\n"
    )
    caught = notes_of(str(cluster))
    assert [
        line.partition(":")[0] + line.partition(":")[2].partition(":")[0] for line in caught
    ] == [
        f"{cluster}, type {board} `boards[1].clock_mhz` = 300,000 MHz",
        f"{cluster} `links[0].bandwidth_gbps` = 100,000 Gb/s",
        f"{cluster} `links[1].latency_ns` = 600,000,000 ns",
    ]
    caught = notes_of(
        str(cluster),
        {"boards[1].clock_mhz": 0.3, "link.latency_ns": 1, "links[0].bandwidth_gbps": 1},
        blame="--set",
    )
    assert caught == [
        "--set: `boards[1].clock_mhz` = 0.3 MHz: what exists is 1 to 1,000 MHz"
        f" ({EXISTING['board.clock_mhz'].source})"
    ]


def test_links_of_devices_by_name(tmp_path: Path) -> None:
    cluster = tmp_path / "c.toml"
    cluster.write_text(
        'name = "c"\nboards = [{ name = "A" }]\nlinks = { bandwidth_gbps = 1e6, latency_ns = 1 }\n'
    )
    with pytest.warns(
        Note, match=r"c.toml: `link.bandwidth_gbps` = 1,000,000 Gb/s: what exists is"
    ):
        load_named(str(cluster))
