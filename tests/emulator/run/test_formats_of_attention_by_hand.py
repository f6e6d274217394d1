"""A small transformer in narrow formats, trained here number by number, and by the emulator: every
weight is equal.

Sums are chains of fused multiply-adds in the order of docs/numerics.md; roundings and their places
are written out here, as docs/numbers.md states them. Of the emulator's kernels, the errors of the
loss and the words of Philox are used.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.device import epoch_order
from emuchain.emulator.device.memories import initial_weights
from emuchain.emulator.number import KINDS
from emuchain.emulator.plan import training_data
from emuchain.kernels.layers.loss import softmax_cross_entropy
from emuchain.kernels.quantise import PhiloxStream

from ...kernels.attention import reference
from ...kernels.forms import BF16, E2M1, E4M3, NVFP4, Form
from ...kernels.recurrent.reference import add_outer, chain
from .gpt import Table, conv, written

F = np.float32
WIDTH, HEADS, SIZE, TOKENS, BATCH, STEPS, SEED = 12, 3, 4, 40, 3, 3, 5
RATE, MOMENTUM, DECAY = F(0.05), F(0.9), F(0.01)

FORMS: dict[str, tuple[str, Form, Form]] = {
    "bf16": ("bf16", BF16, BF16),
    "mxfp8": ("mxfp8", dataclasses.replace(E4M3, block=32), dataclasses.replace(E4M3, block=32)),
    "fp8 activations alone": ("activations=fp8", E4M3, Form(23, -126, np.inf)),
    "bf16 by chance": (
        "bf16 rounding=stochastic",
        *[dataclasses.replace(BF16, by_chance=True)] * 2,
    ),
    "nvfp4": ("nvfp4 loss_scale=16", NVFP4, NVFP4),
    "nvfp4 by chance": (
        "nvfp4 rounding=stochastic",
        *[dataclasses.replace(NVFP4, by_chance=True)] * 2,
    ),
    "mxfp4 by chance": (
        "mxfp4 rounding=stochastic loss_scale=16",
        *[dataclasses.replace(E2M1, block=32, by_chance=True)] * 2,
    ),
    "fp8 by the last two": ("fp8 scaling=delayed:history=2", E4M3, E4M3),
    "int8 by the last, by chance": (
        "int8 scaling=delayed:history=1 rounding=stochastic",
        *[Form(7, 0, 127 / 128, by_chance=True)] * 2,
    ),
}


class Delayed:
    """A form under the least power of two under which no number of the last steps of a clock, as
    many as a history has, was beyond the largest one.
    """

    block = 0

    def __init__(self, form: Form, history: int, clock: list[int]) -> None:
        self.form, self.history, self.clock = form, history, clock
        self.largest: list[float] = []

    def round(self, values: np.ndarray, words: np.ndarray) -> np.ndarray:
        step = self.clock[0]
        self.largest += [0.0] * (step + 1 - len(self.largest))
        self.largest[step] = max(self.largest[step], float(np.abs(values).max()))
        most = max(self.largest[max(0, step - self.history) : step], default=0.0)
        scale = F(2.0 ** np.ceil(np.log2(most / self.form.largest))) if most else F(1)
        return self.form.round(values / scale, words) * scale


class Emulation:
    """The network and its training."""

    history = 0

    def __init__(self, plan: Any, activations: Form, others: Form) -> None:
        self._begin_scales(plan)
        self.forms = {"activations": activations, "errors": others, "weights": others}
        self.scale, self.layers = plan.config.precision.loss_scale, plan.network.layers
        self.masters: dict[str, np.ndarray] = {}
        self.biases, self.velocities, self.weights = {}, {}, {}
        for layer in self.layers:
            if layer.has_weights and layer.tied is None:
                outs, ins, *_ = layer.weight_shape
                first = initial_weights(layer, plan.network.start, SEED, range(ins), range(outs))
                self.masters[layer.name] = first[:, :, 0, 0].copy()
                if layer.bias:
                    self.biases[layer.name] = np.zeros(outs, F)
        self.clip, self.norms = plan.config.clip_norm, list[float]()
        self._round_weights(0)

    def _begin_scales(self, plan: Any) -> None:
        self.history = plan.config.precision.history
        self.steps, self.updates = [0], [0]
        self.delayed: dict[tuple[str, str], Delayed] = {}

    def _form(self, kind: str, name: str) -> Any:
        """How numbers of a kind are rounded; with scales, the name tells those of a scale."""
        if not self.history:
            return self.forms[kind]
        clock = self.updates if kind == "weights" else self.steps
        new = Delayed(self.forms[kind], self.history, clock)
        return self.delayed.setdefault((kind, name), new)

    def _words(self, shape: Any, tensor: int, purpose: int, number: int) -> np.ndarray:
        stream = PhiloxStream(SEED, tensor, purpose, number)
        return stream.words(0, int(np.prod(shape))).reshape(shape)

    def _round_weights(self, update: int) -> None:
        self.updates[0] = update
        for layer in self.layers:
            if layer.tied is not None:
                self.weights["head"] = np.ascontiguousarray(self.weights["wte"].T)
            elif layer.has_weights:
                own = self.masters[layer.name]
                words = self._words(own.shape, layer.index, KINDS.index("weights"), update)
                form = self._form("weights", layer.name)
                if layer.name == "p":  # alone cut by input channels: blocks of outputs
                    made = form.round(own.T.copy(), words.T.copy()).T
                else:
                    made = form.round(own, words)
                self.weights[layer.name] = np.ascontiguousarray(made)

    def _map(
        self, kind: str, values: np.ndarray, tensor: int, sample: int, place: str = "outputs"
    ) -> np.ndarray:
        words = self._words(values.shape, tensor, KINDS.index(kind), sample)
        return self._form(kind, f"{place} {tensor}").round(values, words)

    def _pairs(self, kind: str, head: int, sample: int) -> Any:
        """How attention's operands are rounded, of what query `t` has of its keys."""
        purpose = 128 + KINDS.index(kind)
        every = self._words((HEADS, TOKENS, TOKENS), 3, purpose, sample)  # heads, keys, queries
        form = self._form(kind, "pairs")
        return lambda values, t: form.round(values, every[head, : len(values), t])

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        weight = np.ascontiguousarray(self.weights[name].T)
        sums = np.stack([chain(np.zeros(weight.shape[1], F), row, weight) for row in x])
        return sums + self.biases.get(name, F(0))

    def _errors(self, name: str, dy: np.ndarray, begin: np.ndarray | None = None) -> np.ndarray:
        weight = np.ascontiguousarray(self.weights[name][::-1])  # outputs descend
        begin = np.zeros((len(dy), weight.shape[1]), F) if begin is None else begin
        return np.stack(
            [chain(start, row[::-1], weight) for start, row in zip(begin, dy, strict=True)]
        )

    def _attention(self, head: int, inputs: np.ndarray, dy: np.ndarray, sample: int) -> Any:
        """Run a head of q, k and v (3, tokens, size) forward and backward."""
        both = self._pairs("activations", head, sample), self._pairs("errors", head, sample)
        ones = np.ones((TOKENS, TOKENS), F)
        return reference.attention(*inputs, dy, F(SIZE**-0.5), True, TOKENS, ones, *both)

    def _add_gradient(
        self, name: str, total: np.ndarray, dy: np.ndarray, inputs: np.ndarray, sample: int
    ) -> None:
        for errors, read in zip(dy, inputs, strict=True):
            add_outer(total, errors, read)

    def step(self, number: int, symbols: np.ndarray, labels: np.ndarray) -> None:
        """Train a mini-batch: update `number`, from 1."""
        sums = {name: np.zeros_like(own) for name, own in self.weights.items()}
        bias_sums = {name: np.zeros_like(own) for name, own in self.biases.items()}
        self.steps[0] = number - 1
        for place, (text, label) in enumerate(zip(symbols, labels, strict=True)):
            sample = BATCH * (number - 1) + place
            x = self._map("activations", self.weights["wte"].T[text], 1, sample)
            qkv = self._map("activations", self._linear("qkv", x), 2, sample)
            parts = qkv.reshape(TOKENS, HEADS, 3, SIZE)

            def attention(head: int, dy: np.ndarray, parts: Any = parts, n: int = sample) -> Any:
                own = np.ascontiguousarray(dy[:, SIZE * head : SIZE * (head + 1)])
                return self._attention(head, parts[:, head].swapaxes(0, 1).copy(), own, n)

            none = np.zeros((TOKENS, WIDTH), F)
            mixed = np.concatenate([attention(head, none)[0] for head in range(HEADS)], axis=1)
            mixed = self._map("activations", mixed, 3, sample)
            after = self._map("activations", self._linear("p", mixed) + x, 5, sample)
            logits = self._linear("head", after)
            _, errors, _ = softmax_cross_entropy(logits, label, 0.0)
            errors = errors / F(TOKENS) * F(self.scale)
            dy = {"head": self._map("errors", errors, 6, sample)}
            of_sum = self._map("errors", self._errors("head", dy["head"]), 5, sample, "inputs")
            dy["p"] = self._map("errors", of_sum, 4, sample)
            of_heads = self._map("errors", self._errors("p", dy["p"]), 3, sample, "inputs")
            of_heads = self._map("errors", of_heads, 3, sample)
            back = np.zeros((TOKENS, HEADS, 3, SIZE), F)
            for head in range(HEADS):
                back[:, head] = np.stack(attention(head, of_heads)[2:], axis=1)
            of_qkv = self._map("errors", back.reshape(TOKENS, -1), 2, sample, "inputs")
            dy["qkv"] = self._map("errors", of_qkv, 2, sample)
            # What the sum and q, k and v read has two readers: its errors are rounded as those of
            # outputs alone.
            dy["wte"] = self._map("errors", self._errors("qkv", dy["qkv"], of_sum), 1, sample)
            read = {"qkv": x, "p": mixed, "head": after}
            for token in range(TOKENS):
                sums["wte"][:, text[token]] += dy["wte"][token]
                for name in self.biases:
                    bias_sums[name] += dy[name][token]
            for name, inputs in read.items():
                self._add_gradient(name, sums[name], dy[name], inputs, sample)
        if "head" not in self.masters:
            sums["wte"] += sums.pop("head").T
        if self.clip is not None:
            self._clip([*sums.values(), *bias_sums.values()])
        for name, own in self.masters.items():
            self._update(own, sums[name], f"{name}/weight")
        for name, own in self.biases.items():
            self._update(own, bias_sums[name], f"{name}/bias")
        self._round_weights(number)

    def _clip(self, sums: list[np.ndarray]) -> None:
        """Scale all sums of gradients down, so that the norm of their means is at most `clip`."""
        means = (total * F(1 / (BATCH * self.scale)) for total in sums)
        squares = (mean.reshape(-1).astype(np.float64) ** 2 for mean in means)
        norm = math.sqrt(math.fsum(np.concatenate([*squares])))
        self.norms.append(norm)
        for total in sums:
            total *= F(min(1.0, self.clip / (norm + 1e-6)))

    def _update(self, own: np.ndarray, total: np.ndarray, name: str) -> None:
        velocity = self.velocities.setdefault(name, np.zeros_like(own))
        mean = (total / F(self.scale)) * F(1 / BATCH)
        velocity[...] = MOMENTUM * velocity + (mean + DECAY * own)
        own -= RATE * velocity


