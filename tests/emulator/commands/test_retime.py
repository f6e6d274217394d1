"""`emuchain retime`: the answer first, JSON, and bad input as one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import emuchain
from emuchain.emulator.commands.finished import retime
from emuchain.emulator.common import InputError


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The results file of a short run."""
    path = tmp_path_factory.mktemp("runs") / "run.h5"
    emuchain.train("quick-cifar", devices=4, samples=128, test_samples=8, epochs=2, out=str(path))
    return str(path)


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """A cluster whose links limit, and by as much that samples meet other weights."""
    path = tmp_path / "slow.toml"
    links = "links = { bandwidth_gbps = 0.1, latency_ns = 1000 }"
    path.write_text(f'name = "slow"\n{links}\n[[boards]]\ntype = "vc709"\n')
    return str(path)


def printed(*arguments: str) -> str:
    """What the command prints when it succeeds."""
    result = CliRunner().invoke(retime, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_answer_comes_first(file: str, slow: str) -> None:
    there = emuchain.simulate("quick-cifar", slow, devices=4, samples=128, epochs=2)
    lines = printed(file, "--cluster", slow).splitlines()
    was_ps = emuchain.results(file).virtual_time_ps
    assert lines[0].startswith(f"under {slow}: virtual time ")
    assert lines[0].endswith(f" ({was_ps} -> {there.virtual_time_ps} ps)")
    assert (
        lines[1].startswith("images/s: ") and f" -> {there.images_per_s:.1f}; speed-up " in lines[1]
    )
    assert lines[2].startswith("limit: link ")
    assert any("use old weights" in line and line.endswith("times are right") for line in lines)
    assert [line.split()[0] for line in lines if re.match(r" +\d ", line)] == ["1", "2"]


def test_json(file: str, slow: str) -> None:
    said = json.loads(printed(file, "--what-if", "link.bandwidth_gbps=0.1", "--json"))
    there = emuchain.simulate("quick-cifar", slow, devices=4, samples=128, epochs=2)
    assert said["cluster"] == "vc709 (link.bandwidth_gbps=0.1)"
    assert said["epoch_ends_ps"] == list(there.epoch_ends_ps)
    assert said["own_virtual_time_ps"] == emuchain.results(file).virtual_time_ps
    assert said["speed_up"] == said["own_virtual_time_ps"] / said["virtual_time_ps"]
    assert said["same_staleness"] is False
    assert said["steady"]["bottleneck"]["slowest"]["name"].startswith("link ")


def test_its_own_cluster(file: str) -> None:
    said = json.loads(printed(file, "--json"))
    assert said["epoch_ends_ps"] == said["own_epoch_ends_ps"]
    assert said["notes"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--what-if", "devices=2"], "--what-if devices=2: a finished run keeps its devices"),
        (
            ["--what-if", "cluster=vc709-10g"],
            "--what-if cluster=vc709-10g: `--cluster vc709-10g` names",
        ),
        (["--what-if", "link.speed=2"], "--what-if link.speed=2: unknown key `link.speed`"),
        (["--what-if", "link.bandwidth_gbps=0"], "--what-if: `links.bandwidth_gbps` = 0"),
        (["--cluster", "vc708"], "did you mean `vc709`"),
        (["--what-if", "board.dsp=8"], "which gives its engines 1 multiplier: conv2 of"),
    ],
    ids=str,
)
def test_bad_input(file: str, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(retime, [file, *arguments])
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "notes.h5").write_text("nothing")
    result = CliRunner().invoke(retime, [str(tmp_path / "notes.h5")])
    assert isinstance(result.exception, InputError)
    assert "notes.h5: not a results file of emuchain, but a text file" in str(result.exception)
