"""Encoders and decoders of PyTorch: losses, weights and outputs are PyTorch's, from a model in memory
and from its file of ONNX, and files written here are read again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.data import Dataset
from emuchain.emulator.device import epoch_order
from emuchain.emulator.network import TorchNetwork, onnx_image, onnx_weights

from ..from_torch_models import nn, torch

BATCH, STEPS, SEED = 4, 20, 3
SOURCE, TARGET, SYMBOLS, WIDTH = 6, 5, 20, 12
SETTINGS: dict[str, Any] = {
    **{"batch": BATCH, "micro_batch": 2, "schedule": "sync", "seed": SEED, "progress": "none"},
    **{"learning_rate": 0.01, "momentum": 0.9, "weight_decay": 5e-4, "memory": "ignored"},
}


def positions(steps: int) -> Any:
    return nn.Parameter(torch.randn(1, steps, WIDTH) * 0.1)


class Transformer(nn.Module):  # type: ignore[misc, name-defined]  # torch is optional
    """PyTorch's own, with a table for each side."""

    def __init__(self, **keys: Any) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(SYMBOLS, WIDTH)
        self.source_positions, self.target_positions = positions(SOURCE), positions(TARGET)
        self.net = nn.Transformer(WIDTH, 3, 2, 2, 24, 0.0, batch_first=True, **keys)
        self.head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, source: Any, target: Any) -> Any:
        """Return the logits of the target's steps."""
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        taken = (
            self.source(source) + self.source_positions,
            self.target(target) + self.target_positions,
        )
        return self.head(self.net(*taken, tgt_mask=mask, tgt_is_causal=True))


class Crossed(nn.Module):  # type: ignore[misc, name-defined]
    """Cross-attention alone: steps come first, and heads have a dropout of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.both = nn.Embedding(SYMBOLS, WIDTH), positions(SOURCE + TARGET)
        self.encode = nn.Linear(WIDTH, WIDTH)
        self.attend, self.norm = nn.MultiheadAttention(WIDTH, 3), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, x: Any) -> Any:
        """Return the logits of the last steps of a sequence that holds both sides."""
        x = self.table(x) + self.both
        source, target = x[:, :SOURCE], x[:, SOURCE:]
        memory = torch.relu(self.encode(source)).transpose(0, 1)
        y, _ = self.attend(target.transpose(0, 1), memory, memory)
        return self.head(self.norm(target + y.transpose(0, 1)))


def attended(*parts: Any, **keys: Any) -> Any:
    """What rows of queries take of keys and values, in three heads."""
    q, k, v = (part.unflatten(2, (3, -1)).transpose(1, 2) for part in parts)
    y = nn.functional.scaled_dot_product_attention(q, k, v, **keys)
    return y.transpose(1, 2).flatten(2)


class Heads(nn.Module):  # type: ignore[misc, name-defined]
    """Attention as T5 has it: no biases, a layer for each of queries, keys and values, and scores
    that are not scaled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Any, memory: Any, causal: bool = False) -> Any:
        """Return what rows take of a memory."""
        q, k, v = self.q(x), self.k(memory), self.v(memory)
        return self.o(attended(q, k, v, is_causal=causal, scale=1.0))


class Gated(nn.Module):  # type: ignore[misc, name-defined]
    """A gated feed-forward layer behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.down = nn.RMSNorm(WIDTH), nn.Linear(24, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, 24, bias=False) for _ in range(2))

    def forward(self, x: Any) -> Any:
        """Return the sum with what it makes."""
        y = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class T5(nn.Module):  # type: ignore[misc, name-defined]
    """RMS norms before, one table for both sides and for the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.own = nn.Embedding(SYMBOLS, WIDTH), positions(SOURCE)
        self.within, self.causal, self.across = Heads(), Heads(), Heads()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(5))
        self.encoder_mlp, self.decoder_mlp = Gated(), Gated()
        self.head = nn.Linear(WIDTH, SYMBOLS, bias=False)
        self.head.weight = self.shared.weight

    def forward(self, input_ids: Any, decoder_input_ids: Any) -> Any:
        """Return the logits of the decoder's steps."""
        x = self.shared(input_ids) + self.own
        y = self.norms[0](x)
        memory = self.norms[1](self.encoder_mlp(x + self.within(y, y)))
        x = self.shared(decoder_input_ids)
        y = self.norms[2](x)
        x = x + self.causal(y, y, causal=True)
        x = self.decoder_mlp(x + self.across(self.norms[3](x), memory))
        return self.head(self.norms[4](x))


