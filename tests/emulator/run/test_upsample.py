"""Maps made larger: against PyTorch in float64; on chains the same bits and times however a network
is cut, and their way through ONNX and from models of PyTorch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.network import Site, load_network
from emuchain.emulator.network.operations.resize import Upsample, UpsampleUnit
from emuchain.kernels import Arena

from ..networks import of_images
from .operations import KEYS, Bits, check_bits, check_file

NETWORK = of_images(
    "larger",
    {"type": "conv", "channels": 8, "kernel": 5, "stride": 4, "pad": 2, "name": "x"},
    *({"type": "relu", "name": "skip"}, {"type": "max-pool", "kernel": 4}),
    {"type": "conv", "channels": 8, "kernel": 3, "pad": 1, "name": "low"},
    {"type": "upsample", "scale": 2, "mode": "bilinear"},
    {"type": "upsample", "scale": [2, 2], "name": "up"},
    {"type": "concat", "from": ["up", "skip"]},
    {"type": "conv", "channels": 8, "kernel": 3, "pad": 1, "name": "y"},
    {"type": "upsample", "scale": [1, 2], "mode": "bilinear", "corners": True},
)
FORMS: list[dict[str, Any]] = [
    {"scale": (2, 3)},
    {"scale": (3, 2), "mode": "bilinear"},
    {"scale": (2, 4), "mode": "bilinear", "corners": True},
    {"scale": (1, 1), "mode": "bilinear"},
]
SHAPES = [(4, 5, 6), (2, 1, 3), (3, 2, 1)]


@pytest.fixture(scope="module")
def reference() -> Any:
    """Results on one board."""
    return emuchain.train(NETWORK, micro_batch=8, **KEYS)


def both_ways(of: Upsample, x: Any, dy: Any) -> tuple[Any, Any]:
    """Results, and the errors of the inputs."""
    unit = UpsampleUnit(of, (x.shape[3], *x.shape[1:3]), Site(0, 0, Arena()))
    y, state = unit.forward([x], {}, None)
    [dx] = unit.backward(state, dy.copy(), {})
    return y.copy(), dx.copy()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("keys", FORMS)
def test_it_is_that_of_pytorch_in_float64(keys: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Each sample by itself, too."""
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    of, random = Upsample(**keys), np.random.default_rng(2)
    channels, rows, columns = shape
    x = random.standard_normal((3, rows, columns, channels), np.float32)
    dy = random.standard_normal(
        (3, rows * of.scale[0], columns * of.scale[1], channels), np.float32
    )
    leaf = torch.tensor(x.transpose(0, 3, 1, 2), dtype=torch.float64, requires_grad=True)
    made = of.torch(torch.nn, shape)(leaf)  # type: ignore[arg-type]
    made.backward(torch.tensor(dy.transpose(0, 3, 1, 2), dtype=torch.float64))
    y, dx = both_ways(of, x, dy)
    for ours, theirs in ((y, made.detach()), (dx, leaf.grad)):
        expected = theirs.numpy().transpose(0, 2, 3, 1)
        assert np.abs(ours - expected).max() <= 1e-6 * np.abs(expected).max()
    for n in range(3):
        one = both_ways(of, x[n : n + 1], dy[n : n + 1])
        assert np.array_equal(one[0], y[n : n + 1]) and np.array_equal(one[1], dx[n : n + 1])


def test_rows_wait_for_those_that_they_lie_between() -> None:
    """By hand, of three rows: those of a factor of two, repeated and linear, and at corners."""
    found = {}
    for name, keys in (("n", {}), ("b", {"mode": "bilinear"})):
        maps = Upsample(scale=(2, 1), **keys).rows((1, 3, 1), (1, 6, 1))  # type: ignore[arg-type]
        found[name] = maps.forward.tolist(), maps.backward.tolist()
    assert found["n"] == ([0, 0, 1, 1, 2, 2], [1, 3, 5])
    # Middles are at -1/4 (0), 1/4, 3/4, 5/4, 7/4 and 9/4 (beyond the last).
    assert found["b"] == ([1, 1, 1, 2, 2, 2], [2, 4, 5])


@pytest.mark.parametrize("micro_batch", [1, 4])
@pytest.mark.parametrize("devices", [2, 3, 5, 8])
def test_no_mapping_changes_a_bit(
    reference: Any, bits: Bits, devices: int, micro_batch: int
) -> None:
    check_bits(NETWORK, KEYS, reference, bits, devices=devices, micro_batch=micro_batch)


def test_it_goes_through_onnx(reference: Any, tmp_path: Path, bits: Bits) -> None:
    check_file(NETWORK, reference, tmp_path / "larger.onnx")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"scale": 2, "corners": True}, 'goes with `mode` = "bilinear" alone'),
        ({"scale": 0}, "scale"),
        ({"scale": 2, "mode": "bicubic"}, "mode"),
    ],
)
def test_wrong_keys_are_one_line(keys: dict[str, Any], message: str, one_line: Any) -> None:
    layers = [NETWORK["layers"][0], {"type": "upsample", **keys}, *NETWORK["layers"][-2:]]
    with pytest.raises(InputError, match=message) as error:
        load_network({**NETWORK, "layers": layers})
    assert one_line(error)


def test_models_of_pytorch_are_taken(one_line: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, of which this model is, is missing")
    pytest.importorskip("onnxscript", reason="onnxscript, which its exporter needs, is missing")
    nn = torch.nn

    def model(*ups: Any) -> Any:
        ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)
        return nn.Sequential(nn.Conv2d(3, 4, 3), *ups, nn.Conv2d(4, 4, 3), nn.ReLU(), *ends)

    ups = [
        *(nn.Upsample(scale_factor=2), nn.UpsamplingNearest2d(size=(24, 36))),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.UpsamplingBilinear2d(scale_factor=(2, 1)),
    ]
    network = emuchain.from_torch(model(*ups), torch.zeros(2, 3, 8, 8))
    steps = [step.operation for layer in network.layers for step in layer.sfu]
    assert [step for step in steps if isinstance(step, Upsample)] == [
        Upsample(scale=(2, 2)),
        Upsample(scale=(2, 3)),
        Upsample(scale=(2, 2), mode="bilinear"),
        Upsample(scale=(2, 1), mode="bilinear", corners=True),
    ]
    for other, message in (
        (nn.Upsample(scale_factor=1.5), "only whole factors"),
        (nn.Upsample(scale_factor=2, mode="bicubic"), "`mode` = 'cubic'"),
    ):
        with pytest.raises(InputError, match=message) as error:
            emuchain.from_torch(model(other), torch.zeros(2, 3, 8, 8))
        assert one_line(error)


def test_unet_small_trains_the_same_bits_on_several_boards(bits: Bits) -> None:
    keys = {**KEYS, "samples": 8, "test_samples": 2, "batch": 4}
    runs = [
        emuchain.train("unet-small", devices=devices, micro_batch=micro_batch, **keys)
        for devices, micro_batch in ((1, 4), (5, 1))
    ]
    assert bits(runs[0].weights) == bits(runs[1].weights)
