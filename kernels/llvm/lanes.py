"""Vectors of float32 numbers in LLVM IR, written as arithmetic, and the layout in which the gates of units lie.

The gates of a unit lie side by side, unit by unit: output channel = gates * unit + gate. So a vector of each gate is
gathered from as many vectors as there are gates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from ..form import FORM
from ..jit import FLOAT_BYTES
from .emit import INT, address, emit_fma, first_lanes, index, masked_load, masked_store, shuffle, vector

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
        """Return `then` in lanes where the ordered comparison with `other` holds, otherwise `otherwise`."""
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
        """Load the numbers of all gates, and add those at the places `added` in turn; return a vector of each gate."""
        parts = []
        for part in range(gates):
            total, *others = (self._load(at, part, self._count_of(part, gates)) for at in (place, *added))
            parts.append(sum(others, total).value)
        places = [[gates * unit + gate for unit in range(WIDTH)] for gate in range(gates)]
        return [Lanes(self.builder, _gather(self.builder, parts, wanted)) for wanted in places]

    def store_gates(self, gates: Sequence[Lanes], place: ir.Value) -> None:
        """Store the vectors of all gates side by side for each unit."""
        values, number = [gate.value for gate in gates], len(gates)
        for part in range(number):
            channels = range(part * WIDTH, (part + 1) * WIDTH)
            wanted = [channel % number * WIDTH + channel // number for channel in channels]
            self._store(_gather(self.builder, values, wanted), place, part, self._count_of(part, number))

    def _count_of(self, part: int, gates: int) -> ir.Value | None:
        """Return how many floats of the vector number `part` belong to the units."""
        if self.count is None:
            return None
        left = self.builder.sub(self.builder.mul(self.count, index(gates)), index(part * WIDTH))
        some = self.builder.select(self.builder.icmp_signed(">", left, index(0)), left, index(0))
        return self.builder.select(self.builder.icmp_signed("<", some, index(WIDTH)), some, index(WIDTH))

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
        chosen = [place % WIDTH + WIDTH if place // WIDTH == number else lane for lane, place in enumerate(places)]
        gathered = shuffle(builder, gathered, part, chosen)
    return gathered


def for_units(builder: ir.IRBuilder, count: ir.Value, write: Callable[[Units], Any]) -> None:
    """Emit code for a whole vector of units, and for `count` < WIDTH units: `write` is called for each."""
    whole = builder.icmp_signed("==", count, index(WIDTH))
    with builder.if_else(whole) as (all_units, some_units):
        with all_units:
            write(Units(builder, None))
        with some_units:
            write(Units(builder, count))
