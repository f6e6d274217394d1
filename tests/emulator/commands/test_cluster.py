"""`emuchain cluster`: lists of clusters and boards, and their constants with ranges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomllib
from click.testing import CliRunner

import emuchain
from emuchain.emulator.cluster import Fpga, board_types, clusters, peaks
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.common import InputError


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(commands, ["cluster", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_lists_all() -> None:
    shown = printed()
    assert (
        f"{len(clusters())} clusters and {len(board_types())} boards come with emuchain"
        in shown.splitlines()[0]
    )
    assert all(name in shown for name in (*clusters(), *board_types()))


@pytest.mark.parametrize("name", clusters())
def test_shows_each_cluster_with_the_ranges_that_answers_have(name: str) -> None:
    shown, loaded = json.loads(printed(name, "--json")), emuchain.load_cluster(name)
    assert shown["cluster"] == loaded.name
    assert [board["name"] for board in shown["boards"]] == [board.name for board in loaded.boards]
    for board, entry in zip(loaded.boards, shown["boards"], strict=True):
        known_peaks = peaks(board) if isinstance(board, Fpga) else ()
        assert [*entry["peak"]] == [peak.kind for peak in known_peaks]
        assert all(entry["peak"][peak.kind]["gflops"] == peak.gflops for peak in known_peaks)
    by_key = {constant["key"]: constant for constant in shown["constants"]}
    link = by_key["link.bandwidth_gbps"]
    known = loaded.range_of("link.bandwidth_gbps")
    assert (link["value"], link["class"]) == (loaded.link.bandwidth_gbps, known.kind)
    assert (link["low"], link["high"]) == (known.low * link["value"], known.high * link["value"])
    text = printed(name)
    [line] = (line for line in text.splitlines() if line.startswith("next: "))
    tried = CliRunner().invoke(commands, line.removeprefix("next: emuchain ").split())
    assert tried.exit_code == 0 and tried.exception is None, tried.exception
    assert text.startswith(f"{name}: ") and all(board.name in text for board in loaded.boards)


@pytest.mark.parametrize("kind", board_types())
def test_shows_each_board(kind: str) -> None:
    text = printed(kind)
    assert text.startswith(f"{kind}: ") and "Constants of" in text
    assert tomllib.loads(printed(kind, "--toml"))
    assert json.loads(printed(kind, "--json"))["constants"]


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'name = "own"\n[[boards]]\ntype = "kc705"\nclock_mhz = 150\n[[boards]]\ntype = "vc709"\n'
        "[[links]]\nbandwidth_gbps = 10\nlatency_ns = 500\n"
        '[uncertainty]\n"link.latency_ns" = { class = "data sheet" }\n',
        "utf-8",
    )
    shown = json.loads(printed(str(own), "--json"))
    clocks = [constant for constant in shown["constants"] if constant["key"] == "board.clock_mhz"]
    assert [(clock["value"], clock["class"]) for clock in clocks] == [
        (150, "assumed"),
        (100, "measured"),
    ]
    assert printed(str(own), "--toml") == own.read_text("utf-8")


def test_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`cluster` = 'nobody': known: "):
        printed("nobody")
    assert "--toml, --json, --precision and --set need the NAME of a cluster" in printed("--json")


def test_a_board_has_its_peak_where_a_cluster_has_it() -> None:
    [board] = json.loads(printed("d5005", "--json"))["boards"]
    assert board["name"] == "D5005"
    assert board["peak"]["fp32"]["low"] < 241.759 < board["peak"]["fp32"]["high"]


def test_says_how_many_times_as_much_formats_make() -> None:
    formats = "bf16,mxint8 accumulate=dot:32"
    shown = " ".join(printed("u55c", "--precision", formats).split())
    [first, second] = json.loads(printed("u55c", "--precision", formats, "--json"))["engines"]
    assert (first["precision"], first["times"]) == ("bf16", None)
    assert second["times"] == second["products_per_cycle"] / first["products_per_cycle"]
    ends = f"({second['low']:.3g} to {second['high']:.3g} in nine of ten designs)"
    assert f"{second['times']:.3g} times bf16's {ends}" in shown
    assert second["low"] < second["times"] < second["high"]
    assert "times bf16's" in " ".join(printed("vcu118", "--precision", "bf16,int8").split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("u55c", "--precision", "bf17"), "--precision bf17: "),
        (("p100", "--precision", "bf16"), "has no FPGA; leave it out"),
        (("--precision", "bf16"), "need the NAME of a cluster"),
    ],
)
def test_what_precision_refuses(arguments: tuple[str, ...], said: str) -> None:
    try:
        shown = printed(*arguments)
    except InputError as error:
        shown = str(error)
    assert said in shown and "Traceback" not in shown
