"""Square blocks of weights, which serve the sums of FP and of EB: a small CNN and recurrent layers
are trained number by number, their weights rounded in fractions, a square at a time; on other
boards and after a resume the bits stay the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import stored_weight_bytes, turned_lines
from emuchain.emulator.mapping.balancing import lines_of_weights
from emuchain.emulator.number import KINDS, precision_of
from emuchain.emulator.plan import training_data
from emuchain.kernels.number import BlockGrid, Rounding, number_format
from emuchain.kernels.quantise import on_squares

from ...kernels.forms import E2M1, E4M3, Form
from .gpt import Table, gpt, written
from .test_dots_by_hand import INT8, STEPS, Emulation, check, keys_of, train
from .test_formats_of_recurrent_by_hand import LAYERS
from .test_formats_of_recurrent_by_hand import compare as compare_recurrent
from .test_formats_of_recurrent_by_hand import keys_of as recurrent_keys
from .test_sums_of_recurrent_by_hand import DotRecurrent

FORMS: dict[str, tuple[str, int, Form]] = {
    "mxint8": ("mxint8 accumulate=dot:8 block=8x8", 8, INT8),
    "mxint8 by chance": (
        "mxint8 rounding=stochastic accumulate=dot:8 block=8x8",
        8,
        dataclasses.replace(INT8, by_chance=True),
    ),
    "mxfp4 in larger ones": (
        "mxfp4 accumulate=dot:8 block=16x16",
        16,
        dataclasses.replace(E2M1, block=32),
    ),
    "mxfp8, in fp64": ("mxfp8 accumulate=dot:8 block=8x8", 8, dataclasses.replace(E4M3, block=32)),
}
"""By name the format, the side of a square, and the format of maps; 8 products are added
exactly.
"""


def rounded(values: list[Fraction], form: Form, words: list[int]) -> list[Fraction]:
    """Return the numbers of a block, rounded under one scale: the least power of two under which
    none is beyond the largest.
    """
    most, top, scale = max(map(abs, values)), Fraction(form.largest), Fraction(1)
    if not most:
        return values
    while most > top * scale:
        scale *= 2
    while most <= top * scale / 2:
        scale /= 2
    return [
        scale * element(value / scale, form, word)
        for value, word in zip(values, words, strict=True)
    ]


def element(value: Fraction, form: Form, word: int) -> Fraction:
    """Return the value of a grid that is nearest to a number, to even, or the one by chance."""
    power = Fraction(2) ** form.least
    while abs(value) >= 2 * power:
        power *= 2
    step = power / 2**form.fraction
    whole, rest = divmod(abs(value) / step, 1)
    count = whole + (word < int(rest * 2**32)) if form.by_chance else round(abs(value) / step)
    near = min(count * step, Fraction(form.largest))
    return near if value > 0 else -near


def in_squares(own: np.ndarray, words: np.ndarray, form: Form, side: int) -> np.ndarray:
    """Round a matrix of outputs and inputs, a square at a time."""
    made = np.empty_like(own)
    for top in range(0, own.shape[0], side):
        for left in range(0, own.shape[1], side):
            place = np.s_[top : top + side, left : left + side]
            exact = [Fraction(float(value)) for value in own[place].ravel()]
            values = rounded(exact, form, words[place].ravel().tolist())
            made[place] = np.array([*map(float, values)]).reshape(own[place].shape)
    return made


class Squares(Emulation):
    """The network and its training, with one copy of weights for FP and EB."""

    def __init__(self, plan: Any, side: int, form: Form) -> None:
        self.side = side
        super().__init__(plan, dict.fromkeys(("c1", "c2", "f1", "f2"), (8, form, form)))

    def _round_weights(self, update: int) -> None:
        self.weights = {}
        for layer in self.layers:
            own, form = self.masters[layer.name], self.forms[layer.name][1]
            words = self._words(layer.index, KINDS.index("weights"), update, own.shape)
            made, of_group = np.empty_like(own), len(own) // layer.operation.groups
            for first in range(0, len(own), of_group):
                some = slice(first, first + of_group)
                for place in np.ndindex(own.shape[2:]):
                    at = (some, slice(None), *place)
                    made[at] = in_squares(own[at], words[at], form, self.side)
            self.weights[layer.name] = made
        self.turned = self.weights


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: Any, plan_of: Any) -> Callable[..., Squares]:
    """Gives the network trained here, once for each of the formats."""
    made: dict[Any, Squares] = {}

    def of(name: str, **second: Any) -> Squares:
        key = name, *second.items()
        if key not in made:
            precision, *others = FORMS[name]
            path = tmp_path_factory.mktemp("by-hand")
            plan = plan_of(**keys_of(path, precision, second), devices=1, micro_batch=1)
            made[key] = Squares(plan, *others)
            train(made[key], training_data(plan), 0, STEPS)
        return made[key]

    return of


@pytest.mark.parametrize(
    ("name", "devices"),
    [*(("mxint8 by chance", devices) for devices in range(1, 9)), *((name, 3) for name in FORMS)],
)
def test_every_weight(
    tmp_path: Any, plan_of: Any, trained: Any, by_hand: Any, name: str, devices: int
) -> None:
    precision, side, _ = FORMS[name]
    plan = plan_of(**keys_of(tmp_path, precision, {}), devices=devices, micro_batch=1)
    parts = [part for slices in plan.mapping.devices for part in slices]
    assert all(part.is_last or part.end % side == 0 for part in parts)
    assert devices < 5 or len(parts) > len(plan.network.layers)  # a layer is cut
    check(by_hand(name), trained(plan).weights)


@pytest.mark.parametrize(("channels", "groups"), [(70, 2), (40, 40), (64, 2)])
def test_groups(
    tmp_path: Any, plan_of: Any, trained: Any, by_hand: Any, channels: int, groups: int
) -> None:
    """Squares are of a group's outputs and inputs."""
    name, second = "mxint8 by chance", {"channels": channels, "groups": groups}
    plan = plan_of(**keys_of(tmp_path, FORMS[name][0], second), devices=3, micro_batch=1)
    check(by_hand(name, **second), trained(plan).weights)


