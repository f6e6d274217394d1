"""`emuchain export`: weights go to PyTorch and back without a changed bit, and compute the same
there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.data import load_data
from emuchain.emulator.network import load_network
from emuchain.emulator.run import Weights, read_weights

from ..networks import CONV, GROUPED, GRU, LSTM, of_images, of_rows
from .running import status_of

Bits = Callable[[Weights], dict[str, bytes]]

SETTINGS: dict[str, Any] = {"samples": 60, "test_samples": 20, "batch": 20}
IMAGES = of_images(
    "images",
    CONV,
    {"type": "batch-norm"},
    {"type": "relu"},
    {"type": "max-pool", "kernel": 3, "stride": 2, "pad": 1},
    GROUPED,
    {"type": "batch-norm"},
    {"type": "relu6"},
)
ROWS = of_rows("rows", GRU, LSTM)
ACTIVATIONS = of_images(
    "activations",
    # as many channels as test images: onnx's reference evaluator takes the one for the other in LRN
    {"type": "conv", "name": "c1", "channels": 20, "kernel": 5, "stride": 2, "pad": 2},
    {"type": "silu"},
    *({"type": "elu", "scale": 0.5}, {"type": "mish"}, {"type": "clip"}),
    {"type": "lrn", "size": 3},
    {"type": "conv", "name": "c2", "channels": 8, "kernel": 3, "stride": 2, "pad": 1},
    {"type": "hard-swish"},
    {"type": "conv", "name": "c3", "channels": 8, "kernel": 3, "pad": 1},
    {"type": "sigmoid"},
    {"type": "fc", "name": "f1", "features": 16},
    {"type": "hard-sigmoid"},
    {"type": "dropout", "rate": 0.3},
)
RECURRENT = of_rows(
    "recurrent",
    GRU,
    {"type": "lstm", "name": "second", "units": 11},
    {"type": "gru", "name": "third", "units": 9, "reset": "before"},
)
MIXED = of_images(
    "mixed",
    {"type": "conv", "name": "c1", "channels": 8, "kernel": 5, "stride": 4, "pad": 2},
    {"type": "relu"},
    {"type": "sequence"},
    {"type": "lstm", "name": "both", "units": 12, "bidirectional": True},
    {"type": "conv", "name": "each", "channels": 6, "kernel": 1},
    {"type": "silu"},
    {"type": "conv", "name": "each2", "channels": 6, "kernel": 1, "bias": False},
)
run = functools.partial(status_of, "export")


@pytest.fixture(scope="module", params=[IMAGES, ROWS], ids=["images", "rows"])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any, Path]:
    """A network's description, its results, and their folder, with run.h5 and run.ckpt."""
    folder = tmp_path_factory.mktemp("trained")
    files = {"out": str(folder / "run.h5"), "checkpoint": str(folder / "run.ckpt")}
    return request.param, emuchain.train(request.param, **SETTINGS, **files), folder


def inputs() -> tuple[np.ndarray, np.ndarray]:
    """The test images of these runs, normalised, and their labels."""
    data = load_data("shapes").first(SETTINGS["samples"]).test_first(SETTINGS["test_samples"])
    return data.normalisation().apply(np.asarray(data.test_images)), data.test_labels


def torch_module(name: str, arrays: dict[str, Any]) -> Callable[[Any], Any]:
    """The network in PyTorch with the arrays of a safetensors file; each is used."""
    import torch
    from torch import nn

    def filled(module: Any, layer: str, **names: str) -> Any:
        keys = module.state_dict().keys() - {"num_batches_tracked"}
        own = {key: arrays.pop(f"{layer}.{names.get(key, key)}") for key in keys}
        module.load_state_dict(own, strict=False)
        return module.eval()

    norm = {"weight": "scale", "bias": "shift", "running_mean": "mean", "running_var": "variance"}
    if name == "images":
        return nn.Sequential(
            filled(nn.Conv2d(3, 12, 5, 2, 2), "c1"),
            filled(nn.BatchNorm2d(12), "c1", **norm),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
            filled(nn.Conv2d(12, 20, 3, 1, 1, groups=2, bias=False), "c2"),
            filled(nn.BatchNorm2d(20), "c2", **norm),
            nn.ReLU6(),
            nn.Flatten(),
            filled(nn.Linear(20 * 64, 10), "out"),
        )
    first = filled(nn.GRU(96, 12, batch_first=True, bidirectional=True), "first")
    second = filled(nn.LSTM(24, 20, batch_first=True, proj_size=8), "second")
    out = filled(nn.Linear(8, 10), "out")

    def forward(x: torch.Tensor) -> torch.Tensor:
        steps = x.permute(0, 2, 1, 3).flatten(2)
        result: torch.Tensor = out(second(first(steps)[0])[0][:, -1])
        return result

    return forward


