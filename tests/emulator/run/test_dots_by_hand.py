"""A small CNN whose products are summed in blocks, trained here number by number, and by the
emulator: every weight is equal.

Sums of blocks are exact here: fp64 holds them, and what is added to them is rounded once, as a
fraction where fp64 does not hold it. Roundings and their places are written out, as docs/numbers.md
states them. Of the emulator's kernels, the errors of the loss and the words of Philox are used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.device import epoch_order
from emuchain.emulator.device.memories import initial_weights
from emuchain.emulator.number import KINDS
from emuchain.emulator.plan import training_data
from emuchain.kernels.layers.loss import softmax_cross_entropy
from emuchain.kernels.quantise import PhiloxStream

from ...kernels.conv.exact import cut, single
from .gpt import Table, written
from .test_formats_of_attention_by_hand import BF16, E2M1, E4M3, Form

F = np.float32
BATCH, STEPS, SEED = 3, 5, 5
RATE, MOMENTUM, DECAY = F(0.05), F(0.9), F(0.01)
LAYERS: list[Table] = [
    {"type": "conv", "name": "c1", "channels": 40, "kernel": 3, "pad": 1, "stride": 4},
    {"type": "relu"},
    {"type": "conv", "name": "c2", "channels": 70, "kernel": 3, "pad": 1, "stride": 2},
    {"type": "relu"},
    {"type": "max-pool", "kernel": 2},
    {"type": "fc", "name": "f1", "features": 40},
    {"type": "relu"},
    {"type": "fc", "name": "f2", "features": 10},
    {"type": "softmax"},
]
WHOLE = 0
"""Products of a block where all of a sum are one, whole numbers until it is there."""
INT8 = Form(6, 0, 127 / 64, block=32)
FORMS: dict[str, tuple[str, int, Form]] = {
    "mxint8": ("mxint8 accumulate=dot:32", 32, INT8),
    "mxint8 in eighths": ("mxint8 accumulate=dot:8 loss_scale=64", 8, INT8),
    "mxint8 by chance": (
        "mxint8 rounding=stochastic accumulate=dot:32",
        32,
        dataclasses.replace(INT8, by_chance=True),
    ),
    "mxfp4": ("mxfp4 accumulate=dot:16", 16, dataclasses.replace(E2M1, block=32)),
    "mxfp8, in fp64": ("mxfp8 accumulate=dot:32", 32, dataclasses.replace(E4M3, block=32)),
    "fixed point": ("q2.6 accumulate=dot:32 loss_scale=16", 32, Form(7, 1, 127 / 64)),
    "powers of two": ("shift5 accumulate=dot:32 loss_scale=16", 32, Form(0, -13, 1.0)),
    "mxfp4, transformed": (
        "mxfp4 accumulate=dot:32 hadamard=16",
        32,
        dataclasses.replace(E2M1, block=32),
    ),
    "mxint8 by chance, transformed": (
        "mxint8 rounding=stochastic accumulate=dot:8 hadamard=4",
        8,
        dataclasses.replace(INT8, by_chance=True),
    ),
    "fp8 by the last two": ("fp8 scaling=delayed:history=2", 1, E4M3),
    "int8 by the last three, by chance": (
        "int8 scaling=delayed:history=3 rounding=stochastic",
        1,
        Form(7, 0, 127 / 128, by_chance=True),
    ),
    "blocks of fp8, by the last two": (
        "fp8 accumulate=dot:16 scaling=delayed:history=2",
        16,
        E4M3,
    ),
    "blocks of fixed point, by the last": (
        "q2.6 accumulate=dot:32 scaling=delayed:history=1",
        32,
        Form(7, 1, 127 / 64),
    ),
    "blocks of int8, by chance, by the last three": (
        "int8 rounding=stochastic accumulate=dot:8 scaling=delayed:history=3",
        8,
        Form(7, 0, 127 / 128, by_chance=True),
    ),
    "whole numbers, by the last two": (
        "int8 accumulate=int32 scaling=delayed:history=2",
        WHOLE,
        Form(7, 0, 127 / 128),
    ),
    "whole numbers, by chance, by the last": (
        "q2.6 rounding=stochastic accumulate=int32 scaling=delayed:history=1 loss_scale=16",
        WHOLE,
        Form(7, 1, 127 / 64, by_chance=True),
    ),
    "longer blocks": ("int6@64 accumulate=dot:16", 16, Form(5, 0, 31 / 32, block=64)),
}
Forms = dict[str, tuple[int, Form, Form]]
BY_LAYER: dict[str, tuple[str, Forms]] = {
    "by layer": (
        "mxint8 accumulate=dot:32 layer.c1=bf16 layer.c1.activations=mxint8"
        " layer.c1.accumulate=fp32"
        " layer.f1=mxfp4 layer.f1.accumulate=dot:16 layer.f2=fp8 layer.f2.accumulate=fp32",
        {
            "c1": (1, BF16, INT8),
            "c2": (32, INT8, INT8),
            "f1": (16, *[dataclasses.replace(E2M1, block=32)] * 2),
            "f2": (1, E4M3, E4M3),
        },
    ),
    "by layer, by chance": (
        "bf16 loss_scale=16 layer.c2:f1=q2.6 layer.f1=q2.6"
        " layer.f1.rounding=stochastic layer.f2=fp32",
        {
            "c1": (1, BF16, BF16),
            "c2": (1, *[Form(7, 1, 127 / 64)] * 2),
            "f1": (1, *[Form(7, 1, 127 / 64, by_chance=True)] * 2),
            "f2": (1, *[Form(23, -126, np.inf)] * 2),
        },
    ),
    "whole numbers, of two formats, by the last two": (
        "int8 activations=q2.8 accumulate=int32 scaling=delayed:history=2 layer.f2.accumulate=fp32",
        {
            **dict.fromkeys(
                ("c1", "c2", "f1"), (WHOLE, Form(7, 0, 127 / 128), Form(9, 1, 511 / 256))
            ),
            "f2": (1, Form(7, 0, 127 / 128), Form(9, 1, 511 / 256)),
        },
    ),
}
"""By layer, products of a block, of one in plain fp32; and the formats of weights and errors, and
of activations that the layer makes.
"""


def added(sums: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Return fp32 sums and exact ones of blocks, added and rounded once; whole numbers in fp64 are
    not.
    """
    if sums.dtype == np.float64:
        return sums + blocks
    before = sums.astype(np.float64)
    near = before + blocks
    of_blocks = near - before
    lost = (before - (near - of_blocks)) + (blocks - of_blocks)
    result = near.astype(F)
    for place in zip(*np.nonzero(lost), strict=True):
        result[place] = single(Fraction(before[place]) + Fraction(blocks[place]))
    return result


