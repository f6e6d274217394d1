"""An LSTM and a GRU between an embedding and a head in narrow formats, trained here number by
number, and by the emulator: every weight is equal.

Layers are those of `tests/kernels/recurrent/reference.py`; roundings and their places are written
out here, as docs/numbers.md states them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emuchain.emulator.device import epoch_order
from emuchain.emulator.device.memories import initial_weights
from emuchain.emulator.device.slices.recurrent_weights import first_weights
from emuchain.emulator.mapping import Slice
from emuchain.emulator.number import KINDS
from emuchain.emulator.plan import training_data
from emuchain.kernels.layers.loss import softmax_cross_entropy

from ...kernels.forms import Form
from ...kernels.recurrent import reference
from ...kernels.recurrent.reference import gate_major
from .gpt import Table, conv, written
from .test_formats_of_attention_by_hand import BATCH, FORMS, SEED, STEPS, Emulation, F

WIDTH, UNITS, TOKENS = 12, 36, 6
LAYERS: dict[str, Table] = {
    "lstm": {"type": "lstm", "units": UNITS},
    "projection": {"type": "lstm", "units": UNITS, "projection": 34},
    "gru": {"type": "gru", "units": UNITS},
    "gru, reset before": {"type": "gru", "units": UNITS, "reset": "before"},
}
ARRAYS = "w", "r", "b_w", "b_r"
NAMES = {"w": "weight_ih_l0", "r": "weight_hh_l0", "b_w": "bias_ih_l0", "b_r": "bias_hh_l0"}


class Recurrent(Emulation):
    """The network and its training; arrays of the recurrent layer are gate by gate."""

    def __init__(self, plan: Any, activations: Form, others: Form) -> None:
        self._begin_scales(plan)
        self.forms = {"activations": activations, "errors": others, "weights": others}
        self.scale, self.layers = plan.config.precision.loss_scale, plan.network.layers
        self.velocities, self.weights, self.biases = {}, {}, {}
        self.layer = self.layers[1]
        self.operation = self.layer.operation
        self.gates, self.hidden = self.operation.gates, self.operation.hidden
        wte, head = (
            initial_weights(layer, plan.network.start, SEED, range(ins), range(outs))[:, :, 0, 0]
            for layer in (self.layers[0], self.layers[2])
            for outs, ins, *_ in [layer.weight_shape]
        )
        self.masters = {"wte": wte.copy(), "head": head.copy()}
        self.biases["head"] = np.zeros(len(head), F)
        [own] = first_weights(Slice(self.layer, 0, self.operation.pieces(self.layer.output)), SEED)
        for name in ("w", "r"):
            self.masters[name] = gate_major(own[name], self.gates)
        for name in ("b_w", "b_r"):
            self.biases[name] = gate_major(own[name], self.gates)
        if "p" in own:
            self.masters["p"] = own["p"].copy()
        self._round_weights(0)

    def _round_weights(self, update: int) -> None:
        self.updates[0], purpose = update, KINDS.index("weights")
        for name, layer in (("wte", self.layers[0]), ("head", self.layers[2])):
            own, form = self.masters[name], self._form("weights", name)
            words = self._words(own.shape, layer.index, purpose, update)
            if name == "head":  # cut by input channels: blocks of outputs
                made = form.round(own.T.copy(), words.T.copy()).T
            else:
                made = form.round(own, words)
            self.weights[name] = np.ascontiguousarray(made)
        of_arrays = self._words_of_arrays(update)
        for name in self.masters.keys() & {"w", "r", "p"}:
            form = self._form("weights", name)
            self.weights[name] = form.round(self.masters[name], of_arrays[name])

    def _words_of_arrays(self, update: int) -> dict[str, np.ndarray]:
        """Words of the layer's weights, gate by gate."""
        columns, purpose = WIDTH + self.hidden + 2, KINDS.index("weights")
        rows = UNITS * self.gates * columns
        every = self._words((rows + self.hidden * UNITS,), self.layer.index, purpose, update)
        words = gate_major(every[:rows].reshape(-1, columns), self.gates)
        of_p = every[rows:].reshape(self.hidden, UNITS)
        return {"w": words[:, :WIDTH], "r": words[:, WIDTH:-2], "p": of_p}

    def _narrow(self, sample: int) -> reference.Narrow:
        def rounded(kind: str, t: int, line: int, values: np.ndarray) -> np.ndarray:
            own = "errors" if "errors" in kind else "activations"
            purpose = 128 + KINDS.index(own) + 8 * ("inner" in kind)
            lines = 4 if kind == "errors" else 1
            words = self._words((TOKENS, lines, len(values)), 2, purpose, sample)
            return self._form(own, kind).round(values, words[t, line])

        return rounded

    def _run(self, x: np.ndarray, dy: np.ndarray, sums: Any, sample: int) -> Any:
        """Outputs, and errors of inputs; gradients are added to `sums`."""
        weights = [self.weights["w"], self.weights["r"], self.biases["b_w"], self.biases["b_r"]]
        grads, keys = [sums[name] for name in ARRAYS], self._sums(sample)
        keys["narrow"] = self._narrow(sample)
        zeros = np.zeros(self.hidden, F)
        if self.gates == 4:
            p, of_p, cells = self.weights.get("p"), sums.get("p"), np.zeros(UNITS, F)
            given = x, *weights, zeros, cells, p, dy, zeros, cells, [*grads, of_p]
            y, _, _, dx, *_ = reference.lstm(*given, **keys)
        else:
            linear = self.operation.reset == "after"
            y, _, dx, _ = reference.gru(x, *weights, zeros, dy, zeros, grads, linear, **keys)
        return y, dx

    def _sums(self, sample: int) -> dict[str, Any]:
        """How products are added within the layer, and other weights of EB."""
        return {}

    def _loss_errors(self, logits: np.ndarray, label: np.ndarray) -> np.ndarray:
        return softmax_cross_entropy(logits, label, 0.0)[1] / F(TOKENS)

    def step(self, number: int, symbols: np.ndarray, labels: np.ndarray) -> None:
        """Train a mini-batch: update `number`, from 1."""
        sums = {name: np.zeros_like(own) for name, own in (self.biases | self.masters).items()}
        of_bias = np.zeros_like(self.biases["head"])
        self.steps[0] = number - 1
        for place, (text, label) in enumerate(zip(symbols, labels, strict=True)):
            sample = BATCH * (number - 1) + place
            x = self._map("activations", self.weights["wte"].T[text], 1, sample)
            kept = {name: total.copy() for name, total in sums.items()}
            y, _ = self._run(x, np.zeros((TOKENS, self.hidden), F), kept, sample)
            errors = self._loss_errors(self._linear("head", y), label)
            of_head = self._map("errors", errors * F(self.scale), 3, sample)
            dy = self._map("errors", self._errors("head", of_head), 2, sample, "inputs")
            _, dx = self._run(x, self._map("errors", dy, 2, sample), sums, sample)
            of_inputs = self._map("errors", dx, 1, sample, "inputs")
            of_wte = self._map("errors", of_inputs, 1, sample)
            for token in range(TOKENS):
                sums["wte"][:, text[token]] += of_wte[token]
                of_bias += of_head[token]
            self._add_gradient("head", sums["head"], of_head, y, sample)
        for name, own in self.masters.items():
            self._update(own, sums[name], name)
        for name, own in self.biases.items():
            self._update(own, of_bias if name == "head" else sums[name], f"{name} bias")
        self._round_weights(number)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("kind", LAYERS)