@pytest.mark.parametrize("source", ["run.h5", "run.ckpt"])
def test_safetensors(
    trained: Any, capsys: pytest.CaptureFixture[str], bits: Bits, source: str
) -> None:
    torch, of_torch = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    network, results, folder = trained
    file = folder / f"{source}.safetensors"
    assert run(str(folder / source), str(file)) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith(str(file))
    assert bits(read_weights(str(file), load_network(network), "here")) == bits(results.weights)
    arrays = of_torch.load_file(file)
    module = torch_module(network["name"], arrays)
    assert not arrays, "all are used"
    images, labels = inputs()
    with torch.no_grad():
        logits = module(torch.from_numpy(images))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels)).item()
    assert loss == pytest.approx(results.history["test_loss"][-1], rel=1e-5)


NETWORKS = {
    "images": IMAGES,
    "shortcuts": "resnet8-cifar",
    "activations": ACTIVATIONS,
    "recurrent": RECURRENT,
    "mixed": MIXED,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_onnx(tmp_path: Path, bits: Bits, name: str) -> None:
    reference, network = pytest.importorskip("onnx.reference"), NETWORKS[name]
    source, file = str(tmp_path / "run.h5"), str(tmp_path / "run.onnx")
    results = emuchain.train(network, **SETTINGS, out=source)
    assert run(source, file) == 0
    assert bits(read_weights(file, load_network(network), "here")) == bits(results.weights)
    again = load_network(file)
    assert again.layers == load_network(network).layers
    images, labels = inputs()
    [logits] = reference.ReferenceEvaluator(file).run(None, {"images": images})
    odds = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(odds).sum(axis=1)) - odds[np.arange(len(labels)), labels]
    assert losses.mean() == pytest.approx(results.history["test_loss"][-1], rel=1e-5)


def test_onnx_imported_computes_the_same(tmp_path: Path) -> None:
    """The imported network with the exported weights has the test of the run to the bit."""
    pytest.importorskip("onnx")
    file = str(tmp_path / "run.onnx")
    results = emuchain.train(RECURRENT, **SETTINGS)
    emuchain.export(results, file)
    # The smallest rate leaves all weights as they are.
    again = emuchain.train(file, init=file, learning_rate=1e-30, weight_decay=0, **SETTINGS)
    assert again.history["test_loss"][-1] == results.history["test_loss"][-1]


def test_onnx_of_a_text(tmp_path: Path, bits: Bits) -> None:
    """Symbols go in, and each step has its logits."""
    reference = pytest.importorskip("onnx.reference")
    file = str(tmp_path / "run.onnx")
    results = emuchain.train("char-lstm", time_steps=12, samples=20, test_samples=8, batch=20)
    emuchain.export(results, file)
    again = load_network(file)
    assert bits(read_weights(file, again, "here")) == bits(results.weights)
    assert [layer.operation for layer in again.layers] == [
        layer.operation for layer in load_network("char-lstm", time_steps=12).layers
    ]
    data = load_data("text", 12).test_first(8)
    symbols, next_ones = np.asarray(data.test_images), np.asarray(data.test_labels)
    [logits] = reference.ReferenceEvaluator(file).run(
        None, {"symbols": symbols.reshape(8, 12).astype(np.int64)}
    )
    odds = logits - logits.max(axis=2, keepdims=True)
    losses = (
        np.log(np.exp(odds).sum(axis=2))
        - np.take_along_axis(odds, next_ones[:, :, None], 2)[:, :, 0]
    )
    assert losses.mean() == pytest.approx(results.history["test_loss"][-1], rel=1e-5)


EVEN_LRN = {
    **IMAGES,
    "layers": [IMAGES["layers"][0], {"type": "lrn", "size": 4}, *IMAGES["layers"][-2:]],
}


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (ROWS, "rows has lstm with a projection (second)"),
        (EVEN_LRN, "images has lrn with an even size (c1)"),
    ],
)
def test_what_onnx_has_no_words_for(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    one_line: Callable[[str], str],
    network: Any,
    message: str,
) -> None:
    pytest.importorskip("onnx")
    source, file = str(tmp_path / "run.h5"), tmp_path / "run.onnx"
    emuchain.train(network, **SETTINGS, out=source)
    capsys.readouterr()
    assert run(source, str(file)) == 2
    assert message in one_line(capsys.readouterr().err)
    assert not file.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.h5", "w.safetensors"], "no such file"),
        (["run.h5", "w.bin"], "`out` = 'w.bin'"),
        (["run.h5", "nowhere/w.safetensors"], "`out` = 'nowhere/w.safetensors'"),
    ],
)
def test_one_line_of_what_is_wrong(
    trained: Any,
    capsys: pytest.CaptureFixture[str],
    one_line: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(trained[2])
    assert run(*words) == 2
    assert message in one_line(capsys.readouterr().err)
    assert not (trained[2] / words[1]).exists()
