"""Weights from files: those that a run begins with, for any mapping, and what does not fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError, WholeFile
from emuchain.emulator.config import load_config
from emuchain.emulator.device import array_shapes, joined_weights, named_weights
from emuchain.emulator.network import Network, load_network
from emuchain.emulator.plan import make_plan, training_data
from emuchain.emulator.run import (
    ChainTrainer,
    Keeping,
    Leader,
    Position,
    RunCheckpoints,
    Usage,
    Weights,
    read_run_weights,
    read_weights,
    results_of,
    safetensors_image,
    write_results,
)
from emuchain.launch import SingleProcess

from ..networks import CONV, GROUPED, GRU, LSTM, of_images, of_rows

OneLine = Callable[[Any], str]
Bits = Callable[[Weights], dict[str, bytes]]

NORMALISED = of_images(
    "normalised",
    CONV,
    {"type": "batch-norm"},
    {"type": "relu"},
    {"type": "batch-norm"},
    {"type": "max-pool", "kernel": 2},
    GROUPED,
    {"type": "batch-norm"},
    {"type": "relu"},
    {"type": "average-pool", "kernel": 4},
)
RECURRENT = of_rows("recurrent", GRU, LSTM, {"type": "lstm", "name": "third", "units": 10})
NETWORKS = {"normalised": NORMALISED, "recurrent": RECURRENT}
SETTINGS: dict[str, Any] = {
    "samples": 36,
    "test_samples": 7,
    "batch": 12,
    "micro_batch": 5,
    "schedule": "sync",
}
FORMS = ("run.h5", "run.ckpt", "run.safetensors")


def trainer_of(network: Network, **settings: Any) -> ChainTrainer:
    """What trains a network, before its first mini-batch."""
    plan = make_plan(load_config(None, {**SETTINGS, **settings}), 1, network=network)
    return ChainTrainer.of(plan, training_data(plan), SingleProcess())


def write(trainer: ChainTrainer, folder: Path) -> None:
    """Write a trainer's weights in all forms."""
    plan, weights, ranks = trainer.plan, trainer.weights(), SingleProcess()
    [first] = [trainer.finish(0)]  # a results file has the weights of a finished epoch
    assert first is not None
    first = dataclasses.replace(
        first, usage=Usage(0, (), ())
    )  # before training no time has passed to be busy in
    write_results(folder / "run.h5", results_of(plan, 36, [first], weights, {}))
    (folder / "run.safetensors").write_bytes(safetensors_image(weights, plan.network, "out"))
    with_settings = {"config": plan.config.model_dump(), "network": plan.network.text}
    leader = Leader(None, WholeFile(folder / "run.ckpt"), with_settings)
    checkpoints = RunCheckpoints(plan.network, ranks, Keeping(False, True), leader)
    checkpoints.reach(trainer, Position(0, 1))
    checkpoints.close()


@pytest.fixture(scope="module", params=NETWORKS)
def drawn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Path]:
    """A network, and a folder with files of the weights that the default seed gives it."""
    pytest.importorskip("safetensors")
    folder = tmp_path_factory.mktemp("drawn")
    write(trainer_of(load_network(NETWORKS[request.param])), folder)
    return NETWORKS[request.param], folder


