"""Slices of recurrent layers whose products are not added one by one in fp32: each sum is rounded
to a narrow format after a product, is exact within a block of products, or is of whole numbers.

Sums in narrow formats have the order that slices state. Blocks of `dot` products lie along what is
summed, and each is added to fp32 with one rounding:

- a gate: blocks of inputs from input 0 on, ascending, then blocks of states from state 0 on
- errors of x and of h before: blocks of a gate's units from unit 0 on, the last ones first; of the
  same units the last gate first
- the projection: blocks of units, ascending; its errors: blocks of outputs, descending
- gradients: samples ascending, then blocks of a sample's steps from step 0 on

Operands of gradients may be rounded once more, in blocks of steps (`Again`). Weights that errors
are multiplied by may be others than those of FP (`turned`).

Sums in int32 are those of `Adder.bits` behind the point, and lie as the bits of int32 in arrays of
float32, until all slices have added theirs (`whole`). Blocks' sums are exact in fp64
(`number.WIDE_BITS`), in any order.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..attention.operands import WHOLE, Narrow, Operand
from ..attention.summed import added, connected
from ..conv import Convolution, Sums
from ..jit import Floats, Kernels, address_of
from ..memory import new
from ..number import FloatGrid
from .arrays import (
    LINEAR,
    NEW,
    RESET,
    GruBackward,
    GruForward,
    LstmBackward,
    LstmForward,
    checked,
    target,
)
from .layers import GruSlice, LstmSlice
from .operands import LINES, PLAIN, Operands
from .slices import Again, Slice, Tape

_lines = Kernels("recurrent.lines")

FP, EB, PG = range(3)


@dataclasses.dataclass(frozen=True)
class Adder:
    """How products are added: in `sums`, or exactly in blocks of `dot`; whole numbers have `bits`
    behind the point in FP, EB and PG.
    """

    sums: Sums = Sums.FP32
    dot: int = 0
    bits: tuple[int, int, int] = (0, 0, 0)

    def factor(self, rows: Floats, sizes: Sequence[int]) -> Factor:
        """Return the second operand (k, lanes) of products whose k lie in blocks of some sizes."""
        if self.sums is Sums.INT32 or self.dot:
            return Factor(rows.astype(np.float64), (0, *itertools.accumulate(sizes)))
        kernel = connected(*rows.shape, self.sums)
        packed = kernel.pack(np.ascontiguousarray(rows.T)[..., None, None])
        return Factor(packed, (0, len(rows)), kernel)

    def add(self, phase: int, sums: Floats, rows: Floats, factor: Factor) -> None:
        """Add rows (n, k) times a factor to contiguous sums (n, lanes), in place, k ascending."""
        if not sums.size:
            return
        if factor.kernel is not None:
            x, y = (array.reshape(len(rows), 1, 1, -1) for array in (rows, sums))
            frame = np.empty(factor.kernel.frame_shape(len(rows)), np.float32)
            factor.kernel.frame(np.ascontiguousarray(x), frame)
            factor.kernel.forward(y, frame, factor.rows, fresh=False)
            return
        wide = rows.astype(np.float64)
        if self.sums is Sums.INT32:
            exact = wide @ factor.rows * 2.0 ** self.bits[phase]
            sums.view(np.int32)[...] += exact.astype(np.int32)
            return
        for begin, end in itertools.pairwise(factor.ends):
            sums[...] = added(sums, wide[:, begin:end] @ factor.rows[begin:end])

    def whole(self, phase: int, sums: Floats) -> Floats:
        """Return contiguous sums that are complete as numbers, in place."""
        if self.sums is Sums.INT32:
            sums[...] = sums.view(np.int32) * np.float32(2.0 ** -self.bits[phase])
        return sums

    def blocks(self, count: int) -> list[range]:
        """Return the places of each block of some products."""
        size = self.dot or max(1, count)
        return [range(begin, min(count, begin + size)) for begin in range(0, count, size)]


@dataclasses.dataclass(frozen=True)
class Factor:
    """The second operand of products: rows (k, lanes), and where blocks of k end; or, packed for
    it, what adds products one by one.
    """

    rows: Any
    ends: tuple[int, ...]
    kernel: Convolution | None = None


@dataclasses.dataclass(frozen=True)
class SummedPacked:
    """Weights of a slice, as `Packed` has them."""

    w: Factor
    w_back: Factor
    r: Factor
    r_back: Factor
    b_w: Floats
    b_r: Floats
    p: Factor | None
    p_back: Factor | None


class _Live(NamedTuple):
    """The samples that have a step: their numbers, rows, and t."""

    samples: NDArray[np.int64]
    rows: NDArray[np.int64]
    t: NDArray[np.int64]

    @classmethod
    def at(cls, tape: Tape, step: int) -> _Live:
        samples = np.flatnonzero(tape.rows[step] >= 0)
        rows = tape.rows[step][samples]
        return cls(samples, rows, rows - samples * tape.steps)


@dataclasses.dataclass(frozen=True)
class _Summed(Slice):
    """What both kinds of layers share."""

    adder: Adder = dataclasses.field(default_factory=Adder, kw_only=True)

    def pack(  # type: ignore[override]
        self,
        w: Floats | None,
        r: Floats,
        b_w: Floats,
        b_r: Floats,
        p: Floats | None = None,
        *,
        turned: Mapping[str, Floats] | None = None,
    ) -> SummedPacked:
        """Return the packed weights; W may be left out, with its products. `turned` are those by
        which errors are multiplied, by the names of arrays, if they are others.
        """
        if w is None:
            w = np.zeros((len(r), self.inputs), np.float32)
        back = {"w": w, "r": r, "p": p, **(turned or {})}
        own_p = None if p is None else self._forth(p)
        of_p = back["p"]
        p_back = None if of_p is None else self._back(of_p, 1)
        return SummedPacked(
            w=self._forth(w),
            w_back=self._back(back["w"], self.gates),
            r=self._forth(r),
            r_back=self._back(back["r"], self.gates),
            b_w=np.ascontiguousarray(b_w),
            b_r=np.ascontiguousarray(b_r),
            p=own_p,
            p_back=p_back,
        )

    def _forth(self, rows: Floats) -> Factor:
        """Return rows of weights as FP takes them."""
        return self.adder.factor(rows.T, [*map(len, self.adder.blocks(rows.shape[1]))])

    def _back(self, rows: Floats | None, gates: int) -> Factor:
        """Return them as EB takes them: the last ones first."""
        assert rows is not None
        order, sizes = self._order(len(rows), gates)
        return self.adder.factor(rows[order], sizes)

    def _order(self, rows: int, gates: int) -> tuple[NDArray[np.int64], list[int]]:
        """Return the order in which EB adds products of rows, and the sizes of its blocks."""
        numbers = np.arange(rows, dtype=np.int64)
        if not self.adder.dot:
            return numbers[::-1].copy(), [rows]
        by_gate = numbers.reshape(-1, gates)
        units = reversed(self.adder.blocks(rows // gates))
        pairs = itertools.product(units, reversed(range(gates)))
        blocks = [by_gate[block.start : block.stop, gate] for block, gate in pairs]
        return np.concatenate(blocks), [*map(len, blocks)]

    def _add_back(self, sums: Floats, errors: Floats, factor: Factor, gates: int) -> None:
        order, _ = self._order(errors.shape[1], gates)
        self.adder.add(EB, sums, errors[:, order], factor)

    def input_products(self, packed: Any, x: Floats) -> Floats:
        """See `Slice`; whole numbers of int32 lie as their bits."""
        rows = checked(x.reshape(-1, x.shape[-1]), (None, self.inputs), "x", "(rows, inputs)")
        z = new(len(rows), self.channels, cleared=True)
        self.adder.add(FP, z, rows, packed.w)
        return z.reshape(*x.shape[:-1], self.channels)

    def input_errors(self, packed: Any, delta: Floats, start: Floats | None = None) -> Floats:
        """See `Slice`; they are complete once `whole` has taken what all slices have
        added.
        """
        rows = delta.reshape(-1, self.channels)
        dx = new(*delta.shape[:-1], self.inputs, cleared=True) if start is None else start
        target(dx, (*delta.shape[:-1], self.inputs), "start")
        self._add_back(dx.reshape(-1, self.inputs), rows, packed.w_back, self.gates)
        return dx

    def gradients(
        self,
        tape: Tape,
        x: Floats,
        dw: Floats,
        dr: Floats,
        db_w: Floats,
        db_r: Floats,
        dp: Floats | None = None,
        *,
        fresh: bool = False,
        again: Again | None = None,
    ) -> None:
        """See `Slice`; `again` rounds what is multiplied, but not what biases see."""
        if fresh:
            for total in (dw, dr, *([] if dp is None else [dp])):
                total.fill(0)
        units, hidden, gates = self.units, self.hidden, range(self.gates)

        def rounded(kind: str, first: int, rows: Floats) -> Floats:
            """Round rows (samples, steps, lines) along steps."""
            if again is None:
                return rows
            turned = np.ascontiguousarray(rows.swapaxes(1, 2))
            return np.ascontiguousarray(again(kind, first, turned).swapaxes(1, 2))

        of_gates = [
            rounded("errors", gate * hidden + self.begin, tape.delta[..., gate :: self.gates])
            for gate in gates
        ]
        of_states = [*of_gates]
        if tape.delta_r is not tape.delta:
            first = (LINES - 1) * hidden + self.begin
            of_states[-1] = rounded(
                "errors", first, tape.delta_r[..., self.gates - 1 :: self.gates]
            )
        inputs = rounded("activations", 0, _within(x, tape))
        states = rounded("activations", self.inputs, tape.h_before)
        beyond, inner = self.inputs + self.width, tape.h_before
        if self._multiplies_inner:
            inner = rounded("activations", beyond, tape.inner)
        for gate in gates:
            own = slice(gate, self.gates * units, self.gates)
            source = inner if self._multiplies_inner and gate == self.gates - 1 else states
            self._add_gradient(dw, own, of_gates[gate], inputs)
            self._add_gradient(dr, own, of_states[gate], source)
        if dp is not None:
            errors = rounded("errors", LINES * hidden, tape.of_outputs)
            cells = rounded("activations", beyond, tape.cells)
            self._add_gradient(dp, slice(None), errors, cells)
        self._bias_gradient(tape.delta, db_w, "db_w", fresh)
        self._bias_gradient(tape.delta_r, db_r, "db_r", fresh)

    def whole(self, phase: int, sums: Floats) -> Floats:
        """See `Slice`."""
        return self.adder.whole(phase, sums)

    @property
    def _multiplies_inner(self) -> bool:
        """Whether R's last gate multiplies what the tape has as `inner`."""
        return False

    def _add_gradient(self, total: Floats, own: slice, errors: Floats, source: Floats) -> None:
        """Add the products of errors (samples, steps, rows) and a source (samples, steps, columns)
        to some rows of gradients.
        """
        samples, steps, _ = errors.shape
        sizes = [*map(len, self.adder.blocks(steps))] * samples
        factor = self.adder.factor(source.reshape(samples * steps, -1), sizes)
        sums = np.ascontiguousarray(total[own])
        self.adder.add(PG, sums, errors.reshape(samples * steps, -1).T, factor)
        total[own] = sums

    def _state_sums(self, part: Floats, delta: Floats, packed: SummedPacked) -> Floats:
        """Return errors of states before, with those of this slice added."""
        self._add_back(part, delta, packed.r_back, self.gates)
        return part

    def _errors_at(self, live: _Live, dy: Floats, later: Floats, carry: Floats) -> Floats:
        """Return the errors of h of the samples that have a step; the others keep theirs."""
        gone = np.ones(len(later), np.bool_)
        gone[live.samples] = False
        carry[gone] += later[gone]
        errors = _rows(dy)[live.rows] + (later[live.samples] + carry[live.samples])
        carry[live.samples] = 0
        return np.ascontiguousarray(errors)


