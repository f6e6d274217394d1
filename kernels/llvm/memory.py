"""Copies and zeros at plain addresses, for compiled code."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..jit import FLOAT_BYTES, compiled
from .emit import FLOAT, address, entry_of, index, numbers_only

_FEW = 32  # up to this count, zeros are stored one by one


@intrinsic
def copy(context: Any, out: Any, source: Any, count: Any) -> Any:
    """Copy `count` floats from one address to another."""

    def generate(builder: ir.IRBuilder, out: ir.Value, source: ir.Value, count: ir.Value) -> None:
        to, come = (address(builder, place, index(0), FLOAT) for place in (out, source))
        cgutils.raw_memcpy(builder, to, come, count, FLOAT_BYTES)

    return numbers_only(3, generate)


@intrinsic
def read_index(context: Any, table: Any, place: Any) -> Any:
    """Return the 64-bit integer table[place]; `table` is an address."""

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, values: list[ir.Value]) -> ir.Value:
        return entry_of(builder, *values)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _clear_one(context: Any, out: Any) -> Any:
    def generate(builder: ir.IRBuilder, out: ir.Value) -> None:
        builder.store(ir.Constant(FLOAT, 0.0), address(builder, out, index(0), FLOAT), align=FLOAT_BYTES)

    return numbers_only(1, generate)


@intrinsic
def _clear_many(context: Any, out: Any, count: Any) -> Any:
    def generate(builder: ir.IRBuilder, out: ir.Value, count: ir.Value) -> None:
        size = builder.mul(count, index(FLOAT_BYTES))
        cgutils.memset(builder, address(builder, out, index(0), FLOAT), size, 0)

    return numbers_only(2, generate)


@compiled
def clear(out: Any, count: Any) -> None:
    """Write `count` zero floats from the address `out` on."""
    if count > _FEW:
        _clear_many(out, count)
    else:
        for number in range(count):
            _clear_one(out + FLOAT_BYTES * number)
