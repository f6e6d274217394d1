"""The element-wise lines of the LSTM, a vector of units at a time.

Forward, with a_i .. a_o the chains over inputs and hidden units, and gates in the order i, f, g, o:

    i = sigmoid((a_i + b_W) + b_R);  f, o alike;  g = tanh((a_g + b_W) + b_R)
    c = fma(f, c_before, i * g)
    t = tanh(c)
    h = o * t

Backward, with e the error of h, and dc the error of c from the step after:

    d = fma(o * e, fma(-t, t, 1), dc)
    delta_i = (i * (1 - i)) * (g * d)
    delta_f = (f * (1 - f)) * (c_before * d)
    delta_g = fma(-g, g, 1) * (i * d)
    delta_o = (o * (1 - o)) * (t * e)
    dc = f * d
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from ..llvm import numbers_only
from .activation import sigmoid, tanh
from .lanes import Units, fma, for_units

GATES = 4


@intrinsic
def forward_cell(
    context: Any,
    count: Any,
    sums: Any,
    bias_w: Any,
    bias_r: Any,
    c: Any,
    gates: Any,
    t: Any,
    c_before: Any,
    y: Any,
    h: Any,
) -> Any:
    """Take `count` units from the sums to h and y; keep gates, t and the c before, and change c."""

    def generate(builder: ir.IRBuilder, count: ir.Value, *places: ir.Value) -> None:
        sums, bias_w, bias_r, c, gates, t, c_before, y, h = places

        def write(units: Units) -> None:
            i, f, g, o = units.load_gates(sums, GATES, bias_w, bias_r)
            i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
            before = units.load(c)
            after = fma(f, before, i * g)
            bent = tanh(after)
            out = o * bent
            units.store_gates([i, f, g, o], gates)
            for values, place in ((bent, t), (before, c_before), (after, c), (out, y), (out, h)):
                units.store(values, place)

        for_units(builder, count, write)

    return numbers_only(10, generate)


@intrinsic
def backward_cell(
    context: Any, count: Any, error: Any, gates: Any, t: Any, c_before: Any, dc: Any, delta: Any, copied: Any
) -> Any:
    """Take `count` units from the error of h to the errors of the sums, written twice; change dc."""

    def generate(builder: ir.IRBuilder, count: ir.Value, *places: ir.Value) -> None:
        error, gates, t, c_before, dc, delta, copied = places

        def write(units: Units) -> None:
            i, f, g, o = units.load_gates(gates, GATES)
            e, bent, before, later = (units.load(place) for place in (error, t, c_before, dc))
            one = e.all(1.0)
            d = fma(o * e, fma(-bent, bent, one), later)
            found = [
                (i * (one - i)) * (g * d),
                (f * (one - f)) * (before * d),
                fma(-g, g, one) * (i * d),
                (o * (one - o)) * (bent * e),
            ]
            units.store_gates(found, delta)
            units.store_gates(found, copied)
            units.store(f * d, dc)

        for_units(builder, count, write)

    return numbers_only(8, generate)