def _rows(array: Floats) -> Floats:
    """Return an array (samples, steps, size) as a view (rows, size)."""
    return array.reshape(-1, array.shape[-1])


def _within(x: Floats, tape: Tape) -> Floats:
    """Return inputs with zeros behind the ends of sequences, which tell no scale."""
    if not tape.ragged:
        return x
    within = np.zeros(tape.samples * tape.steps, np.bool_)
    within[tape.rows[tape.rows >= 0]] = True
    return np.where(within.reshape(tape.samples, -1, 1), x, np.float32(0))


def _round(narrow: Narrow, rows: Floats, live: _Live) -> None:
    if narrow.way != WHOLE and rows.size:
        _lines.round_rows(narrow, address_of(rows), rows.shape[1], live.samples, live.t)


def _round_sums(
    narrow: Narrow,
    gates: int,
    live: _Live,
    errors: Floats,
    other: Floats | None = None,
    some: tuple[int, int] | None = None,
) -> None:
    """Round errors of sums, and others (`lines.round_errors`)."""
    if narrow.way == WHOLE or not errors.size:
        return
    places = address_of(errors), address_of(errors if other is None else other)
    units, own = errors.shape[1] // gates, some or (0, gates)
    _lines.round_errors(narrow, places, units, gates, live.samples, live.t, own)