class SquareRecurrent(DotRecurrent):
    """Recurrent layers with squares of a gate's units and inputs, or states."""

    def __init__(self, plan: Any, side: int, form: Form) -> None:
        self.side = side
        super().__init__(plan, 8, form)

    def _round_weights(self, update: int) -> None:
        super()._round_weights(update)
        form, purpose = self.forms["weights"], KINDS.index("weights")
        for name, layer in (("wte", self.layers[0]), ("head", self.layers[2])):
            words = self._words(self.masters[name].shape, layer.index, purpose, update)
            self.weights[name] = in_squares(self.masters[name], words, form, self.side)
        of_arrays = self._words_of_arrays(update)
        for name in self.masters.keys() & {"w", "r", "p"}:
            gates, own = 1 if name == "p" else self.gates, self.masters[name]
            of_gates = zip(np.split(own, gates), np.split(of_arrays[name], gates), strict=True)
            made = [in_squares(*both, form, self.side) for both in of_gates]
            self.weights[name] = np.concatenate(made)
        self.turned = {name: self.weights[name] for name in self.turned}


CUTS = {"lstm": "wte r[:32] | r[32:] | head", "gru": "wte | r[:32] | r[32:] head"}


@pytest.mark.parametrize("kind", LAYERS)
def test_recurrent_layers(tmp_path: Any, plan_of: Any, trained: Any, kind: str) -> None:
    precision, *form = FORMS["mxint8 by chance"]
    keys = recurrent_keys(tmp_path, LAYERS[kind], precision)
    cut = {"cut": CUTS[kind]} if kind in CUTS else {"devices": 2}
    plan = plan_of(**keys, micro_batch=2, **cut)
    compare_recurrent(plan, SquareRecurrent(plan, *form), trained)


