"""Kinds of links: constants with ranges, from measurements, that a cluster may have for its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.cluster import (
    Cluster,
    Fpga,
    board_keys,
    cluster_files,
    link_keys,
    link_kinds,
    load_cluster,
)
from emuchain.emulator.common import InputError

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


def of_links(links: Any, **keys: Any) -> Cluster:
    boards = [{"type": "u280"}]
    return load_cluster({"name": "of links", "boards": boards, "links": links, **keys})


def test_the_kinds() -> None:
    assert link_kinds() == ["aurora", "pcie", "roce", "serial", "tcp", "udp"]


def test_the_document_lists_them() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for kind in link_kinds():
        keys = link_keys(kind)
        ns = keys["latency_ns"]
        latency = f"{ns / 1000:g} us" if ns > 1e5 else f"{ns:,g} ns"
        assert f"| `{kind}` | {keys['bandwidth_gbps']:g} | {latency} | " in text


@pytest.mark.parametrize("kind", link_kinds())
def test_a_cluster_has_the_constants_of_its_kind(kind: str) -> None:
    keys = link_keys(kind)
    assert keys["source"]
    cluster = of_links({"kind": kind})
    assert cluster.link.bandwidth_mbps == round(1000 * keys["bandwidth_gbps"])
    assert cluster.link.latency_ps == round(1000 * keys["latency_ns"])
    assert cluster.link.header_bytes == keys.get("header_bytes", 0)
    for key in ("link.bandwidth_gbps", "link.latency_ns"):
        entry = cluster.range_of(key)
        assert entry is not None
        assert entry.kind in ("measured", "fitted")
        assert entry.low <= 1 <= entry.high
        assert entry.source


def test_its_own_keys_go_before_those_of_the_kind() -> None:
    """Their ranges are not those of the kind's values."""
    cluster = of_links({"kind": "aurora", "latency_ns": 2000})
    assert cluster.link.latency_ps == 2_000_000
    assert cluster.link.bandwidth_gbps == link_keys("aurora")["bandwidth_gbps"]
    classes = [cluster.range_of(f"link.{key}") for key in ("bandwidth_gbps", "latency_ns")]
    assert [entry and entry.kind for entry in classes] == ["measured", "assumed"]
    low, high = 1900, 2100
    uncertainty = {"link.latency_ns": {"low": low, "high": high, "class": "measured"}}
    entry = of_links({"kind": "aurora", "latency_ns": 2000}, uncertainty=uncertainty).range_of(
        "link.latency_ns"
    )
    assert entry is not None and (entry.low * 2000, entry.high * 2000) == pytest.approx((low, high))


def test_links_of_several_kinds() -> None:
    """Ranges by key are of all links, so those of two kinds are left out."""
    cluster = of_links([{"kind": "serial"}, {"kind": "udp"}])
    assert cluster.link_at(0).latency_ps == 674_200
    assert cluster.link_at(1).header_bytes == 66
    entry = cluster.range_of("link.latency_ns")
    assert entry is not None and entry.kind == "assumed"
    own = of_links([{"kind": "serial"}, {"kind": "serial", "latency_ns": 700}])
    entry = own.range_of("link.latency_ns")
    assert entry is not None and entry.kind == "assumed"
    same = of_links([{"kind": "serial"}, {"kind": "serial", "count": 2}])
    entry = same.range_of("link.latency_ns")
    assert entry is not None and entry.kind == "measured"


def test_headers_of_udp_are_what_was_measured() -> None:
    """Payload of packets of 64 and 1,408 bytes at 100 Gb/s: 49.2 and 95.5 Gb/s."""
    link = of_links({"kind": "udp"}).link
    for payload, gbps in ((64, 49.231), (1408, 95.522)):
        wire = payload + link.header_bytes
        assert link.bandwidth_gbps * payload / wire == pytest.approx(gbps, abs=0.01)


def test_a_kind_of_ones_own(tmp_path: Path) -> None:
    """A file with the keys of `[links]`."""
    kind = tmp_path / "mine.toml"
    kind.write_text('source = "a bench"\nbandwidth_gbps = 12\nlatency_ns = 300\n')
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        f'name = "c"\nboards = [{{ type = "u280" }}]\nlinks = {{ kind = "{kind}" }}\n'
    )
    assert load_cluster(str(cluster)).link.latency_ps == 300_000
    assert kind in cluster_files(str(cluster))


