"""The first word of a command: a network or a configuration, distinguished by name and by
content.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from emuchain.emulator.cluster import settable_keys
from emuchain.emulator.commands.cli import main
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.commands.frame.command import USUAL_FLAGS
from emuchain.emulator.commands.frame.flags import Subject, subject_of
from emuchain.emulator.commands.frame.named import Rate
from emuchain.emulator.common import InputError
from emuchain.emulator.config import Config

from .test_named_files import leaves

TINY = """
name = "tiny"
input = [3, 32, 32]
layers = [{ type = "fc", features = 10 }, { type = "softmax" }]
"""

Simulated = Callable[..., dict[str, Any]]


@pytest.fixture
def simulated(capsys: pytest.CaptureFixture[str]) -> Simulated:
    """Runs `emuchain simulate` and returns its JSON."""

    def run(*arguments: str) -> dict[str, Any]:
        with pytest.raises(SystemExit) as ended:
            main(["simulate", *arguments, "--samples", "64", "--json"])
        assert ended.value.code == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_a_network_may_stand_first_or_behind_its_flag(simulated: Simulated) -> None:
    first, flag = (
        simulated("lenet-mnist", "--devices", "2"),
        simulated("--network", "lenet-mnist", "--devices", "2"),
    )
    assert first == flag
    assert first["config"]["network"] == "lenet-mnist"
    assert simulated("lenet-mnist", "--network", "lenet-mnist", "--devices", "2") == first


def test_without_a_word_the_default_network_runs(simulated: Simulated) -> None:
    assert simulated()["config"]["network"] == "quick-cifar"


def test_a_toml_file_is_what_its_keys_say(simulated: Simulated, tmp_path: Path) -> None:
    network, config, other = (tmp_path / name for name in ("tiny.toml", "run.toml", "run.cfg"))
    network.write_text(TINY)
    config.write_text('network = "lenet-mnist"\nbatch = 32\n')
    other.write_text(config.read_text())
    assert subject_of(str(network)) == Subject(network=str(network))
    assert subject_of(str(config)) == Subject(config_file=str(config))
    assert simulated(str(network))["config"]["network"] == str(network)
    for file in (config, other):
        found = simulated(str(file))["config"]
        assert (found["network"], found["batch"]) == ("lenet-mnist", 32)
    assert simulated(str(config), "--network", "hdc")["config"]["network"] == "hdc"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("quick-cifer", ["'quick-cifer'", "did you mean `quick-cifar`?", "TOML or ONNX file"]),
        ("missing.toml", ["missing.toml", "cannot be read"]),
    ],
)
def test_a_word_that_names_nothing(word: str, message: list[str]) -> None:
    with pytest.raises(InputError) as error:
        subject_of(word)
    assert all(part in str(error.value) for part in message)


def test_two_networks(capsys: pytest.CaptureFixture[str], one_line: Callable[..., str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "hdc", "--network", "vgg16"])
    assert ended.value.code == 2
    line = one_line(capsys.readouterr().err)
    assert "hdc" in line and "vgg16" in line


def flags_of(kind: type[click.ParamType]) -> list[str]:
    """Every flag of every command whose values are of a type."""
    found, groups = [], [("", commands)]
    for path, group in groups:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                groups.append((f"{path}{name} ", command))
            elif command is not None:
                flags = [
                    each for each in command.get_params(context) if isinstance(each, click.Option)
                ]
                found += [
                    f"{path}{name} {each.opts[0]}" for each in flags if isinstance(each.type, kind)
                ]
    return found


@pytest.mark.parametrize("flag", flags_of(click.types.IntParamType))
def test_a_whole_number_in_another_spelling(
    capsys: pytest.CaptureFixture[str], one_line: Callable[..., str], flag: str
) -> None:
    """What is advised is taken: at least, it is no wrong value of the flag."""
    with pytest.raises(SystemExit) as ended:
        main([*flag.split(), "1e1"])
    line = one_line(capsys.readouterr().err)
    assert ended.value.code == 2
    assert "'1e1' must be written as 10." in line or "10 is not in the range" in line


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("flag", flags_of(Rate))
def test_a_rate_that_is_no_number(
    capsys: pytest.CaptureFixture[str], one_line: Callable[..., str], flag: str, value: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*flag.split(), value])
    assert ended.value.code == 2
    assert f"'{flag.split()[-1]}'" in one_line(capsys.readouterr().err)


def test_other_numbers_are_checked_by_who_takes_them() -> None:
    """Keys of a run, as all of those are (`test_absurd.py`), and three that the tests of their
    commands try.
    """
    others = {*flags_of(click.types.FloatParamType)} - {*flags_of(Rate)}
    of_run = {
        other for other in others if other.split("--")[1].replace("-", "_") in Config.model_fields
    }
    assert others - of_run == {
        "calibrate link --line-gbps",
        "generate --temperature",
        "precision --search",
    }


SPELT = {
    "1e9": "1000000000 is not in the range 1<=x<=1024",
    "1.20e1": "'1.20e1' must be written as 12.",
    "1,000": "'1,000' must be written as 1000.",
    "-1e2": "-100 is not in the range",
    "1.5": "'1.5' is not a valid integer",
    "1e-1": "'1e-1' is not a valid integer",
    "1e999": "'1e999' is not a valid integer",
    "1,00": "'1,00' is not a valid integer",
}


@pytest.mark.parametrize("said", SPELT)
def test_numbers_in_other_spellings(capsys: pytest.CaptureFixture[str], said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", f"--stages={said}"])
    assert ended.value.code == 2 and SPELT[said] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pipeline --devices 2", "Did you mean '--stages'?"),
        ("pipeline --batch 2", "Did you mean '--micro-batches'?"),
        ("pipeline --micro-batch 2", "Did you mean '--micro-batches'?"),
        ("pipeline --csv", "Did you mean 'emuchain schedule --csv'?"),
        ("schedule --forward 2", "Did you mean 'emuchain pipeline'?"),
    ],
)
def test_a_flag_of_another_name(
    capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("train quick-cifar --lr 0.1", "--learning-rate"),
        ("plan quick-cifar --topology torus", "--set links.topology=NAME"),
        ("simulate quick-cifar --gpus=3", "--devices"),
        ("explore quick-cifar --batch-size 3", "--batch"),
        ("pipeline --bandwidth 3", "--transfer"),
    ],
)
def test_flags_of_other_programs(
    capsys: pytest.CaptureFixture[str], one_line: Callable[..., str], words: str, meant: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert f"Did you mean '{meant}'?" in one_line(capsys.readouterr().err)


def test_what_is_meant_is_there() -> None:
    """Each meaning is a flag of some command, or `--set` with a key that it takes; a flag that is
    meant is none.
    """
    flags = {flag for _, command in leaves(commands) for param in command.get_params(click.Context(command))
             for flag in param.opts}  # fmt: skip
    for meant in USUAL_FLAGS.values():
        flag, _, value = meant.partition(" ")
        assert flag in flags
        if flag == "--set":
            assert value.partition("=")[0] in {*settable_keys(), "links.topology"}