class Detr(nn.Module):  # type: ignore[misc, name-defined]
    """Queries and keys with positions, values without, as in DETR; and a memory as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(SYMBOLS, WIDTH), positions(SOURCE)
        self.heads, self.across, self.head = Heads(), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 20)
        self.k = nn.Linear(WIDTH, WIDTH)

    def forward(self, source: Any, target: Any) -> Any:
        """Return the logits of the target's steps; of the last attention, values are the memory."""
        x, y = self.table(source), self.table(target)
        placed = x + self.places
        memory = x + self.heads.o(
            attended(self.heads.q(placed), self.heads.k(placed), self.heads.v(x))
        )
        return self.head(attended(self.across(y), self.k(memory), memory) + y)


class Shared(nn.Module):  # type: ignore[misc, name-defined]
    """Two heads share each of two keys and values, which one layer makes."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(SYMBOLS, WIDTH), positions(SOURCE)
        self.q, self.kv = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.o, self.head = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, SYMBOLS)

    def forward(self, source: Any, target: Any) -> Any:
        """Return the logits of the target's steps."""
        x, y = self.table(source) + self.places, self.table(target)
        q = self.q(y).unflatten(2, (4, -1)).transpose(1, 2)
        k, v = (part.unflatten(2, (2, -1)).transpose(1, 2) for part in self.kv(x).chunk(2, 2))
        z = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.head(y + self.o(z.transpose(1, 2).flatten(2)))


MODELS: dict[str, Callable[[], Any]] = {
    "transformer": Transformer,
    "norms first": lambda: Transformer(norm_first=True, activation="gelu"),
    "cross-attention": Crossed,
    "t5": T5,
    "detr": Detr,
    "shared keys": Shared,
}


def made(name: str) -> Any:
    torch.manual_seed(4)
    return MODELS[name]()


def given(name: str, images: Any) -> tuple[Any, ...]:
    """What a model takes of samples: both sides, or one tensor."""
    x = torch.from_numpy(np.asarray(images).reshape(len(images), -1).astype(np.int64))
    return (x,) if name == "cross-attention" else (x[:, :SOURCE], x[:, SOURCE:])


def network_of(name: str, model: Any) -> TorchNetwork:
    example = given(name, data(2).train_images)
    return emuchain.from_torch(model, example if len(example) > 1 else example[0])


def data(samples: int) -> Dataset:
    random = np.random.default_rng(7)
    x = random.integers(0, SYMBOLS, (samples + 8, 1, SOURCE + TARGET, 1)).astype(np.int32)
    y = random.integers(0, SYMBOLS, (samples + 8, TARGET))
    parts = x[:samples], y[:samples], x[samples:], y[samples:]
    classes = tuple(map(str, range(SYMBOLS)))
    return Dataset("random", *parts, classes, symbols=SYMBOLS, by_targets=True)


