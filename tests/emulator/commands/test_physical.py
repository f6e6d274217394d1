"""Every command that answers for a cluster says once which of its constants no hardware has."""

from __future__ import annotations

from pathlib import Path

import pytest

from .running import status_of

TRAINED = "--data shapes --samples 16 --test-samples 8 --batch 8"
COMMANDS = {
    "plan": "plan quick-cifar --devices 2",
    "plan in JSON": "plan quick-cifar --devices 2 --json",
    "plan of several": "plan quick-cifar --devices 1-3",
    "simulate": "simulate quick-cifar --devices 2 --samples 64",
    "sweep": "sweep quick-cifar --devices 1-3",
    "explore": "explore quick-cifar --devices 2 --batch 8",
    "timeline": "timeline quick-cifar --devices 2",
    "compare": "study compare quick-cifar --devices 2",
    "topology": "study topology quick-cifar --devices 2-3",
    "exchange": "study exchange quick-cifar --workers 2",
    "train": f"train quick-cifar --devices 2 {TRAINED}",
    "rtl": "rtl quick-cifar --out rtl",
    "cluster": "cluster",
}


@pytest.fixture
def absurd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A cluster of a fast clock and a link that is fast, and far away."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "absurd.toml").write_text(
        'name = "absurd"\n[[boards]]\ntype = "vc709"\nclock_mhz = 300_000\n'
        "[links]\nbandwidth_gbps = 100_000\nlatency_ns = 6e8\n"
    )
    return "absurd.toml"


def notes(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    return [line.partition(": what exists is")[0] for line in lines if ": what exists is " in line]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_constant_is_noted_once(
    capsys: pytest.CaptureFixture[str], absurd: str, name: str
) -> None:
    words = COMMANDS[name].split()
    given = [absurd] if name == "cluster" else ["--cluster", absurd]
    assert status_of(*words, *given) in (0, 2)  # in so fast a clock's picosecond, RTL has no cycle
    assert notes(capsys) == [
        "emuchain: note: absurd.toml: `board.clock_mhz` = 300,000 MHz",
        "emuchain: note: absurd.toml: `link.bandwidth_gbps` = 100,000 Gb/s",
        "emuchain: note: absurd.toml: `link.latency_ns` = 600,000,000 ns",
    ]


def test_of_many_values_of_a_constant_the_first_is_noted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        status_of(
            "sweep", "quick-cifar", "--devices", "2", "--link.bandwidth_gbps", "20000-100000:20000"
        )
        == 0
    )
    [note] = notes(capsys)
    assert "`link.bandwidth_gbps` = 20,000 Gb/s" in note


def test_changes_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    words = "simulate quick-cifar --devices 2 --samples 64"
    assert (
        status_of(
            *words.split(), "--set", "board.clock_mhz=0.3", "--what-if", "link.latency_ns=6e8"
        )
        == 0
    )
    assert [note.partition("note: ")[2] for note in notes(capsys)] == [
        "--set: `board.clock_mhz` = 0.3 MHz",
        "--what-if: `link.latency_ns` = 600,000,000 ns",
    ]


def test_retiming_notes_other_links(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = str(tmp_path / "run.h5")
    assert status_of("train", "quick-cifar", *TRAINED.split(), "--devices", "2", "--out", run) == 0
    assert notes(capsys) == []
    assert status_of("retime", run, "--what-if", "link.bandwidth_gbps=1e5") == 0
    assert notes(capsys) == ["emuchain: note: --what-if: `link.bandwidth_gbps` = 100,000 Gb/s"]
