"""`emuchain export`: weights go to PyTorch and back without a changed bit, and compute the same there."""

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
run = functools.partial(status_of, "export")


@pytest.fixture(scope="module", params=[IMAGES, ROWS], ids=["images", "rows"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
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
def test_safetensors(trained: Any, capsys: pytest.CaptureFixture[str], bits: Bits, source: str) -> None:
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


@pytest.mark.parametrize("network", [IMAGES, "resnet8-cifar"], ids=["images", "shortcuts"])
def test_onnx(tmp_path: Path, bits: Bits, network: Any) -> None:
    reference = pytest.importorskip("onnx.reference")
    source, file = str(tmp_path / "run.h5"), str(tmp_path / "run.onnx")
    results = emuchain.train(network, **SETTINGS, out=source)
    assert run(source, file) == 0
    assert bits(read_weights(file, load_network(network), "here")) == bits(results.weights)
    again = load_network(file)
    assert [layer.sfu for layer in again.layers] == [layer.sfu for layer in load_network(network).layers]
    images, labels = inputs()
    [logits] = reference.ReferenceEvaluator(file).run(None, {"images": images})
    odds = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(odds).sum(axis=1)) - odds[np.arange(len(labels)), labels]
    assert losses.mean() == pytest.approx(results.history["test_loss"][-1], rel=1e-5)


def test_onnx_of_a_recurrent_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], one_line: Callable[[str], str]
) -> None:
    pytest.importorskip("onnx")
    source, file = str(tmp_path / "run.h5"), tmp_path / "run.onnx"
    emuchain.train(ROWS, **SETTINGS, out=source)
    capsys.readouterr()
    assert run(source, str(file)) == 2
    assert "rows has gru" in one_line(capsys.readouterr().err)
    assert not file.exists()


@pytest.mark.parametrize(
    ("words", "told"),
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
    told: str,
) -> None:
    monkeypatch.chdir(trained[2])
    assert run(*words) == 2
    assert told in one_line(capsys.readouterr().err)
    assert not (trained[2] / words[1]).exists()
