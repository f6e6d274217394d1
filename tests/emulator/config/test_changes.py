"""`--set KEY=VALUE` and `changes=`: each key as in the edited file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest

import emuchain
from emuchain.emulator.arguments import named_in_place
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.commands.frame.session import Session
from emuchain.emulator.common import InputError
from emuchain.emulator.config import Config, in_place, load_config, parse_changes, settings_config

from .test_config import OTHERS, flags_of

RUN_KEYS = [key for key in OTHERS if key != "changes"]


def in_file(tmp_path: Path, key: str) -> Config:
    """The configuration whose file has another value of a key."""
    path = tmp_path / "edited.toml"
    path.write_text(f"{key} = {OTHERS[key][1]}\n")
    return load_config(str(path), {})


@pytest.mark.parametrize("key", RUN_KEYS)
def test_set_is_the_edited_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str) -> None:
    word, toml, _ = OTHERS[key]
    for value in {word or "true", toml}:
        _, flags = flags_of(monkeypatch, ["--set", f"{key}={value}"])
        assert load_config(None, flags) == in_file(tmp_path, key)


@pytest.mark.parametrize("key", RUN_KEYS)
def test_changes_are_the_edited_file(tmp_path: Path, key: str) -> None:
    [value] = parse_changes([f"{key}={OTHERS[key][1]}"]).values()
    network, cluster, settings = named_in_place("quick-cifar", "vc709", {"changes": {key: value}})
    assert settings_config({"network": network, "cluster": cluster, **settings}) == in_file(
        tmp_path, key
    )


def test_a_table_of_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    _, flags = flags_of(monkeypatch, ["--precision", "bf16", "--set", "precision.weights=fp32"])
    assert flags == {"precision": {"format": "bf16", "weights": "fp32"}}


def test_keys_of_the_cluster_in_a_file_and_as_flags(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "some.toml"
    path.write_text("[changes]\nlink.latency_ns = 5\n'board.dsp' = 90\n")
    file, flags = flags_of(
        monkeypatch, [str(path), "--set", "board.dsp=80", "--set", "boards[0].clock_mhz=150"]
    )
    changed = {"link.latency_ns": 5, "board.dsp": 80, "boards[0].clock_mhz": 150}
    assert load_config(file, flags).changes == changed
    assert settings_config(load_config(file, flags).model_dump()).changes == changed


BAD = {
    "batch": "expected KEY=VALUE",
    "bach=5": "did you mean `batch`?",
    "link.latncy_ns=5": "did you mean `link.latency_ns`?",
    "batch=0": "`batch` = 0",
    "batch=many": "'many' is not a valid integer",
    "link.latency_ns=-1": "`links.latency_ns` = -1",
    "changes=5": "unknown key `changes`",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_refused(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str], text: str
) -> None:
    with pytest.raises((InputError, click.ClickException)) as error:
        commands.main(
            ["simulate", "quick-cifar", "--samples", "8", "--set", text], standalone_mode=False
        )
    assert BAD[text] in one_line(error) + str(getattr(error.value, "message", ""))


def test_a_key_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="`batch` = 4: --set has 5; give one of them"):
        flags_of(monkeypatch, ["--batch", "4", "--set", "batch=5"])
    assert flags_of(monkeypatch, ["--batch", "4", "--set", "batch=4"]) == (None, {"batch": 4})
    with pytest.raises(InputError, match="`batch` is given twice"):
        parse_changes(["batch=4", "batch=5"])
    with pytest.raises(InputError, match="`batch` = 4: changes has 5; give one of them"):
        in_place({"batch": 4, "changes": {"batch": 5}})


COMMANDS = {
    "plan": ["quick-cifar", "--devices", "2", "--range", "none"],
    "simulate": ["quick-cifar", "--devices", "2", "--samples", "64", "--range", "none"],
    "sweep": ["quick-cifar", "--devices", "1-2", "--range", "none", "--jobs", "1"],
    "exchange": ["quick-cifar", "--workers", "4"],
    "compare": ["quick-cifar", "--devices", "2", "--range", "none"],
    "topology": ["quick-cifar", "--devices", "2"],
    "explore": ["quick-cifar", "--devices", "2", "--range", "none"],
    "cluster": [],
}
KEY = "link.bandwidth_gbps"
NAMES = re.compile(rf'"(cluster|label|changes|{KEY})": (\[[^]]*\]|[^,\n]*),?|[\s,]')


def numbers(command: str, cluster: str, *arguments: str) -> str:
    """What a command prints as JSON, but for names of clusters and what was changed."""
    on = [cluster] if command == "cluster" else ["--cluster", cluster]
    group = ["study"] if command in ("compare", "topology", "exchange") else []
    words = [*group, command, *COMMANDS[command], *on, *arguments, "--json"]
    run = click.testing.CliRunner().invoke(commands, words, obj=Session())
    assert run.exit_code == 0, run.output
    return NAMES.sub("", run.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_take_keys_of_the_cluster(tmp_path: Path, command: str) -> None:
    edited = tmp_path / "vc709.toml"
    board = 'name = "vc709"\n[[boards]]\ntype = "vc709"\n'
    edited.write_text(f"{board}[links]\nbandwidth_gbps = 0.1\nlatency_ns = 1000\n")
    by_flag = numbers(command, "vc709", "--set", f"{KEY}=0.1")
    assert by_flag == numbers(command, str(edited))
    assert by_flag != numbers(command, "vc709")


def test_python_takes_keys_of_both() -> None:
    changes = {"devices": 2, "samples": 32, "link.bandwidth_gbps": 0.5, "schedule": "sync"}
    by_changes = emuchain.simulate("quick-cifar", changes=changes)
    cluster = emuchain.load_cluster("vc709", {"link.bandwidth_gbps": 0.5})
    by_keys = emuchain.simulate("quick-cifar", cluster, devices=2, samples=32, schedule="sync")
    assert by_changes.virtual_time_ps == by_keys.virtual_time_ps
    assert (
        by_changes.virtual_time_ps
        == emuchain.simulate(emuchain.plan(changes=changes)).virtual_time_ps
    )
    assert (
        by_changes.virtual_time_ps
        != emuchain.simulate("quick-cifar", samples=32, schedule="sync").virtual_time_ps
    )
    with pytest.raises(InputError, match="did you mean `devices`"):
        emuchain.plan(changes={"device": 2})


def test_a_training_with_changes(tmp_path: Path) -> None:
    """Its checkpoint goes on under the changed cluster, and its results say what was changed."""
    keys: dict[str, Any] = {
        "devices": 2,
        "samples": 32,
        "batch": 16,
        "schedule": "sync",
        "test_samples": 8,
    }
    changes = {"link.bandwidth_gbps": 0.5}
    checkpoint = str(tmp_path / "run.ckpt")
    once = emuchain.train("quick-cifar", changes=changes, epochs=2, **keys)
    assert json.loads(once.config["changes"]) == changes
    emuchain.train("quick-cifar", changes=changes, checkpoint=checkpoint, **keys)
    again = emuchain.train(resume=checkpoint, epochs=2)
    assert again.virtual_time_ps == once.virtual_time_ps
    assert again.virtual_time_ps != emuchain.train("quick-cifar", epochs=2, **keys).virtual_time_ps
