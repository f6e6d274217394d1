"""Vectors of float32 numbers in LLVM IR, written as arithmetic; the layout of units' gates, and the
exponential.

The gates of a unit lie side by side, unit by unit: output channel = gates * unit + gate. So a
vector of each gate is gathered from as many vectors as there are gates. With 3 gates, and vectors
of 4 floats:

    in memory   r0 z0 n0 r1 | z1 n1 r2 z2 | n2 r3 z3 n3        (part 0 | part 1 | part 2)
    as vectors  r0 r1 r2 r3,  z0 z1 z2 z3,  n0 n1 n2 n3

The exponential, and what follows from it, is one sequence of float32 operations, with the same bits
in every form. For u <= 0, it is taken apart into a power of two and a polynomial:

    t = fma(u, LOG2_E, MAGIC);  n = t - MAGIC            u / ln 2, rounded to a whole number
    s = 2^n, by its bits:  (bits(t) << 23) + (127 << 23)
    r = fma(n, -LN_2, u)
    q = C4;  q = fma(q, r, C3);  ..  q = fma(q, r, C0)
    p = fma(r * r, q, r)                                 exp(u) = s + s p

    exponential(u):  fma(s, p, s), but 0 for u < LEAST
    sigmoid(x):  a = |x|, at most CLAMP;  u = -a;  e = fma(s, p, s);      (x >= 0 ? 1 : e) / (1 + e)
    tanh(x):     a = |x|, at most CLAMP;  u = -(a + a);  m = fma(s, p, s - 1);  -m / (2 + m) with the sign of x

A NaN stays a NaN; infinite numbers are clamped. Absolute errors are below 1.5e-7, relative ones
below 2.1e-7 within the clamp. Small |x| keep their relative precision in tanh, as do very negative
x in sigmoid.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from ..form import FORM
from ..jit import FLOAT_BYTES
from .emit import (
    INT,
    address,
    emit_fma,
    first_lanes,
    index,
    masked_load,
    masked_store,
    shuffle,
    vector,
)

WIDTH = FORM.width


@dataclasses.dataclass(frozen=True)
class Lanes:
    """A vector; each operator is one rounded operation of each lane."""

    builder: ir.IRBuilder
    value: ir.Value

    def __add__(self, other: Lanes) -> Lanes:
        return Lanes(self.builder, self.builder.fadd(self.value, other.value))

    def __sub__(self, other: Lanes) -> Lanes:
        return Lanes(self.builder, self.builder.fsub(self.value, other.value))

    def __mul__(self, other: Lanes) -> Lanes:
        return Lanes(self.builder, self.builder.fmul(self.value, other.value))

    def __truediv__(self, other: Lanes) -> Lanes:
        return Lanes(self.builder, self.builder.fdiv(self.value, other.value))

    def __neg__(self) -> Lanes:
        return Lanes(self.builder, self.builder.fneg(self.value))

    def all(self, number: float) -> Lanes:
        """Return the vector whose lanes all hold `number`."""
        return Lanes(self.builder, ir.Constant(vector(WIDTH), [number] * WIDTH))

    def where(self, relation: str, other: Lanes, then: Lanes, otherwise: Lanes) -> Lanes:
        """Return `then` in lanes where the ordered comparison with `other` holds, otherwise
        `otherwise`.
        """
        holds = self.builder.fcmp_ordered(relation, self.value, other.value)
        return Lanes(self.builder, self.builder.select(holds, then.value, otherwise.value))

    def bits(self) -> ir.Value:
        """Return the numbers' bits as 32-bit integers."""
        return self.builder.bitcast(self.value, ir.VectorType(INT, WIDTH))

    def of_bits(self, bits: ir.Value) -> Lanes:
        """Return the numbers that have these bits."""
        return Lanes(self.builder, self.builder.bitcast(bits, vector(WIDTH)))


