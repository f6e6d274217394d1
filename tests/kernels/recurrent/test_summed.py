"""Recurrent layers with other sums: those of fractions in blocks, of bf16, and of whole numbers, as
number by number, whatever the cut.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from emuchain.kernels.attention import Operand
from emuchain.kernels.conv import Sums
from emuchain.kernels.number import number_format
from emuchain.kernels.recurrent import Adder, Operands, SummedGru, SummedLstm

from ..forms import BF16, Form
from . import reference
from .helpers import Case, F, same_bits
from .reference import Blocks, gate_major, interleaved

CASES = {
    "lstm": Case(4, 2, 11, 9, 20),
    "ragged, backwards": Case(4, 4, 11, 9, 20, ragged=True, reverse=True),
    "projection": Case(4, 2, 9, 9, 20, outputs=13),
    "gru": Case(3, 2, 11, 9, 20),
    "gru, ragged": Case(3, 4, 11, 9, 20, ragged=True),
    "gru, reset before": Case(3, 2, 9, 9, 20, linear=False),
}
FIXED = Form(6, 0, 127 / 64)
BLOCKS, LONGER = (dataclasses.replace(Form(7, 0, 127 / 128), block=size) for size in (8, 16))


@dataclasses.dataclass(frozen=True)
class Kind:
    """A format of all operands, how they are added, and the reference's sums."""

    number: str
    form: Form
    adder: Adder
    sums: Callable[[Any], reference.Plain]

    @property
    def operands(self) -> Operands:
        return Operands(*[Operand(number_format(self.number).grid)] * 4)

    def round(self, values: np.ndarray) -> np.ndarray:
        """Round along the last axis."""
        return self.form.round(values, np.zeros(values.shape, np.uint32))


KINDS = {
    "blocks": Kind("int8@8", BLOCKS, Adder(dot=8), lambda again: Blocks(8, again)),
    "longer blocks": Kind("int8@16", LONGER, Adder(dot=8), lambda again: Blocks(8, again)),
    "fixed point": Kind("q2.6", FIXED, Adder(dot=16), lambda again: Blocks(16)),
    "bf16": Kind("bf16", BF16, Adder(Sums.BF16), lambda again: reference.Bf16Sums()),
    "whole": Kind(
        "q2.6", FIXED, Adder(Sums.INT32, bits=(12, 12, 12)), lambda again: reference.Exact()
    ),
}
UNITS = (0, 8, 16, 20)


def slice_of(case: Case, kind: Kind, *units: int) -> Any:
    own = case.inputs, case.hidden, *units
    if case.gates == 4:
        return SummedLstm(*own, outputs=case.outputs, adder=kind.adder)
    return SummedGru(*own, linear_before_reset=case.linear, adder=kind.adder)


def operands_of(case: Case, kind: Kind) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], Any]:
    """Weights of FP and of EB, gate by gate, and the inputs and errors of outputs."""
    x, _, _, dy, *_ = case.data
    names = dict(zip(("w", "r", "b_w", "b_r"), case.weights, strict=True))
    if case.projection is not None:
        names["p"] = case.projection
    forth, back = {}, {}
    for name, own in names.items():
        if name.startswith("b"):
            forth[name] = own
            continue
        gates = 1 if name == "p" else case.gates
        forth[name] = kind.round(own)
        turned = own.reshape(gates, -1, own.shape[1]).swapaxes(1, 2)
        back[name] = kind.round(turned).swapaxes(1, 2).reshape(own.shape)
    return forth, back, (kind.round(x), kind.round(dy / 4))


def again_of(kind: Kind) -> Any:
    """Rounds lines of steps once more, and checks that each has its own numbers."""

    def again(name: str, first: int, lines: np.ndarray) -> np.ndarray:
        assert lines.ndim == 3 and first >= 0
        return kind.round(lines)

    return again if kind.form.block else None


def run(case: Case, kind: Kind) -> list[np.ndarray]:
    """Outputs, errors of inputs and gradients of the kernels, gate by gate."""
    forth, back, (x, dy) = operands_of(case, kind)
    own, form = slice_of(case, kind), kind.operands
    by_unit = {
        name: array if name == "p" else interleaved(array, case.gates)
        for name, array in forth.items()
    }
    turned = {
        name: array if name == "p" else interleaved(array, case.gates)
        for name, array in back.items()
    }
    packed = own.pack(
        *(by_unit[name] for name in ("w", "r", "b_w", "b_r")), by_unit.get("p"), turned=turned
    )
    keys = {"lengths": case.lengths, "reverse": case.reverse}
    tape, steps = own.tape(own.input_products(packed, x), **keys), (0, case.steps)
    h, c = np.zeros((case.samples, case.width), F), np.zeros((case.samples, case.hidden), F)
    cells = (c,) if case.gates == 4 else ()
    own.forward(packed, tape, h, *cells, steps, form)
    later = [np.zeros_like(array) for array in (h, *cells, h)]
    own.backward(packed, tape, dy, *later, steps, None, form)
    grads = [np.zeros_like(array) for array in case.weights]
    of_p = None if case.projection is None else np.zeros_like(case.projection)
    own.gradients(tape, x, *grads, of_p, again=again_of(kind))
    errors = own.adder.whole(1, own.input_errors(packed, tape.delta))
    for total in (*grads[:2], *([] if of_p is None else [of_p])):
        own.adder.whole(2, total)
    made = [gate_major(array, case.gates) for array in grads]
    return [tape.y, errors, *made, *([] if of_p is None else [of_p])]


