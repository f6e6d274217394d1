"""Recurrent layers whose operands are rounded: as number by number, whatever the cut."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from emuchain.kernels import recurrent
from emuchain.kernels.attention import Operand
from emuchain.kernels.number import Rounding, number_format
from emuchain.kernels.quantise import Draws, PhiloxStream
from emuchain.kernels.recurrent import Operands

from ..forms import BF16, E4M3, Form
from . import reference
from .helpers import Case, F, same_bits
from .reference import gate_major, interleaved

CASES = {
    "lstm": Case(4, 3, 4, 9, 40),
    "ragged, backwards": Case(4, 5, 4, 9, 40, ragged=True, reverse=True),
    "projection": Case(4, 3, 4, 9, 40, outputs=35),
    "gru": Case(3, 3, 4, 9, 40),
    "gru, ragged": Case(3, 5, 4, 9, 40, ragged=True),
    "gru, reset before": Case(3, 3, 4, 9, 40, linear=False),
}
FORMS: dict[str, tuple[str, Form]] = {
    "bf16": ("bf16", BF16),
    "mxfp8": ("mxfp8", dataclasses.replace(E4M3, block=32)),
    "fp8 by chance": ("fp8", dataclasses.replace(E4M3, by_chance=True)),
    "mxfp8 by chance": ("mxfp8", dataclasses.replace(E4M3, block=32, by_chance=True)),
}
KINDS = "states", "inner", "errors", "inner_errors"


def operands(name: str, samples: int, first: int = 0) -> Operands:
    """Roundings of all operands; `first` is the first unit of a slice."""
    number, form = FORMS[name]
    rounding = Rounding.STOCHASTIC if form.by_chance else Rounding.EVEN
    numbers = np.arange(samples, dtype=np.int64) + 7

    def of(kind: str) -> Operand:
        words = Draws(PhiloxStream(3, 5, 128 + KINDS.index(kind), 0), first, numbers=numbers)
        return Operand(number_format(number).grid, rounding, words if form.by_chance else None)

    return Operands(*map(of, KINDS))


def narrow(form: Form, sample: int) -> reference.Narrow:
    """The same of a sample, for the reference."""

    def rounded(kind: str, t: int, line: int, values: np.ndarray) -> np.ndarray:
        place = (4 * t + line if kind == "errors" else t) * len(values)
        stream = PhiloxStream(3, 5, 128 + KINDS.index(kind), sample + 7)
        return form.round(values, stream.words(place, len(values)))

    return rounded


def slice_of(case: Case, *units: int) -> Any:
    if case.gates == 4:
        return recurrent.LstmSlice(case.inputs, case.hidden, *units, outputs=case.outputs)
    return recurrent.GruSlice(case.inputs, case.hidden, *units, linear_before_reset=case.linear)


def run(case: Case, name: str) -> list[np.ndarray]:
    """Outputs, errors of inputs and gradients of the kernels, gate by gate."""
    x, h, c, dy, *_ = case.data
    own, form = slice_of(case), operands(name, case.samples)
    weights = [interleaved(array, case.gates) for array in case.weights]
    packed = own.pack(*weights, case.projection)
    keys = {"lengths": case.lengths, "reverse": case.reverse}
    tape, steps = own.tape(own.input_products(packed, x), **keys), (0, case.steps)
    h, c = np.zeros_like(h), np.zeros_like(c)
    cells = (c,) if case.gates == 4 else ()
    own.forward(packed, tape, h, *cells, steps, form)
    later = [np.zeros_like(array) for array in (h, *cells, h)]
    own.backward(packed, tape, dy, *later, steps, None, form)
    grads = [np.zeros_like(array) for array in weights]
    of_p = None if case.projection is None else np.zeros_like(case.projection)
    own.gradients(tape, x, *grads, of_p)
    made = [gate_major(array, case.gates) for array in grads]
    return [tape.y, own.input_errors(packed, tape.delta), *made, *([] if of_p is None else [of_p])]


def by_numbers(case: Case, form: Form) -> list[np.ndarray]:
    """The same by the reference."""
    x, _, _, dy, *_ = case.data
    grads = [np.zeros_like(array) for array in case.weights]
    if case.projection is not None:
        grads.append(np.zeros_like(case.projection))
    y, dx = np.zeros((*x.shape[:2], case.width), F), np.zeros_like(x)
    zeros, none = np.zeros(case.width, F), np.zeros(case.hidden, F)
    for n in range(case.samples):
        own = slice(None) if case.lengths is None else slice(0, case.lengths[n])
        keys = {"reverse": case.reverse, "narrow": narrow(form, n)}
        if not len(x[n, own]):
            continue
        if case.gates == 4:
            given = x[n, own], *case.weights, zeros, none, case.projection, dy[n, own], zeros, none
            both = grads if len(grads) == 5 else [*grads, None]
            y[n, own], _, _, dx[n, own], *_ = reference.lstm(*given, both, **keys)
        else:
            given = x[n, own], *case.weights, zeros, dy[n, own], zeros
            y[n, own], _, dx[n, own], _ = reference.gru(*given, grads, case.linear, **keys)
    return [y, dx, *grads]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_number(case: Case, name: str) -> None:
    expected = by_numbers(case, FORMS[name][1])
    assert same_bits(run(case, name), expected)
    assert not same_bits(case.run()[:1], expected[:1])


@pytest.mark.parametrize("name", ["bf16", "fp8 by chance"])
@pytest.mark.parametrize("case", [CASES["lstm"], CASES["gru"]], ids=["lstm", "gru"])
def test_slices_of_units(case: Case, name: str) -> None:
    """States are gathered step by step, and errors pass from higher units to lower ones."""
    x, _, _, dy, *_ = case.data
    slices = [slice_of(case, *ends) for ends in itertools.pairwise((0, 7, 33, 40))]
    weights = [interleaved(array, case.gates) for array in case.weights]
    forms = [operands(name, case.samples, own.begin) for own in slices]
    rows = [slice(case.gates * own.begin, case.gates * own.end) for own in slices]
    packed = [own.pack(*(w[at] for w in weights)) for own, at in zip(slices, rows, strict=True)]
    tapes = [own.tape(own.input_products(p, x)) for own, p in zip(slices, packed, strict=True)]
    parts = list(zip(slices, packed, tapes, forms, strict=True))
    is_lstm, n = case.gates == 4, case.samples
    cells = [[np.zeros((n, own.units), F)] * is_lstm for own in slices]
    h, states = np.zeros((n, case.hidden), F), []
    for t in range(case.steps):
        made = [
            own.forward(p, tape, h.copy(), *cell, (t, t + 1), form)
            for (own, p, tape, form), cell in zip(parts, cells, strict=True)
        ]
        h = np.concatenate(made, 1)
        states.append(h)
    later = [
        [np.zeros((n, own.units), F) for _ in range(1 + is_lstm)] for own in slices
    ]  # of c, and carried past R
    errors = np.zeros_like(h)
    for t in reversed(range(case.steps)):
        before = np.zeros_like(h)
        for (own, p, tape, form), kept in reversed(list(zip(parts, later, strict=True))):
            units = slice(own.begin, own.end)
            given = (np.ascontiguousarray(a[..., units]) for a in (dy, errors))
            before = own.backward(p, tape, *given, *kept, (t, t + 1), before, form)
        errors = before
    dx = np.zeros_like(x)
    for own, p, tape, _ in reversed(parts):
        dx = own.input_errors(p, tape.delta, dx)
    assert same_bits([np.stack(states, 1), dx], run(case, name)[:2])


def test_what_is_counted() -> None:
    """Of an LSTM's states and of its errors, each number once; what is zero was never flushed."""
    case, counts = CASES["ragged, backwards"], [np.zeros(2, np.int64) for _ in range(2)]
    grid = number_format("q1.2").grid
    form = Operands(states=Operand(grid, counts=counts[0]), errors=Operand(grid, counts=counts[1]))
    x, h, c, dy, *_ = case.data
    own = slice_of(case)
    packed = own.pack(*(interleaved(array, 4) for array in case.weights))
    keys = {"lengths": case.lengths, "reverse": True}
    for some in (Operands(), form):
        tape = own.tape(own.input_products(packed, x), **keys)
        state, cell = np.zeros_like(h), np.zeros_like(c)
        own.forward(packed, tape, state, cell, (0, case.steps), Operands(states=some.states))
        later = np.zeros_like(h), np.zeros_like(c), np.zeros_like(h)
        own.backward(packed, tape, dy, *later, (0, case.steps), None, some)
    assert counts[0][0] == 0 < counts[0][1] < tape.y.size
    assert 0 < counts[1].sum() < tape.delta.size
