"""The element-wise lines of the GRU, a vector of units at a time; gates are in the order r, z, n.

Forward, with a_r, a_z the chains over inputs and hidden units:

    r = sigmoid((a_r + b_W) + b_R);  z alike
    linear before reset:  w = the chain over inputs, m = (the chain over hidden units from +0) + b_R
                          n = tanh(fma(r, m, w + b_W))
    otherwise:            q = r * h_before;  n = tanh((a_n + b_W) + b_R), a_n over inputs, then over q
    h = fma(z, h_before - n, n)

Backward, with e the error of h:

    delta_n = (e * (1 - z)) * fma(-n, n, 1)
    delta_z = (e * (h_before - n)) * (z * (1 - z))
    linear before reset:  delta_r = (delta_n * m) * (r * (1 - r));  R takes delta_n * r for n
                          carry = e * z
    otherwise:            s = the chain over delta_n R_n;  delta_r = (s * h_before) * (r * (1 - r))
                          carry = fma(s, r, e * z)

`carry` is the part of the error of h_before that does not go through R.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from ..llvm import numbers_only
from .activation import sigmoid, tanh
from .lanes import Units, fma, for_units

GATES = 3


@intrinsic
def split_sums(context: Any, count: Any, z: Any, sums: Any) -> Any:
    """Copy the sums over the inputs of `count` units, with +0 for n, where another chain starts."""

    def generate(builder: ir.IRBuilder, count: ir.Value, z: ir.Value, sums: ir.Value) -> None:
        def write(units: Units) -> None:
            a_r, a_z, a_n = units.load_gates(z, GATES)
            units.store_gates([a_r, a_z, a_n.all(0.0)], sums)

        for_units(builder, count, write)

    return numbers_only(3, generate)


@intrinsic
def forward_linear(
    context: Any,
    count: Any,
    sums: Any,
    bias_w: Any,
    bias_r: Any,
    h_before: Any,
    gates: Any,
    m: Any,
    y: Any,
    h: Any,
) -> Any:
    """Take `count` units to h and y, linear before reset; `gates` holds the sums over inputs, then r, z and n."""

    def generate(builder: ir.IRBuilder, count: ir.Value, *places: ir.Value) -> None:
        sums, bias_w, bias_r, h_before, gates, m, y, h = places

        def write(units: Units) -> None:
            reset, update = map(sigmoid, units.load_gates(sums, GATES, bias_w, bias_r)[:2])
            recurrent = units.load_gates(sums, GATES, bias_r)[2]
            new = tanh(fma(reset, recurrent, units.load_gates(gates, GATES, bias_w)[2]))
            out = fma(update, units.load(h_before) - new, new)
            units.store_gates([reset, update, new], gates)
            for values, place in ((recurrent, m), (out, y), (out, h)):
                units.store(values, place)

        for_units(builder, count, write)

    return numbers_only(9, generate)


@intrinsic
def forward_reset(
    context: Any, count: Any, sums: Any, bias_w: Any, bias_r: Any, h_before: Any, gates: Any, q: Any
) -> Any:
    """Set q = r * h_before of `count` units, and keep r and z in `gates`, with the sum over inputs of n."""

    def generate(builder: ir.IRBuilder, count: ir.Value, *places: ir.Value) -> None:
        sums, bias_w, bias_r, h_before, gates, q = places

        def write(units: Units) -> None:
            reset, update = map(sigmoid, units.load_gates(sums, GATES, bias_w, bias_r)[:2])
            units.store(reset * units.load(h_before), q)
            units.store_gates([reset, update, units.load_gates(gates, GATES)[2]], gates)

        for_units(builder, count, write)

    return numbers_only(7, generate)


@intrinsic
def forward_new(
    context: Any, count: Any, sums: Any, bias_w: Any, bias_r: Any, h_before: Any, gates: Any, y: Any, h: Any
) -> Any:
    """Take `count` units to h and y after `forward_reset`; `sums` holds the chains over inputs and q for n."""

    def generate(builder: ir.IRBuilder, count: ir.Value, *places: ir.Value) -> None:
        sums, bias_w, bias_r, h_before, gates, y, h = places

        def write(units: Units) -> None:
            reset, update, _ = units.load_gates(gates, GATES)
            new = tanh(units.load_gates(sums, GATES, bias_w, bias_r)[2])
            out = fma(update, units.load(h_before) - new, new)
            units.store_gates([reset, update, new], gates)
            units.store(out, y)
            units.store(out, h)

        for_units(builder, count, write)

    return numbers_only(8, generate)


@intrinsic
def backward_linear(
    context: Any,
    count: Any,
    error: Any,
    gates: Any,
    m: Any,
    h_before: Any,
    carry: Any,
    delta: Any,
    delta_r: Any,
    copied: Any,
) -> Any:
    """Take `count` units from the error of h to the errors of the sums: W's, and R's, written twice."""

    def generate(builder: ir.IRBuilder, count: ir.Value, *places: ir.Value) -> None:
        error, gates, m, h_before, carry, delta, delta_r, copied = places

        def write(units: Units) -> None:
            reset, update, new = units.load_gates(gates, GATES)
            e, recurrent, before = (units.load(place) for place in (error, m, h_before))
            one = e.all(1.0)
            of_new = (e * (one - update)) * fma(-new, new, one)
            of_update = (e * (before - new)) * (update * (one - update))
            of_reset = (of_new * recurrent) * (reset * (one - reset))
            units.store_gates([of_reset, of_update, of_new], delta)
            for place in (delta_r, copied):
                units.store_gates([of_reset, of_update, of_new * reset], place)
            units.store(e * update, carry)

        for_units(builder, count, write)

    return numbers_only(9, generate)


@intrinsic
def backward_new(context: Any, count: Any, error: Any, gates: Any, h_before: Any, delta: Any, copied: Any) -> Any:
    """Set the errors of z and n of `count` units; of the copy, that of n alone, and +0 for the others."""

    def generate(builder: ir.IRBuilder, count: ir.Value, *places: ir.Value) -> None:
        error, gates, h_before, delta, copied = places

        def write(units: Units) -> None:
            _, update, new = units.load_gates(gates, GATES)
            e, before = units.load(error), units.load(h_before)
            one, zero = e.all(1.0), e.all(0.0)
            of_new = (e * (one - update)) * fma(-new, new, one)
            of_update = (e * (before - new)) * (update * (one - update))
            units.store_gates([zero, of_update, of_new], delta)
            units.store_gates([zero, zero, of_new], copied)

        for_units(builder, count, write)

    return numbers_only(6, generate)


@intrinsic
def backward_reset(
    context: Any,
    count: Any,
    s: Any,
    error: Any,
    gates: Any,
    h_before: Any,
    carry: Any,
    delta: Any,
    copied: Any,
) -> Any:
    """Set the error of r of `count` units after `backward_new`, and carry; of the copy, those of r and z alone."""

    def generate(builder: ir.IRBuilder, count: ir.Value, *places: ir.Value) -> None:
        s, error, gates, h_before, carry, delta, copied = places

        def write(units: Units) -> None:
            reset, update, _ = units.load_gates(gates, GATES)
            _, of_update, of_new = units.load_gates(delta, GATES)
            of_product, e, before = (units.load(place) for place in (s, error, h_before))
            of_reset = (of_product * before) * (reset * (e.all(1.0) - reset))
            units.store_gates([of_reset, of_update, of_new], delta)
            units.store_gates([of_reset, of_update, e.all(0.0)], copied)
            units.store(fma(of_product, reset, e * update), carry)

        for_units(builder, count, write)

    return numbers_only(8, generate)
