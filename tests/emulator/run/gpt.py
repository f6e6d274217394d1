"""Small transformers for tests, as plain dictionaries, and a GPT in PyTorch that begins and trains
as ours does.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from emuchain.emulator.common import toml_value
from emuchain.emulator.data import Dataset
from emuchain.emulator.device import epoch_order
from emuchain.emulator.device.memories import initial_weights
from emuchain.emulator.network import Network
from emuchain.emulator.plan import training_data
from emuchain.emulator.run import StepResult, Weights, train
from emuchain.launch import SingleProcess

Table = dict[str, Any]

MAPPINGS: list[Table] = [
    {"devices": 2, "micro_batch": 4},
    {"devices": 5, "micro_batch": 1},
    {"devices": 8, "micro_batch": 4},
    {"devices": 3, "schedule": "gpipe", "engines": "turns"},
    {"devices": 2, "schedule": "1f1b-as"},
    {"devices": 2, "schedule": "interleaved", "chunks": 2},
    {"devices": 3, "schedule": "zero-bubble"},
]
"""Keys of runs that train the same bits, because each update follows all gradients."""


def written(path: Path, network: Table) -> str:
    """Write a network's file; return its name."""
    lines = [f"{key} = {toml_value(value)}" for key, value in network.items() if key != "layers"]
    layers = [
        ", ".join(f"{key} = {toml_value(value)}" for key, value in layer.items())
        for layer in network["layers"]
    ]
    path.write_text(
        "\n".join([*lines, "layers = [", *(f"  {{ {layer} }}," for layer in layers), "]"]), "utf-8"
    )
    return str(path)


def conv(channels: int | str, name: str, **keys: Any) -> Table:
    return {"type": "conv", "channels": channels, "kernel": 1, "name": name, **keys}


