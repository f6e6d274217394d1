"""Zeros around and between values of maps: padding that differs between sides, and transposed
convolutions, against PyTorch; on chains the same bits and times however a network is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset, Normalisation
from emuchain.emulator.network import Site, load_network
from emuchain.emulator.network.operation import SfuStep
from emuchain.emulator.network.operations.resize import Zeros
from emuchain.emulator.network.shape import Tensor
from emuchain.kernels import Arena

from ..networks import of_images

NETWORK = of_images(
    "zeros",
    {"type": "conv", "channels": 8, "kernel": 5, "stride": 4, "pad": 2},
    *({"type": "relu"}, {"type": "zeros", "below": 1, "right": 2}),
    {"type": "conv", "channels": 8, "kernel": 4, "stride": 2, "pad": 1},
    {"type": "zeros", "scale": 2, "above": 1, "below": 2, "right": 1},
    {"type": "conv", "channels": 8, "kernel": 3, "pad": 1},
    {"type": "zeros", "scale": [1, 3], "left": 2},
)
KEYS: dict[str, Any] = {
    **{"samples": 24, "test_samples": 10, "batch": 8, "schedule": "sync", "progress": "none"},
    **{"learning_rate": 0.01},
}
Bits = Callable[[Any], dict[str, bytes]]
FORMS: list[dict[str, Any]] = [
    *({"above": 2}, {"left": 1, "right": 3}, {"scale": (2, 3)}, {}),
    {"scale": (3, 1), "above": 1, "left": 2, "below": 3, "right": 4},
]


@pytest.fixture(scope="module")
def reference() -> Any:
    """Results on one board."""
    return emuchain.train(NETWORK, micro_batch=8, **KEYS)


@pytest.mark.parametrize("shape", [(4, 5, 6), (2, 1, 3), (3, 2, 1)])
@pytest.mark.parametrize("keys", FORMS)
def test_it_is_that_of_pytorch(keys: dict[str, Any], shape: tuple[int, int, int]) -> None:
    """Exactly: no number is computed."""
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    of, random = Zeros(**keys), np.random.default_rng(2)
    channels, rows, columns = made = of.output([shape])
    step = SfuStep(of, (Tensor(1, shape),), Tensor(2, made))
    unit = of.unit(step, Site(0, 0, Arena()))
    x = random.standard_normal((3, *shape[1:], channels), np.float32)
    dy = random.standard_normal((3, rows, columns, channels), np.float32)
    leaf = torch.tensor(x.transpose(0, 3, 1, 2), requires_grad=True)
    expected = of.torch(torch.nn, shape)(leaf)
    expected.backward(torch.tensor(dy.transpose(0, 3, 1, 2)))
    y, state = unit.forward([x], {}, None)
    [dx] = unit.backward(state, dy, {})
    assert np.array_equal(y, expected.detach().numpy().transpose(0, 2, 3, 1))
    assert np.array_equal(dx, leaf.grad.numpy().transpose(0, 2, 3, 1))


def test_rows_wait_for_those_that_are_not_zeros() -> None:
    """By hand, of two rows: one of zeros before them, one between, and two behind."""
    maps = Zeros(scale=(2, 1), above=1, below=2).rows((1, 2, 1), (1, 6, 1))
    assert maps.forward.tolist() == [0, 0, 0, 1, 1, 1]
    assert maps.backward.tolist() == [1, 3]


@pytest.mark.parametrize("micro_batch", [1, 4])
@pytest.mark.parametrize("devices", [2, 3, 7])
def test_no_mapping_changes_a_bit(
    reference: Any, bits: Bits, devices: int, micro_batch: int
) -> None:
    run = emuchain.train(NETWORK, devices=devices, micro_batch=micro_batch, **KEYS)
    assert bits(run.weights) == bits(reference.weights)
    own = {key: KEYS[key] for key in ("samples", "batch", "schedule")}
    for schedule in ("sync", "fpdeep"):
        keys = {**own, "schedule": schedule, "devices": devices, "micro_batch": micro_batch}
        found = emuchain.simulate(NETWORK, **keys)
        assert schedule == "fpdeep" or found.virtual_time_ps == run.virtual_time_ps


def test_padding_goes_through_onnx(tmp_path: Path, one_line: Any) -> None:
    pytest.importorskip("onnx", reason="onnx, which the file needs, is not installed")
    layers = [*NETWORK["layers"][:4], *NETWORK["layers"][-2:]]
    run = emuchain.train({**NETWORK, "layers": layers}, **{**KEYS, "samples": 8})
    emuchain.export(run, tmp_path / "zeros.onnx")
    read = load_network(str(tmp_path / "zeros.onnx"))
    assert read.layers == load_network({**NETWORK, "layers": layers}).layers
    run = emuchain.train(NETWORK, **{**KEYS, "samples": 8})
    with pytest.raises(InputError, match="zeros between values, as of transposed") as error:
        emuchain.export(run, tmp_path / "zeros.onnx")
    assert one_line(error)


def test_around_images_they_are_those_of_the_source(tmp_path: Path, bits: Bits) -> None:
    """The run is that on images with such zeros, in files and in PyTorch, too."""
    conv, ends = {"type": "conv", "channels": 4, "kernel": 3, "stride": 2}, {"above": 2, "right": 2}
    maps = np.random.default_rng(5).integers(0, 256, (24, 3, 8, 8), np.uint8)
    around = np.pad(maps, ((0, 0), (0, 0), (2, 0), (0, 2)), constant_values=127)
    made, labels = [], np.arange(24) % 10
    for images, layers in (
        (maps, [{"type": "zeros", **ends}, conv]),
        (around, [conv]),
    ):
        given = Normalisation(np.full(3, 127, np.float32), np.full(3, 64, np.float32))
        parts = images, labels, images[:10], labels[:10], tuple("0123456789")
        network = {**of_images("around", *layers), "input": images.shape[1:]}
        data = Dataset("random", *parts, given=given)
        made.append(emuchain.train(network, data=data, devices=2, **KEYS))
    run, other = made
    assert bits(run.weights) == bits(other.weights)
    assert run.virtual_time_ps == other.virtual_time_ps
    x = (maps.astype(np.float32) - 127) / 64
    logits = emuchain.predict(run, x)
    assert np.array_equal(logits, emuchain.predict(other, (around.astype(np.float32) - 127) / 64))
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    theirs = run.to_torch()(torch.from_numpy(x)).detach().numpy()
    assert np.abs(theirs - logits).max() <= 1e-5 * np.abs(logits).max()
    pytest.importorskip("onnx", reason="onnx, which the file needs, is not installed")
    emuchain.export(run, tmp_path / "around.onnx")
    read = load_network(str(tmp_path / "around.onnx"))
    network = load_network(
        {**of_images("around", {"type": "zeros", **ends}, conv), "input": [3, 8, 8]}
    )
    assert (read.layers, read.corner) == (network.layers, (2, 0))


@pytest.mark.parametrize("first", [{"type": "zeros", "scale": 2}, {"type": "zeros", "left": 1}])
def test_one_operation_may_begin(first: dict[str, Any], one_line: Any) -> None:
    layers = [{"type": "zeros", "above": 1}, first, *NETWORK["layers"]]
    with pytest.raises(InputError, match="a network begins with a layer") as error:
        load_network({**NETWORK, "layers": layers})
    assert one_line(error)


def test_models_of_pytorch_are_taken(tmp_path: Path, one_line: Any) -> None:
    """Training and its weights are PyTorch's; a file of them is the same network."""
    torch = pytest.importorskip("torch", reason="PyTorch, of which this model is, is missing")
    pytest.importorskip("onnxscript", reason="onnxscript, which its exporter needs, is missing")
    nn = torch.nn

    def model(*first: Any) -> Any:
        torch.manual_seed(1)
        ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)
        return nn.Sequential(*first, nn.ReLU(), *ends)

    middle = [
        *(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 6, 3, 2)),  # as EfficientNet of TensorFlow
        *(nn.Conv2d(6, 4, 4, padding="same"), nn.ReLU()),
        nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2),
        *(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(6, 4, 3, 2)),
        *(nn.ConvTranspose2d(4, 4, 2, 2, bias=False), nn.ConvTranspose2d(4, 4, 3, padding=1)),
    ]
    images = np.random.default_rng(3).integers(0, 256, (24, 3, 8, 8), np.uint8)
    labels = np.arange(24) % 10
    data = Dataset("random", images, labels, images[:4], labels[:4], tuple("0123456789"))
    peer = model(*middle)
    network = emuchain.from_torch(peer, torch.zeros(2, 3, 8, 8))
    keys = {**KEYS, "test_samples": 4, "momentum": 0.0, "weight_decay": 0.0, "batch": 24}
    run = emuchain.train(network, data=data, devices=3, **keys)
    inputs = torch.from_numpy(data.normalisation().apply(images))
    optimizer = torch.optim.SGD(peer.parameters(), 0.01)
    loss = nn.functional.cross_entropy(peer(inputs), torch.from_numpy(labels))
    loss.backward()
    optimizer.step()
    assert run.steps["loss"][0] == pytest.approx(loss.item(), rel=1e-5)
    for key, value in run.state_dict().items():
        assert (value - peer.state_dict()[key]).abs().max() <= 1e-6, key
    file = tmp_path / "model.onnx"
    program = torch.onnx.export(peer, (inputs[:2],), dynamo=True, optimize=False, verbose=False)
    program.save(file)
    assert [layer.sfu for layer in load_network(file).layers] == [
        layer.sfu for layer in network.layers
    ]
    for other, message in (
        ([nn.ConvTranspose2d(3, 4, 2, 2)], "a network's inputs"),
        ([nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 4, 3, dilation=2)], "`dilations` = "),
        ([nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 4, 2, 2, 2)], "cuts off more than"),
    ):
        with pytest.raises(InputError, match=message) as error:
            emuchain.from_torch(model(*other), torch.zeros(2, 3, 9, 9))
        assert one_line(error)
