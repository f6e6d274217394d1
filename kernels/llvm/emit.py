"""Small pieces of LLVM IR from which the kernels' instructions are built.

The compiler may or may not fuse an ordinary `a * b + c`; `llvm.fma` always has exactly one rounding, on every processor
(in hardware where available, else in software), so that the same program gives the same bits everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..jit import FLOAT_BYTES

INDEX, INT, BIT, FLOAT = ir.IntType(64), ir.IntType(32), ir.IntType(1), ir.FloatType()
INDEX_BYTES, LINE_BYTES = 8, 64


def vector(width: int) -> ir.VectorType:
    """Return the type of a vector of `width` floats."""
    return ir.VectorType(FLOAT, width)


def index(value: int) -> ir.Constant:
    """Return a 64-bit integer constant."""
    return ir.Constant(INDEX, value)


def shuffle(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, places: Sequence[int]) -> ir.Value:
    """Return the vector of the given places of `a` (0 .. width - 1) and `b` (width .. 2 width - 1)."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(INT, len(places)), places))


def broadcast(builder: ir.IRBuilder, value: ir.Value, width: int) -> ir.Value:
    """Return the vector whose lanes all hold `value`."""
    undefined = ir.Constant(ir.VectorType(value.type, width), ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(INT, 0))
    return shuffle(builder, one, undefined, [0] * width)


def address(builder: ir.IRBuilder, base: ir.Value, offset: ir.Value, kind: ir.Type) -> ir.Value:
    """Return a pointer to `kind`, `offset` floats after the address `base`."""
    place = builder.add(base, builder.mul(offset, index(FLOAT_BYTES)))
    return builder.inttoptr(place, kind.as_pointer())


def entry_of(builder: ir.IRBuilder, table: ir.Value, place: ir.Value) -> ir.Value:
    """Return the 64-bit integer table[place]; `table` is an address."""
    at = builder.add(table, builder.mul(place, index(INDEX_BYTES)))
    return builder.load(builder.inttoptr(at, INDEX.as_pointer()), align=INDEX_BYTES)


def lane_bits(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    """Return an integer whose first `count` bits are set."""
    return builder.sub(builder.shl(index(1), count), index(1))


def bits_to_mask(builder: ir.IRBuilder, bits: ir.Value, width: int) -> ir.Value:
    """Return the mask of the lanes whose bits are set."""
    return builder.bitcast(builder.trunc(bits, ir.IntType(width)), ir.VectorType(BIT, width))


def first_lanes(builder: ir.IRBuilder, count: ir.Value, width: int) -> ir.Value:
    """Return the mask of the first `count` lanes."""
    return bits_to_mask(builder, lane_bits(builder, count), width)


def masked_load(builder: ir.IRBuilder, pointer: ir.Value, mask: ir.Value, width: int) -> ir.Value:
    """Load the lanes of the mask, with zeros in the others; nothing else is read."""
    zeros = ir.Constant(vector(width), [0.0] * width)
    values = [pointer, ir.Constant(INT, FLOAT_BYTES), mask, zeros]
    return builder.call(_masked(builder, "load", vector(width), values, width), values)


def masked_store(builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value, mask: ir.Value, width: int) -> None:
    """Store the lanes of the mask; nothing else is written."""
    values = [value, pointer, ir.Constant(INT, FLOAT_BYTES), mask]
    builder.call(_masked(builder, "store", ir.VoidType(), values, width), values)


def _masked(builder: ir.IRBuilder, name: str, result: ir.Type, values: list[ir.Value], width: int) -> ir.Function:
    full = f"llvm.masked.{name}.v{width}f32.p0"
    known = builder.module.globals.get(full)
    return known or ir.Function(builder.module, ir.FunctionType(result, [value.type for value in values]), full)


def numbers_only(arguments: int, generate: Callable[..., None]) -> Any:
    """Return signature and code generator of an intrinsic that takes 64-bit integers and returns nothing."""

    def emit(context: Any, builder: ir.IRBuilder, _signature: Any, values: list[ir.Value]) -> ir.Value:
        generate(builder, *values)
        return context.get_dummy_value()

    return types.void(*[types.int64] * arguments), emit


def of_blocks(generate: Callable[..., None], *kinds: types.Type) -> Any:
    """Return signature and code generator of an intrinsic that takes integers and tuples of them, and returns nothing.

    `generate` takes the builder, 64-bit integers, and tuples of these, by the names that they have in compiled code.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]) -> ir.Value:
        def whole(kind: types.Type, value: ir.Value) -> Any:
            if not isinstance(kind, types.BaseTuple):
                return context.cast(builder, value, kind, types.int64)
            members = [whole(kind[n], builder.extract_value(value, n)) for n in range(len(kind))]
            return kind.instance_class(*members) if isinstance(kind, types.BaseNamedTuple) else tuple(members)

        generate(builder, *map(whole, signature.args, values))
        return context.get_dummy_value()

    return types.void(*kinds), emit


def prefetch(builder: ir.IRBuilder, place: ir.Value, *, to_write: bool = False, nearest: bool = False) -> None:
    """Prefetch the cache line at `place`: to write, or to read, into the first-level cache or the second-level one.

    Any address will do.
    """
    hints = (1, 3, 1) if to_write else (0, 2 + nearest, 1)
    name, byte = "llvm.prefetch.p0", ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, INT, INT, INT])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(function, [builder.inttoptr(place, byte), *(ir.Constant(INT, value) for value in hints)])


def fence(builder: ir.IRBuilder) -> None:
    """Keep the compiler from moving loads and stores past here, and from unrolling the loop around this.

    It emits no instruction. Loads that the compiler moves ahead of their step need registers that a tile does not have.
    """
    call = builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)
    call.attributes.add("convergent")


def emit_fma(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """Emit one fused multiply-add of three floats, or of three vectors of floats, lane by lane."""
    kind = a.type
    name = "llvm.fma.f32" if isinstance(kind, ir.FloatType) else f"llvm.fma.v{kind.count}f32"
    module = builder.module
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(kind, [kind] * 3), name)
    return builder.call(function, [a, b, c])


@intrinsic
def fma(context: Any, a: types.Type, b: types.Type, c: types.Type) -> Any:
    """Return a * b + c of three float32 numbers with one rounding, for use in compiled code."""
    signature = types.float32(types.float32, types.float32, types.float32)

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: list[ir.Value]) -> ir.Value:
        return emit_fma(builder, *arguments)

    return signature, generate