def fused(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """Return a * b + c with one rounding."""
    return Lanes(a.builder, emit_fma(a.builder, a.value, b.value, c.value))


def integers(number: int) -> ir.Constant:
    """Return the vector of 32-bit integers that all are `number`."""
    return ir.Constant(ir.VectorType(INT, WIDTH), [number] * WIDTH)


@dataclasses.dataclass(frozen=True)
class Units:
    """Up to WIDTH units in memory: all, where `count` is None, or the first `count`."""

    builder: ir.IRBuilder
    count: ir.Value | None

    def load(self, place: ir.Value) -> Lanes:
        """Load one number of each unit."""
        return self._load(place, 0, self.count)

    def store(self, lanes: Lanes, place: ir.Value) -> None:
        """Store one number of each unit."""
        self._store(lanes.value, place, 0, self.count)

    def load_gates(self, place: ir.Value, gates: int, *added: ir.Value) -> list[Lanes]:
        """Load the numbers of all gates, and add those at the places `added` in turn; return a
        vector of each gate.
        """
        parts = []
        for part in range(gates):
            total, *others = (
                self._load(at, part, self._count_of(part, gates)) for at in (place, *added)
            )
            parts.append(sum(others, total).value)
        places = [list(range(gate, gates * WIDTH, gates)) for gate in range(gates)]
        return [Lanes(self.builder, _gather(self.builder, parts, wanted)) for wanted in places]

    def store_gates(self, gates: Sequence[Lanes], place: ir.Value) -> None:
        """Store the vectors of all gates side by side for each unit."""
        values, number = [gate.value for gate in gates], len(gates)
        for part in range(number):
            channels = range(part * WIDTH, (part + 1) * WIDTH)
            wanted = [channel % number * WIDTH + channel // number for channel in channels]
            self._store(
                _gather(self.builder, values, wanted), place, part, self._count_of(part, number)
            )

    def _count_of(self, part: int, gates: int) -> ir.Value | None:
        """Return how many floats of the vector number `part` belong to the units."""
        if self.count is None:
            return None
        left = self.builder.sub(self.builder.mul(self.count, index(gates)), index(part * WIDTH))
        some = self.builder.select(self.builder.icmp_signed(">", left, index(0)), left, index(0))
        return self.builder.select(
            self.builder.icmp_signed("<", some, index(WIDTH)), some, index(WIDTH)
        )

    def _load(self, place: ir.Value, part: int, count: ir.Value | None) -> Lanes:
        at = address(self.builder, place, index(part * WIDTH), vector(WIDTH))
        if count is None:
            return Lanes(self.builder, self.builder.load(at, align=FLOAT_BYTES))
        mask = first_lanes(self.builder, count, WIDTH)
        return Lanes(self.builder, masked_load(self.builder, at, mask, WIDTH))

    def _store(self, value: ir.Value, place: ir.Value, part: int, count: ir.Value | None) -> None:
        at = address(self.builder, place, index(part * WIDTH), vector(WIDTH))
        if count is None:
            self.builder.store(value, at, align=FLOAT_BYTES)
        else:
            masked_store(self.builder, value, at, first_lanes(self.builder, count, WIDTH), WIDTH)


def _gather(builder: ir.IRBuilder, parts: Sequence[ir.Value], places: Sequence[int]) -> ir.Value:
    """Return the vector of the given places of all parts, one after the other."""
    gathered = shuffle(builder, parts[0], parts[1], [place % (2 * WIDTH) for place in places])
    for number, part in enumerate(parts[2:], 2):
        chosen = [
            place % WIDTH + WIDTH if place // WIDTH == number else lane
            for lane, place in enumerate(places)
        ]
        gathered = shuffle(builder, gathered, part, chosen)
    return gathered


def for_units(builder: ir.IRBuilder, count: ir.Value, write: Callable[[Units], Any]) -> None:
    """Emit code for a whole vector of units, and for `count` < WIDTH units: `write` is called for
    each.
    """
    whole = builder.icmp_signed("==", count, index(WIDTH))
    with builder.if_else(whole) as (all_units, some_units):
        with all_units:
            write(Units(builder, None))
        with some_units:
            write(Units(builder, count))


CLAMP = 40.0
LEAST = (
    -64.0
)  # below, 1e-28: next to 1 it is nothing, and its products would become subnormal, which is slow
LOG2_E, LN_2 = 1.4426950216293335, 0.6931471824645996
MAGIC = 12582912.0  # 1.5 * 2^23: numbers beyond it have no fraction
COEFFICIENTS = (
    0.4999999701976776,
    0.1666654348373413,
    0.04166720062494278,
    0.008366547524929047,
    0.0013882515486329794,
)
_SIGN, _REST = -(1 << 31), (1 << 31) - 1


def _parts(u: Lanes) -> tuple[Lanes, Lanes]:
    """Return (s, p), where exp(u) = s + s p."""
    magic = u.all(MAGIC)
    t = fused(u, u.all(LOG2_E), magic)
    n = t - magic
    shifted = u.builder.shl(t.bits(), integers(23))
    s = u.of_bits(u.builder.add(shifted, integers(127 << 23)))
    r = fused(n, u.all(-LN_2), u)
    q = u.all(COEFFICIENTS[-1])
    for coefficient in COEFFICIENTS[-2::-1]:
        q = fused(q, r, u.all(coefficient))
    return s, fused(r * r, q, r)


def exponential(u: Lanes) -> Lanes:
    """Emit exp(u), for u <= 0."""
    s, p = _parts(u)
    return u.where("<", u.all(LEAST), u.all(0.0), fused(s, p, s))


def _clamped_size(x: Lanes) -> Lanes:
    size = x.of_bits(x.builder.and_(x.bits(), integers(_REST)))
    limit = x.all(CLAMP)
    return limit.where("<", size, limit, size)


def sigmoid(x: Lanes) -> Lanes:
    """Emit 1 / (1 + exp(-x))."""
    s, p = _parts(-_clamped_size(x))
    e, one = fused(s, p, s), x.all(1.0)
    return x.where(">=", x.all(0.0), one, e) / (one + e)


def tanh(x: Lanes) -> Lanes:
    """Emit the hyperbolic tangent."""
    a = _clamped_size(x)
    s, p = _parts(-(a + a))
    m = fused(s, p, s - x.all(1.0))
    size = -m / (x.all(2.0) + m)
    sign = x.builder.and_(x.bits(), integers(_SIGN))
    rest = x.builder.and_(size.bits(), integers(_REST))
    return x.of_bits(x.builder.or_(rest, sign))