@pytest.mark.parametrize("file", FORMS)
def test_weights_of_a_seed_train_as_the_seed(
    drawn: tuple[dict[str, Any], Path], bits: Bits, file: str
) -> None:
    network, folder = drawn
    expected = emuchain.train(network, **SETTINGS, devices=2)
    found = emuchain.train(network, **SETTINGS, devices=2, init=str(folder / file))
    assert bits(found.weights) == bits(expected.weights)


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("file", FORMS)
def test_other_weights_are_taken_by_any_mapping(
    network: dict[str, Any], tmp_path: Path, bits: Bits, file: str
) -> None:
    other = trainer_of(load_network(network), seed=5)
    other.epoch(0)  # so moving averages and shifts are not those of the start either
    weights = other.weights()
    write(other, tmp_path)
    keys = {**SETTINGS, "init": str(tmp_path / file), "learning_rate": 1e-30, "weight_decay": 0.0}
    averages = ("mean", "variance")
    for devices in (1, 3):
        found = emuchain.train(network, **keys, devices=devices).weights
        learnt = [
            {
                layer: {
                    name: array for name, array in arrays.items() if not name.startswith(averages)
                }
                for layer, arrays in each.items()
            }
            for each in (found, weights)
        ]
        assert bits(learnt[0]) == bits(learnt[1]), "nothing is learnt at this rate"
    runs = [
        emuchain.train(network, **SETTINGS, init=keys["init"], **how)
        for how in ({"devices": 1}, {"devices": 3})
    ]
    assert bits(runs[0].weights) == bits(runs[1].weights)
    assert bits(runs[0].weights) != bits(emuchain.train(network, **SETTINGS).weights)


def test_replicas_and_blocks_begin_with_the_same_weights(
    tmp_path: Path, bits: Bits, small_cluster: str
) -> None:
    pytest.importorskip("safetensors")
    write(trainer_of(load_network("quick-cifar")), tmp_path)
    for keys in (
        {"replicas": 2, "devices": 2},
        {"cluster": small_cluster, "devices": 5, "memory": "fpdeep"},
    ):
        expected = emuchain.train(**{**SETTINGS, **keys})
        found = emuchain.train(**{**SETTINGS, **keys}, init=str(tmp_path / "run.safetensors"))
        assert bits(found.weights) == bits(expected.weights)
        other = emuchain.train(
            **{**SETTINGS, **keys}, seed=3, init=str(tmp_path / "run.safetensors")
        )
        assert bits(other.weights) != bits(emuchain.train(**{**SETTINGS, **keys}, seed=3).weights)


def test_names_of_recurrent_layers_lead_back() -> None:
    random = np.random.default_rng(1)
    for layer in load_network(RECURRENT).layers[:3]:
        weights = random.random(layer.weight_shape, np.float32)
        assert (joined_weights(layer, named_weights(layer, weights)) == weights).all()


Change = Callable[[dict[str, np.ndarray]], None]


def change(key: str, array: np.ndarray) -> Change:
    """A change of a file's arrays: another one in place of one of them, or one more."""
    return lambda arrays: arrays.update({key: array})


def drop(*beginnings: str) -> Change:
    """A change of a file's arrays: those whose names begin so are gone."""

    def apply(arrays: dict[str, np.ndarray]) -> None:
        for key in [key for key in arrays if key.startswith(beginnings)]:
            del arrays[key]

    return apply


