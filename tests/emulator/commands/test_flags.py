"""The first word of a command: a network or a configuration, told apart by name and by content."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.commands.cli import main
from emuchain.emulator.commands.flags import Subject, subject_of
from emuchain.emulator.common import InputError

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
    first, flag = simulated("lenet-mnist", "--devices", "2"), simulated("--network", "lenet-mnist", "--devices", "2")
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
    ("word", "told"),
    [
        ("quick-cifer", ["'quick-cifer'", "did you mean `quick-cifar`?", "TOML or ONNX file"]),
        ("missing.toml", ["missing.toml", "cannot be read"]),
    ],
)
def test_a_word_that_names_nothing(word: str, told: list[str]) -> None:
    with pytest.raises(InputError) as error:
        subject_of(word)
    assert all(part in str(error.value) for part in told)


def test_two_networks(capsys: pytest.CaptureFixture[str], one_line: Callable[..., str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "hdc", "--network", "vgg16"])
    assert ended.value.code == 2
    line = one_line(capsys.readouterr().err)
    assert "hdc" in line and "vgg16" in line
