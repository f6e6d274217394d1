"""Cuts made by hand: one that equals the automatic cut has its times and bits, and any other one
the same bits.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.commands.design.plan import save_cut
from emuchain.emulator.common import InputError, WholeFile
from emuchain.emulator.mapping import HandmadeCut, cut_channels
from emuchain.emulator.run import Results

from ..mapping.cuts import boards_of
from .test_stages import NETWORK as SMALL

NETWORK = {**SMALL, "input": [3, 32, 32]}

KEYS: dict[str, Any] = {"batch": 8, "micro_batch": 4, "samples": 24, "test_samples": 8}
RUNS: dict[str, dict[str, Any]] = {
    "fpdeep": {"devices": 3},
    "sync, small boards": {
        "devices": 4,
        "schedule": "sync",
        "changes": {"board.on_chip_memory_kbit": 500},
    },
    "memory as in fpdeep": {"devices": 3, "memory": "fpdeep"},
    "whole layers": {"devices": 3, "stages": "layers"},
    "turns": {"devices": 3, "engines": "turns", "schedule": "1f1b-so"},
    "chunks": {"devices": 2, "schedule": "interleaved"},
    "no balancing": {
        "devices": 4,
        "balancing": "none",
        "changes": {"board.on_chip_memory_kbit": 400},
    },
}


def same_bits(one: Results, other: Results) -> bool:
    return all(
        np.array_equal(array, other.weights[layer][name])
        for layer, arrays in one.weights.items()
        for name, array in arrays.items()
    )


@pytest.mark.parametrize("name", RUNS)
def test_the_automatic_cut_by_hand(tmp_path: Path, name: str) -> None:
    keys = {**KEYS, **RUNS[name]}
    automatic = emuchain.plan(NETWORK, **keys)
    path = tmp_path / "cut.toml"
    path.write_text(automatic.cut.toml())
    by_hand = emuchain.plan(NETWORK, cut=str(path), **keys)
    assert by_hand.mapping.devices == automatic.mapping.devices
    assert by_hand.timing == automatic.timing
    assert by_hand.steady == automatic.steady
    assert (
        emuchain.simulate(by_hand).virtual_time_ps == emuchain.simulate(automatic).virtual_time_ps
    )


def test_the_automatic_cut_trains_to_its_bits_and_times() -> None:
    keys = {**KEYS, "devices": 3}
    automatic = emuchain.train(NETWORK, **keys)
    text = str(emuchain.plan(NETWORK, **keys).cut)
    by_hand = emuchain.train(NETWORK, cut=text, **{**keys, "devices": None})
    assert by_hand.virtual_time_ps == automatic.virtual_time_ps
    assert same_bits(by_hand, automatic)
    assert by_hand.config["cut"] == text
    assert by_hand.config["devices"] == 3


@settings(deadline=None, max_examples=12)
@given(st.data())
def test_any_cut_trains_to_the_bits_of_one_device(data: st.DataObject) -> None:
    network = emuchain.load_network(NETWORK)
    ends = [cut_channels(layer) for layer in network.layers]
    inner = data.draw(st.sets(st.integers(1, sum(ends) - 1), min_size=1, max_size=5))
    cut = boards_of(network, inner)
    schedule = data.draw(st.sampled_from(["sync", "gpipe", "1f1b-as"]))
    trained = emuchain.train(network, cut=cut, **{**KEYS, "schedule": schedule})
    assert trained.config["devices"] == len(cut)
    alone = emuchain.train(network, devices=1, **{**KEYS, "schedule": "sync"})
    assert same_bits(trained, alone)
    again = emuchain.simulate(network, cut=cut, **{**KEYS, "schedule": schedule})
    assert again.virtual_time_ps == trained.virtual_time_ps


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "too many boards": (
        {"cut": "conv1 | conv2:fc2", "devices": 1},
        "has 2 boards, and the run 1; none is left for conv2",
    ),
    "too few boards": (
        {"cut": "conv1 | conv2:fc2", "devices": 3},
        "has 2 boards, and the run 3; conv2 is on the last",
    ),
    "stages": (
        {"cut": "conv1 | conv2:fc2", "devices": 2, "schedule": "interleaved"},
        "has 2 stages, and the run 4; conv2 is on the last one",
    ),
    "layers stay whole": (
        {"cut": "conv1 conv2[:2] | conv2[2:] conv3:fc2", "stages": "layers"},
        "cuts conv2, which stays",
    ),
    "a gap": ({"cut": "conv1 | conv3:fc2"}, "conv2 is on no board"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_cuts(name: str) -> None:
    keys, message = BAD[name]
    with pytest.raises(InputError) as error:
        emuchain.plan(NETWORK, **{**KEYS, **keys})
    assert message in str(error.value)


def test_a_recurrent_layer_stays_whole() -> None:
    layers = emuchain.load_network("lstm-rows").layers
    first, *_, last = (layer.name for layer in layers)
    cut = f"{first}[:8] | {first}[8:]" + ("" if first == last else f" {layers[1].name}:{last}")
    with pytest.raises(InputError, match=f"cuts {first}, which stays whole with schedule fpdeep"):
        emuchain.plan("lstm-rows", cut=cut, schedule="fpdeep")
    assert emuchain.plan("lstm-rows", cut=cut, schedule="sync").devices == 2
    message = f"cuts {first}, which stays whole with boards that take actions as a whole"
    with pytest.raises(InputError, match=message):
        emuchain.plan("lstm-rows", cut=cut, schedule="gpipe", engines="turns")


def printed(*words: str) -> str:
    run = click.testing.CliRunner().invoke(commands, words)
    assert run.exit_code == 0, run.output
    return run.stdout


def test_a_saved_cut_is_edited_and_compared(tmp_path: Path) -> None:
    path = tmp_path / "cut.toml"
    saved = printed("plan", "quick-cifar", "--devices", "2", "--save", str(path), "--range", "none")
    assert f"cut in {path}; `--cut {path}` takes it" in " ".join(saved.split())
    as_saved = printed("plan", "quick-cifar", "--cut", str(path), "--range", "none").splitlines()
    assert as_saved[0] == saved.splitlines()[0]
    assert as_saved[1].startswith("automatic cut: ") and as_saved[1].endswith("as fast as this one")
    path.write_text('boards = ["conv1:fc1", "fc2"]\n')
    edited = json.loads(printed("plan", "quick-cifar", "--cut", str(path), "--json"))
    assert edited["cut"] == ["conv1:fc1", "fc2"]
    assert edited["images_per_s"] < edited["automatic"]["images_per_s"]
    line = printed("plan", "quick-cifar", "--cut", str(path), "--range", "none").splitlines()[1]
    ratio = edited["images_per_s"] / edited["automatic"]["images_per_s"]
    assert f"this one is {ratio:.4g} times as fast" in line


@pytest.mark.parametrize(
    "words", ["plan quick-cifar --devices 2 --save", "network lstm-rows --out"]
)
@pytest.mark.parametrize("name", ["saved.txt", "saved", "saved.toml.bak", "toml", "saved.onnx"])
def test_a_name_by_which_no_reader_knows_toml_is_refused(
    tmp_path: Path, words: str, name: str
) -> None:
    run = click.testing.CliRunner().invoke(commands, [*words.split(), str(tmp_path / name)])
    assert isinstance(run.exception, InputError) and "the end .toml; try " in str(run.exception)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "name", ["cut.toml", "CUT.TOML", ".toml", "a b | c[:3].toml", "größe.toml", "=x,y.toml"]
)
def test_a_cut_of_any_name_is_read_again(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    saved = printed("plan", "quick-cifar", "--devices", "2", "--save", path, "--json")
    again = json.loads(printed("plan", "quick-cifar", "--cut", path, "--json"))
    del again["automatic"]
    assert again == json.loads(saved)


DRAWN = {
    "network": [
        "quick-cifar",
        "lenet-mnist",
        "resnet8-cifar",
        "inception-cifar",
        "char-lstm",
        "char-gpt",
        "gru-rows",
    ],
    "cluster": ["vc709", "u280"],
    "schedule": ["fpdeep", "sync", "gpipe", "1f1b-so", "interleaved", "2bw", "data-parallel-ring"],
    "engines": ["split", "turns"],
    "stages": ["channels", "layers"],
    "memory": ["modelled", "ignored"],
    "balancing": ["auto", "none"],
}


@settings(max_examples=25, deadline=None)
@given(
    st.fixed_dictionaries({key: st.sampled_from(values) for key, values in DRAWN.items()}),
    st.integers(1, 6),
)
def test_any_saved_cut_is_read_as_it_was(drawn: dict[str, str], devices: int) -> None:
    """Whatever the plan: what --save writes is a cut that --cut takes, and gives the same slices,
    timing and rate.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            plan = emuchain.plan(**drawn, devices=devices)
        except InputError:
            reject()
        path = Path(folder) / "cut.toml"
        save_cut(plan, WholeFile(path))
        again = emuchain.plan(**drawn, devices=devices, cut=str(path))
    assert (again.mapping.devices, again.timing, again.steady) == (
        plan.mapping.devices,
        plan.timing,
        plan.steady,
    )


def test_a_run_resumes_with_its_cut(tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "cut.toml", str(tmp_path / "run.ckpt")
    path.write_text(HandmadeCut.of("conv1:conv2 conv3[:25%] | conv3[25%:] conv4:fc2").toml())
    once = emuchain.train(NETWORK, cut=str(path), epochs=2, **KEYS)
    emuchain.train(NETWORK, cut=str(path), checkpoint=checkpoint, **KEYS)
    path.unlink()
    again = emuchain.train(resume=checkpoint, epochs=2)
    assert again.virtual_time_ps == once.virtual_time_ps
    assert same_bits(again, once)
