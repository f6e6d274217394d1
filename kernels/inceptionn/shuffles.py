"""Bytes at plain addresses, tables in the code, and byte shuffles: what both directions of the codec emit."""

from __future__ import annotations

import zlib
from typing import Any

from llvmlite import binding, ir
from numpy.typing import NDArray

from ..form import FORM, cpu_features
from ..llvm import INDEX
from .format import BURST, LANE_BYTES

BYTE = ir.IntType(8)
BYTES = ir.VectorType(BYTE, LANE_BYTES * BURST // 2)
"""Four lanes: what one shuffle moves, and the size of a row of its tables."""
_SHUFFLES = {"x86_64": "llvm.x86.ssse3.pshuf.b.128", "aarch64": "llvm.aarch64.neon.tbl1.v16i8"}


def shuffle_of(form: str, triple: str, features: str) -> str | None:
    """Return the LLVM intrinsic with which a form and a processor shuffle 16 bytes; None where there is none."""
    has = {"x86_64": "+ssse3", "aarch64": "+neon"}
    processor = triple.partition("-")[0]
    return _SHUFFLES[processor] if form != "portable" and has.get(processor) in features.split(",") else None


SHUFFLE = shuffle_of(FORM.name, binding.get_process_triple(), cpu_features())


def shuffled(builder: ir.IRBuilder, value: ir.Value, order: ir.Value) -> ir.Value:
    """Return the bytes of `value` at the places in `order`, and 0 for places that are marked as none."""
    return called(builder, str(SHUFFLE), BYTES, value, order)


def called(builder: ir.IRBuilder, name: str, result: ir.Type, *values: ir.Value) -> ir.Value:
    """Call one of LLVM's intrinsics."""
    known = builder.module.globals.get(name)
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(known or ir.Function(builder.module, kind, name), values)


def load(builder: ir.IRBuilder, place: ir.Value, kind: ir.Type) -> ir.Value:
    """Load from any address."""
    return builder.load(builder.inttoptr(place, kind.as_pointer()), align=1)


def store(builder: ir.IRBuilder, value: ir.Value, place: ir.Value) -> None:
    """Store at any address."""
    builder.store(value, builder.inttoptr(place, value.type.as_pointer()), align=1)


def entry(builder: ir.IRBuilder, table: NDArray[Any], place: ir.Value) -> ir.Value:
    """Return table[place] as a 64-bit integer."""
    at = builder.add(_address(builder, table), builder.mul(place, ir.Constant(INDEX, table.itemsize)))
    return builder.zext(load(builder, at, ir.IntType(8 * table.itemsize)), INDEX)


def row(builder: ir.IRBuilder, table: NDArray[Any], offset: ir.Value, kind: ir.Type) -> ir.Value:
    """Return what begins `offset` bytes after the beginning of a table."""
    return load(builder, builder.add(_address(builder, table), offset), kind)


def _address(builder: ir.IRBuilder, table: NDArray[Any]) -> ir.Value:
    """Return the address of a copy of a table in the module."""
    name = f"table.{zlib.crc32(table.tobytes())}"
    known = builder.module.globals.get(name)
    if known is None:
        items = table.tobytes()
        kind = ir.ArrayType(BYTE, len(items))
        known = ir.GlobalVariable(builder.module, kind, name)
        known.linkage, known.global_constant, known.align = "internal", True, 64
        known.initializer = ir.Constant(kind, bytearray(items))
    return builder.ptrtoint(known, INDEX)
