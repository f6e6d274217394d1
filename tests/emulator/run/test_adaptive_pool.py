"""Averages over windows of several sizes: against PyTorch in float64; on chains the same bits and
times however a network is cut, and their way through ONNX and from models of PyTorch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.network import Site, load_network
from emuchain.emulator.network.operation import SfuStep
from emuchain.emulator.network.operations.pool import AdaptiveAveragePool
from emuchain.emulator.network.shape import Tensor
from emuchain.kernels import Arena

from ..networks import of_images
from .operations import KEYS, Bits, check_bits, check_file, check_step, check_weights

NETWORK = of_images(
    "adaptive",
    {"type": "conv", "channels": 8, "kernel": 5, "stride": 4, "pad": 2},
    *({"type": "relu"}, {"type": "adaptive-average-pool", "size": [5, 3]}),
    {"type": "conv", "channels": 8, "kernel": 3, "pad": 1},
    {"type": "adaptive-average-pool", "size": 7},
    {"type": "conv", "channels": 8, "kernel": 3},
)


@pytest.fixture(scope="module")
def reference() -> Any:
    """Results on one board."""
    return emuchain.train(NETWORK, micro_batch=8, **KEYS)


@pytest.mark.parametrize("size", [(7, 7), (3, 2), (1, 4), (5, 6)])
@pytest.mark.parametrize("shape", [(4, 5, 6), (2, 2, 2), (3, 1, 9)])
def test_it_is_that_of_pytorch_in_float64(shape: tuple[int, int, int], size: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    of, random = AdaptiveAveragePool(size=size), np.random.default_rng(2)
    channels, rows, columns = made = of.output([shape])
    unit = of.unit(SfuStep(of, (Tensor(1, shape),), Tensor(2, made)), Site(0, 0, Arena()))
    x = random.standard_normal((3, *shape[1:], channels), np.float32)
    dy = random.standard_normal((3, rows, columns, channels), np.float32)
    leaf = torch.tensor(x.transpose(0, 3, 1, 2), dtype=torch.float64, requires_grad=True)
    expected = of.torch(torch.nn, shape)(leaf)
    expected.backward(torch.tensor(dy.transpose(0, 3, 1, 2), dtype=torch.float64))
    y, state = unit.forward([x], {}, None)
    [dx] = unit.backward(state, dy, {})
    for ours, theirs in ((y, expected.detach()), (dx, leaf.grad)):
        own = theirs.numpy().transpose(0, 2, 3, 1)
        assert np.abs(ours - own).max() <= 1e-6 * np.abs(own).max()


def test_rows_wait_for_their_windows() -> None:
    """By hand, of three rows from two, of which the middle one takes both; and of two from three,
    both of which take the middle one.
    """
    larger = AdaptiveAveragePool(size=(3, 1)).rows((1, 2, 1), (1, 3, 1))
    assert (larger.forward.tolist(), larger.backward.tolist()) == ([0, 1, 1], [1, 2])
    smaller = AdaptiveAveragePool(size=(2, 1)).rows((1, 3, 1), (1, 2, 1))
    assert (smaller.forward.tolist(), smaller.backward.tolist()) == ([1, 2], [0, 1, 1])


def test_its_time_by_hand() -> None:
    """One board of 10 ns, whose five engines have a multiplier each: 2 cycles a row in conv1, of
    two rows, 4 in conv2, of three; 2 cycles an update.

        conv1 FP    20  40          rows 0 to 2 go on at 20, 40, 40
        conv2 FP    60 100 140
        conv2 EB   180 220 260      rows 0 and 1 go back at 220, 260
        conv1 PG   240 280          new weights 20 later
    """
    conv = {"type": "conv", "channels": 2, "kernel": 1}
    end = {"type": "average-pool", "kernel": [3, 1]}
    pool = {"type": "adaptive-average-pool", "size": [3, 1]}
    board = {"name": "one", "clock_mhz": 100, "dsp": 5, "on_chip_memory_kbit": 8}
    links = {"bandwidth_gbps": 1, "latency_ns": 0}
    layers = [conv, pool, conv, end, {"type": "softmax"}]
    made = emuchain.simulate(
        {"name": "rows", "input": [1, 2, 1], "layers": layers},
        cluster={"name": "one", "boards": [board], "links": links},
        **{"samples": 1, "batch": 1, "micro_batch": 1, "schedule": "sync"},
    )
    assert made.virtual_time_ps == 300_000


@pytest.mark.parametrize("micro_batch", [1, 4])
@pytest.mark.parametrize("devices", [2, 3, 5, 8])
def test_no_mapping_changes_a_bit(
    reference: Any, bits: Bits, devices: int, micro_batch: int
) -> None:
    check_bits(NETWORK, KEYS, reference, bits, devices=devices, micro_batch=micro_batch)


def test_pytorch_takes_the_same_step() -> None:
    check_step(NETWORK)


def test_windows_that_are_alike_are_those_of_an_average_pool() -> None:
    pools: list[dict[str, Any]] = [{"type": "average-pool", "kernel": [2, 4]}]
    pools += [{"type": "adaptive-average-pool", "size": [16, 8]}]
    one, other = (
        load_network(of_images("even", {"type": "conv", "channels": 2, "kernel": 1}, pool))
        for pool in pools
    )
    assert one.layers == other.layers


def test_it_goes_through_onnx(reference: Any, tmp_path: Path, bits: Bits) -> None:
    path = tmp_path / "adaptive.onnx"
    check_file(NETWORK, reference, path)
    check_weights(path, KEYS, reference, bits)


def test_models_of_pytorch_are_taken(tmp_path: Path, one_line: Any) -> None:
    """VGG pools to 7x7 whatever the images are; PyTorch's exporter gathers the windows."""
    torch = pytest.importorskip("torch", reason="PyTorch, of which this model is, is missing")
    pytest.importorskip("onnxscript", reason="onnxscript, which its exporter needs, is missing")
    nn = torch.nn

    def model(*own: Any) -> Any:
        return nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), *own)

    ends = nn.Conv2d(4, 6, 3), nn.AdaptiveAvgPool2d((2, 3)), nn.Flatten(), nn.Linear(36, 10)
    peer, images = model(nn.AdaptiveAvgPool2d(7), *ends), torch.randn(3, 3, 8, 8)
    network = emuchain.from_torch(peer, images[:2])
    torch.onnx.export(
        peer, (images[:2],), tmp_path / "vgg.onnx", dynamo=True, optimize=False, verbose=False
    )
    read = load_network(tmp_path / "vgg.onnx")
    steps = [[step.operation for step in layer.sfu] for layer in network.layers]
    assert steps == [[step.operation for step in layer.sfu] for layer in read.layers]
    assert steps[0][1:] == [AdaptiveAveragePool(size=(7, 7))]
    assert steps[1] == [AdaptiveAveragePool(size=(2, 3))]
    from emuchain.emulator.data import Dataset

    maps, labels = np.zeros((8, 3, 8, 8), np.uint8), np.arange(8)
    own = Dataset("none", maps, labels, maps, labels, tuple(map(str, range(10))))
    still = {"batch": 8, "progress": "none", "learning_rate": 1e-30, "weight_decay": 0}
    run = emuchain.train(network, data=own, **still)
    theirs = peer(images).detach().numpy()
    assert np.abs(emuchain.predict(run, images) - theirs).max() <= 1e-5 * np.abs(theirs).max()
    peer.load_state_dict(run.state_dict(), strict=True)

    class Gathered(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x[:, :, [[0, 1], [2, 3]], [[3, 2], [1, 0]]].flatten(1)

    with pytest.raises(InputError, match="gathers values by places; only averages") as error:
        emuchain.from_torch(model(Gathered(), nn.Linear(16, 10)), images[:2])
    assert one_line(error)
