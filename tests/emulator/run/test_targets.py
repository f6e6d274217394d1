"""Training on targets of every kind: the first steps as PyTorch takes them, and the same bits on
any boards, replicas and micro-batches.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.device import epoch_order

Bits = Callable[[Any], dict[str, bytes]]
OneLine = Callable[..., str]
N, BATCH = 20, 8
RANDOM = np.random.default_rng(2)
KEYS: dict[str, Any] = {
    **{"batch": BATCH, "micro_batch": 4, "learning_rate": 0.1, "momentum": 0.0},
    **{"weight_decay": 0.0, "schedule": "sync", "progress": "none"},
}

MLP = {
    "name": "mlp",
    "input": [6, 1, 1],
    "layers": [
        {"type": "fc", "features": 8},
        {"type": "relu"},
        {"type": "fc", "features": 4},
        {"type": "softmax"},
    ],
}
SEQUENCE = {
    "name": "sequence",
    "input": [5, 7, 1],
    "layers": [
        {"type": "lstm", "units": 8},
        {"type": "last-step"},
        {"type": "fc", "features": 4},
        {"type": "softmax"},
    ],
}
TOKENS = {
    "name": "tokens",
    "input": [11, 7, 1],
    "layers": [
        {"type": "embedding", "features": 6},
        {"type": "gru", "units": 8},
        {"type": "conv", "channels": 4, "kernel": 1},
        {"type": "softmax"},
    ],
}
PIXELS = {
    "name": "pixels",
    "input": [3, 6, 5],
    "layers": [
        {"type": "conv", "channels": 8, "kernel": 3, "pad": 1},
        {"type": "relu"},
        {"type": "conv", "channels": 4, "kernel": 1},
        {"type": "softmax"},
    ],
}


def ignoring(targets: np.ndarray) -> np.ndarray:
    """Classes, of which every third is none, and all of sample 2."""
    flat = targets.copy()
    flat.reshape(-1)[::3] = -100
    flat[2] = -100
    return flat


def missing(targets: np.ndarray) -> np.ndarray:
    """Numbers, of which every third is none."""
    flat = targets.copy()
    flat.reshape(-1)[::3] = np.nan
    return flat


def floats(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=(N, *shape)).astype(np.float32)


def classes(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 4, (N, *shape))


SYMBOLS, IMAGES, STEPS = RANDOM.integers(0, 11, (N, 7)), floats(3, 6, 5), floats(7, 5)
SHARES = (floats(4) > 0).astype(np.float32)
CASES: dict[str, tuple[dict[str, Any], np.ndarray, np.ndarray, dict[str, Any]]] = {
    "classes of vectors": (MLP, floats(6), classes(), {}),
    "classes of sequences": (SEQUENCE, STEPS, classes(), {}),
    "ignored classes": (MLP, floats(6), ignoring(classes()), {}),
    "smoothed and ignored": (
        *(MLP, floats(6), ignoring(classes())),
        {"label_smoothing": 0.2},
    ),
    "weighted classes": (MLP, floats(6), classes(), {"class_weights": [0.2, 1, 3, 0]}),
    "weighted and ignored": (
        TOKENS,
        SYMBOLS,
        ignoring(classes(7)),
        {"class_weights": [1, 2, 3, 4]},
    ),
    "labels of tokens": (TOKENS, SYMBOLS, ignoring(classes(7)), {}),
    "labels of pixels": (PIXELS, IMAGES, ignoring(classes(6, 5)), {}),
    "numbers": (SEQUENCE, STEPS, floats(4), {"loss": "mse"}),
    "numbers of pixels": (PIXELS, IMAGES, floats(4, 6, 5), {"loss": "mse"}),
    "missing numbers": (MLP, floats(6), missing(floats(4)), {"loss": "mse"}),
    "several labels": (MLP, floats(6), SHARES, {"loss": "bce"}),
    "missing labels": (MLP, floats(6), missing(SHARES), {"loss": "bce"}),
    "weighted labels": (
        *(MLP, floats(6), missing(SHARES)),
        {"loss": "bce", "class_weights": [3, 0.5, 1, 0]},
    ),
    "weighted labels of pixels": (
        *(PIXELS, IMAGES, (floats(4, 6, 5) > 0).astype(np.float32)),
        {"loss": "bce", "class_weights": [3, 0.5, 1, 0]},
    ),
}


def pytorch_loss(torch: Any, outputs: Any, targets: Any, settings: dict[str, Any]) -> Any:
    """The mean loss of a mini-batch, as PyTorch has it, over targets that are there."""
    own = torch.nn.functional
    weights = settings.get("class_weights")
    weight = None if weights is None else torch.tensor(weights, dtype=outputs.dtype)
    if "loss" in settings:
        there = ~torch.isnan(targets)
        if settings["loss"] == "mse":
            return own.mse_loss(outputs[there], targets[there])
        positive = 1 if weight is None else weight.reshape(-1, *[1] * (outputs.ndim - 2))
        factors = (torch.ones_like(outputs) * positive)[there]
        judged = outputs[there], targets[there]
        return own.binary_cross_entropy_with_logits(*judged, pos_weight=factors)
    if targets.ndim == 2:  # (n, steps, classes)
        outputs = outputs.transpose(1, 2)
    smoothing = settings.get("label_smoothing", 0.0)
    keys = {"weight": weight, "ignore_index": -100, "label_smoothing": smoothing}
    return own.cross_entropy(outputs, targets, **keys)


@pytest.mark.parametrize("case", CASES)
def test_pytorch_takes_the_same_steps(case: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    network, inputs, targets, settings = CASES[case]
    keys = {**KEYS, **settings, "data": emuchain.as_data((inputs, targets), (inputs, targets))}
    module = emuchain.train(network, **{**keys, "learning_rate": 1e-30}).to_torch().double()
    run = emuchain.train(network, **keys)
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=0.1), []
    order = epoch_order(1, 0, N)
    for begin in range(0, N, BATCH):
        own = order[begin : begin + BATCH]
        x, t = torch.from_numpy(inputs[own]), torch.from_numpy(targets[own])
        outputs = module(x.double() if x.is_floating_point() else x)
        loss = pytorch_loss(torch, outputs, t.double() if t.is_floating_point() else t, settings)
        optimizer.zero_grad(), loss.backward(), optimizer.step()
        losses.append((float(loss.detach()), len(own)))
    mean = sum(value * count for value, count in losses) / N
    assert run.history["train_loss"][0] == pytest.approx(mean, rel=1e-5)
    expected = module.state_dict()
    for name, moved in run.to_torch().state_dict().items():
        assert np.allclose(moved.numpy(), expected[name].numpy(), rtol=1e-4, atol=1e-6), name
    with torch.no_grad():
        x, t = torch.from_numpy(inputs), torch.from_numpy(targets)
        outputs = module(x.double() if x.is_floating_point() else x)
        plain = {key: value for key, value in settings.items() if key == "loss"}
        tested = pytorch_loss(torch, outputs, t.double() if t.is_floating_point() else t, plain)
    assert run.history["test_loss"][0] == pytest.approx(float(tested), rel=1e-5)
    assert emuchain.evaluate(run, (inputs, targets)).test_loss > 0


@pytest.mark.parametrize(
    "split", [{"devices": 3}, {"micro_batch": 1}, {"schedule": "1f1b-as", "devices": 2}]
)
@pytest.mark.parametrize("case", ["weighted and ignored", "labels of pixels", "weighted labels"])
def test_no_mapping_changes_a_bit(bits: Bits, case: str, split: dict[str, Any]) -> None:
    network, inputs, targets, settings = CASES[case]
    keys = {**KEYS, **settings, "data": emuchain.as_data((inputs, targets), (inputs, targets))}
    keys = {**keys, **({"schedule": split["schedule"]} if "schedule" in split else {})}
    whole, cut = emuchain.train(network, **keys), emuchain.train(network, **{**keys, **split})
    assert bits(cut.weights) == bits(whole.weights)
    assert cut.history["test_loss"][0] == whole.history["test_loss"][0]
    own = {
        key: value for key, value in {**keys, **split}.items() if key not in ("data", "progress")
    }
    simulated = emuchain.simulate(network, **{**own, "samples": N})
    assert simulated.virtual_time_ps == cut.virtual_time_ps


FORMATS: dict[str, tuple[str, ...]] = {
    "weighted and ignored": ("bf16",),
    "labels of pixels": ("mxint8 accumulate=dot:32",),
    "numbers": ("fp8",),
    "numbers of pixels": ("mxint8 accumulate=dot:32", "mxfp8 rounding=stochastic"),
    "missing labels": ("bf16 master=bf16 rounding=stochastic", "mxint8 accumulate=dot:32"),
}


@pytest.mark.parametrize(
    ("case", "precision"), [(case, each) for case, own in FORMATS.items() for each in own]
)
def test_formats_change_no_bit_by_mapping(
    bits: Bits, tmp_path: Path, case: str, precision: str
) -> None:
    """On three boards, and resumed amid the second epoch."""
    network, inputs, targets, settings = CASES[case]
    keys = {**KEYS, **settings, "data": emuchain.as_data((inputs, targets), (inputs, targets))}
    keys |= {"precision": precision, "epochs": 2}
    file, amid = tmp_path / "run.ckpt", tmp_path / "amid.ckpt"

    def keep(*_: Any) -> None:
        if file.exists():
            shutil.copy(file, amid)

    own = {"checkpoint": str(file), "checkpoint_every": 1, "on_step": keep}
    whole = emuchain.train(network, **keys, **own)
    with zipfile.ZipFile(amid) as archive:
        begun = json.loads(archive.read("checkpoint.json"))
    assert begun["history"]
    assert begun["shares"]
    for other in (
        emuchain.train(network, **keys, devices=3),
        emuchain.train(network, data=keys["data"], resume=str(amid), progress="none"),
    ):
        assert bits(other.weights) == bits(whole.weights)
        for column in ("train_loss", "test_loss", "test_accuracy"):
            assert np.array_equal(other.history[column], whole.history[column], equal_nan=True)
    exact = emuchain.train(network, **{**keys, "precision": "fp32"})
    assert bits(exact.weights) != bits(whole.weights)
    losses, expected = whole.history["train_loss"], exact.history["train_loss"]
    assert losses[-1] == pytest.approx(expected[-1], rel=0.1)
    shared = emuchain.train(network, **keys, replicas=2)
    assert shared.history["train_loss"][0] == pytest.approx(losses[0], rel=0.01)


FLIPS = """
[[faults.flips]]
of = "activations"
rate = 1e-3
highest_bit = 22
"""
TOGETHER: dict[str, dict[str, Any]] = {
    "recompute": {"recompute": "all", "engines": "turns", "schedule": "gpipe"},
    "lora": {"lora": "r=2,on=*", "precision": "bf16"},
    "label_smoothing": {"label_smoothing": 0.1},
    "flips": {"faults": FLIPS},
    "loss_scale": {"precision": "fp16 loss_scale=64"},
}


@pytest.mark.parametrize("key", TOGETHER)
@pytest.mark.parametrize("case", ["weighted classes", "ignored classes", "missing numbers"])
def test_other_keys_change_no_bit_by_mapping(
    bits: Bits, tmp_path: Path, one_line: OneLine, case: str, key: str
) -> None:
    network, inputs, targets, settings = CASES[case]
    keys = {**KEYS, **settings, **TOGETHER[key]}
    if key == "flips":
        (tmp_path / "faults.toml").write_text(FLIPS)
        keys["faults"] = str(tmp_path / "faults.toml")
    data = emuchain.as_data((inputs, targets), (inputs, targets))
    if key == "label_smoothing" and case != "ignored classes":
        with pytest.raises(InputError) as error:
            emuchain.train(network, data=data, **keys)
        assert "`label_smoothing`" in one_line(error)
        return
    whole = emuchain.train(network, data=data, **keys)
    boards = 1 if key == "flips" else 2  # each board has flips of its own
    cut = emuchain.train(network, data=data, **{**keys, "devices": boards, "micro_batch": 2})
    assert bits(cut.weights) == bits(whole.weights)
    assert cut.history["train_loss"][0] == whole.history["train_loss"][0]
    plain = emuchain.train(network, data=data, **{**KEYS, **settings})
    assert (bits(plain.weights) == bits(whole.weights)) == (key == "recompute")


@pytest.mark.parametrize("case", ["weighted and ignored", "numbers"])
def test_a_pair_trains_as_a_chain(bits: Bits, case: str) -> None:
    network, inputs, targets, settings = CASES[case]
    keys = {**KEYS, **settings, "data": emuchain.as_data((inputs, targets), (inputs, targets))}
    pair = {"schedule": "farnn", "cluster": "farnn-9p"}
    chain, pairs = emuchain.train(network, **keys), emuchain.train(network, **{**keys, **pair})
    assert bits(pairs.weights) == bits(chain.weights)
    assert pairs.history["test_loss"][0] == chain.history["test_loss"][0]


def test_replicas_share_one_mean(bits: Bits) -> None:
    """A replica's part of a mini-batch may have fewer targets than another's: each counts alike."""
    network, inputs, targets, settings = CASES["weighted and ignored"]
    keys = {**KEYS, **settings, "data": emuchain.as_data((inputs, targets), (inputs, targets))}
    alone, shared = emuchain.train(network, **keys), emuchain.train(network, replicas=2, **keys)
    assert shared.history["train_loss"][0] == pytest.approx(
        alone.history["train_loss"][0], rel=1e-6
    )
    for name, own in alone.weight_arrays.items():
        assert np.allclose(own, shared.weight_arrays[name], rtol=1e-4, atol=1e-6)


def test_numbers_have_no_accuracy_and_labels_have() -> None:
    network, inputs, targets, settings = CASES["numbers"]
    data = emuchain.as_data((inputs, targets), (inputs, targets))
    run = emuchain.train(network, data=data, **{**KEYS, **settings})
    assert np.isnan(run.test_accuracy)
    assert "test accuracy unknown" in repr(run)
    assert "nan" not in repr(emuchain.evaluate(run, (inputs, targets)))
    network, inputs, targets, settings = CASES["several labels"]
    data = emuchain.as_data((inputs, targets), (inputs, targets))
    run = emuchain.train(network, data=data, **{**KEYS, **settings})
    right = (emuchain.predict(run, inputs) > 0) == (targets > 0.5)
    assert run.test_accuracy == right.mean()


def test_a_loss_may_stand_in_the_network(bits: Bits) -> None:
    network, inputs, targets, settings = CASES["numbers"]
    own = {**network, "layers": [*network["layers"][:-1], {"type": "mse"}]}
    run = emuchain.train(own, data=(inputs, targets), **KEYS)
    assert emuchain.load_network(own).loss == "mse"
    assert bits(run.weights) == bits(
        emuchain.train(network, data=(inputs, targets), **KEYS, **settings).weights
    )


@pytest.mark.parametrize("weights", [[], [3, 0.5, 1, 0]])
def test_a_sigmoid_at_the_end_makes_probabilities(weights: list[float]) -> None:
    _, inputs, targets, _ = CASES["several labels"]
    keys = {**KEYS, "class_weights": weights}
    own = {**MLP, "layers": [*MLP["layers"][:-1], {"type": "sigmoid"}, {"type": "bce"}]}
    run = emuchain.train(own, data=(inputs, targets), **keys)
    logits = emuchain.train(MLP, data=(inputs, targets), loss="bce", **keys)
    for name, array in logits.weight_arrays.items():
        assert np.allclose(array, run.weight_arrays[name], rtol=1e-4, atol=1e-6)


def test_slices_of_a_vocabulary_take_the_mean_over_targets() -> None:
    network, inputs, targets, _ = CASES["labels of tokens"]
    layers = [*network["layers"][:-1], {"type": "softmax", "vocabulary_parallel": True}]
    data = emuchain.as_data((inputs, targets), (inputs, targets))
    whole = emuchain.train(network, data=data, **KEYS)
    parts = emuchain.train({**network, "layers": layers}, data=data, devices=4, **KEYS)
    for column in ("train_loss", "test_loss", "test_accuracy"):
        assert parts.history[column][0] == pytest.approx(whole.history[column][0], rel=1e-6)
    for name, array in whole.weight_arrays.items():
        assert np.allclose(array, parts.weight_arrays[name], rtol=1e-4, atol=1e-6)


REFUSED: dict[str, tuple[dict[str, Any], Any, dict[str, Any], str]] = {
    "numbers without a loss": (MLP, (floats(6), floats(4)), {}, "give `loss` = mse, or bce"),
    "too few numbers": (MLP, (floats(6), floats()), {"loss": "mse"}, "has 1 number for each"),
    "classes as numbers": (MLP, (floats(6), classes()), {"loss": "mse"}, "leave `loss` out"),
    "no shares": (MLP, (floats(6), floats(4)), {"loss": "bce"}, "takes targets from 0 to 1"),
    "too many classes": (MLP, (floats(6), 3 * classes() + 4), {}, "but network mlp has 4 outputs"),
    "other inputs": (MLP, (floats(5), classes()), {}, "inputs are 5x1x1, but network mlp takes"),
    "other steps": (SEQUENCE, (floats(6, 5), classes()), {}, "inputs are 5x6x1"),
    "no symbols": (TOKENS, (floats(7), classes(7)), {}, "looks up symbols"),
    "unknown symbols": (TOKENS, (SYMBOLS + 3, classes(7)), {}, "up to 13 of 7 steps"),
    "a label for all": (TOKENS, (SYMBOLS, classes()), {}, "has results for each of its 7 steps"),
    "a label for an image": (
        PIXELS,
        (IMAGES, classes()),
        {},
        "each of its 6x5 pixels; end with fc",
    ),
    "labels left out by a class": (
        *(PIXELS, (IMAGES, np.full((len(IMAGES), 6, 5), 255)), {}),
        "labels that are left out should be below 0, such as -100",
    ),
    "no target": (MLP, (floats(6), classes() - 4), {}, "has no target: all classes are negative"),
    "weights": (MLP, (floats(6), classes()), {"class_weights": [1, 2]}, "2 numbers, but mlp has 4"),
    "weights of numbers": (
        *(MLP, (floats(6), floats(4)), {"loss": "mse", "class_weights": [1] * 4}),
        "`class_weights` is of classes, and `loss` is mse",
    ),
    "a text": (TOKENS, "text", {"loss": "mse"}, "is a text, whose symbols are classes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_together(one_line: OneLine, case: str) -> None:
    network, data, settings, said = REFUSED[case]
    with pytest.raises(InputError) as error:
        emuchain.train(network, data=data, **{**KEYS, **settings})
    assert said in one_line(error)


@pytest.mark.parametrize("weights", [[], ["--class-weights", "1,2,3,4"]])
@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
def test_ranks_change_no_bit(mpiexec: Any, tmp_path: Path, bits: Bits, weights: list[str]) -> None:
    """Labels of tokens, of which some are ignored, from a file that rank 0 alone reads."""
    network, inputs, targets, _ = CASES["weighted and ignored"]
    np.savez(tmp_path / "own.npz", inputs=inputs, targets=targets)
    (tmp_path / "own.toml").write_text(emuchain.load_network(network).text)
    arguments = ["-m", "emuchain", "train", tmp_path / "own.toml", "--data", tmp_path / "own.npz"]
    arguments += [*weights, "--devices", "2", "--replicas", "2"]
    arguments += ["--schedule", "sync", "--batch", "6", "--progress", "none"]
    runs = []
    for ranks in (1, 4):
        out = tmp_path / f"{ranks}.h5"
        mpiexec(ranks, [*arguments, "--out", out])
        runs.append(emuchain.results(out))
    alone, spread = runs
    assert bits(spread.weights) == bits(alone.weights)
    assert spread.history["test_loss"][0] == alone.history["test_loss"][0]
