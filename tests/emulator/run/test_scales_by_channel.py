"""Scales by channel, a block as long as all that a channel has: weights are rounded here in
fractions, a channel at a time, and a small CNN is trained number by number; on one board to eight,
with cuts within layers, every weight is equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.number import KINDS
from emuchain.emulator.plan import training_data

from ...kernels.forms import Form
from .test_dots_by_hand import BATCH, STEPS, Emulation, check, keys_of, train

BY_CHANNEL: dict[str, tuple[str, int, int]] = {
    "8 bits": ("int8@512", 8, 1),
    "4 bits, by chance": ("int4@512 rounding=stochastic loss_scale=16", 4, 1),
    "sums of blocks": ("int8@512 accumulate=dot:32", 8, 32),
}
"""By name the format, bits of an element, and products of a block that are added exactly. No
channel has as many as 512 weights.
"""
BY_OUTPUTS = ("c1",)
"""Layers that are cut by outputs; the others by inputs."""


def rounded(channel: np.ndarray, bits: int, words: np.ndarray | None) -> list[Fraction]:
    """Return the weights of a channel as multiples of one power of two, the least of which as many
    as fit in whole numbers of `bits`; the nearest ones, to even, or by chance.
    """
    values = [Fraction(float(value)) for value in channel]
    most, top = max(map(abs, values)), 2 ** (bits - 1) - 1
    if not most:
        return values
    step = Fraction(1)
    while most > top * step:
        step *= 2
    while most <= top * step / 2:
        step /= 2
    if words is None:
        return [round(value / step) * step for value in values]
    result = []
    for value, word in zip(values, words.tolist(), strict=True):
        whole, rest = divmod(abs(value) / step, 1)
        count = whole + (word < int(rest * 2**32))
        result.append((count if value > 0 else -count) * step)
    return result


def channels_of(layer: Any, shape: tuple[int, ...], size: int) -> Iterator[Any]:
    """Yield the places of the weights that have one scale: those of an output channel; or, of a
    layer that is cut by inputs, those of an input channel at a place of the kernel; or, where FP
    sums blocks, those of an output channel at one.
    """
    outputs, inputs, *kernel = shape
    places = [*np.ndindex(*kernel)]
    if size > 1:
        yield from ((output, slice(None), *place) for output in range(outputs) for place in places)
    elif layer.name in BY_OUTPUTS:
        yield from ((output,) for output in range(outputs))
    else:
        yield from ((slice(None), channel, *place) for channel in range(inputs) for place in places)


class ByChannel(Emulation):
    """The network and its training, with a scale for each channel of weights."""

    def __init__(self, plan: Any, bits: int, size: int) -> None:
        by_chance = "stochastic" in str(plan.config.precision)
        largest = (2 ** (bits - 1) - 1) / 2 ** (bits - 2)
        form = Form(bits - 2, 0, largest, 512, by_chance)
        self.bits, self.size = bits, size
        super().__init__(plan, dict.fromkeys(("c1", "c2", "f1", "f2"), (size, form, form)))

    def _round_weights(self, update: int) -> None:
        super()._round_weights(update)
        for layer in self.layers:
            own = self.masters[layer.name]
            by_chance = self.forms[layer.name][1].by_chance
            words = self._words(layer.index, KINDS.index("weights"), update, own.shape)
            made = np.empty_like(own)
            for place in channels_of(layer, own.shape, self.size):
                line = own[place].ravel()
                drawn = words[place].ravel() if by_chance else None
                values = [float(value) for value in rounded(line, self.bits, drawn)]
                made[place] = np.array(values).reshape(own[place].shape)
            self.weights[layer.name] = made
            if self.size == 1:  # FP and EB read the same copy
                self.turned[layer.name] = made


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: Any, plan_of: Any) -> Any:
    """Gives the network trained here, once for each of the formats."""
    made: dict[str, ByChannel] = {}

    def of(name: str) -> ByChannel:
        if name not in made:
            precision, *others = BY_CHANNEL[name]
            path = tmp_path_factory.mktemp("by-hand")
            plan = plan_of(**keys_of(path, precision, {}), devices=1, micro_batch=1)
            made[name] = ByChannel(plan, *others)
            train(made[name], training_data(plan), 0, STEPS)
        return made[name]

    return of


@pytest.mark.parametrize("devices", range(1, 9))
@pytest.mark.parametrize("name", ["8 bits", "4 bits, by chance"])
def test_every_weight(
    tmp_path: Any, plan_of: Any, trained: Any, by_hand: Any, name: str, devices: int
) -> None:
    keys = keys_of(tmp_path, BY_CHANNEL[name][0], {})
    plan = plan_of(**keys, devices=devices, micro_batch=1 + devices % BATCH)
    parts = [part for slices in plan.mapping.devices for part in slices]
    for part in parts:
        assert (part.cut.name == "OCP") == (part.layer.name in BY_OUTPUTS)
    assert devices < 3 or len(parts) > len(plan.network.layers)  # a layer is cut
    check(by_hand(name), trained(plan).weights)


@pytest.mark.parametrize("cut", ["c1:f2", "c1[0:7] | c1[7:40] c2 | f1:f2"])
def test_sums_of_blocks(tmp_path: Any, plan_of: Any, trained: Any, by_hand: Any, cut: str) -> None:
    """Layers whose sums blocks run along stay whole; the first one has no EB, and need not."""
    name = "sums of blocks"
    devices = cut.count("|") + 1
    keys = {**keys_of(tmp_path, BY_CHANNEL[name][0], {}), "cut": cut, "devices": devices}
    check(by_hand(name), trained(plan_of(**keys, micro_batch=1)).weights)


def test_one_scale_each() -> None:
    """The largest of a channel needs all bits, and no bit more; others are of its step."""
    channel = np.array([0.3, -1.9, 0.001, 0.0], np.float32)
    assert rounded(channel, 8, None) == [
        Fraction(19, 64),
        Fraction(-122, 64),
        Fraction(0),
        Fraction(0),
    ]
    drawn = rounded(channel, 4, np.array([0, 0, 0, 0], np.uint32))
    assert drawn == [Fraction(1, 2), Fraction(-2), Fraction(1, 2), Fraction(0)]
