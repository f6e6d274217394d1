"""`emuchain study exchange`: a table, JSON with the closed forms' times, and bad input as one
line.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.commands.design.exchange import exchange
from emuchain.emulator.common import InputError
from emuchain.emulator.studies import ExchangeTimes, groups_of

TIMES = tuple(
    field.name for field in dataclasses.fields(ExchangeTimes) if field.name.endswith("_ps")
)

ETHERNET = """
name = "plain"
[[boards]]
type = "vc709"
[links]
bandwidth_gbps = 10
latency_ns = 7000
[network]
topology = "switch"
sum_gbytes_per_s = 8
nic_clock_mhz = 100
burst_bits = 256
"""


def printed(*arguments: str) -> str:
    """What the command prints when it succeeds."""
    result = CliRunner().invoke(exchange, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def plain(tmp_path: Path) -> str:
    """A cluster whose packets have no overhead."""
    path = tmp_path / "plain.toml"
    path.write_text(ETHERNET)
    return str(path)


def test_json_has_the_closed_forms(plain: str) -> None:
    said = json.loads(
        printed(
            "lenet-mnist", "--workers", "2,6", "--cluster", plain, "--compress-ratio", "4", "--json"
        )
    )
    n = said["gradient_bytes"]
    assert n == 4 * 61_706
    assert [(row["workers"], row["ratio"]) for row in said["exchanges"]] == [
        (2, None),
        (2, 4.0),
        (6, None),
        (6, 4.0),
    ]
    for row in said["exchanges"]:
        p, shrunk = row["workers"], row["ratio"] or 1
        rounds = math.ceil(math.log2(p + 1))
        alpha, beta, gamma = 7_000_000, 800, 125
        ring = 2 * (p - 1) * alpha + 2 * (p - 1) / p * n * beta / shrunk + (p - 1) / p * n * gamma
        aggregator = (1 + rounds) * alpha + (p / shrunk + rounds) * n * beta + (p - 1) * n * gamma
        # Engines take 10 ns for a burst of 32 bytes, 312.5 ps a byte; with a ratio of 4 the wire
        # takes 200.
        slower = (312.5 / 200 - 1) * beta / shrunk if row["ratio"] else 0
        assert row["ring_ps"] == pytest.approx(ring + 2 * (p - 1) / p * n * slower, rel=1e-3)
        assert row["aggregator_ps"] == pytest.approx(aggregator + p * n * slower, rel=1e-3)


def test_compression_helps_on_slow_links_and_helps_the_ring_more() -> None:
    plain, compressed = json.loads(printed("resnet50", "--workers", "4", "--json"))["exchanges"]
    gains = {name: plain[name] / compressed[name] for name in TIMES}
    assert min(gains.values()) > 1
    assert gains["ring_ps"] > gains["aggregator_ps"]
    assert gains["rings_of_rings_ps"] > gains["rings_under_aggregator_ps"]


def test_a_rings_time_stays_flat_where_an_aggregators_grows() -> None:
    rows = json.loads(printed("vgg16", "--workers", "4,8,1024", "--json"))["exchanges"][::2]
    assert rows[1]["ring_ps"] / rows[0]["ring_ps"] < 1.2
    assert rows[2]["ring_ps"] / rows[0]["ring_ps"] < 2
    assert rows[2]["aggregator_ps"] / rows[0]["aggregator_ps"] > 100


def test_ranges_of_workers() -> None:
    rows = json.loads(printed("hdc", "--workers", "4-12:4,6", "--json"))["exchanges"]
    assert [row["workers"] for row in rows[::2]] == [4, 6, 8, 12]


def test_the_table() -> None:
    text = printed("hdc", "--workers", "12")
    assert "hdc, 4.6 MB of gradients, on titan-xp-10gbe" in text
    assert "3x4" in text


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("quick-cifar --cluster u280", "simulate quick-cifar"),
        ("vgg16", "study exchange vgg16"),  # whose engines have too few multipliers on a board
        ("quick-cifar --cluster p100", "study exchange quick-cifar"),  # of GPUs
    ],
)
def test_what_to_try_next_works(monkeypatch: pytest.MonkeyPatch, words: str, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    lines = printed(*words.split(), "--workers", "4").splitlines()
    [line] = [line for line in lines if line.startswith("next:")]
    tried = line.removeprefix("next:").split()
    assert tried[0] == "emuchain"
    assert " ".join(tried[1:]).startswith(command)
    result = CliRunner().invoke(commands, tried[1:])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(("workers", "groups"), [(1, 1), (7, 1), (12, 3), (16, 4), (1024, 32)])
def test_groups(workers: int, groups: int) -> None:
    assert groups_of(workers) == groups


@pytest.mark.parametrize("workers", ["0", "1025", "8-4", "", "4,", "x"])
def test_bad_workers(workers: str) -> None:
    result = CliRunner().invoke(exchange, ["hdc", "--workers", workers])
    assert result.exit_code == 2
    assert "workers" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hdc", "--compress-ratio", "0.5"], "`--compress-ratio` = 0.5: must be from 1 to 16"),
        (["hdc", "--compress-ratio", "nan"], "`--compress-ratio` = nan"),
        (["hcd"], "did you mean `hdc`?"),
        (["hdc", "--cluster", "titan"], "known: "),
    ],
)
def test_bad_input(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str], arguments: list[str], message: str
) -> None:
    with pytest.raises(InputError) as error:
        exchange.main(arguments, standalone_mode=False)
    assert message in one_line(error)


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.png"
    assert "3x4" in printed("hdc", "--workers", "2,12", "--plot", str(path))
    assert path.read_bytes().startswith(b"\x89PNG")
    error = (
        CliRunner()
        .invoke(exchange, ["hdc", "--workers", "2", "--plot", str(tmp_path / "no" / "x.png")])
        .exception
    )
    assert isinstance(error, InputError)
    assert "`--plot`" in str(error)


@pytest.mark.parametrize(
    ("words", "idle"),
    [
        ("--cluster titan-xp-10gbe --set links.topology=torus", ["links.topology: has no effect"]),
        (
            "--cluster titan-xp-10gbe --set links.topology=torus --set network.latency_us=9",
            ["links.topology: has no"],
        ),
        ("--cluster vc709 --set links.bandwidth_gbps=20", []),
        ("", []),
    ],
)
def test_keys_without_effect_are_reported(words: str, idle: list[str]) -> None:
    result = CliRunner().invoke(exchange, ["quick-cifar", "--workers", "1,4", *words.split()])
    assert result.exit_code == 0
    notes = [line for line in result.stderr.splitlines() if "has no effect" in line]
    assert len(notes) == len(idle) and all(
        part in note for part, note in zip(idle, notes, strict=True)
    )
    assert "\n1 worker:" in result.stdout or "\n4 workers" in result.stdout