@pytest.mark.parametrize("name", MODELS)
def test_training_is_that_of_pytorch(name: str) -> None:
    """First loss, twenty steps' weights, and the logits of the test."""
    own, model, peer = data(BATCH * STEPS), made(name), made(name)
    run = emuchain.train(network_of(name, model), data=own, devices=3, **SETTINGS)
    losses, order = [], epoch_order(SEED, 0, own.n_train)
    optimizer = torch.optim.SGD(peer.parameters(), 0.01, 0.9, weight_decay=5e-4)
    for first in range(0, own.n_train, BATCH):
        chosen = order[first : first + BATCH]
        logits = peer(*given(name, own.train_images[chosen]))
        labels = torch.from_numpy(own.train_labels[chosen])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert run.steps["loss"][0] == pytest.approx(losses[0], rel=1e-5)
    state = run.state_dict()
    for key, expected in peer.state_dict().items():
        apart = (state[key] - expected).abs().max()
        assert apart <= 1e-4 * max(1, expected.abs().max()), key
    model.load_state_dict(state, strict=True)
    tests = given(name, own.test_images)
    logits = model.eval()(*tests).detach().numpy()
    apart = np.abs(emuchain.predict(run, torch.cat(tests, 1)) - logits)
    assert apart.max() <= 1e-5 * np.abs(logits).max()


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_pytorch_in_float64(name: str) -> None:
    """By one step, so long that what is left of the former weights rounds nothing of it away."""
    own, model, peer = data(BATCH), made(name), made(name).double()
    # Whole models of several blocks add up more roundings than a layer.
    rate, apart = 4096.0, 1e-6 if name in ("cross-attention", "detr", "shared keys") else 2e-6
    step = {**SETTINGS, "learning_rate": rate, "momentum": 0.0, "weight_decay": 0.0}
    run = emuchain.train(network_of(name, model), data=own, devices=3, **step)
    labels = torch.from_numpy(own.train_labels)
    logits = peer(*given(name, own.train_images))
    nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
    state, first = run.state_dict(), model.state_dict()
    largest: dict[str, float] = {}
    for key, weights in peer.named_parameters():
        module = key.rpartition(".")[0]
        largest[module] = max(largest.get(module, 0.0), float(weights.grad.abs().max()))
    assert all(largest.values())
    for key, weights in peer.named_parameters():
        gradient = (first[key].double() - state[key].double()) / rate
        # Keys' bias has no gradient, so that it is compared with its layer's.
        bound = apart * largest[key.rpartition(".")[0]]
        assert (gradient - weights.grad).abs().max() <= bound, key


def shown(network: Any) -> list[Any]:
    """The layers without names, and without dropout of nothing, which one exporter keeps."""
    layers = []
    for layer in network.layers:
        own = {key: value for key, value in vars(layer.operation).items() if key != "tied"}
        steps = [step.operation for step in layer.sfu if step.operation.type != "dropout"]
        layers.append((own, layer.tied is None, layer.input, layer.feeds, steps))
    return layers


@pytest.mark.parametrize(
    ("name", "dynamo"), [*((name, True) for name in MODELS), ("transformer", False)]
)
def test_files_are_the_same_network(name: str, dynamo: bool, tmp_path: Path) -> None:
    """Layers and weights of PyTorch's file; what is written of them is read again."""
    model, path = made(name), tmp_path / "m.onnx"
    keys: dict[str, Any] = {"dynamo": dynamo, "verbose": False}
    keys |= {"optimize": False} if dynamo else {"training": torch.onnx.TrainingMode.TRAINING}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model.train(), given(name, data(2).train_images), path, **keys)
    network, in_memory = emuchain.load_network(path), network_of(name, model)
    assert shown(network) == shown(in_memory)
    weights = onnx_weights(str(path))
    first = in_memory.state.first_weights()
    for theirs, ours in zip(weights.values(), first.values(), strict=True):
        assert theirs.keys() == ours.keys()
        assert all(np.array_equal(theirs[key], ours[key]) for key in ours)
    again = tmp_path / "again.onnx"
    again.write_bytes(onnx_image(weights, network, "here"))
    assert shown(emuchain.load_network(again)) == shown(network)
    back = onnx_weights(str(again))
    for theirs, ours in zip(back.values(), weights.values(), strict=True):
        assert all(np.array_equal(theirs[key], ours[key]) for key in ours)