def gpt(
    width: int,
    blocks: int,
    heads: int,
    tokens: int,
    norm: str = "layer-norm",
    *,
    tied: bool = False,
    kv_heads: int = 0,
    **keys: Any,
) -> Table:
    """Norms before attention and MLP, learnt positions, GELU by tanh, a classifier of its own, or a
    tied one.

    With `kv_heads`, heads share keys and values, and there are rotary positions, too; `keys` are
    attention's.
    """
    grouped: Table = {"heads": heads, **({"kv_heads": kv_heads} if kv_heads else {})}
    layers: list[Table] = [
        {"type": "embedding", "features": width, "name": "wte"},
        {"type": "positions", "name": "x0"},
        {"type": norm},
    ]
    for n in range(blocks):
        layers += [
            conv(width + 2 * width * (kv_heads or heads) // heads, f"qkv{n}"),
            *([{"type": "rotary", **grouped}] if kv_heads else []),
            {"type": "attention", **grouped, "causal": True, "name": f"attention{n}", **keys},
            conv(width, f"project{n}"),
            {"type": "add", "from": [f"project{n}", f"x{2 * n}"], "name": f"x{2 * n + 1}"},
            {"type": norm},
            conv(4 * width, f"expand{n}"),
            {"type": "gelu", "tanh": True},
            conv(width, f"contract{n}"),
            {"type": "add", "from": [f"contract{n}", f"x{2 * n + 1}"], "name": f"x{2 * n + 2}"},
            {"type": norm},
        ]
    ties = {"tied": "wte"} if tied else {}
    layers += [conv("symbols", "head", bias=False, **ties), {"type": "softmax"}]
    return {"name": "gpt", "symbols": 28, "input": ["symbols", tokens, 1], "layers": layers}


def vit(width: int, blocks: int, heads: int, **keys: Any) -> Table:
    """Patches of 8 x 8 of images of 32 x 32, a class token, full attention; `keys` are
    attention's.
    """
    patches = {"type": "conv", "channels": width, "kernel": 8, "stride": 8, "name": "patches"}
    layers: list[Table] = [patches, {"type": "tokens", "class_token": True}]
    layers += [{"type": "positions", "name": "x0"}, {"type": "rms-norm"}]
    for n in range(blocks):
        layers += [
            conv(3 * width, f"qkv{n}"),
            {"type": "attention", "heads": heads, "name": f"attention{n}", **keys},
            conv(width, f"project{n}"),
            {"type": "add", "from": [f"project{n}", f"x{2 * n}"], "name": f"x{2 * n + 1}"},
            {"type": "layer-norm"},
            conv(2 * width, f"expand{n}"),
            {"type": "gelu"},
            conv(width, f"contract{n}"),
            {"type": "add", "from": [f"contract{n}", f"x{2 * n + 1}"], "name": f"x{2 * n + 2}"},
            {"type": "layer-norm"},
        ]
    layers += [{"type": "first-step"}, {"type": "fc", "features": 10}, {"type": "softmax"}]
    return {"name": "vit", "input": [3, 32, 32], "layers": layers}


class Twin:
    """The GPT in PyTorch; `arrays` are all its parameters by the names of results files."""

    def __init__(self, network: Network, seed: int, positions: np.ndarray) -> None:
        self.torch = torch = importlib.import_module("torch")
        self.network = network
        self.arrays: dict[str, Any] = {
            "wte/positions": torch.tensor(positions.copy(), requires_grad=True)
        }
        for layer in network.layers:
            if layer.weights and layer.tied is None:
                oc, ic, *_ = layer.weight_shape
                first = initial_weights(layer, network.start, seed, range(ic), range(oc))
                self.arrays[f"{layer.name}/weight"] = torch.tensor(first, requires_grad=True)
            if layer.bias:
                self.arrays[f"{layer.name}/bias"] = torch.zeros(layer.channels, requires_grad=True)
            if any(step.operation.type == "layer-norm" for step in layer.sfu):
                self._norm(layer.name, layer.channels)

    def _norm(self, name: str, channels: int) -> None:
        end = "2" if f"{name}/positions" in self.arrays else ""  # the second unit that learns
        self.arrays[f"{name}/scale{end}"] = self.torch.ones(channels, requires_grad=True)
        self.arrays[f"{name}/shift{end}"] = self.torch.zeros(channels, requires_grad=True)

    def loss(self, symbols: np.ndarray, labels: np.ndarray) -> Any:
        """The sum of the losses of all tokens of texts (samples, tokens)."""
        torch, f, arrays = self.torch, self.torch.nn.functional, self.arrays
        table = arrays["wte/weight"][:, :, 0, 0].T
        x = table[torch.from_numpy(symbols.astype(np.int64))] + arrays["wte/positions"].view(
            symbols.shape[1], -1
        )
        width = x.shape[2]

        def normal(value: Any, name: str, end: str = "") -> Any:
            return f.layer_norm(
                value, (width,), arrays[f"{name}/scale{end}"], arrays[f"{name}/shift{end}"]
            )

        def linear(value: Any, name: str) -> Any:
            return f.linear(value, arrays[f"{name}/weight"][:, :, 0, 0], arrays.get(f"{name}/bias"))

        y = normal(x, "wte", "2")
        for n in range(sum(layer.operation.type == "attention" for layer in self.network.layers)):
            heads: Any = next(
                layer for layer in self.network.layers if layer.name == f"attention{n}"
            ).operation
            qkv = linear(y, f"qkv{n}").view(*x.shape[:2], heads.heads, 3, -1).permute(3, 0, 2, 1, 4)
            mixed = f.scaled_dot_product_attention(*qkv, is_causal=True).transpose(1, 2).flatten(2)
            x = x + linear(mixed, f"project{n}")
            hidden = f.gelu(linear(normal(x, f"project{n}"), f"expand{n}"), approximate="tanh")
            x = x + linear(hidden, f"contract{n}")
            y = normal(x, f"contract{n}")
        logits = linear(y, "head") if "head/weight" in arrays else f.linear(y, table)
        return f.cross_entropy(
            logits.flatten(0, 1), torch.from_numpy(labels).flatten(), reduction="sum"
        )


@dataclasses.dataclass(frozen=True)
class Training:
    """The losses of ours and of PyTorch's mini-batches, our weights, and PyTorch's network, both at
    the end.
    """

    losses: list[float]
    expected: list[float]
    weights: Weights
    twin: Twin


def trained_beside_pytorch(
    plan_of: Any,
    keys: Table,
    optimizer: Callable[[list[Any]], Any],
    before_step: Callable[[list[Any]], object] = lambda parameters: None,
) -> Training:
    """Train a GPT for an epoch here, on three devices, and in PyTorch, where `before_step` may
    change gradients.
    """
    plan, batch, seed = plan_of(**keys, devices=3), keys["batch"], keys["seed"]
    data: Dataset = training_data(plan)
    still: Weights = {}
    frozen = plan_of(
        **{**keys, "samples": batch, "learning_rate": 1e-30, "weight_decay": 0.0}, devices=1
    )
    train(
        frozen,
        data.first(batch),
        SingleProcess(),
        on_epoch=lambda _, made: still.update(made),
        gather_weights=True,
    )
    losses: list[float] = []
    weights: Weights = {}

    def on_step(result: StepResult) -> None:
        losses.append(result.tally.mean_loss)

    train(
        plan,
        data,
        SingleProcess(),
        on_step,
        lambda _, made: weights.update(made),
        gather_weights=True,
    )
    twin = Twin(plan.network, seed, still["wte"]["positions"])
    parameters = [*twin.arrays.values()]
    peer, tokens = optimizer(parameters), plan.network.input[1]
    order, expected = epoch_order(seed, 0, data.n_train), []
    for first in range(0, data.n_train, batch):
        chosen = order[first : first + batch]
        loss = twin.loss(data.train_images[chosen].reshape(batch, -1), data.train_labels[chosen])
        peer.zero_grad()
        loss.backward()
        for parameter in parameters:
            parameter.grad /= batch * tokens
        before_step(parameters)
        peer.step()
        expected.append(loss.item() / (batch * tokens))
    return Training(losses, expected, weights, twin)
