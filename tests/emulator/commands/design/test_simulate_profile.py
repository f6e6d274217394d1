"""`simulate --profile`: measured layers on boards, by hand and against the pipeline of the same
stages.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.network import load_network
from emuchain.emulator.schedule import Machine, Shape, StageCosts, Transport, pipeline_kind
from emuchain.emulator.timing import time_shape

from ..running import status_of

FORWARD_US = {"conv1": 196, "conv2": 411, "conv3": 208, "fc1": 12, "fc2": 3}
BACKWARD_US = {"conv1": 205, "conv2": 857, "conv3": 435, "fc1": 27, "fc2": 7}
PS_OF_US = 1_000_000
BOARDS = """
name = "boards"
boards = [{ type = "vc709", count = 5 }]
links = { bandwidth_gbps = 1_000, latency_ns = 0 }
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("boards.toml").write_text(BOARDS)
    write_profile(FORWARD_US)


def write_profile(layers: dict[str, int], device: str = "VC709") -> None:
    tables = (
        f'[[layers]]\nname = "{name}"\ntimes = [{{ device = "{device}", micro_batch = 16,'
        f" forward_us = {us}, backward_us = {BACKWARD_US[name]} }}]\n"
        for name, us in layers.items()
    )
    Path("profile.toml").write_text(f'name = "quick-cifar"\n[devices.{device}]\n' + "".join(tables))


def simulated(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    words = (
        "simulate",
        "quick-cifar",
        "--samples",
        "64",
        "--cluster",
        "boards.toml",
        "--range",
        "none",
        "--json",
    )
    assert status_of(*words, "--engines", "turns", "--profile", "profile.toml", *more) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_one_board_takes_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    whole_us = sum(FORWARD_US.values()) + sum(BACKWARD_US.values())
    result = simulated(capsys, "--devices", "1", "--schedule", "gpipe")
    assert result["virtual_time_ps"] == 4 * whole_us * PS_OF_US
    scaled = simulated(capsys, "--devices", "1", "--schedule", "gpipe", "--micro-batch", "8")
    assert scaled["virtual_time_ps"] == result["virtual_time_ps"]


def test_a_layer_a_board_is_the_pipeline_of_these_times(capsys: pytest.CaptureFixture[str]) -> None:
    result = simulated(
        capsys,
        "--devices",
        "5",
        "--stages",
        "layers",
        "--schedule",
        "gpipe",
        "--transport",
        "stored",
    )
    costs = [
        StageCosts(FORWARD_US[name] * PS_OF_US, BACKWARD_US[name] * PS_OF_US) for name in FORWARD_US
    ]
    kind = pipeline_kind("gpipe")
    machine = Machine(kind.machine.engines, Transport.STORED, kind.machine.backward)
    alone = time_shape(kind, Shape(5, 4, tuple(costs), machine)).makespan_ps
    messages = [layer.output for layer in load_network("quick-cifar").layers[:-1]]
    sent_ps = sum(
        2 * 16 * 4 * channels * rows * columns * 8 for channels, rows, columns in messages
    )
    assert alone <= result["virtual_time_ps"] <= alone + 8 * sent_ps


def test_slices_take_their_share_of_a_layer(capsys: pytest.CaptureFixture[str]) -> None:
    whole_ps = (sum(FORWARD_US.values()) + sum(BACKWARD_US.values())) * PS_OF_US
    for devices in ("2", "3", "7"):
        stages = simulated(capsys, "--devices", devices, "--schedule", "gpipe")["pipeline"][
            "stages"
        ]
        work_ps = sum(stage["forward_ps"] + stage["backward_ps"] for stage in stages)
        assert whole_ps <= work_ps <= whole_ps + 2 * len(stages)
        assert max(
            stage["forward_ps"] + stage["backward_ps"] for stage in stages
        ) <= 1.3 * whole_ps / len(stages)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("quick-cifar --engines split", "`--profile`: has times of whole layers"),
        (
            "quick-cifar --engines turns --cluster u280",
            "no times on U280; there are those on VC709",
        ),
        ("rnn-t --schedule gpu-standard --cluster p100", "leave it out on a GPU or a pair"),
        ("quick-cifar --engines turns --profile missing.toml", "missing.toml"),
        ("quick-cifar --engines turns --devices 1-3", "cannot be combined with several numbers"),
    ],
)
def test_what_a_profile_is_not_for(
    capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    usual = "simulate --samples 64 --cluster boards.toml --profile profile.toml"
    assert status_of(*usual.split(), *words.split()) == 2
    assert said in capsys.readouterr().err


def test_every_layer_must_have_been_measured(capsys: pytest.CaptureFixture[str]) -> None:
    write_profile({name: us for name, us in FORWARD_US.items() if name != "conv3"})
    words = (
        "simulate quick-cifar --samples 64 --cluster boards.toml --engines turns --profile"
        " profile.toml"
    )
    assert status_of(*words.split()) == 2
    assert "no times of conv3: should have each layer of quick-cifar" in capsys.readouterr().err


def test_ranges_are_those_of_links_alone(capsys: pytest.CaptureFixture[str]) -> None:
    words = "simulate quick-cifar --devices 2 --samples 64 --cluster boards.toml --engines turns --json".split()
    assert status_of(*words, "--profile", "profile.toml") == 0
    assert set(json.loads(capsys.readouterr().out)["classes"]) == {
        "link.bandwidth_gbps",
        "link.latency_ns",
    }
