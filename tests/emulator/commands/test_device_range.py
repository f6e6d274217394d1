"""`simulate` and `plan` with several numbers of `--devices`: the same as `sweep`; other commands
refuse them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.commands.frame.session import Session
from emuchain.emulator.common import InputError

from ..counted import COUNTED_WORDS


def printed(*arguments: str | Path) -> str:
    """What a command prints when it succeeds."""
    result = CliRunner().invoke(commands, [*map(str, arguments)], obj=Session())
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.mark.parametrize("command", ["simulate", "plan"])
@pytest.mark.parametrize("devices", ["1-3", "1,3", "2-6:2"])
def test_as_sweep(command: str, devices: str) -> None:
    words = ("quick-cifar", "--devices", devices)
    swept = printed("sweep", *words)
    assert printed(command, *words) == swept
    assert swept.startswith("best: ")


@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_flags_are_those_of_all_points(command: str) -> None:
    given = ("quick-cifar", "--devices", "1-3", "--batch", "16", *COUNTED_WORDS, "--json")
    words = (*given, "--cluster", "vc709-10g")
    said, swept = json.loads(printed(command, *words)), json.loads(printed("sweep", *words))
    assert [row["images_per_s"] for row in said["rows"]] == [
        row["images_per_s"] for row in swept["rows"]
    ]
    other = json.loads(printed(command, *given, "--cluster", "vc709"))
    assert other["rows"][2]["images_per_s"] != said["rows"][2]["images_per_s"]


def test_keys_of_a_file_are_those_of_all_points(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'network = "lenet-mnist"\nschedule = "sync"\nbatch = 20\nreplicas = 2\ncompress ='
        ' "truncate:16"\ndevices = 7\n'
    )
    found = json.loads(printed("simulate", tmp_path / "run.toml", "--devices", "1,2", "--json"))
    words = ("--schedule", "sync", "--batch", "20", "--replicas", "2", "--compress", "truncate:16")
    swept = json.loads(printed("sweep", "lenet-mnist", "--devices", "1,2", *words, "--json"))
    assert [row["boards"] for row in found["rows"]] == [2, 4]
    assert [row["images_per_s"] for row in found["rows"]] == [
        row["images_per_s"] for row in swept["rows"]
    ]


def test_a_picture_and_all_rows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = ("quick-cifar", "--devices", "1-26", "--plot", tmp_path / "x.svg", "--full")
    text = printed("simulate", *words)
    assert "`--full` prints all" not in text
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("devices", ["3", "3-3", "3,3"])
@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_one_number_is_no_sweep(command: str, devices: str) -> None:
    words = (
        "quick-cifar",
        "--devices",
        devices,
        *(("--samples", "64") if command == "simulate" else ()),
    )
    assert printed(command, *words).startswith("quick-cifar on 3 VC709: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "--devices", "1-2", "--trace", "x.json"], ["`--trace`", "give one number"]),
        (
            ["simulate", "--devices", "1-2", "--trace-level", "row"],
            ["`--trace-level`", "give one number"],
        ),
        (
            ["simulate", "--devices", "1-2", "--what-if", "batch=3"],
            ["`--what-if`", "give one number"],
        ),
        (["simulate", "--devices", "2-1"], ["--devices", "runs downwards; write 1-2"]),
        (["simulate", "--devices", "1-2,x"], ["--devices", "mixes the word 'x'"]),
        (["plan", "quick-cifar", "--devices", "0-2"], ["from 1 to 999999 devices"]),
        (
            ["plan", "quick-cifar", "--devices", "0.5-2:0.5"],
            ["--devices", "not a list of numbers of devices"],
        ),
        (
            ["plan", "quick-cifar", "--devices", "385,386"],
            ["all 2 points fail", "must be 1 to 384"],
        ),
        (["plan", "quick-cifar", "--devices", ""], ["--devices", "empty item"]),
        (["plan", "quick-cifar", "--devices", "1-2", "--plot", "x.abc"], ["`--plot` x.abc"]),
        (["plan", "vgg61", "--devices", "1-2"], ["vgg61", "vgg16"]),
        (["train", "--devices", "1-4"], ["train takes one number", "emuchain sweep"]),
        (["timeline", "--devices", "1,4"], ["timeline takes one number", "emuchain sweep"]),
        (["simulate", "--devices", "2", "--samples", "64", "--plot", "x"], ["`--plot` x", ".svg"]),
        (["plan", "quick-cifar", "--plot", ""], ["`--plot` .", ".svg"]),
        (["timeline", "--plot", "x.abc"], ["`--plot` x.abc", ".svg"]),
        (["timeline", "--samples-shown", "0-1000000"], ["`samples_shown`", "0 to 999,999"]),
        (["timeline", "--width", "10001"], ["--width", "40<=x<=10000"]),
        (["schedule", "--devices", "1,4"], ["schedule takes one number", "emuchain sweep"]),
    ],
)
def test_bad_input_is_one_line(
    one_line: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: list[str],
) -> None:
    from emuchain.emulator.commands.cli import main

    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr()
    line = one_line(said.err)
    assert all(word in line for word in message), line
    assert said.out == ""


def test_a_file_with_a_wrong_key_is_blamed(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("batch = 0\n")
    with pytest.raises(InputError, match=r"run\.toml.*`batch` = 0"):
        commands.main(
            ["simulate", str(tmp_path / "run.toml"), "--devices", "1-2"],
            standalone_mode=False,
            obj=Session(),
        )


@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_help_says_it(command: str) -> None:
    text = " ".join(printed(command, "--help").split())
    assert "--devices N|RANGE" in text
    assert "1-64 or 1,2,4,8" in text
    assert "N|RANGE" not in printed("train", "--help")
