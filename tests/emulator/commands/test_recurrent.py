"""Every command on recurrent networks: an answer, or one line that says what would be right."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import emuchain
from emuchain.emulator.commands.cli import main

from .running import with_network

BIDIRECTIONAL = """
name = "both"
input = [3, 32, 32]
layers = [
  { type = "sequence" },
  { type = "lstm", units = 20, bidirectional = true },
  { type = "gru", units = 12, bidirectional = true },
  { type = "lstm", units = 20, projection = 7 },
  { type = "last-step" },
  { type = "fc", features = 10 },
  { type = "softmax" },
]
"""
NETWORKS = ["lstm-rows", "gru-rows", "char-lstm", "both.toml"]
EPOCH = ("--samples", "20", "--batch", "8")
ANSWERED = [
    ("network",),
    ("plan", "--devices", "1"),
    ("plan", "--devices", "2"),
    ("plan", "--devices", "4", "--schedule", "sync"),
    ("plan", "--devices", "2", "--json"),
    ("simulate", "--devices", "2", *EPOCH),
    ("simulate", "--devices", "5", "--schedule", "sync", *EPOCH),
    ("simulate", "--devices", "2", "--schedule", "pipedream", *EPOCH),
    ("simulate", "--devices", "2", "--schedule", "1f1b-as", "--engines", "turns", *EPOCH),
    ("simulate", "--devices", "2", "--replicas", "2", *EPOCH),
    ("simulate", "--devices", "2", *EPOCH, "--json"),
    ("simulate", "--devices", "2", *EPOCH, "--trace", "t.json", "--trace-level", "row"),
    ("timeline", "--devices", "2"),
    ("timeline", "--devices", "4", "--schedule", "gpipe", "--batch", "4", "--all-lanes"),
    ("sweep", "--devices", "1-2"),
    ("sweep", "--devices", "3", "--schedule", "sync,gpipe"),
    ("explore", "--cluster", "vc709", "--devices", "1"),
    ("explore", "--cluster", "vc709", "--devices", "2"),
    ("explore", "--cluster", "vc709", "--devices", "2", "--whole-layers", "--json"),
    ("study", "compare", "--devices", "2-4"),
    ("study", "topology", "--devices", "2-4"),
]
REFUSED = [
    (("simulate", "--devices", "5", "--schedule", "fpdeep", *EPOCH), "`schedule` = 'fpdeep'"),
    (("explore", "--cluster", "vc709", "--devices", "5"), "`devices` = 5"),
    (("plan", "--devices", "100000", "--schedule", "sync"), "`devices` = 100000"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a network whose layers are not cut."""
    (tmp_path / "both.toml").write_text(BIDIRECTIONAL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code if isinstance(ended.value.code, int) else 0


@pytest.mark.parametrize("words", ANSWERED, ids=" ".join)
@pytest.mark.parametrize("network", NETWORKS)
def test_an_answer(
    network: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = command(*with_network(words, network)), capsys.readouterr()
    assert (status, said.err) == (0, "")
    if "--json" in words:
        assert json.loads(said.out)
    elif words[0] not in ("timeline", "sweep"):
        assert Path(network).stem in said.out.split("\n\n")[0]
    for number in re.findall(r"-?\b(?:nan|inf)\b", said.out):
        pytest.fail(f"{number} in {said.out}")


@pytest.mark.parametrize(("words", "blamed"), REFUSED)
@pytest.mark.parametrize("network", NETWORKS)
def test_one_line(
    network: str, words: tuple[str, ...], blamed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *flags = words
    status, said = command(name, network, *flags), capsys.readouterr().err
    assert status == 2 and said.count("\n") == 1
    assert said.startswith(f"emuchain: error: {blamed}")


def test_no_way_uses_more_than_all_multipliers(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("study", "compare", "lstm-rows", "--devices", "2-4", "--json") == 0
    methods = json.loads(capsys.readouterr().out)["methods"]
    shares = [
        outcome["flop_utilisation"] for method in methods.values() for outcome in method["outcomes"]
    ]
    assert len(shares) > 4 and all(0 < share <= 1 for share in shares)


def test_networks_are_those_that_train(capsys: pytest.CaptureFixture[str]) -> None:
    """A network that takes any images has the built-in ones wherever it is planned."""
    network = emuchain.plan("lstm-rows").network
    assert network.input == (3, 32, 32)
    assert command("study", "exchange", "lstm-rows", "--workers", "4", "--json") == 0
    assert json.loads(capsys.readouterr().out)["gradient_bytes"] == 4 * network.parameters
    small, large = 4 * 128 * (28 + 128 + 2) + 1290, 4 * 128 * (96 + 128 + 2) + 1290
    assert network.parameters == large > small == emuchain.load_network("lstm-rows").parameters


def test_two_devices_are_no_slower_than_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a cut by units would be, under a schedule that allows it, layers stay whole."""
    rates = []
    for devices in ("1", "2"):
        assert (
            command(
                "simulate",
                "lstm-rows",
                "--devices",
                devices,
                "--schedule",
                "sync",
                *EPOCH,
                "--json",
            )
            == 0
        )
        rates.append(json.loads(capsys.readouterr().out)["images_per_s"])
    assert rates[1] >= rates[0]


@pytest.mark.parametrize("network", ["char-lstm", "both.toml"])
def test_a_run_and_what_is_made_of_it(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [
        "--devices",
        "2",
        "--samples",
        "16",
        "--test-samples",
        "4",
        "--batch",
        "8",
        "--out",
        "run.h5",
    ]
    assert command("train", network, *flags) == 0
    for words in (
        ("show", "run.h5"),
        ("retime", "run.h5", "--cluster", "vc709"),
        ("report", "run.h5", "-o", "r.html"),
    ):
        capsys.readouterr()
        status, said = command(*words), capsys.readouterr()
        assert (status, said.err) == (0, ""), words
    assert Path("r.html").stat().st_size > 1000
