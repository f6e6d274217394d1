"""Rotary positions into ONNX files and from them, and from models of PyTorch as people write
them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network
from emuchain.emulator.network.load import onnx_image

from ..networks import of_table

pytest.importorskip("onnx", reason="onnx, which these files need, is not installed")

HEADS, SIZE, ROWS = 2, 8, 7
WIDTH = HEADS * SIZE
FORMS: dict[str, dict[str, Any]] = {
    "halves": {},
    "pairs": {"interleaved": True, "base": 500.0},
    "halves of a part": {"turned": 4},
    "pairs of a part": {"turned": 6, "interleaved": True},
    "shared": {"kv_heads": 1},
}


@pytest.mark.parametrize("name", FORMS)
def test_a_file_comes_back(tmp_path: Path, name: str) -> None:
    keys, groups = FORMS[name], FORMS[name].get("kv_heads", HEADS)
    shared = {"kv_heads": groups} if groups < HEADS else {}
    layers: list[dict[str, Any]] = [
        {"type": "conv", "channels": WIDTH + 2 * groups * SIZE, "kernel": 1, "name": "qkv"},
        {"type": "rotary", "heads": HEADS, **keys},
        {"type": "attention", "heads": HEADS, **shared, "causal": True},
        {"type": "conv", "channels": WIDTH, "kernel": 1, "name": "mixed"},
    ]
    network = load_network(of_table("turned", 11, WIDTH, *layers, steps=ROWS))
    random = np.random.default_rng(1)
    weights: dict[str, dict[str, Any]] = {}
    for layer in network.layers:
        biases = {"bias": random.standard_normal(layer.channels, np.float32)} if layer.bias else {}
        weight = {"weight": random.standard_normal(layer.weight_shape, np.float32)}
        weights[layer.name] = {**biases, **(weight if layer.has_weights else {})}
    weights["head"]["weight"] = weights["table"]["weight"].swapaxes(0, 1)
    path = tmp_path / "turned.onnx"
    path.write_bytes(onnx_image(weights, network, "here"))
    again = load_network(str(path))
    kinds = [[step.operation for step in layer.sfu] for layer in again.layers]
    assert kinds == [[step.operation for step in layer.sfu] for layer in network.layers]
    assert [layer.operation for layer in again.layers] == [
        layer.operation for layer in network.layers
    ]


def model_of(form: str) -> tuple[Any, Any]:
    """A model of PyTorch whose queries and keys are turned, and a batch."""
    torch = pytest.importorskip("torch", reason="PyTorch, of which this model is, is missing")
    pytest.importorskip("onnxscript", reason="onnxscript, which its exporter needs, is missing")
    nn = torch.nn

    def turned(x: Any) -> Any:
        count = 4 if form == "part" else SIZE
        rates = 1.0 / 1000.0 ** (torch.arange(0, count, 2).float() / count)
        rates = rates / 2 if form == "slower" else rates
        angles = torch.outer(torch.arange(x.shape[2]).float(), rates)
        own, rest = x[..., :count], x[..., count:]
        if form == "pairs":
            a, b, cosines, sines = own[..., ::2], own[..., 1::2], angles.cos(), angles.sin()
            return torch.stack([a * cosines - b * sines, a * sines + b * cosines], -1).flatten(-2)
        angles = torch.cat([angles, angles], -1)
        a, b = own.chunk(2, -1)
        made = own * angles.cos() + torch.cat([-b, a], -1) * angles.sin()
        return torch.cat([made, rest], -1)

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.qkv = nn.Embedding(11, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
            self.head = nn.Linear(WIDTH, 11)

        def forward(self, ids: Any) -> Any:
            x = self.embedding(ids)
            parts = self.qkv(x).view(*x.shape[:2], 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
            q, k, v = turned(parts[0]), turned(parts[1]), parts[2]
            q = q if form != "keys alone" else parts[0]
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.head(y.transpose(1, 2).reshape(x.shape))

    torch.manual_seed(1)
    return Model(), torch.randint(0, 11, (2, ROWS))


@pytest.mark.parametrize("form", ["halves", "pairs", "part"])
def test_models_of_pytorch_are_taken(form: str) -> None:
    model, ids = model_of(form)
    network = emuchain.from_torch(model, ids)
    [rotary] = [
        step.operation
        for layer in network.layers
        for step in layer.sfu
        if step.operation.type == "rotary"
    ]
    assert rotary.base == 1000.0  # type: ignore[attr-defined]
    assert rotary.interleaved == (form == "pairs")  # type: ignore[attr-defined]
    assert rotary.turned == (4 if form == "part" else None)  # type: ignore[attr-defined]
    from emuchain.emulator.data import Dataset

    symbols = ids.numpy()[:, None, :, None].astype(np.int32)
    labels, classes = ids.numpy(), tuple(map(str, range(11)))
    data = Dataset("some", symbols, labels, symbols, labels, classes, symbols=11)
    keys = {"batch": 2, "progress": "none", "learning_rate": 1e-30, "weight_decay": 0}
    run = emuchain.train(network, data=data, **keys)
    theirs = model(ids).detach().numpy()
    assert np.abs(emuchain.predict(run, ids) - theirs).max() <= 1e-5 * np.abs(theirs).max()
    model.load_state_dict(run.state_dict(), strict=True)


@pytest.mark.parametrize("form", ["slower", "keys alone"])
def test_other_turns_are_refused(form: str, one_line: Any) -> None:
    with pytest.raises(InputError, match="by other angles than those of rotary") as error:
        emuchain.from_torch(*model_of(form))
    assert one_line(error)