RUNS = {
    "masters and states": "mxint8 accumulate=dot:8 block=8x8 master=mxfp8 states=mxfp8",
    "by layer": (
        "mxint8 accumulate=dot:8 block=8x8 rounding=stochastic layer.fc2.block=none"
        " layer.conv2.block=16x16"
    ),
    "from an epoch on": "mxfp4 accumulate=dot:8 epoch.2=mxint8 epoch.2.block=32x32",
}


@pytest.mark.parametrize("name", RUNS)
def test_other_boards_and_a_resume(tmp_path: Path, small_cifar: Path, bits: Any, name: str) -> None:
    keys: Table = {"data": str(small_cifar), "batch": 16, "samples": 32, "test_samples": 4}
    keys |= {"schedule": "sync", "momentum": 0.9, "precision": RUNS[name], "progress": "none"}
    files = [str(tmp_path / name) for name in ("run.ckpt", "other.ckpt")]
    whole = emuchain.train("quick-cifar", **keys, epochs=2, devices=1)
    emuchain.train("quick-cifar", **keys, epochs=1, devices=3, checkpoint=files[0])
    again = {"resume": files[0], "checkpoint": files[1], "progress": "none"}
    rest = emuchain.train(**again, epochs=2, devices=5)
    assert bits(rest.weights) == bits(whole.weights)


@pytest.mark.parametrize(
    "network",
    [gpt(40, 1, 5, 8), gpt(40, 1, 5, 8, tied=True), gpt(8, 1, 2, 6, tied=True)],
    ids=["attention", "a tied table", "its head cut by outputs"],
)
def test_attention(plan_of: Any, trained: Any, bits: Any, tmp_path: Path, network: Table) -> None:
    """Both ends of a tied table read the same squares of features and symbols."""
    keys = {
        "network": written(tmp_path / "gpt.toml", network),
        **{"data": "text", "schedule": "sync", "samples": 8, "batch": 4, "test_samples": 1},
        "precision": "mxint8 rounding=stochastic accumulate=dot:8 block=8x8",
    }
    runs = [trained(plan_of(**keys, devices=devices)).weights for devices in (1, 3, 5)]
    made = [bits(weights) for weights in runs]
    assert made[0] == made[1] == made[2]
    number = precision_of("mxint8 accumulate=dot:8 block=8x8").weights
    assert isinstance(number.grid, BlockGrid)
    table = runs[0]["wte"]["weight"].reshape(1, -1, 28, 1)
    assert np.array_equal(on_squares(table, number.grid), table)  # which it is on already


def test_replicas(plan_of: Any, trained: Any, bits: Any, small_cifar: Path) -> None:
    keys = {"network": "quick-cifar", "data": str(small_cifar), "samples": 32, "test_samples": 1}
    keys |= {"batch": 16, "schedule": "sync", "replicas": 2, "precision": RUNS["by layer"]}
    made = [bits(trained(plan_of(**keys, devices=devices)).weights) for devices in (1, 3)]
    assert made[0] == made[1]


