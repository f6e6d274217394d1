"""`emuchain study compare` and `emuchain study topology`: tables, JSON, pictures, and bad input as
one line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from emuchain.emulator.commands.design.study import compare, topology
from emuchain.emulator.common import InputError

SHORT = ["vgg16-cifar", "--devices", "2-3,16"]


def printed(command: click.Command, *arguments: str) -> str:
    """What a command prints when it succeeds."""
    result = CliRunner().invoke(command, [*SHORT, *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_compare_prints_all_methods_and_metrics() -> None:
    text = printed(compare)
    for words in (
        "data parallel",
        "hybrid parallel",
        "FLOP utilisation / %",
        "storage / GB",
        "mean over 2, 3 devices",
    ):
        assert words in text


def test_compare_in_json() -> None:
    said = json.loads(printed(compare, "--batch", "32", "--json"))
    assert {
        name: method["most_devices"] for name, method in said["methods"].items() if name != "HP"
    } == {
        "DP": 32,
        "LP": 16,
        "MP": 10,
    }
    [*_, last] = said["methods"]["DP"]["outcomes"]
    assert last["devices"] == 16
    assert last["total_storage_bytes"] == sum(last["storage_bytes"])
    assert last["bandwidth_gbps"] == pytest.approx(
        8000 * last["footprint_bytes"] / last["iteration_ps"]
    )
    assert said["ranks"]["devices"] == [2, 3]
    assert set(said["ranks"]["footprint_bytes"]) == {"DP", "LP", "MP", "HP"}


def test_topology_in_json() -> None:
    said = json.loads(printed(topology, "--layers", "conv3_1:conv5_3", "--json"))
    assert [pair["1d"]["devices"] for pair in said["topologies"]] == [2, 3, 16]
    for pair in said["topologies"]:
        for found in pair.values():
            worst = min(link["images_per_s"] for link in found["links"])
            assert found["worst_link_images_per_s"] == worst
            assert found["images_per_s"] == min(worst, found["compute_images_per_s"])
    assert "ports per link" in printed(topology)


@pytest.mark.parametrize("command", [compare, topology])
def test_pictures(command: click.Command, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    printed(command, "--plot", str(tmp_path / "x.png"))
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", [compare, topology])
def test_a_picture_needs_matplotlib(
    command: click.Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = CliRunner().invoke(command, [*SHORT, "--plot", str(tmp_path / "x.png")])
    assert isinstance(result.exception, InputError)
    assert "pip install 'emuchain[plot]'" in str(result.exception)


@pytest.mark.parametrize("command", [compare, topology])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["vgg61"], ["vgg61", "vgg16"]),
        (["vgg16", "--devices", "2", "--cluster", "none"], ["`cluster`", "none"]),
        (["vgg16", "--devices", "200000"], ["`devices` = 200000", "12480"]),
        (["vgg16", "--layers", "conv1_1"], ["`layers` = 'conv1_1'", "FIRST:LAST"]),
        (["vgg16", "--layers", "conv1_1:conv7_1"], ["`layers`", "conv7_1", "conv5_3"]),
    ],
)
def test_bad_input_is_one_line(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str],
    command: click.Command,
    arguments: list[str],
    words: list[str],
) -> None:
    with pytest.raises(InputError) as error:
        command.main(arguments, standalone_mode=False)
    line = one_line(error)
    assert all(word in line for word in words), line


@pytest.mark.parametrize("command", [compare, topology])
def test_a_picture_that_cannot_be_written(command: click.Command) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["vgg16", "--devices", "2", "--plot", "nowhere/x.png"]
    error = CliRunner().invoke(command, arguments).exception
    assert isinstance(error, InputError)
    assert "`--plot` = 'nowhere/x.png'" in str(error)


@pytest.mark.parametrize("counts", ["0", "3-2", "2,,3", "-3", "x", "2-", "1-10000000", "", "٣"])
def test_bad_numbers_of_devices(counts: str) -> None:
    result = CliRunner().invoke(compare, ["vgg16", f"--devices={counts}"])
    assert result.exit_code == 2
    assert "not a list of numbers of devices" in result.output
