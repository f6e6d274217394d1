"""Sines and cosines of rows' numbers, times a learnt factor: against PyTorch in float64; on chains
the same bits and times however a network is cut, and their way through ONNX and from models of
PyTorch.
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
from emuchain.emulator.network.operations.rotary import Sinusoids
from emuchain.emulator.network.shape import Tensor
from emuchain.kernels import Arena

from ..networks import of_images
from .operations import KEYS, Bits, check_bits, check_file, check_step, check_weights

NETWORK = of_images(
    "sines",
    {"type": "sequence"},
    *({"type": "conv", "channels": 8, "kernel": 1, "name": "x"}, {"type": "sinusoids"}),
    *({"type": "conv", "channels": 12, "kernel": 1}, {"type": "relu"}),
    *({"type": "sinusoids", "base": 100.0}, {"type": "global-average-pool"}),
)


@pytest.fixture(scope="module")
def reference() -> Any:
    """Results on one board."""
    return emuchain.train(NETWORK, micro_batch=8, **KEYS)


def test_it_is_that_of_pytorch_in_float64() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    of, random, shape = Sinusoids(base=1000.0), np.random.default_rng(2), (6, 9, 1)
    unit = of.unit(SfuStep(of, (Tensor(1, shape),), Tensor(2, shape)), Site(0, 0, Arena()))
    x, dy = (random.standard_normal((3, 9, 1, 6), np.float32) for _ in range(2))
    weights = {"factor": np.array([0.75], np.float32)}
    module = of.torch(torch.nn, shape).double()
    assert module.factor.item() == pytest.approx(6**-0.5)
    module.factor.data.fill_(0.75)
    leaf = torch.tensor(x[:, :, 0], dtype=torch.float64, requires_grad=True)
    expected = module(leaf)
    expected.backward(torch.tensor(dy[:, :, 0], dtype=torch.float64))
    y, state = unit.forward([x], weights, None)
    [dx] = unit.backward(state, dy, weights)
    sums = {"factor": np.zeros(1, np.float32)}
    unit.gradient(unit.kept(state, dy), sums, fresh=True)
    for ours, theirs in (
        (y[:, :, 0], expected.detach()),
        (dx[:, :, 0], leaf.grad),
        (sums["factor"], module.factor.grad),
    ):
        assert np.abs(ours - theirs.numpy()).max() <= 1e-6 * np.abs(theirs.numpy()).max()
    again = {"factor": np.zeros(1, np.float32)}
    for n in range(3):  # sample by sample
        unit.gradient((dy[n : n + 1],), again, fresh=n == 0)
    assert again["factor"] == sums["factor"]


@pytest.mark.parametrize("micro_batch", [1, 4])
@pytest.mark.parametrize("devices", [2, 3, 5, 8])
def test_no_mapping_changes_a_bit(
    reference: Any, bits: Bits, devices: int, micro_batch: int
) -> None:
    check_bits(NETWORK, KEYS, reference, bits, devices=devices, micro_batch=micro_batch)


def test_they_take_no_time_of_a_layer() -> None:
    """Rows go on as they come, as those of ReLU; so do errors, and one factor is one number."""
    layers = [
        layer if layer["type"] != "sinusoids" else {"type": "relu"} for layer in NETWORK["layers"]
    ]
    keys = {key: KEYS[key] for key in ("samples", "batch", "schedule")}
    one, other = (
        emuchain.simulate({**NETWORK, "layers": own}, devices=3, **keys)
        for own in (NETWORK["layers"], layers)
    )
    assert one.virtual_time_ps == other.virtual_time_ps
    found, plain = (load_network({**NETWORK, "layers": own}) for own in (NETWORK["layers"], layers))
    assert found.parameters == plain.parameters + 2


def test_pytorch_takes_the_same_step() -> None:
    assert "x_sinusoids.factor" in check_step(NETWORK)


def test_channels_are_pairs(one_line: Any) -> None:
    layers = [*NETWORK["layers"][:1], {"type": "conv", "channels": 7, "kernel": 1}]
    layers += NETWORK["layers"][2:]
    with pytest.raises(InputError, match="takes an even number of channels, and these are 7") as e:
        load_network({**NETWORK, "layers": layers})
    assert one_line(e)


def test_it_goes_through_onnx(reference: Any, tmp_path: Path, bits: Bits) -> None:
    path = tmp_path / "sines.onnx"
    check_file(NETWORK, reference, path)
    check_weights(path, KEYS, reference, bits)


@pytest.mark.parametrize("base", [10000.0, 50.0])
def test_models_of_pytorch_are_taken(tmp_path: Path, base: float) -> None:
    """As x-transformers has them, whose positions are whole numbers beside rates that are not."""
    torch = pytest.importorskip("torch", reason="PyTorch, of which this model is, is missing")
    pytest.importorskip("onnxscript", reason="onnxscript, which its exporter needs, is missing")
    nn = torch.nn

    class Sines(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)
            self.scale = nn.Parameter(torch.ones(1) * 0.3)
            rates = base ** -(torch.arange(4).float() / 4)
            self.register_buffer("rates", rates, persistent=False)

        def forward(self, symbols: Any) -> Any:
            places = torch.arange(symbols.shape[1])
            angles = torch.einsum("i, j -> i j", places, self.rates)
            sines = torch.cat((angles.sin(), angles.cos()), dim=-1) * self.scale
            return self.head(self.table(symbols) + sines)

    peer, symbols = Sines(), torch.randint(0, 11, (3, 6))
    network = emuchain.from_torch(peer, symbols)
    torch.onnx.export(
        peer, (symbols,), tmp_path / "sines.onnx", dynamo=True, optimize=False, verbose=False
    )
    for own in (network, load_network(tmp_path / "sines.onnx")):
        assert own.layers[0].sfu[0].operation == Sinusoids(base=base)
    assert network.state.first_weights()["table"]["factor"] == np.float32(0.3)
    from emuchain.emulator.data import Dataset

    ids = symbols.numpy().astype(np.int32)[:, None, :, None]
    names = tuple(map(str, range(11)))
    data = Dataset("none", ids, symbols.numpy(), ids, symbols.numpy(), names, symbols=11)
    still = {"batch": 3, "progress": "none", "learning_rate": 1e-30, "weight_decay": 0}
    run = emuchain.train(network, data=data, **still)
    theirs = peer(symbols).detach().numpy()
    found = emuchain.predict(run, symbols.numpy())
    assert np.abs(found.reshape(theirs.shape) - theirs).max() <= 1e-5 * np.abs(theirs).max()
    peer.load_state_dict(run.state_dict(), strict=True)