def test_bits_that_flip(plan_of: Any, trained: Any, small_cifar: Path, tmp_path: Path) -> None:
    """A scale that is hit takes its square with it: all of it doubles, halves, or changes more."""
    faults = tmp_path / "faults.toml"
    faults.write_text("[[faults.flips]]\nof = 'weights'\nrate = 1e-3\n", "utf-8")
    keys = {"network": "quick-cifar", "data": str(small_cifar), "samples": 16, "test_samples": 1}
    keys |= {"batch": 16, "schedule": "sync", "devices": 1, "precision": RUNS["masters and states"]}
    sound, hit = (
        trained(plan_of(**keys, **more)).weights["conv3"]["weight"]
        for more in ({}, {"faults": str(faults)})
    )
    differs = sound != hit
    assert differs.any()
    squares = differs.reshape(differs.shape[0] // 8, 8, -1, 8, *differs.shape[2:])
    most = squares.sum(axis=(1, 3)).max()
    assert most > 8  # of more than a line


@pytest.mark.parametrize("block", ["none", "8x8", "16x16"])
def test_bytes_by_hand(plan_of: Any, tmp_path: Path, block: str) -> None:
    """c2 takes 40 channels, and makes 70, by a kernel of 3 x 3."""
    given = f"mxint8 master=mxint8 accumulate=dot:8 block={block}"
    plan = plan_of(**keys_of(tmp_path, given, {}), devices=1)
    [slices] = plan.mapping.devices
    part, storage = slices[1], plan.cluster.storage
    values = 40 * 70 * 9
    scales = {"none": 2 * 70 * 9, "8x8": 5 * 9 * 9, "16x16": 3 * 5 * 9}[block]
    assert lines_of_weights(part, 40, storage).bytes_in(storage.weights) == values + scales
    turned = turned_lines(part, 40, storage)
    of_eb = 0 if turned is None else turned.bytes_in(storage.weights)
    assert of_eb == (values + 3 * 40 * 9 if block == "none" else 0)
    # A copy for FP, perhaps one for EB, and a gradient in fp32, with which the velocity lies.
    all_bytes = values + scales + of_eb + 4 * values
    assert stored_weight_bytes(part, 40, storage) == all_bytes


def test_engines_and_links_stay(plan_of: Any, tmp_path: Path) -> None:
    """In one cut, all but the memory of weights is as without squares."""
    cut = "c1 c2[0:32] | c2[32:40] f1:f2"
    plans = [
        plan_of(**keys_of(tmp_path, f"mxint8 accumulate=dot:8{block}", {}), devices=2, cut=cut)
        for block in ("", " block=8x8")
    ]
    lines, squares = plans
    assert [board.classes for board in lines.cluster.boards] == [
        board.classes for board in squares.cluster.boards
    ]
    for forward in (True, False):
        sent = (plan.timing.sent(0, forward=forward) for plan in plans)
        assert [stream.row_bytes for stream in next(sent)] == [
            stream.row_bytes for stream in next(sent)
        ]
    assert all(
        less < more for less, more in zip(squares.memory_bytes, lines.memory_bytes, strict=True)
    )


def test_rounding_of_ends() -> None:
    """Squares at the ends are smaller; counts are those of their own numbers."""
    number = precision_of("mxint8 accumulate=dot:8 block=8x8").weights
    assert isinstance(number.grid, BlockGrid)
    drawn = np.random.default_rng(3)
    values = drawn.normal(size=(2, 11, 9, 3)).astype(np.float32)
    values[0, 0, 0, 0] = 1e6  # all others of this square become zero
    counts = np.zeros(2, np.int64)
    made = on_squares(values, number.grid, Rounding.EVEN, counts=counts)
    assert counts.tolist() == [0, np.sum((values != 0) & (made == 0))]
    assert not made[0, :8, :8, 0].ravel()[1:].any()
    form, none = dataclasses.replace(INT8, block=64), np.zeros((11, 9), np.uint32)
    for part, place in np.ndindex(2, 3):
        own = in_squares(values[part, :, :, place], none, form, 8)
        assert np.array_equal(made[part, :, :, place], own)


@pytest.mark.parametrize(
    ("precision", "said"),
    [
        ("mxint8 block=8x8", "block = '8x8': is of weights that FP and EB sum in blocks"),
        ("q2.6 accumulate=dot:8 block=8x8", "and weights in blocks, such as 'mxint8'"),
        ("mxint8 accumulate=dot:16 block=8x8", "with block = '8x8' have several scales in 16"),
        ("mxint8 accumulate=dot:8 block=4x4", "should be 'none', '8x8', '16x16' or '32x32'"),
    ],
)
def test_what_is_refused(plan_of: Any, precision: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        plan_of(network="quick-cifar", precision=precision, devices=2)
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", [*RUNS, *FORMS])
def test_text_says_all(name: str) -> None:
    given = RUNS[name] if name in RUNS else FORMS[name][0]
    precision = precision_of(given)
    assert precision_of(str(precision)) == precision
    assert str(precision_of("block=8x8 accumulate=dot:8 mxint8")) == (
        "mxint8 accumulate=dot:8 block=8x8"
    )
    assert precision.activations.lines == number_format("mxint8").lines == 1
