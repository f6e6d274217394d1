"""What the steps of all recurrent layers share: errors of the outputs, and rows of samples whose sequence has ended.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from ..jit import FLOAT_BYTES, compiled
from ..llvm import clear, numbers_only
from .lanes import WIDTH, Units, for_units


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