@dataclasses.dataclass(frozen=True)
class SummedLstm(_Summed, LstmSlice):
    """Units of an LSTM, with other sums."""

    def forward(
        self,
        packed: Any,
        tape: Tape,
        h: Floats,
        c: Floats,
        steps: tuple[int, int],
        operands: Operands = PLAIN,
    ) -> Floats:
        """See `LstmSlice`."""
        self._check_steps(tape, steps, may_be_many=self.is_whole)
        of_h, of_inner = operands.of_forward(tape.samples, tape.steps, (self.width, self.hidden))
        own = h if self.is_whole else h[:, self.begin : self._end].copy()
        for step in range(*steps):
            live = _Live.at(tape, step)
            count, before = len(live.samples), h[live.samples]
            sums = _rows(tape.gates)[live.rows]
            self.adder.add(FP, sums, before, packed.r)
            self.adder.whole(FP, sums)
            gates, cells = new(count, self.channels), c[live.samples]
            bent, c_before, out = (new(count, self.units) for _ in range(3))
            places = sums, packed.b_w, packed.b_r, cells, gates, bent, c_before, out, out
            at = LstmForward(*map(address_of, places))
            _lines.lstm_forward(count, self.units, at)
            if packed.p is not None:
                _round(of_inner, out, live)
                _rows(tape.cells)[live.rows] = out
                multiplied, out = out, new(count, self.outputs, cleared=True)
                self.adder.add(FP, out, multiplied, packed.p)
                self.adder.whole(FP, out)
            _round(of_h, out, live)
            kept = (
                (tape.gates, gates),
                (tape.inner, bent),
                (tape.c_before, c_before),
                (tape.h_before, before),
                (tape.y, out),
            )
            for array, values in kept:
                _rows(array)[live.rows] = values
            c[live.samples], own[live.samples] = cells, out
        return own

    def backward(
        self,
        packed: Any,
        tape: Tape,
        dy: Floats,
        dh: Floats,
        dc: Floats,
        carry: Floats,
        steps: tuple[int, int],
        start: Floats | None = None,
        operands: Operands = PLAIN,
    ) -> Floats:
        """See `LstmSlice`; of a slice that is not the whole layer, errors are complete once
        `whole` has taken them.
        """
        goes_on = self.is_whole and start is None
        self._check_steps(tape, steps, may_be_many=goes_on)
        self._make_errors(tape)
        of_sums, of_projected = operands.of_backward(
            tape.samples, tape.steps, (self.hidden, self.outputs)
        )
        later, before = dh, dh if start is None else start
        for step in reversed(range(*steps)):
            live = _Live.at(tape, step)
            count = len(live.samples)
            errors = self._errors_at(live, dy, later, carry)
            if packed.p_back is not None:
                _round(of_projected, errors, live)
                _rows(tape.of_outputs)[live.rows] = errors
                projected, errors = errors, new(count, self.units, cleared=True)
                self._add_back(errors, projected, packed.p_back, 1)
                self.adder.whole(EB, errors)
            delta, cells = new(count, self.channels), dc[live.samples]
            kept = (_rows(array)[live.rows] for array in (tape.gates, tape.inner, tape.c_before))
            held = errors, *kept, cells, delta, delta
            _lines.lstm_backward(count, self.units, LstmBackward(*map(address_of, held)))
            _round_sums(of_sums, self.gates, live, delta)
            _rows(tape.delta)[live.rows], dc[live.samples] = delta, cells
            if start is None:
                before = new(tape.samples, self.width, cleared=True)
            before[live.samples] = self._state_sums(before[live.samples], delta, packed)
            later = self.adder.whole(EB, before) if goes_on else before
        return before


