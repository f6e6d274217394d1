"""Layers over tokens, behind maps whose rows and channels change places: on chains the same bits
and times however a network is cut, the same step as PyTorch, times and memory by hand, and their
way through ONNX and from models of PyTorch.

A chain by hand
--------------- Image 1x3x1; `a` 1x1 with 2 channels gives 2x3x1, transposed 3x2x1; `b` 1x1 with 2
channels gives 2x2x1. `a` takes 2 multiplications a row, so with 2 multipliers FP and PG of the left
board, of 10 ns, take 20 a row; `b` takes 6 a row, and with 3 multipliers FP, EB and PG of the right
board take 60. A row of three values takes 12 bytes, 96 bits at 3.2 Gb/s = 30; the latency is 100.

    left    a FP      20  40  60     transposed: both rows at 60
    path 1  leaves    90 120         arrives 190 220
    right   b FP     250 310         errors of its outputs are there with them
            b EB     310 370
            b PG     310 370         new weights 370 + 2·10 = 390
    path 4  leaves   340 400         arrives 440 500
    left    a PG     520 540 560     all errors at 500; new weights 560 + 2·10 = 580
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import Slice, cut_channels, slice_memory
from emuchain.emulator.network import Site, load_network
from emuchain.emulator.network.operation import SfuStep
from emuchain.emulator.network.operations.sequence import Transpose
from emuchain.emulator.network.shape import Tensor
from emuchain.kernels import Arena

from ..networks import Table, of_images
from .operations import KEYS, Bits, check_bits, check_file, check_step, check_weights

# A block of MLP-Mixer, on 16 tokens of 12 values.
NETWORK = of_images(
    "mixer",
    {"type": "conv", "channels": 12, "kernel": 8, "stride": 8},
    {"type": "tokens", "name": "x"},
    *({"type": "layer-norm"}, {"type": "transpose"}),
    {"type": "conv", "channels": 20, "kernel": 1, "name": "a_up"},
    *({"type": "gelu"}, {"type": "conv", "channels": 16, "kernel": 1, "name": "a_down"}),
    {"type": "transpose", "name": "mixed"},
    {"type": "add", "from": ["mixed", "x"], "name": "y"},
    {"type": "layer-norm"},
    {"type": "conv", "channels": 24, "kernel": 1},
    {"type": "gelu"},
    {"type": "conv", "channels": 12, "kernel": 1, "name": "z"},
    {"type": "add", "from": ["z", "y"]},
    {"type": "layer-norm"},
    {"type": "global-average-pool"},
)


@pytest.fixture(scope="module")
def reference() -> Any:
    """Results on one board."""
    return emuchain.train(NETWORK, micro_batch=8, **KEYS)


@pytest.mark.parametrize("micro_batch", [1, 4])
@pytest.mark.parametrize("devices", [2, 3, 5, 8])
def test_no_mapping_changes_a_bit(
    reference: Any, bits: Bits, devices: int, micro_batch: int
) -> None:
    check_bits(NETWORK, KEYS, reference, bits, devices=devices, micro_batch=micro_batch)


def test_pytorch_takes_the_same_step() -> None:
    """One step of SGD from the same weights."""
    assert "a_up.weight" in check_step(NETWORK)


@pytest.mark.parametrize(
    "precision",
    ["bf16 accumulate=bf16", "nvfp4", "int8 scaling=delayed", "mxfp8 block=8x8 accumulate=dot:8"],
)
def test_no_mapping_changes_a_bit_in_formats(bits: Bits, precision: str) -> None:
    """Blocks run along channels, which are tokens where maps are transposed."""
    keys = {**KEYS, "precision": precision}
    one = emuchain.train(NETWORK, micro_batch=8, **keys)
    for devices, micro_batch in ((2, 4), (5, 1)):
        run = emuchain.train(NETWORK, devices=devices, micro_batch=micro_batch, **keys)
        assert bits(run.weights) == bits(one.weights)


def test_it_changes_the_places_of_rows_and_channels() -> None:
    """By hand, of two rows of three values; twice, it changes nothing."""
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 1, 3)
    step = SfuStep(Transpose(), (Tensor(1, (3, 2, 1)),), Tensor(2, (2, 3, 1)))
    unit = step.operation.unit(step, Site(0, 0, Arena()))
    y, state = unit.forward([x], {}, None)
    assert y[0, :, 0].tolist() == [[0, 3], [1, 4], [2, 5]]
    [dx] = unit.backward(state, y, {})
    assert np.array_equal(dx, x)


BY_HAND: Table = {
    "name": "turned",
    "input": [1, 3, 1],
    "layers": [
        {"type": "conv", "channels": 2, "kernel": 1, "name": "a"},
        {"type": "transpose"},
        {"type": "conv", "channels": 2, "kernel": 1, "name": "b"},
        {"type": "softmax"},
    ],
}
TWO: Table = {
    "name": "two",
    "boards": [
        {"name": name, "clock_mhz": 100, "dsp": dsp, "on_chip_memory_kbit": 8}
        for name, dsp in (("left", 2), ("right", 3))
    ],
    "links": {"bandwidth_gbps": 3.2, "latency_ns": 100},
}


def test_times_of_a_sample_by_hand(record: Any) -> None:
    plan = emuchain.plan(BY_HAND, TWO, devices=2, batch=1, micro_batch=1, schedule="sync")
    recorded = record(plan, 1)
    assert recorded.engines == {
        "0 a fp": [[20, 40, 60]],
        "0 a pg": [[520, 540, 560]],
        "1 b fp": [[250, 310]],
        "1 b eb": [[310, 370]],
        "1 b pg": [[310, 370]],
    }
    assert recorded.paths == {1: [[190, 220]], 4: [[440, 500]]}
    assert [trace.updated_ps for trace in recorded.traces] == [[580_000], [390_000]]


def test_it_takes_two_maps_each_way() -> None:
    """Where the layer ends, in fp32, however many samples are in flight: 2x3 values, twice."""
    a = load_network(BY_HAND).layers[0]
    whole, half = Slice(a, 0, cut_channels(a)), Slice(a, 0, 1)
    for in_flight in (1, 3):
        memory = slice_memory(whole, in_flight)
        assert memory.pab.bytes == 4 * 2 + 2 * 4 * 6
        assert memory.error_buffer.bytes == 2 * 4 * 6
        assert slice_memory(half, in_flight).pab.bytes == 4
        assert slice_memory(half, in_flight).error_buffer.bytes == 0


def test_it_goes_through_onnx(reference: Any, tmp_path: Path, bits: Bits) -> None:
    path = tmp_path / "mixer.onnx"
    check_file(NETWORK, reference, path)
    check_weights(path, KEYS, reference, bits)


def test_maps_of_several_columns_are_none_of_tokens(one_line: Any) -> None:
    layers = [NETWORK["layers"][0], {"type": "transpose"}, *NETWORK["layers"][-2:]]
    with pytest.raises(InputError, match="transpose takes a sequence") as error:
        load_network({**NETWORK, "layers": layers})
    assert one_line(error)


class Apart:
    """Models of PyTorch, made once it is there."""

    @staticmethod
    def gated(nn: Any) -> Any:
        """Patches, and tokens mixed by weights on the left, by Conv1d, and by Linear with a gate
        (gMLP), scaled and normalised along tokens.
        """
        import torch

        class Gated(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.patches, self.norm = nn.Conv2d(3, 8, 8, 8), nn.LayerNorm(8)
                self.weight, self.bias = (nn.Parameter(torch.randn(16, n) / 4) for n in (16, 1))
                self.conv, self.mix = nn.Conv1d(16, 16, 1), nn.Linear(16, 16)
                self.alpha, self.beta = (nn.Parameter(torch.randn(1, 1, 8)) for _ in "ab")
                self.factors = nn.Parameter(torch.randn(16))
                self.along, self.head = nn.LayerNorm(16), nn.Linear(8, 10)

            def forward(self, x: Any) -> Any:
                x = self.patches(x).flatten(2).transpose(1, 2)
                x = torch.matmul(self.weight, self.norm(x)) + self.bias + x
                u, v = x.chunk(2, -1)
                x = x + torch.cat([u, u * self.conv(v)], -1)
                y = torch.addcmul(self.beta, self.alpha, x).transpose(1, 2)
                x = x - (self.factors * self.mix(self.along(y))).transpose(1, 2)
                return self.head(x.mean(1))

        return Gated()

    @staticmethod
    def series(nn: Any) -> Any:
        """Layers over the steps of a sequence of values, and over its values."""

        class Series(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.norm, self.over_time = nn.BatchNorm1d(6), nn.Linear(6, 6)
                self.first, self.over_values = nn.Linear(4, 5), nn.Linear(5, 5)
                self.head = nn.Linear(30, 10)

            def forward(self, x: Any) -> Any:
                x = self.norm(self.first(x))
                x = self.over_time(x.transpose(1, 2)).relu().transpose(1, 2) + x
                return self.head((x + self.over_values(x).tanh()).flatten(1))

        return Series()


@pytest.mark.parametrize(
    ("name", "shape", "transposed"), [("gated", (3, 32, 32), 6), ("series", (6, 4), 2)]
)
def test_models_of_pytorch_are_taken(
    name: str, shape: tuple[int, ...], transposed: int, tmp_path: Path
) -> None:
    """Three steps are PyTorch's, and the trained weights go back under its names."""
    torch = pytest.importorskip("torch", reason="PyTorch, of which this model is, is missing")
    pytest.importorskip("onnxscript", reason="onnxscript, which its exporter needs, is missing")
    torch.manual_seed(1)
    model = getattr(Apart, name)(torch.nn)
    random = np.random.default_rng(1)
    x, labels = random.standard_normal((6, *shape), np.float32), random.integers(0, 10, 6)
    network = emuchain.from_torch(model, torch.from_numpy(x[:2]))
    steps = [step.operation.type for layer in network.layers for step in layer.sfu]
    assert steps.count("transpose") == transposed
    path = tmp_path / "model.onnx"
    torch.onnx.export(model.eval(), (torch.from_numpy(x[:2]),), path, dynamo=True, verbose=False)
    assert [
        step.operation.type for layer in load_network(str(path)).layers for step in layer.sfu
    ] == steps
    keys = {"batch": 2, "learning_rate": 0.01, "momentum": 0.0, "weight_decay": 0.0}
    run = emuchain.train(
        network, data=(x, labels), devices=2, schedule="sync", progress="none", seed=3, **keys
    )
    assert model.load_state_dict(run.state_dict(), strict=True)
    model.eval()
    with torch.no_grad():
        theirs = model(torch.from_numpy(x)).numpy()
    assert np.abs(emuchain.predict(run, x) - theirs).max() <= 1e-5 * np.abs(theirs).max()
