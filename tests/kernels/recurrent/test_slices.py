"""Slices by whole units, single steps and micro-batches give the bits of the whole layer; so does
every form.
"""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest

from emuchain.kernels import recurrent

from ..every_form import printed_in_every_form
from .helpers import Case, F, same_bits
from .reference import interleaved

LSTM, GRU = Case(4, 5, 4, 9, 48), Case(3, 5, 4, 9, 48)
RAGGED = Case(4, 5, 4, 9, 48, ragged=True), Case(3, 5, 4, 9, 48, ragged=True, reverse=True)
CUTS = {1: (0, 48), 2: (0, 17, 48), 5: (0, 1, 10, 20, 30, 48), 7: (0, 7, 14, 21, 28, 35, 42, 48)}


def run_cut(case: Case, cut: tuple[int, ...]) -> list[np.ndarray]:
    """A layer on several devices, one step a call: h is gathered, errors pass from high units to
    low.
    """
    x, h, c, dy, dh, dc = case.data
    kind = recurrent.LstmSlice if case.gates == 4 else recurrent.GruSlice
    slices = [kind(case.inputs, case.hidden, *ends) for ends in itertools.pairwise(cut)]
    own = [slice(case.gates * each.begin, case.gates * each.end) for each in slices]
    units = [slice(each.begin, each.end) for each in slices]
    weights = [interleaved(array, case.gates) for array in case.weights]
    packed = [
        each.pack(*(array[rows] for array in weights))
        for each, rows in zip(slices, own, strict=True)
    ]
    keys = {"lengths": case.lengths, "reverse": case.reverse}
    tapes = [
        each.tape(each.input_products(p, x), **keys) for each, p in zip(slices, packed, strict=True)
    ]
    parts = list(zip(slices, packed, tapes, units, strict=True))
    cells = [np.ascontiguousarray(c[:, u]) for u in units]
    for t in range(case.steps):
        at = t, t + 1
        if case.gates == 4:
            some = [
                s.forward(p, tape, h, cell, at)
                for (s, p, tape, _), cell in zip(parts, cells, strict=True)
            ]
        else:
            some = [s.forward(p, tape, h.copy(), at) for s, p, tape, _ in parts]
        h = np.concatenate(some, 1)
    carry, d_cells = ([np.zeros((case.samples, s.units), F) for s in slices] for _ in range(2))
    for d_cell, u in zip(d_cells, units, strict=True):
        d_cell[...] = dc[:, u]
    errors = dh
    for t in reversed(range(case.steps)):
        before = np.zeros_like(h)
        for number in reversed(range(len(parts))):
            s, p, tape, u = parts[number]
            given = np.ascontiguousarray(dy[..., u]), np.ascontiguousarray(errors[:, u])
            cell = (d_cells[number],) if case.gates == 4 else ()
            before = s.backward(p, tape, *given, *cell, carry[number], (t, t + 1), before)
        errors = before
    dx = np.zeros_like(x)
    for s, p, tape, _ in reversed(parts):
        dx = s.input_errors(p, tape.delta, dx)
    grads = [np.zeros_like(array) for array in weights]
    kept = (
        x
        if case.lengths is None
        else x * (np.arange(case.steps)[:, None] < case.lengths[:, None, None])
    )
    for (s, _, tape, _), rows in zip(parts, own, strict=True):
        s.gradients(tape, kept, *(array[rows] for array in grads))
    y = np.concatenate([tape.y for tape in tapes], 2)
    both = [np.concatenate(cells, 1)], [np.concatenate(d_cells, 1)]
    states = both if case.gates == 4 else ([], [])
    return [y, h, *states[0], dx, *grads, errors + np.concatenate(carry, 1), *states[1]]


@pytest.mark.parametrize("devices", CUTS)
@pytest.mark.parametrize("case", [LSTM, GRU, *RAGGED], ids=str)
def test_no_bit_depends_on_the_cut(case: Case, devices: int) -> None:
    whole = case.run()
    first = 3 + (case.gates == 4)
    whole[first : first + 4] = [
        interleaved(array, case.gates) for array in whole[first : first + 4]
    ]
    assert same_bits(run_cut(case, CUTS[devices]), whole)


@pytest.mark.parametrize("case", [LSTM, Case(4, 5, 4, 9, 48, outputs=7)], ids=str)
def test_no_bit_depends_on_the_steps_of_a_call(case: Case) -> None:
    x, h, c, dy, dh, dc = case.data
    whole = case.run()
    of = recurrent.LstmSlice(case.inputs, case.hidden, outputs=case.outputs)
    packed = of.pack(*(interleaved(array, case.gates) for array in case.weights), case.projection)
    tape = of.tape(of.input_products(packed, x))
    for steps in ((0, 1), (1, 1), (1, 3), (3, 4)):
        h = of.forward(packed, tape, h, c, steps)
    carry = np.zeros_like(h)
    for steps in ((2, 4), (2, 2), (0, 2)):
        dh = of.backward(packed, tape, dy, dh, dc, carry, steps)
    found = [tape.y, h, c, of.input_errors(packed, tape.delta)]
    assert same_bits(found, whole[:4])
    assert same_bits([dh + carry, dc], whole[8:10])


@pytest.mark.parametrize("case", [LSTM, GRU, Case(3, 5, 4, 9, 48, linear=False)], ids=str)
def test_no_bit_depends_on_the_micro_batches(case: Case) -> None:
    x, h0, c0, dy, dh, dc = case.data
    keys = {} if case.gates == 4 else {"linear_before_reset": case.linear}
    of = (recurrent.LstmSlice if case.gates == 4 else recurrent.GruSlice)(
        case.inputs, case.hidden, **keys
    )
    packed = of.pack(*(interleaved(array, case.gates) for array in case.weights))
    grads = [np.zeros_like(array) for array in case.weights]
    for some in (slice(0, 1), slice(1, 4), slice(4, 5)):
        tape = of.tape(of.input_products(packed, x[some]))
        states = [array[some].copy() for array in ((h0, c0) if case.gates == 4 else (h0,))]
        of.forward(packed, tape, *states, (0, case.steps))
        errors = [array[some].copy() for array in ((dh, dc) if case.gates == 4 else (dh,))]
        of.backward(packed, tape, dy[some], *errors, np.zeros_like(errors[0]), (0, case.steps))
        of.gradients(tape, x[some], *grads)
    first = 3 + (case.gates == 4)
    assert same_bits(
        grads, [interleaved(array, case.gates) for array in case.run()[first : first + 4]]
    )


DIGEST = """
import hashlib
from tests.kernels.recurrent.test_slices import digest
print(digest())
"""


def digest() -> str:
    """A digest of all results of some layers."""
    cases = (
        Case(4, 7, 3, 17, 70),
        Case(4, 1, 3, 17, 70, outputs=20),
        Case(3, 7, 3, 17, 70),
        Case(3, 2, 3, 9, 33, linear=False),
    )
    return hashlib.sha256(
        b"".join((a + F(0)).tobytes() for case in cases for a in case.run())
    ).hexdigest()


@pytest.mark.slow
def test_no_bit_depends_on_the_form() -> None:
    found = printed_in_every_form(DIGEST)
    assert len(found) == 4 and set(found.values()) == {f"{digest()}\n"}