def test_a_change_of_the_kind_takes_its_constants() -> None:
    link = load_cluster("520n", {"link.kind": "roce"}).link
    assert link.latency_ps == round(1000 * link_keys("roce")["latency_ns"])


@pytest.mark.parametrize(
    ("links", "changes", "why"),
    [
        ({"kind": "aurra"}, {}, "links: `kind` = 'aurra': did you mean `aurora`"),
        ({"kind": "none.toml"}, {}, "none.toml"),
        ({"kind": 7}, {}, "kind"),
        ({"kind": "udp", "uncertainty": {}}, {}, "links.uncertainty"),
        (
            {"bandwidth_gbps": 1, "latency_ns": 1},
            {"link.kind": "udp"},
            "`link.kind` has no effect: links of wrong have `bandwidth_gbps` and `latency_ns`",
        ),
    ],
)
def test_what_is_refused(
    one_line: Callable[[object], str], links: Any, changes: dict[str, object], why: str
) -> None:
    with pytest.raises(InputError, match=why) as caught:
        load_cluster({"name": "wrong", "boards": [{"type": "u280"}], "links": links}, changes)
    assert one_line(caught)


def test_both_clocks_take_a_kind() -> None:
    """Rows wait for what 66 bytes a packet take: simulation and training agree to the
    picosecond.
    """
    cluster = {"name": "udp", "boards": [{"type": "vc709"}], "links": {"kind": "udp"}}
    keys: dict[str, Any] = {"devices": 2, "samples": 64, "epochs": 1, "batch": 16}
    times = [
        emuchain.simulate("quick-cifar", cluster, **keys).virtual_time_ps,
        emuchain.train("quick-cifar", cluster, **keys).virtual_time_ps,
    ]
    assert times[0] == times[1]


def board_beside(links: dict[str, Any], **keys: Any) -> Fpga:
    """A U280 of a cluster with these links."""
    board = of_links({"bandwidth_gbps": 1, "latency_ns": 1, **links}, **keys).board(0)
    assert isinstance(board, Fpga)
    return board


CORE = {"core_dsp": 3, "core_lut": 4000, "core_ff": 5000, "core_bram": 6}


@pytest.mark.parametrize(
    ("topology", "links"), [("chain", 2), ("ring", 2), ("switch", 1), ("torus", 4)]
)
def test_cores_of_links_leave_a_board_less(topology: str, links: int) -> None:
    alone, beside = board_beside({}), board_beside({"topology": topology, **CORE})
    for key in ("dsp", "lut", "ff", "bram"):
        assert getattr(alone, key) - getattr(beside, key) == links * CORE[f"core_{key}"]
    assert alone.on_chip_memory_bytes - beside.on_chip_memory_bytes == links * 6 * 36 * 128
    assert alone.budget is not None
    assert beside.budget == alone.budget.beside(3 * links, 4000 * links, 5000 * links)


def test_boards_that_papers_count_have_no_cores() -> None:
    counted = [{"type": "u280", "multipliers": "one-per-dsp"}]
    assert board_beside(CORE, boards=counted) == board_beside({}, boards=counted)


def test_the_largest_core_of_all_links_counts() -> None:
    tables = [{"bandwidth_gbps": 1, "latency_ns": 1, **keys} for keys in ({}, CORE)]
    assert of_links(tables).board(0) == board_beside(CORE)


@pytest.mark.parametrize(("key", "has"), [("lut", 1_123_886), ("bram", 1_677), ("dsp", 9_014)])
def test_cores_that_leave_nothing_are_refused(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str], key: str, has: int
) -> None:
    with pytest.raises(InputError) as error:
        board_beside({f"core_{key}": has // 2 + 1})
    assert f"boards[0]: `links.core_{key}` leaves nothing" in one_line(error)


def test_all_serial_channels_of_a_520n_take_what_its_board_package_says() -> None:
    """Of b_eff's interface, 469,340 LUTs, 938,680 FFs and 2,768 block RAMs; without channels
    455,240, 910,480 and 2,627.
    """
    core, shell = link_keys("serial"), board_keys("520n")
    whole = {key: shell[f"shell_{key}"] + 2 * core[f"core_{key}"] for key in ("lut", "ff", "bram")}
    assert whole == {"lut": 469_340, "ff": 938_680, "bram": pytest.approx(2_768, abs=1)}
