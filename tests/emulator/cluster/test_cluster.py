"""Clusters: those that come with emuchain, users' files, and what is wrong with bad ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm import Chain, Interconnect, MessageCost, NicEngines, Switch
from emuchain.emulator.cluster import Link, clusters, load_cluster
from emuchain.emulator.cluster.description import ClusterDescription
from emuchain.emulator.common import InputError, validate
from emuchain.emulator.studies import parse_what_if

BOARD = {"name": '"b"', "clock_mhz": "200", "dsp": "3600", "on_chip_memory_kbit": "52920"}
LINKS = {"bandwidth_gbps": "150", "latency_ns": "1000"}


def text(
    board: dict[str, str] | None = None, links: dict[str, str] | None = None, more: str = ""
) -> str:
    """A cluster's file with some keys of its one board or of its links set otherwise; None leaves a
    key out.
    """
    lines = ['name = "c"', more, "[[boards]]"]
    lines += [f"{key} = {value}" for key, value in {**BOARD, **(board or {})}.items() if value]
    lines.append("[links]")
    lines += [f"{key} = {value}" for key, value in {**LINKS, **(links or {})}.items() if value]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("name", "mbps"), [("vc709", 150_000), ("vc709-10g", 10_000)])
def test_clusters_that_come_with_emuchain(name: str, mbps: int) -> None:
    assert name in clusters()
    found = load_cluster(name)
    assert found.name == name
    board = found.board(99)
    assert (board.name, board.period_ps, board.dsp, board.on_chip_memory_bytes) == (
        "VC709",
        11_765,  # 100 MHz, of whose cycles 0.85 are busy
        3600,
        6_773_760,
    )
    assert (found.link.bandwidth_mbps, found.link.latency_ps) == (mbps, 1_000_000)


def test_all_clusters_load() -> None:
    assert (
        {load_cluster(name).name for name in clusters()}
        == set(clusters())
        >= {"vc709", "vc709-10g"}
    )


def test_boards_stand_in_a_row_and_the_last_one_for_all_further(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("""
        name = "mixed"
        boards = [
          { name = "a", clock_mhz = 100, dsp = 1, on_chip_memory_kbit = 8, count = 2 },
          { name = "b", clock_mhz = 62.5, dsp = 2, on_chip_memory_kbit = 16 },
          { name = "c", clock_mhz = 300, dsp = 3, on_chip_memory_kbit = 9, count = 1 },
        ]
        links = { bandwidth_gbps = 0.5, latency_ns = 0 }
        """)
    cluster = load_cluster(str(path))
    assert "".join(cluster.board(device).name for device in range(6)) == "aabccc"
    # 1 / 300 MHz is 3333.3 ps, and a period is a whole number of picoseconds.
    assert [board.period_ps for board in cluster.boards] == [10_000, 10_000, 16_000, 3_333]
    assert [board.on_chip_memory_bytes for board in cluster.boards] == [1024, 1024, 2048, 1152]
    assert (cluster.link.bandwidth_mbps, cluster.link.latency_ps) == (500, 0)
    assert cluster.link.bandwidth_gbps == 0.5


def test_what_the_bad_ones_are_made_from_is_good(tmp_path: Path) -> None:
    path = tmp_path / "good.toml"
    path.write_text(text())
    assert load_cluster(str(path)).board(0).dsp == 3600


BAD = {
    "zero dsp": (text({"dsp": "0"}), "`boards[0].dsp` = 0"),
    "negative dsp": (text({"dsp": "-1"}), "`boards[0].dsp` = -1"),
    "dsp is no whole number": (text({"dsp": "1.5"}), "`boards[0].dsp` = 1.5"),
    "dsp is a string": (text({"dsp": '"9"'}), "`boards[0].dsp` = '9'"),
    "dsp is a bool": (text({"dsp": "true"}), "`boards[0].dsp` = True"),
    "no dsp": (text({"dsp": ""}), "`boards[0].dsp` is missing"),
    "zero clock": (text({"clock_mhz": "0"}), "`boards[0].clock_mhz` = 0"),
    "negative clock": (text({"clock_mhz": "-5"}), "`boards[0].clock_mhz` = -5"),
    "infinite clock": (text({"clock_mhz": "inf"}), "`boards[0].clock_mhz` = inf"),
    "clock is nan": (text({"clock_mhz": "nan"}), "`boards[0].clock_mhz` = nan"),
    "clock is a date": (text({"clock_mhz": "2020-01-01"}), "`boards[0].clock_mhz`"),
    "zero memory": (text({"on_chip_memory_kbit": "0"}), "`boards[0].on_chip_memory_kbit` = 0"),
    "less than 1 MB/s": (
        text({"off_chip_gbytes_per_s": "4e-4"}),
        "`boards[0].off_chip_gbytes_per_s` = 0.0004",
    ),
    "zero boards of a kind": (text({"count": "0"}), "`boards[0].count` = 0"),
    "count is no whole number": (text({"count": "1.0"}), "`boards[0].count` = 1.0"),
    "unknown key of a board": (text({"luts": "3"}), "`boards[0].luts` = 3; did you mean `lut`?"),
    "name is a number": (text({"name": "3"}), "`boards[0].name` = 3"),
    "zero bandwidth": (text(links={"bandwidth_gbps": "0"}), "`links.bandwidth_gbps` = 0"),
    "negative bandwidth": (text(links={"bandwidth_gbps": "-1"}), "`links.bandwidth_gbps` = -1"),
    "infinite bandwidth": (text(links={"bandwidth_gbps": "inf"}), "`links.bandwidth_gbps` = inf"),
    "bandwidth is nan": (text(links={"bandwidth_gbps": "nan"}), "`links.bandwidth_gbps` = nan"),
    "negative latency": (text(links={"latency_ns": "-0.1"}), "`links.latency_ns` = -0.1"),
    "infinite latency": (text(links={"latency_ns": "inf"}), "`links.latency_ns` = inf"),
    "latency is nan": (text(links={"latency_ns": "nan"}), "`links.latency_ns` = nan"),
    "no latency": (text(links={"latency_ns": ""}), "`links.latency_ns` is missing"),
    "unknown key of links": (text(links={"latency_us": "1"}), "`links.latency_us`"),
    "unknown key": (text(more="topology = 2"), "`topology`"),
    "empty boards": (
        'name = "c"\nboards = []\n[links]\nbandwidth_gbps = 1\nlatency_ns = 1\n',
        "`boards`",
    ),
    "no boards": (
        'name = "c"\n[links]\nbandwidth_gbps = 1\nlatency_ns = 1\n',
        "`boards` is missing",
    ),
    "one table for boards": (
        'name = "c"\n[boards]\ndsp = 1\n[links]\nbandwidth_gbps = 1\nlatency_ns = 1\n',
        "`boards",
    ),
    "no links": (
        'name = "c"\n[[boards]]\nname="b"\nclock_mhz=1\ndsp=1\non_chip_memory_kbit=1\n',
        "`links` is missing",
    ),
    "not TOML": ("[[boards]\n", "not a TOML file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_descriptions(tmp_path: Path, one_line: Callable[..., str], case: str) -> None:
    content, message = BAD[case]
    path = tmp_path / "bad.toml"
    path.write_text(content)
    with pytest.raises(InputError) as error:
        load_cluster(str(path))
    line = one_line(error)
    assert line.startswith(f"{path}: ")
    assert message in line


def test_a_missing_file_and_a_misspelt_name(tmp_path: Path, one_line: Callable[..., str]) -> None:
    with pytest.raises(InputError, match="none.toml: cannot be read") as error:
        load_cluster(str(tmp_path / "none.toml"))
    assert "none.toml" in one_line(error)
    with pytest.raises(InputError, match="`cluster` = 'vc708': did you mean `vc709`?") as error:
        load_cluster("vc708")
    assert "vc709-10g" in one_line(error)


@pytest.mark.parametrize(
    ("board", "links"), [({"clock_mhz": '"200"'}, {}), ({}, {"latency_ns": "true"})]
)
def test_words_and_bools_are_no_numbers(
    tmp_path: Path, board: dict[str, str], links: dict[str, str]
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text(board, links))
    with pytest.raises(InputError):
        load_cluster(str(path))


@pytest.mark.parametrize(
    ("board", "links"),
    [
        ({"clock_mhz": "1e-310"}, {}),
        ({}, {"latency_ns": "1e306"}),
        ({}, {"bandwidth_gbps": "1e306"}),
        ({"clock_mhz": "1e-30"}, {}),
        ({}, {"latency_ns": "1e30"}),
    ],
)
def test_values_beyond_all_reason(
    tmp_path: Path, board: dict[str, str], links: dict[str, str]
) -> None:
    """Times are 64-bit picoseconds, so what would go beyond is refused."""
    path = tmp_path / "bad.toml"
    path.write_text(text(board, links))
    with pytest.raises(InputError):
        load_cluster(str(path))


NUMBERS = st.one_of(
    st.integers(-2, 400), st.floats(), st.booleans(), st.text(max_size=3), st.none()
)
GOOD_NUMBERS = st.one_of(st.integers(1, 400), st.integers(1, 400), st.integers(1, 400), NUMBERS)
KEYS = st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=4).filter(
    lambda key: key != "int"
)
BOARDS = st.fixed_dictionaries(
    {
        "name": st.text(max_size=3),
        "clock_mhz": GOOD_NUMBERS,
        "dsp": GOOD_NUMBERS,
        "on_chip_memory_kbit": GOOD_NUMBERS,
    },
    optional={"count": GOOD_NUMBERS},
)
CLUSTERS = st.fixed_dictionaries(
    {
        "name": st.text(max_size=3),
        "boards": st.one_of(
            st.lists(BOARDS, max_size=3), st.lists(BOARDS, min_size=1, max_size=2), NUMBERS
        ),
        "links": st.fixed_dictionaries(
            {"bandwidth_gbps": GOOD_NUMBERS}, optional={"latency_ns": GOOD_NUMBERS, "unit": NUMBERS}
        ),
    }
)


@given(CLUSTERS, st.dictionaries(KEYS, NUMBERS, max_size=1))
def test_a_description_or_one_line(table: dict[str, Any], more: dict[str, Any]) -> None:
    try:
        said = validate(ClusterDescription, {**table, **more}, "some.toml")
    except InputError as error:
        assert len(str(error).splitlines()) == 1
        assert str(error).startswith("some.toml: ")
        return
    assert said.boards
    assert all(board.dsp > 0 and board.clock_mhz > 0 and board.count > 0 for board in said.boards)
    assert said.links.bandwidth_gbps > 0
    assert said.links.latency_ns >= 0


def test_gradients_go_over_the_links_unless_there_is_a_network(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text())
    links = load_cluster(str(path)).interconnect
    # 64 bytes are summed in 5 ns; an engine of 256 bits for each 10 Gb/s.
    engines = NicEngines(5000, 15 * 256)
    assert links == Interconnect(
        150_000, 1_000_000, sum_ps_per_kbyte=78_125, engines=engines, topology=Chain()
    )
    asked = load_cluster(str(path), {"network.latency_us": 1})
    assert asked.own_interconnect == links, "what is not said is as the links have it"
    assert (
        load_cluster(str(path), {"link.bandwidth_gbps": 10}).interconnect.bandwidth_mbps == 10_000
    )


def test_a_network_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    keys = (
        'topology = "switch"\nlatency_us = 2.5\npacket_overhead_bytes = 90\npacket_stack_ns ='
        " 0.5\nblocking = true"
    )
    path.write_text(
        text()
        + f"[network]\n{keys}\nsum_gbytes_per_s = 10\nnic_clock_mhz = 200\nburst_bits = 512\n"
    )
    assert load_cluster(str(path)).interconnect == Interconnect(
        bandwidth_mbps=150_000,
        latency_ps=2_500_000,
        packet_overhead_bytes=90,
        packet_stack_ps=500,
        blocking=True,
        sum_ps_per_kbyte=100_000,
        engines=NicEngines(5000, 512),
        topology=Switch(),
    )
    changed = load_cluster(
        str(path), {"network.bandwidth_gbps": 1, "network.topology": "chain"}
    ).interconnect
    assert (changed.bandwidth_mbps, changed.topology, changed.latency_ps) == (
        1000,
        Chain(),
        2_500_000,
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('topology = "star"', "`network.topology` = 'star'"),
        ('topology = "ring"\nshape = [2, 2]', "`network.shape` = [2, 2]"),
        (
            'topology = "torus"\nshape = [2]',
            "`network.shape` = [2]: should be rows and columns, such as [4, 6], or 4x6 as",
        ),
        ("packet_bytes = 0", "`network.packet_bytes` = 0"),
        ("packet_overhead_bytes = -1", "`network.packet_overhead_bytes` = -1"),
        ("bandwidth_gbps = 0", "`network.bandwidth_gbps` = 0"),
        ("latency_us = nan", "`network.latency_us` = nan"),
        ("burst_bits = 100", "`network.burst_bits` = 100"),
        ("blocking = 1", "`network.blocking` = 1"),
        ("sum_gbytes_per_s = 0", "`network.sum_gbytes_per_s` = 0"),
        ("latency_ns = 1", "`network.latency_ns`"),
    ],
)
def test_bad_networks(
    tmp_path: Path, one_line: Callable[..., str], line: str, message: str
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text() + f"[network]\n{line}\n")
    with pytest.raises(InputError) as error:
        load_cluster(str(path))
    assert message in one_line(error)


def test_a_node_of_the_gpu_cluster() -> None:
    ethernet = load_cluster("titan-xp-10gbe").interconnect
    assert ethernet.transfer_ps(1448) == 1_230_400  # 1,538 bytes at 10 Gb/s
    assert ethernet.transfer_ps(1448, 100) == 567_000
    assert ethernet.sum_ps(1000) == 120_048


def test_what_if_the_network_were_another() -> None:
    asked = parse_what_if(["network.latency_us=5", "network.blocking=false"]).cluster
    ethernet = load_cluster("titan-xp-10gbe", asked).interconnect
    assert (ethernet.latency_ps, ethernet.blocking, ethernet.topology) == (
        5_000_000,
        False,
        Switch(),
    )
    with pytest.raises(InputError, match="unknown key `network.latency_ns`"):
        parse_what_if(["network.latency_ns=5"])
    with pytest.raises(InputError, match="changes: `network.blocking` = 'maybe'"):
        load_cluster("vc709", parse_what_if(["network.blocking=maybe"]).cluster)


@pytest.mark.parametrize("mbps", [1, 7, 10_000, 100_000])
def test_a_link_carries_in_a_time_what_takes_no_longer(mbps: int) -> None:
    link = Link(mbps, latency_ps=5)
    _check_carried(link)


@pytest.mark.parametrize(("header", "packet"), [(66, 1448), (1, 1), (0, 100), (9000, 64)])
@pytest.mark.parametrize("mbps", [7, 10_000])
def test_headers_take_their_part_of_a_time(mbps: int, header: int, packet: int) -> None:
    _check_carried(Link(mbps, latency_ps=5, header_bytes=header, packet_bytes=packet))


@pytest.mark.parametrize("points", [((1, 5),), ((64, 2_000_000), (65, 9_000_000))], ids=str)
@pytest.mark.parametrize("mbps", [7, 10_000])
def test_costs_take_their_part_of_a_time(mbps: int, points: tuple[tuple[int, int], ...]) -> None:
    _check_carried(Link(mbps, 5, header_bytes=66, packet_bytes=64, cost=MessageCost(points)))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (-1, "message_ns"),
        ([[64, 5], [64, 6]], "each size once, the smallest first"),
        ([[64, 5], [32, 6]], "each size once, the smallest first"),
        ([[0, 5]], "message_ns"),
        ([[64]], "message_ns"),
        ("fast", "message_ns"),
    ],
    ids=str,
)
def test_costs_that_are_none_are_refused(value: object, problem: str) -> None:
    links = {"bandwidth_gbps": 1, "latency_ns": 0, "message_ns": value}
    with pytest.raises(InputError, match=problem):
        load_cluster({"name": "a", "boards": [{"type": "vc709"}], "links": links})


def _check_carried(link: Link) -> None:
    for time_ps in (8_000_000, 12_345_678, 10**12):
        carried = link.carried_bytes(time_ps)
        assert link.transfer_ps(carried) <= time_ps < link.transfer_ps(carried + 1)


def test_a_message_has_a_header_for_each_packet() -> None:
    link = Link(8000, 0, header_bytes=66, packet_bytes=1448)  # 1 ns a byte
    assert [link.wire_bytes(size) for size in (0, 1, 1448, 1449, 2896)] == [0, 67, 1514, 1581, 3028]
    assert [link.transfer_ps(size) for size in (1, 1448, 1449)] == [67_000, 1_514_000, 1_581_000]


def test_replicas_have_the_headers_of_the_slowest_link(tmp_path: Path) -> None:
    """Unless a table `[network]` says otherwise."""
    path = tmp_path / "two.toml"
    tables = "".join(
        f"[[links]]\nbandwidth_gbps = {gbps}\nlatency_ns = 0\nheader_bytes = {header}\npacket_bytes"
        " = 100\n"
        for gbps, header in ((2, 40), (1, 20))
    )
    board = '[[boards]]\nname = "b"\nclock_mhz = 100\ndsp = 9\non_chip_memory_kbit = 100\n'
    path.write_text(f'name = "two"\n{board}{tables}')
    over = load_cluster(str(path)).interconnect
    assert over.transfer_ps(250) == 8000 * (250 + 3 * 20)
    path.write_text(f'name = "two"\n{board}{tables}[network]\npacket_overhead_bytes = 1\n')
    assert load_cluster(str(path)).interconnect.transfer_ps(250) == 8000 * (250 + 1)
