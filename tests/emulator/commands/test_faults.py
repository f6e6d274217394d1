"""`--faults`: what faults cost stands first, JSON, the same on any number of ranks, and bad files
in one line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import emuchain
from emuchain.emulator.commands.command_line import simulate

FAULTS = """
[[faults.boards]]
board = 1
factor = 3
from_sample = 8
to_sample = 24
[[faults.links]]
link = 0
loss = 0.02
"""
FLIPS = """
[[faults.flips]]
of = "weights"
rate = 1e-5
highest_bit = 22
[[faults.flips]]
of = "messages"
rate = 1e-6
highest_bit = 22
"""
DEATH = """
[[faults.deaths]]
board = 2
at_us = 9000
detect_us = 30
reload_us = 70
"""
KEYS = ["quick-cifar", "--devices", "4", "--samples", "64", "--batch", "32", "--schedule", "sync"]


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file with all kinds of faults."""
    path = tmp_path / "faults.toml"
    path.write_text(FAULTS + FLIPS)
    return str(path)


def printed(*arguments: str) -> str:
    """What the command prints when it succeeds."""
    result = CliRunner().invoke(simulate, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_their_cost_comes_first(file: str) -> None:
    lines = printed(*KEYS, "--faults", file).splitlines()
    assert (
        lines[0].startswith("faults cost ") and " without; most: board 1 3 times slower" in lines[0]
    )
    shown = [
        line.split()
        for line in lines
        if line.startswith(("board 1 3", "link 0 loses", "all together"))
    ]
    assert len(shown) == 3


def test_json_has_what_each_costs(file: str) -> None:
    said = json.loads(printed(*KEYS, "--faults", file, "--json"))
    keys: dict[str, Any] = {"devices": 4, "samples": 64, "batch": 32, "schedule": "sync"}
    without = emuchain.simulate("quick-cifar", **keys).virtual_time_ps
    assert said["faults"]["without_ps"] == without
    assert said["faults"]["cost_ps"] == said["virtual_time_ps"] - without > 0
    assert [each["fault"] for each in said["faults"]["each"]] == [
        "board 1 3 times slower, samples 8 to 23",
        "link 0 loses 2 % of packets, the whole run",
    ]
    assert "faults" not in json.loads(printed(*KEYS, "--json"))


def test_what_a_death_took_comes_next(file: str) -> None:
    Path(file).write_text(DEATH)
    said = printed(*KEYS, "--faults", file, "--checkpoint-every", "1")
    first, second, *_ = said.replace("\n  ", " ").splitlines()
    assert first.startswith("faults cost ")
    assert first.endswith(" without: board 2 dies at 9.00 ms")
    assert second.startswith("board 2 dies at 9.00 ms, in mini-batch 2 of epoch 1: ")
    assert second.endswith(
        " of work lost, 30.0 us to detect it, 70.0 us to reload; 3 boards continue"
    )
    [death] = json.loads(printed(*KEYS, "--faults", file, "--checkpoint-every", "1", "--json"))[
        "faults"
    ]["deaths"]
    assert death.pop("lost_ps") > 0
    assert death == {
        "board": 2,
        "at_ps": 9_000_000_000,
        "epoch": 1,
        "mini_batches_done": 1,
        "detect_ps": 30_000_000,
        "reload_ps": 70_000_000,
        "devices_left": 3,
    }
    late = printed(*KEYS, "--faults", file, "--samples", "32")
    assert "board 2 dies at 9.00 ms: after the end of the run, so nothing is lost" in late.replace(
        "\n  ", " "
    )


def test_any_number_of_ranks_gives_the_same(mpiexec: Any, file: str, tmp_path: Path) -> None:
    """Bits and times of one process, and both costs first in the answer; a board dies, too."""
    with Path(file).open("a") as more:
        more.write(DEATH)
    keys = [
        "train",
        *KEYS,
        "--faults",
        file,
        "--test-samples",
        "64",
        "--progress",
        "none",
        "--checkpoint-every",
        "1",
    ]
    message = []
    for ranks in (1, 2):
        out = tmp_path / f"{ranks}.h5"
        message.append(mpiexec(ranks, ["-m", "emuchain", *keys, "--out", out]).stdout)
    one, two = (emuchain.results(str(tmp_path / f"{ranks}.h5")) for ranks in (1, 2))
    assert one.virtual_time_ps == two.virtual_time_ps
    for layer, arrays in one.weights.items():
        for name, array in arrays.items():
            assert array.tobytes() == two.weights[layer][name].tobytes(), f"{layer}/{name}"
    for said in message:
        answer = said[said.rindex("\nfaults cost ") :].replace("\n  ", " ").split("\n")
        assert answer[2].startswith("board 2 dies at 9.00 ms, in ")
        assert answer[3].startswith("flips change test accuracy by ")


def test_a_bad_file_ends_with_one_line_and_status_2(
    mpiexec: Any, one_line: Any, tmp_path: Path
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[[faults.boards]]\nboard = 9\nfactor = 2\n")
    ended = mpiexec(1, ["-m", "emuchain", "simulate", *KEYS, "--faults", path], status=2)
    said = (
        f"emuchain: error: {path}: `faults.boards[0].board` = 9: there is no such board; this run"
        " has boards 0 to 3"
    )
    assert one_line(ended.stderr) == said