WRONG: dict[str, tuple[Change, list[str]]] = {
    "missing": (drop("c2.scale"), ["lacks `scale` 20", "layer c2"]),
    "a layer": (drop("out"), ["layer out"]),
    "shape": (
        change("c1.bias", np.zeros(11, np.float32)),
        ["`bias`", "layer c1", "is 11; it should be 12"],
    ),
    "groups": (change("c2.weight", np.zeros((20, 12, 3, 3), np.float32)), ["layer c2", "20x6x3x3"]),
    "type": (change("c1.bias", np.zeros(12)), ["`bias`", "layer c1", "float64", "float32"]),
    "not finite": (
        change("c1.bias", np.full(12, np.nan, np.float32)),
        ["`bias`", "layer c1", "not finite"],
    ),
    "an array more": (
        change("c1.factor", np.zeros(1, np.float32)),
        ["`factor`", "layer c1", "scale2"],
    ),
    "a layer more": (change("c3.weight", np.zeros(1, np.float32)), ["layer c3", "c1, c2, out"]),
    "a line more": (change("c1.a\nb\x1b[1m", np.zeros(1, np.float32)), ["layer c1"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit(tmp_path: Path, one_line: OneLine, case: str) -> None:
    numpy_files = pytest.importorskip("safetensors.numpy")
    file, network = tmp_path / "w.safetensors", load_network(NORMALISED)
    random = np.random.default_rng(1)
    arrays = {
        f"{layer.name}.{name}": random.random(shape, np.float32)
        for layer in network.layers
        for name, shape in array_shapes(layer).items()
    }
    numpy_files.save_file(arrays, file)
    emuchain.train(NORMALISED, **SETTINGS, init=str(file))
    wrong, words = WRONG[case]
    wrong(arrays)
    numpy_files.save_file(arrays, file)
    with pytest.raises(InputError) as error:
        emuchain.train(NORMALISED, **SETTINGS, init=str(file))
    line = one_line(error)
    assert line.startswith(f"`init` = {str(file)!r}: ")
    assert all(word in line for word in words), line
    assert "\x1b" not in line


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("none.h5", None, "no such file"),
        ("text.txt", b"hello", ".safetensors, .onnx or .pt"),
        ("cut.safetensors", b"\xff" * 20, "not a readable safetensors file"),
        ("empty.safetensors", b"", "not a readable safetensors file"),
        ("cut.h5", b"\x89HDF\r\n\x1a\n" + bytes(100), "not a readable results file"),
        ("cut.ckpt", b"PK\x03\x04" + bytes(100), "not a readable checkpoint"),
    ],
)
def test_no_file_with_weights(
    tmp_path: Path, one_line: OneLine, name: str, content: bytes | None, word: str
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError) as error:
        emuchain.train(**SETTINGS, init=str(file))
    line = one_line(error)
    assert line.startswith(f"`init` = {str(file)!r}: ") and word in line


def test_a_results_file_without_weights(tmp_path: Path, one_line: OneLine) -> None:
    found = emuchain.train(**SETTINGS)
    write_results(tmp_path / "run.h5", dataclasses.replace(found, weights={}))
    with pytest.raises(InputError) as error:
        emuchain.train(**SETTINGS, init=str(tmp_path / "run.h5"))
    assert "holds no weights" in one_line(error)


def test_a_run_that_goes_on_does_not_begin_again(tmp_path: Path, bits: Bits) -> None:
    pytest.importorskip("safetensors")
    write(trainer_of(load_network("quick-cifar"), seed=4), tmp_path)
    init = tmp_path / "run.safetensors"
    keys = {**SETTINGS, "init": str(init), "devices": 2}
    expected = emuchain.train(**keys, epochs=2)
    emuchain.train(**keys, epochs=1, checkpoint=str(tmp_path / "on.ckpt"))
    init.unlink()
    found = emuchain.train(resume=str(tmp_path / "on.ckpt"), epochs=2)
    assert bits(found.weights) == bits(expected.weights)


def test_a_checkpoint_gives_the_weights_that_updates_change(
    tmp_path: Path, small_cifar: Path
) -> None:
    """Of results, there are those that engines read, which are the others rounded."""
    keys: dict[str, Any] = {
        "network": "quick-cifar",
        "data": str(small_cifar),
        **{"samples": 16, "test_samples": 4, "batch": 8, "epochs": 1, "schedule": "sync"},
        "precision": "mxfp8",
    }
    names = [str(tmp_path / name) for name in ("run.ckpt", "run.h5")]
    emuchain.train(**keys, devices=2, checkpoint=names[0], out=names[1])
    network = load_network("quick-cifar")
    masters, read = (read_weights(name, network, "here") for name in names)
    for layer in network.layers:
        own, others = masters[layer.name]["weight"], read[layer.name]["weight"]
        assert not np.array_equal(own, others) and np.allclose(own, others, rtol=0.1, atol=0.01)
    # A run that begins with either begins with the same engines' weights.
    first = []
    for name in names:
        kept = str(tmp_path / "next.ckpt")
        emuchain.train(**keys, init=name, learning_rate=1e-30, checkpoint=kept)
        first.append(read_run_weights(kept).weights)
    for layer in network.layers:
        own, others = (weights[layer.name]["weight"] for weights in first)
        assert np.array_equal(own, others) and np.array_equal(own, read[layer.name]["weight"])