def by_numbers(case: Case, kind: Kind) -> list[np.ndarray]:
    """The same by the reference."""
    forth, back, (x, dy) = operands_of(case, kind)
    sums = kind.sums(lambda name, first, lines: kind.round(lines))
    grads = [np.zeros_like(array) for array in case.weights]
    if case.projection is not None:
        grads.append(np.zeros_like(case.projection))
    y, dx = np.zeros((*x.shape[:2], case.width), F), np.zeros_like(x)
    zeros, none = np.zeros(case.width, F), np.zeros(case.hidden, F)
    weights = [forth[name] for name in ("w", "r", "b_w", "b_r")]
    for n in range(case.samples):
        own = slice(None) if case.lengths is None else slice(0, case.lengths[n])
        keys: Any = {"reverse": case.reverse, "sums": sums, "turned": back}
        keys["narrow"] = lambda name, t, line, values: kind.round(values)
        if not len(x[n, own]):
            continue
        if case.gates == 4:
            given = x[n, own], *weights, zeros, none, forth.get("p"), dy[n, own], zeros, none
            both = grads if len(grads) == 5 else [*grads, None]
            y[n, own], _, _, dx[n, own], *_ = reference.lstm(*given, both, **keys)
        else:
            given = x[n, own], *weights, zeros, dy[n, own], zeros
            y[n, own], _, dx[n, own], _ = reference.gru(*given, grads, case.linear, **keys)
    return [y, dx, *grads]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_number(case: Case, name: str) -> None:
    assert same_bits(run(case, KINDS[name]), by_numbers(case, KINDS[name]))


def test_sums_differ() -> None:
    case, own = CASES["lstm"], KINDS["fixed point"]
    others = Adder(Sums.BF16), Adder(Sums.FP16)
    kinds = [own, *(dataclasses.replace(own, adder=adder) for adder in others)]
    assert len({run(case, kind)[2].tobytes() for kind in kinds}) == 3


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("case", [CASES["lstm"], CASES["gru"]], ids=["lstm", "gru"])
def test_slices_of_units(case: Case, name: str) -> None:
    """States are gathered step by step, and errors pass from higher units to lower ones."""
    kind = KINDS[name]
    ends = (0, 16, 20) if kind.form.block == 16 or kind.adder.dot == 16 else UNITS
    forth, back, (x, dy) = operands_of(case, kind)
    slices = [slice_of(case, kind, *own) for own in itertools.pairwise(ends)]
    by_unit = [interleaved(forth[key], case.gates) for key in ("w", "r", "b_w", "b_r")]
    turned = {key: interleaved(array, case.gates) for key, array in back.items()}
    rows = [slice(case.gates * own.begin, case.gates * own.end) for own in slices]
    packed = [
        own.pack(*(w[at] for w in by_unit), turned={key: w[at] for key, w in turned.items()})
        for own, at in zip(slices, rows, strict=True)
    ]
    tapes = [own.tape(own.input_products(p, x)) for own, p in zip(slices, packed, strict=True)]
    parts = list(zip(slices, packed, tapes, strict=True))
    is_lstm, n, form = case.gates == 4, case.samples, kind.operands
    cells = [[np.zeros((n, own.units), F)] * is_lstm for own in slices]
    h, states = np.zeros((n, case.hidden), F), []
    for t in range(case.steps):
        made = [
            own.forward(p, tape, h.copy(), *cell, (t, t + 1), form)
            for (own, p, tape), cell in zip(parts, cells, strict=True)
        ]
        h = np.concatenate(made, 1)
        states.append(h)
    later = [[np.zeros((n, own.units), F) for _ in range(1 + is_lstm)] for own in slices]
    errors = np.zeros_like(h)
    for t in reversed(range(case.steps)):
        before = np.zeros_like(h)
        for (own, p, tape), kept in reversed(list(zip(parts, later, strict=True))):
            units = slice(own.begin, own.end)
            given = (np.ascontiguousarray(a[..., units]) for a in (dy, errors))
            before = own.backward(p, tape, *given, *kept, (t, t + 1), before, form)
        errors = kind.adder.whole(1, before)
    dx = np.zeros_like(x)
    for own, p, tape in reversed(parts):
        dx = own.input_errors(p, tape.delta, dx)
    kind.adder.whole(1, dx)
    assert same_bits([np.stack(states, 1), dx], run(case, kind)[:2])