def test_every_weight(tmp_path: Any, plan_of: Any, trained: Any, kind: str, name: str) -> None:
    precision, activations, others = FORMS[name]
    plan = plan_of(**keys_of(tmp_path, LAYERS[kind], precision), devices=2, micro_batch=2)
    compare(plan, Recurrent(plan, activations, others), trained)


def keys_of(folder: Any, layer: Table, precision: str, **closing: Any) -> Table:
    """The keys of a run with a recurrent layer between an embedding and a head."""
    layers = [
        {"type": "embedding", "features": WIDTH, "name": "wte"},
        {**layer, "name": "r"},
        conv("symbols", "head"),
        {"type": "softmax", **closing},
    ]
    network: Table = {"name": "t", "symbols": 28, "input": ["symbols", TOKENS, 1]}
    return {
        "network": written(folder / "t.toml", {**network, "layers": layers}),
        **{"data": "text", "schedule": "sync", "samples": BATCH * STEPS, "batch": BATCH},
        **{"seed": SEED, "test_samples": 1, "precision": precision, "momentum": 0.9},
        **{"learning_rate": 0.05, "weight_decay": 0.01},
    }


def compare(plan: Any, own: Recurrent, trained: Any) -> None:
    """Train by numbers and by the emulator, and compare all weights."""
    data = training_data(plan)
    order = epoch_order(SEED, 0, data.n_train)
    for step in range(STEPS):
        chosen = order[BATCH * step :][:BATCH]
        symbols = data.train_images[chosen].reshape(BATCH, TOKENS).astype(np.int64)
        own.step(step + 1, symbols, data.train_labels[chosen])
    weights = trained(plan).weights
    for layer in ("wte", "head"):
        assert np.array_equal(weights[layer]["weight"][:, :, 0, 0], own.weights[layer]), layer
    assert np.array_equal(weights["head"]["bias"], own.biases["head"])
    expected = {NAMES[array]: (own.weights | own.biases)[array] for array in ARRAYS}
    if "p" in own.weights:
        expected["weight_hr_l0"] = own.weights["p"]
    for array, values in expected.items():
        assert np.array_equal(weights["r"][array], values), array