@dataclasses.dataclass(frozen=True)
class SummedGru(_Summed, GruSlice):
    """Units of a GRU, with other sums."""

    def forward(
        self,
        packed: Any,
        tape: Tape,
        h: Floats,
        steps: tuple[int, int],
        operands: Operands = PLAIN,
    ) -> Floats:
        """See `GruSlice`."""
        self._check_steps(tape, steps, may_be_many=self.is_whole)
        of_h, of_inner = operands.of_forward(tape.samples, tape.steps, (self.hidden, self.hidden))
        own = h if self.is_whole else h[:, self.begin : self._end].copy()
        for step in range(*steps):
            live = _Live.at(tape, step)
            count, before = len(live.samples), h[live.samples]
            mine = np.ascontiguousarray(before[:, self.begin : self._end])
            gates = _rows(tape.gates)[live.rows]
            inner, out = new(count, self.units), new(count, self.units)

            of_inputs = gates.copy()
            self.adder.whole(FP, gates)
            held = packed.b_w, packed.b_r, mine, gates, inner, out, out
            if self.linear_before_reset:
                of_inputs[:, self.gates - 1 :: self.gates] = 0
                self._take(LINEAR, of_inputs, before, packed, held)
            else:
                self._take(RESET, of_inputs.copy(), before, packed, held)
                _round(of_inner, inner, live)
                self._take(NEW, of_inputs, inner, packed, held)
            _round(of_h, out, live)
            kept = (tape.gates, gates), (tape.inner, inner), (tape.h_before, before), (tape.y, out)
            for array, values in kept:
                _rows(array)[live.rows] = values
            own[live.samples] = out
        return own

    def backward(
        self,
        packed: Any,
        tape: Tape,
        dy: Floats,
        dh: Floats,
        carry: Floats,
        steps: tuple[int, int],
        start: Floats | None = None,
        operands: Operands = PLAIN,
    ) -> Floats:
        """See `GruSlice`; of a slice that is not the whole layer, errors are complete once
        `whole` has taken them.
        """
        goes_on = self.is_whole and start is None
        self._check_steps(tape, steps, may_be_many=goes_on)
        self._make_errors(tape)
        of_sums, _ = operands.of_backward(tape.samples, tape.steps, (self.hidden, 1))
        later, before, last = dh, dh if start is None else start, self.gates - 1
        for step in reversed(range(*steps)):
            live = _Live.at(tape, step)
            count = len(live.samples)
            errors = self._errors_at(live, dy, later, carry)
            delta, other = new(count, self.channels), new(count, self.channels)
            gates, mine = _rows(tape.gates)[live.rows], _rows(tape.h_before)[live.rows]
            mine = np.ascontiguousarray(mine[:, self.begin : self._end])
            past, inner = new(count, self.units), _rows(tape.inner)[live.rows]
            if not self.linear_before_reset:
                inner = new(count, self.units, cleared=True)
            held = errors, gates, inner, mine, past, delta, other, other
            at = GruBackward(*map(address_of, held))
            if self.linear_before_reset:
                _lines.gru_backward(LINEAR, count, self.units, at)
                _round_sums(of_sums, self.gates, live, delta, other)
                _rows(tape.delta_r)[live.rows] = other
            else:
                _lines.gru_backward(NEW, count, self.units, at)
                _round_sums(of_sums, self.gates, live, other, delta, (last, 1))
                self._add_back(inner, other, packed.r_back, self.gates)
                self.adder.whole(EB, inner)
                _lines.gru_backward(RESET, count, self.units, at)
                _round_sums(of_sums, self.gates, live, other, delta, (0, last))
            _rows(tape.delta)[live.rows], carry[live.samples] = delta, past
            if start is None:
                before = new(tape.samples, self.width, cleared=True)
            before[live.samples] = self._state_sums(before[live.samples], other, packed)
            later = self.adder.whole(EB, before) if goes_on else before
        return before

    def _take(
        self, part: int, sums: Floats, states: Floats, packed: Any, held: tuple[Floats, ...]
    ) -> None:
        """Add products of states to sums over inputs, and do a part of what makes h of them."""
        self.adder.add(FP, sums, states, packed.r)
        self.adder.whole(FP, sums)
        at = GruForward(*map(address_of, (sums, *held)))
        _lines.gru_forward(part, len(sums), self.units, at)

    @property
    def _multiplies_inner(self) -> bool:
        return not self.linear_before_reset


def warm_summed() -> None:
    """Compile the kernels, or load them: call each once on tiny arrays."""
    one, narrow = np.ones((1, 1), np.float32), Operand(FloatGrid(7, -126, 1.0))
    operands, steps, dy = Operands(narrow, narrow, narrow, narrow), (0, 1), one[None]
    kernels: list[SummedLstm | SummedGru] = [SummedLstm(1, 1, adder=Adder(dot=8))]
    for is_linear in (True, False):
        kernels.append(SummedGru(1, 1, linear_before_reset=is_linear, adder=Adder(dot=8)))
    for kernel in kernels:
        rows = np.ones((kernel.channels, 1), np.float32)
        packed = kernel.pack(rows, rows, rows[:, 0], rows[:, 0])
        tape = kernel.tape(kernel.input_products(packed, one[None]))
        h, c, carry = one.copy(), one.copy(), one.copy()
        if isinstance(kernel, SummedLstm):
            kernel.forward(packed, tape, h, c, steps, operands)
            kernel.backward(packed, tape, dy, h, c, carry, steps, None, operands)
        else:
            kernel.forward(packed, tape, h, steps, operands)
            kernel.backward(packed, tape, dy, h, carry, steps, None, operands)
