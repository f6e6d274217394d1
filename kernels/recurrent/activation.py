"""Element-wise lines that LSTM and GRU share: sigmoid and tanh of arrays, and errors of the outputs."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from ..jit import FLOAT_BYTES, compiled
from ..llvm import WIDTH, Lanes, Units, clear, for_units, numbers_only, sigmoid, tanh


@intrinsic
def _apply(context: Any, is_tanh: Any, count: Any, x: Any, y: Any) -> Any:
    """Set y to sigmoid or tanh of `count` <= WIDTH numbers x."""

    def generate(builder: ir.IRBuilder, is_tanh: ir.Value, count: ir.Value, x: ir.Value, y: ir.Value) -> None:
        def write(units: Units) -> None:
            given = units.load(x)
            wanted = builder.icmp_signed("!=", is_tanh, ir.Constant(is_tanh.type, 0))
            result = builder.select(wanted, tanh(given).value, sigmoid(given).value)
            units.store(Lanes(builder, result), y)

        for_units(builder, count, write)

    return numbers_only(4, generate)


@compiled
def apply(is_tanh: Any, count: Any, x: Any, y: Any) -> None:
    """Set y to sigmoid (0) or tanh (1) of `count` numbers; `x` and `y` are addresses."""
    for first in range(0, count, WIDTH):
        _apply(is_tanh, min(WIDTH, count - first), x + FLOAT_BYTES * first, y + FLOAT_BYTES * first)


@intrinsic
def _total_error(context: Any, count: Any, dy: Any, dh: Any, carry: Any, out: Any) -> Any:
    """Set out = dy + (dh + carry)."""

    def generate(
        builder: ir.IRBuilder, count: ir.Value, dy: ir.Value, dh: ir.Value, carry: ir.Value, out: ir.Value
    ) -> None:
        def write(units: Units) -> None:
            units.store(units.load(dy) + (units.load(dh) + units.load(carry)), out)

        for_units(builder, count, write)

    return numbers_only(5, generate)


@intrinsic
def _kept_error(context: Any, count: Any, dh: Any, carry: Any) -> Any:
    """Set carry = dh + carry."""

    def generate(builder: ir.IRBuilder, count: ir.Value, dh: ir.Value, carry: ir.Value) -> None:
        def write(units: Units) -> None:
            units.store(units.load(dh) + units.load(carry), carry)

        for_units(builder, count, write)

    return numbers_only(3, generate)


@compiled
def total_error(units: Any, dy: Any, dh: Any, carry: Any, out: Any) -> None:
    """Set out = dy + (dh + carry) for all units of a sample, and carry = 0."""
    for first in range(0, units, WIDTH):
        at = FLOAT_BYTES * first
        _total_error(min(WIDTH, units - first), dy + at, dh + at, carry + at, out + at)
    clear(carry, units)


@compiled
def keep_error(units: Any, dh: Any, carry: Any) -> None:
    """Set carry = dh + carry for all units of a sample whose sequence has ended at this step."""
    for first in range(0, units, WIDTH):
        at = FLOAT_BYTES * first
        _kept_error(min(WIDTH, units - first), dh + at, carry + at)
