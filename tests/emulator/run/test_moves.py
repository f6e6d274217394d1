"""Values that change places: against PyTorch, exactly; on chains the same bits and times however a
network is cut, and their way through ONNX and from models of PyTorch.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.network import Site, load_network
from emuchain.emulator.network.operation import SfuStep
from emuchain.emulator.network.operations.moves import (
    Border,
    Move,
    PixelShuffle,
    PixelUnshuffle,
    Shuffle,
    Unflatten,
)
from emuchain.emulator.network.shape import Tensor
from emuchain.kernels import Arena

from ..networks import of_images
from .operations import KEYS, Bits, check_bits, check_file

AROUND = {"above": 1, "left": 3, "below": 3, "right": 1}
NETWORK = of_images(
    "moves",
    {"type": "conv", "channels": 8, "kernel": 5, "stride": 4, "pad": 2},
    *({"type": "relu"}, {"type": "shuffle", "groups": 4}),
    {"type": "conv", "channels": 8, "kernel": 3, "pad": 1},
    *({"type": "pixel-shuffle", "scale": 2}, {"type": "border", "mode": "reflect", **AROUND}),
    {"type": "conv", "channels": 4, "kernel": 5},
    *({"type": "border", "mode": "wrap", "above": 2}, {"type": "pixel-unshuffle", "scale": 2}),
    {"type": "conv", "channels": 4, "kernel": 3},
    {"type": "border", "mode": "edge", "left": 2, "below": 1},
    *({"type": "fc", "features": 32}, {"type": "relu"}, {"type": "unflatten", "shape": [2, 4, 4]}),
    {"type": "conv", "channels": 4, "kernel": 3, "pad": 1},
)
SHAPES = [(8, 4, 6), (4, 2, 2), (12, 6, 4)]
MOVES: list[Move] = [
    *(Shuffle(groups=2), Shuffle(groups=4), PixelShuffle(scale=2), PixelUnshuffle(scale=2)),
    *(Border(mode="reflect", above=1, right=1), Border(mode="wrap", left=2, below=1)),
    *(Border(mode="wrap", above=1, right=2), Border(mode="edge", **AROUND)),
]


@pytest.fixture(scope="module")
def reference() -> Any:
    """Results on one board."""
    return emuchain.train(NETWORK, micro_batch=8, **KEYS)


@pytest.mark.parametrize(
    ("move", "shape"),
    [
        *itertools.product(MOVES, SHAPES),
        (Unflatten(shape=(2, 3, 4)), (24, 1, 1)),
        (Unflatten(shape=(2, 3, 4)), (4, 2, 3)),
    ],
)
def test_it_is_that_of_pytorch(move: Move, shape: tuple[int, int, int]) -> None:
    """Results exactly; errors are sums of copies, of small whole numbers, and so exact, too."""
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    random = np.random.default_rng(2)
    channels, rows, columns = made = move.output([shape])
    unit = move.unit(SfuStep(move, (Tensor(1, shape),), Tensor(2, made)), Site(0, 0, Arena()))
    x = random.standard_normal((3, *shape[1:], shape[0]), np.float32)
    dy = random.integers(-99, 99, (3, rows, columns, channels)).astype(np.float32)
    leaf = torch.tensor(x.transpose(0, 3, 1, 2), requires_grad=True)
    expected = move.torch(torch.nn, shape)(leaf)
    expected.backward(torch.tensor(dy.transpose(0, 3, 1, 2)))
    y, state = unit.forward([x], {}, None)
    [dx] = unit.backward(state, dy, {})
    assert np.array_equal(y, expected.detach().numpy().transpose(0, 2, 3, 1))
    assert np.array_equal(dx, leaf.grad.numpy().transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    ("move", "shape", "forward", "backward"),
    [
        (Shuffle(groups=2), (4, 3, 1), None, None),
        (PixelShuffle(scale=2), (4, 3, 1), [0, 0, 1, 1, 2, 2], [1, 3, 5]),
        (PixelUnshuffle(scale=2), (1, 6, 2), [1, 3, 5], [0, 0, 1, 1, 2, 2]),
        # Rows 1 0 1 2 1: the first one waits for row 1, and row 1 is in the last one.
        (Border(mode="reflect", above=1, below=1), (1, 3, 1), [1, 1, 1, 2, 2], [1, 4, 4]),
        (Border(mode="wrap", below=1), (1, 3, 1), [0, 1, 2, 2], [3, 3, 3]),
        (Border(mode="edge", above=2), (1, 3, 1), [0, 0, 0, 1, 2], [2, 3, 4]),
        (Unflatten(shape=(1, 2, 2)), (4, 1, 1), [0, 0], [1]),
    ],
)
def test_rows_wait_for_those_of_their_values(
    move: Move, shape: tuple[int, int, int], forward: list[int], backward: list[int]
) -> None:
    """By hand."""
    maps = move.rows(shape, move.output([shape]))
    if maps is None:
        assert forward is None and backward is None
    else:
        assert (maps.forward.tolist(), maps.backward.tolist()) == (forward, backward)


@pytest.mark.parametrize("micro_batch", [1, 4])
@pytest.mark.parametrize("devices", [2, 3, 5, 8])
def test_no_mapping_changes_a_bit(
    reference: Any, bits: Bits, devices: int, micro_batch: int
) -> None:
    check_bits(NETWORK, KEYS, reference, bits, devices=devices, micro_batch=micro_batch)


def test_it_goes_through_onnx(reference: Any, tmp_path: Path) -> None:
    check_file(NETWORK, reference, tmp_path / "moves.onnx")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"type": "shuffle", "groups": 3}, "`groups` = 3 should divide 8 channels"),
        ({"type": "pixel-shuffle", "scale": 3}, "9 should divide 8 channels"),
        ({"type": "pixel-unshuffle", "scale": 3}, "should divide 8 rows and 8 columns"),
        ({"type": "unflatten", "shape": [3, 4, 4]}, "has 48 values, but there are 512"),
        ({"type": "border", "mode": "reflect", "above": 8}, "wider than maps of 8x8"),
        ({"type": "border", "mode": "wrap", "right": 9}, "wider than maps of 8x8"),
        ({"type": "border", "mode": "zeros"}, "mode"),
    ],
)
def test_wrong_keys_are_one_line(keys: dict[str, Any], message: str, one_line: Any) -> None:
    with pytest.raises(InputError, match=message) as error:
        load_network({**NETWORK, "layers": [NETWORK["layers"][0], keys, *NETWORK["layers"][-2:]]})
    assert one_line(error)


def test_models_of_pytorch_are_taken(tmp_path: Path, one_line: Any) -> None:
    """From memory and from a file alike, and a step of training is PyTorch's."""
    torch = pytest.importorskip("torch", reason="PyTorch, of which this model is, is missing")
    pytest.importorskip("onnxscript", reason="onnxscript, which its exporter needs, is missing")
    nn = torch.nn

    def model(*middle: Any) -> Any:
        torch.manual_seed(1)
        ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)
        return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), *middle, nn.ReLU(), *ends)

    class Turned(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.view(-1, 2, 4, *x.shape[2:]).transpose(2, 1).reshape(x.shape)

    peer = model(
        *(Turned(), nn.ChannelShuffle(4), nn.PixelShuffle(2), nn.Conv2d(2, 4, 1)),
        *(nn.PixelUnshuffle(2), nn.Conv2d(16, 4, 3, padding=1, padding_mode="reflect")),
        *(
            nn.ReplicationPad2d((1, 0, 2, 1)),
            nn.Conv2d(4, 8, 3, padding=1, padding_mode="circular"),
        ),
        *(nn.Flatten(), nn.Linear(280, 16), nn.Unflatten(1, (4, 2, 2))),
    )
    images = np.random.default_rng(3).integers(0, 256, (24, 3, 8, 8), np.uint8)
    labels = np.arange(24) % 10
    data = emuchain.Dataset("random", images, labels, images[:4], labels[:4], tuple("0123456789"))
    network = emuchain.from_torch(peer, torch.zeros(2, 3, 8, 8))
    steps = [step.operation for layer in network.layers for step in layer.sfu]
    assert [step for step in steps if isinstance(step, Move)] == [
        *(Shuffle(groups=2), Shuffle(groups=4), PixelShuffle(scale=2), PixelUnshuffle(scale=2)),
        Border(mode="reflect", above=1, left=1, below=1, right=1),
        Border(mode="edge", above=2, left=1, below=1),
        Border(mode="wrap", above=1, left=1, below=1, right=1),
        Unflatten(shape=(4, 2, 2)),
    ]
    keys = {**KEYS, "test_samples": 4, "momentum": 0.0, "weight_decay": 0.0, "batch": 24}
    run = emuchain.train(network, data=data, devices=3, **keys)
    inputs = torch.from_numpy(data.normalisation().apply(images))
    file = tmp_path / "model.onnx"
    program = torch.onnx.export(peer, (inputs[:2],), dynamo=True, optimize=False, verbose=False)
    program.save(file)
    assert [layer.sfu for layer in load_network(file).layers] == [
        layer.sfu for layer in network.layers
    ]
    optimizer = torch.optim.SGD(peer.parameters(), 0.01)
    loss = nn.functional.cross_entropy(peer(inputs), torch.from_numpy(labels))
    loss.backward()
    optimizer.step()
    assert run.steps["loss"][0] == pytest.approx(loss.item(), rel=1e-5)
    for key, value in run.state_dict().items():
        assert (value - peer.state_dict()[key]).abs().max() <= 1e-6, key

    class Windows(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.relu(x.view(-1, 8, 2, 2, 4).transpose(2, 3)).reshape(x.shape)

    with pytest.raises(InputError, match="samples of 8x2x2x4") as error:
        emuchain.from_torch(model(Windows(), nn.Conv2d(8, 4, 1)), torch.zeros(2, 3, 8, 8))
    assert one_line(error)