def run_by_hand(
    path: Any,
    plan_of: Any,
    trained: Any,
    precision: str,
    emulation: Callable[[Any], Emulation],
    *,
    tied: str | None = None,
    **more: Any,
) -> Emulation:
    """Train the network by hand and on three boards, its head maybe `tied` and cut as this says, and
    compare every weight.
    """
    layers = [
        {"type": "embedding", "features": WIDTH, "name": "wte"},
        conv(3 * WIDTH, "qkv"),
        {"type": "attention", "heads": HEADS, "causal": True, "name": "a"},
        conv(WIDTH, "p"),
        {"type": "add", "from": ["p", "wte"], "name": "x"},
        conv("symbols", "head", bias=False, **({"tied": "wte", "cut": tied} if tied else {})),
        {"type": "softmax"},
    ]
    network: Table = {"name": "t", "symbols": 28, "input": ["symbols", TOKENS, 1]}
    keys: Table = {
        "network": written(path / "t.toml", {**network, "layers": layers}),
        **{"data": "text", "schedule": "sync", "samples": BATCH * STEPS, "batch": BATCH},
        **{"seed": SEED, "test_samples": 1, "precision": precision, "momentum": float(MOMENTUM)},
        **{"learning_rate": float(RATE), "weight_decay": float(DECAY), **more},
    }
    plan = plan_of(**keys, devices=3, micro_batch=2)
    data, own = training_data(plan), emulation(plan)
    order = epoch_order(SEED, 0, data.n_train)
    for step in range(STEPS):
        chosen = order[BATCH * step :][:BATCH]
        symbols = data.train_images[chosen].reshape(BATCH, TOKENS).astype(np.int64)
        own.step(step + 1, symbols, data.train_labels[chosen])
    weights = trained(plan).weights
    for layer, expected in own.weights.items():
        assert np.array_equal(weights[layer]["weight"][:, :, 0, 0], expected), layer
        if layer in own.biases:
            assert np.array_equal(weights[layer]["bias"], own.biases[layer]), layer
    return own


@pytest.mark.parametrize(
    ("clip_norm", "tied"), [(None, None), (0.2, None), (0.2, "ICP"), (None, "OCP")]
)
@pytest.mark.parametrize("name", FORMS)
def test_every_weight(
    tmp_path: Any, plan_of: Any, trained: Any, name: str, clip_norm: float | None, tied: str | None
) -> None:
    precision, *forms = FORMS[name]
    own = run_by_hand(
        *(tmp_path, plan_of, trained, precision, lambda plan: Emulation(plan, *forms)),
        tied=tied,
        clip_norm=clip_norm,
    )
    assert clip_norm is None or max(own.norms) > clip_norm