class Emulation:
    """The network and its training."""

    def __init__(self, plan: Any, forms: Forms) -> None:
        self.forms, self.sample = forms, 0
        self.scale = plan.config.precision.loss_scale
        self.hadamard, self.history = (
            getattr(plan.config.precision, key) for key in ("hadamard", "history")
        )
        self.largest: dict[tuple[str, int], list[float]] = {}
        self.largest_weights: dict[str, list[float]] = {}
        self.layers = list(plan.network.layers)
        self.masters = {}
        for layer in self.layers:
            outs, ins, *_ = layer.weight_shape
            first = initial_weights(layer, plan.network.start, SEED, range(ins), range(outs))
            self.masters[layer.name] = first.copy()
        self.velocities = {name: np.zeros_like(own) for name, own in self.masters.items()}
        self._round_weights(0)

    def _rounded(
        self, values: np.ndarray, axis: int, form: Form, words: Callable[[], np.ndarray]
    ) -> np.ndarray:
        every = words() if form.by_chance else np.zeros(values.shape, np.uint32)
        lines, own = (np.moveaxis(array, axis, -1) for array in (values, every))
        return np.ascontiguousarray(np.moveaxis(form.round(lines, own), -1, axis))

    def _form(self, kind: str, layer: str) -> Form:
        return self.forms[layer][2 if kind == "activations" else 1]

    def _words(self, tensor: int, purpose: int, number: int, shape: Any) -> np.ndarray:
        stream = PhiloxStream(SEED, tensor, purpose, number)
        return stream.words(0, int(np.prod(shape))).reshape(shape)

    def _round_weights(self, update: int) -> None:
        self.weights, self.turned = {}, {}
        for layer in self.layers:
            own = self.masters[layer.name]

            def words(layer: Any = layer, shape: Any = own.shape) -> np.ndarray:
                return self._words(layer.index, KINDS.index("weights"), update, shape)

            scale = self._weight_scale(layer, own, update) if self.history else F(1)
            form = self.forms[layer.name][1]
            self.weights[layer.name] = scale * self._rounded(own / scale, 1, form, words)
            self.turned[layer.name] = scale * self._turned(layer, own / scale, words)

    def _weight_scale(self, layer: Any, own: np.ndarray, update: int) -> Any:
        """The least power of two under which no weight after the last updates is beyond."""
        known = self.largest_weights.setdefault(layer.name, [])
        most = max(known[-self.history :], default=0.0) if update else 0.0
        known.append(float(np.abs(own).max()))
        return self._least(most, self.forms[layer.name][1])

    def _least(self, most: float, form: Form) -> Any:
        return F(2.0 ** np.ceil(np.log2(most / form.largest))) if most else F(1)

    def _turned(self, layer: Any, own: np.ndarray, words: Callable[[], np.ndarray]) -> np.ndarray:
        apart, form = (layer.operation.groups, -1, *own.shape[1:]), self.forms[layer.name][1]
        made = self._rounded(own.reshape(apart), 1, form, lambda: words().reshape(apart))
        return made.reshape(own.shape)

    def _taken(self, kind: str, layer: Any, maps: np.ndarray) -> np.ndarray:
        """Round maps (channels, rows, columns) once more, in blocks of a group's channels, where
        these lie across those of the map.
        """
        groups, form = layer.operation.groups, self.forms[layer.name][1]
        size, block = len(maps) // groups, form.block
        if groups == 1 or not block or not size % block or not block % size:
            return maps
        rows = np.moveaxis(maps, 0, -1)
        apart = *rows.shape[:2], groups, size

        def words() -> np.ndarray:
            purpose = 200 + KINDS.index(kind)
            return self._words(layer.makes.number, purpose, self.sample, apart)

        made = self._rounded(rows.reshape(apart), -1, form, words).reshape(rows.shape)
        return np.ascontiguousarray(np.moveaxis(made, -1, 0))

    def _map(self, kind: str, maps: np.ndarray, tensor: int, sample: int, layer: Any) -> np.ndarray:
        """Round a map (channels, rows, columns) of a layer; words go by pixels."""
        rows, shape = np.moveaxis(maps, 0, -1), np.moveaxis(maps, 0, -1).shape
        scale = self._scale(kind, rows, tensor, sample // BATCH, layer) if self.history else F(1)
        made = scale * self._rounded(
            rows / scale,
            -1,
            self._form(kind, layer.name),
            lambda: self._words(tensor, KINDS.index(kind), sample, shape),
        )
        return np.ascontiguousarray(np.moveaxis(made, -1, 0))

    def _pixels(
        self, kind: str, lines: np.ndarray, tensor: int, first: int, sample: int, made_by: str
    ) -> np.ndarray:
        """Round lines (channels, pixels) once more, for PG."""
        form = self._form(kind, made_by)
        if not form.block:
            return lines
        if self.hadamard:
            lines = self._transformed(lines, tensor)

        def words() -> np.ndarray:
            stream = PhiloxStream(SEED, tensor, 192 + KINDS.index(kind), sample)
            return stream.words(first, lines.size).reshape(lines.shape)

        return self._rounded(lines, -1, form, words)

    def _scale(self, kind: str, rows: np.ndarray, tensor: int, step: int, layer: Any) -> Any:
        """The least power of two under which no number of the last mini-batches is beyond."""
        largest = self.largest.setdefault((kind, tensor), [])
        largest += [0.0] * (step + 1 - len(largest))
        largest[step] = max(largest[step], float(np.abs(rows).max()))
        most = max(largest[max(0, step - self.history) : step], default=0.0)
        return self._least(most, self._form(kind, layer.name))

    def _transformed(self, lines: np.ndarray, tensor: int) -> np.ndarray:
        """Each block times a matrix of Hadamard's, over the root of its size, in butterflies."""
        size, lines = self.hadamard, lines.astype(F)
        words = PhiloxStream(SEED, tensor, 224, 0).words(0, size)
        for first in range(0, lines.shape[-1] - size + 1, size):
            values = [lines[:, first + n] * F(-1 if words[n] >= 2**31 else 1) for n in range(size)]
            distance = 1
            while distance < size:
                values = [
                    values[n ^ distance] - values[n]
                    if n & distance
                    else values[n] + values[n ^ distance]
                    for n in range(size)
                ]
                distance *= 2
            for n in range(size):
                lines[:, first + n] = values[n] / F(size**0.5)
        return lines

    def _forward(self, layer: Any, x: np.ndarray) -> np.ndarray:
        x, weights = self._taken("activations", layer, x), self.weights[layer.name]
        groups = layer.operation.groups
        parts = zip(np.split(weights, groups), np.split(x, groups), strict=True)
        return np.concatenate([self._forward_of(layer, *part) for part in parts])

    def _forward_of(self, layer: Any, weight: np.ndarray, x: np.ndarray) -> np.ndarray:
        weight = weight.astype(np.float64)
        size, wide = self._sums(layer)
        y = np.zeros((len(weight), *layer.output[1:]), wide)
        for channels in cut(len(x), size or len(x)):
            own = slice(channels.start, channels.stop)
            for (u, v), read in self._reads(layer, x).items():
                block = np.einsum("oi,irc->orc", weight[:, own, u, v], read[own])
                y = added(y, block)
        return y.astype(F)

    def _sums(self, layer: Any) -> tuple[int, Any]:
        """Products of a block, and the type of what adds blocks."""
        size = self.forms[layer.name][0]
        return size, F if size else np.float64

    def _reads(self, layer: Any, x: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
        """What outputs read through each place of the kernel."""
        (kh, kw), (down, across), (top, left), *_ = layer.window
        _, rows, columns = layer.output
        framed = np.pad(x, ((0, 0), (top, top), (left, left))).astype(np.float64)
        return {
            (u, v): framed[:, u : u + down * rows : down, v : v + across * columns : across][
                :, :rows, :columns
            ]
            for u in range(kh)
            for v in range(kw)
        }

    def _errors(self, layer: Any, dy: np.ndarray) -> np.ndarray:
        dy, weights = self._taken("errors", layer, dy), self.turned[layer.name]
        groups = layer.operation.groups
        parts = zip(np.split(weights, groups), np.split(dy, groups), strict=True)
        return np.concatenate([self._errors_of(layer, *part) for part in parts])

    def _errors_of(self, layer: Any, weight: np.ndarray, dy: np.ndarray) -> np.ndarray:
        weight = weight.astype(np.float64)
        (kh, kw), (down, across), (top, left), *_ = layer.window
        (ins, (_, height, width)), (_, rows, columns) = (weight.shape[1], layer.input), dy.shape
        size, wide = self._sums(layer)
        dx = np.zeros((ins, height + 2 * top + down, width + 2 * left + across), wide)
        for channels in reversed(cut(len(dy), size or len(dy))):
            own = slice(channels.start, channels.stop)
            for u in range(kh):
                for v in range(kw):
                    block = np.einsum(
                        "oi,orc->irc", weight[own, :, u, v], dy[own].astype(np.float64)
                    )
                    place = np.s_[
                        :,
                        u : u + down * (rows - 1) + 1 : down,
                        v : v + across * (columns - 1) + 1 : across,
                    ]
                    dx[place] = added(dx[place], block)
        return dx[:, top : top + height, left : left + width].astype(F)

    def _add_gradient(
        self, layer: Any, total: np.ndarray, x: np.ndarray, dy: np.ndarray, sample: int
    ) -> None:
        x = self._taken("activations", layer, x)
        dy = self._taken("errors", layer, dy) if layer.has_eb else dy
        tensor, pixels, ins = layer.makes.number, dy[0].size, len(x)
        size, lines = self.forms[layer.name][0], dy.reshape(len(dy), -1)
        before = self.layers[max(0, self.layers.index(layer) - 1)].name
        if size > 1:
            lines = self._pixels("errors", lines, tensor, 0, sample, layer.name)
        for place, ((u, v), read) in enumerate(self._reads(layer, x).items()):
            first = place * ins * pixels
            own = read.reshape(ins, -1).astype(F)
            if size > 1:
                own = self._pixels("activations", own, tensor, first, sample, before)
            for some in cut(pixels, size or pixels):
                apart = layer.operation.groups, -1, len(some)
                both = (
                    array[:, some.start : some.stop].astype(np.float64).reshape(apart)
                    for array in (lines, own)
                )
                block = np.einsum("gop,gip->goi", *both).reshape(total.shape[:2])
                total[:, :, u, v] = added(total[:, :, u, v], block)

    def step(self, number: int, images: np.ndarray, labels: np.ndarray) -> None:
        """Train a mini-batch: update `number`, from 1."""
        c1, c2, f1, f2 = self.layers
        sums = {
            layer.name: np.zeros(layer.weight_shape, self._sums(layer)[1]) for layer in self.layers
        }
        for place, (image, label) in enumerate(zip(images, labels, strict=True)):
            n = self.sample = BATCH * (number - 1) + place
            x1 = self._map("activations", image, c1.reads.number, n, c1)
            y1 = self._forward(c1, x1)
            x2 = self._map("activations", np.maximum(y1, 0), c2.reads.number, n, c1)
            y2 = self._forward(c2, x2)
            relu = np.maximum(y2, 0)
            quads = relu.reshape(len(relu), 2, 2, 2, 2).transpose(0, 1, 3, 2, 4)
            quads = quads.reshape(len(relu), 2, 2, 4)
            x3 = self._map("activations", quads.max(axis=-1), f1.reads.number, n, c2)
            y3 = self._forward(f1, x3)
            x4 = self._map("activations", np.maximum(y3, 0), f2.reads.number, n, f1)
            logits = self._forward(f2, x4)[:, 0, 0]
            _, errors, _ = softmax_cross_entropy(logits[None], label[None], 0.0)
            errors = errors.reshape(-1, 1, 1) * F(self.scale)
            d4 = self._map("errors", errors, f2.makes.number, n, f2)
            back = self._map("errors", self._errors(f2, d4), f2.reads.number, n, f2)
            d3 = self._map("errors", np.where(y3 > 0, back, F(0)), f1.makes.number, n, f1)
            back = self._map("errors", self._errors(f1, d3), f1.reads.number, n, f1)
            chosen = np.zeros_like(quads)
            np.put_along_axis(chosen, quads.argmax(axis=-1)[..., None], back[..., None], axis=-1)
            spread = chosen.reshape(-1, 2, 2, 2, 2).transpose(0, 1, 3, 2, 4).reshape(y2.shape)
            d2 = self._map("errors", np.where(y2 > 0, spread, F(0)), c2.makes.number, n, c2)
            back = self._map("errors", self._errors(c2, d2), c2.reads.number, n, c2)
            d1 = self._map("errors", np.where(y1 > 0, back, F(0)), c1.makes.number, n, c1)
            for layer, x, dy in ((c1, x1, d1), (c2, x2, d2), (f1, x3, d3), (f2, x4, d4)):
                self._add_gradient(layer, sums[layer.name], x, dy, n)
        for name, own in self.masters.items():
            mean = (sums[name].astype(F) / F(self.scale)) * F(1 / BATCH)
            velocity = self.velocities[name]
            velocity[...] = MOMENTUM * velocity + (mean + DECAY * own)
            own -= RATE * velocity
        self._round_weights(number)


def network_of(path: Any, second: Table) -> str:
    layers = [
        {**layer, "bias": False} if layer["type"] in ("conv", "fc") else layer for layer in LAYERS
    ]
    layers[2] = {**layers[2], **second}
    return written(path / "small.toml", {"name": "small", "input": [3, 32, 32], "layers": layers})


def keys_of(path: Any, precision: str, second: Table) -> Table:
    return {
        "network": network_of(path, second),
        **{"schedule": "sync", "samples": BATCH * STEPS, "batch": BATCH, "test_samples": 1},
        **{"seed": SEED, "precision": precision, "momentum": float(MOMENTUM)},
        **{"learning_rate": float(RATE), "weight_decay": float(DECAY)},
    }


def compare(path: Any, plan_of: Any, trained: Any, name: str, **second: Any) -> None:
    """Train the network, with other keys of its second layer, by hand and on three boards."""
    if name in BY_LAYER:
        precision, forms = BY_LAYER[name]
    else:
        precision, size, form = FORMS[name]
        forms = dict.fromkeys(("c1", "c2", "f1", "f2"), (size, form, form))
    plan = plan_of(**keys_of(path, precision, second), devices=3, micro_batch=1)
    data, own = training_data(plan), Emulation(plan, forms)
    train(own, data, 0, STEPS)
    check(own, trained(plan).weights)


def train(own: Emulation, data: Any, epoch: int, steps: int) -> None:
    """Train an epoch by hand."""
    order = epoch_order(SEED, epoch, data.n_train)
    images = data.normalisation()
    for step in range(steps):
        chosen = order[BATCH * step :][:BATCH]
        maps = np.empty((BATCH, 32, 32, 3), F)
        images.apply_channels_last(np.ascontiguousarray(data.train_images[chosen]), maps)
        number = epoch * steps + step + 1
        own.step(number, maps.transpose(0, 3, 1, 2), data.train_labels[chosen])


def check(own: Emulation, weights: Any) -> None:
    """Check that all weights are equal."""
    for layer, expected in own.weights.items():
        assert np.array_equal(weights[layer]["weight"], expected), layer


BY_EPOCH: dict[str, tuple[str, int, list[Form]]] = {
    "blocks": (
        "mxint8 accumulate=dot:32 epoch.2=mxfp4 epoch.3=mxint8 epoch.3.rounding=stochastic",
        32,
        [INT8, dataclasses.replace(E2M1, block=32), dataclasses.replace(INT8, by_chance=True)],
    ),
    "numbers": ("fp8 epoch.2=bf16 epoch.3=q2.6", 1, [E4M3, BF16, Form(7, 1, 127 / 64)]),
    "scales": (
        "fp8 scaling=delayed:history=2 epoch.2=int8 epoch.3=fp8",
        1,
        [E4M3, Form(7, 0, 127 / 128), E4M3],
    ),
}


@pytest.mark.parametrize("name", BY_EPOCH)
def test_formats_by_epoch(tmp_path: Any, plan_of: Any, trained: Any, name: str) -> None:
    """Weights are rounded anew, from those that updates change; all else goes on."""
    precision, size, forms = BY_EPOCH[name]
    steps = 2
    keys = {**keys_of(tmp_path, precision, {}), "samples": BATCH * steps, "epochs": len(forms)}
    plan = plan_of(**keys, devices=3, micro_batch=1)
    data, layers = training_data(plan), ("c1", "c2", "f1", "f2")
    own = Emulation(plan, dict.fromkeys(layers, (size, forms[0], forms[0])))
    for epoch, form in enumerate(forms):
        own.forms = dict.fromkeys(layers, (size, form, form))
        if epoch:
            own.largest, own.largest_weights = {}, {}
            own._round_weights(0)
        train(own, data, epoch, steps)
    check(own, trained(plan).weights)


@pytest.mark.parametrize("name", [*FORMS, *BY_LAYER])
def test_every_weight(tmp_path: Any, plan_of: Any, trained: Any, name: str) -> None:
    compare(tmp_path, plan_of, trained, name)


@pytest.mark.parametrize(("channels", "groups"), [(70, 2), (40, 40), (64, 2)])
@pytest.mark.parametrize("name", ["mxint8 in eighths", "mxint8 by chance", "fixed point"])
def test_groups(
    tmp_path: Any, plan_of: Any, trained: Any, name: str, channels: int, groups: int
) -> None:
    """Of 20 input channels and 35 or 32 outputs, or of one of each."""
    compare(tmp_path, plan_of, trained, name, channels=channels, groups=groups)
