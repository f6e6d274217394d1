"""Small pieces of LLVM IR from which the kernels' instructions are built; and copies and zeros at
plain addresses.

The compiler may or may not fuse an ordinary `a * b + c`; `llvm.fma` always has exactly one
rounding, on every processor (in hardware where available, else in software), so that the same
program gives the same bits everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..form import FORM
from ..jit import FLOAT_BYTES, compiled

INDEX, INT, BIT, FLOAT = ir.IntType(64), ir.IntType(32), ir.IntType(1), ir.FloatType()
INDEX_BYTES, LINE_BYTES = 8, 64


def vector(width: int) -> ir.VectorType:
    """Return the type of a vector of `width` floats."""
    return ir.VectorType(FLOAT, width)


def index(value: int) -> ir.Constant:
    """Return a 64-bit integer constant."""
    return ir.Constant(INDEX, value)


def shuffle(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, places: Sequence[int]) -> ir.Value:
    """Return the vector of the given places of `a` (0 .. width - 1) and `b` (width .. 2 width -
    1).
    """
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


def masked_store(
    builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value, mask: ir.Value, width: int
) -> None:
    """Store the lanes of the mask; nothing else is written."""
    values = [value, pointer, ir.Constant(INT, FLOAT_BYTES), mask]
    builder.call(_masked(builder, "store", ir.VoidType(), values, width), values)


def _masked(
    builder: ir.IRBuilder, name: str, result: ir.Type, values: list[ir.Value], width: int
) -> ir.Function:
    full = f"llvm.masked.{name}.v{width}f32.p0"
    known = builder.module.globals.get(full)
    return known or ir.Function(
        builder.module, ir.FunctionType(result, [value.type for value in values]), full
    )


def numbers_only(arguments: int, generate: Callable[..., None]) -> Any:
    """Return signature and code generator of an intrinsic that takes 64-bit integers and returns
    nothing.
    """

    def emit(
        context: Any, builder: ir.IRBuilder, _signature: Any, values: list[ir.Value]
    ) -> ir.Value:
        generate(builder, *values)
        return context.get_dummy_value()

    return types.void(*[types.int64] * arguments), emit


def of_blocks(generate: Callable[..., None], *kinds: types.Type) -> Any:
    """Return signature and code generator of an intrinsic that takes integers and tuples of them,
    and returns nothing.

    `generate` takes the builder, 64-bit integers, and tuples of these, by the names that they have
    in compiled code.
    """

    def emit(
        context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]
    ) -> ir.Value:
        def whole(kind: types.Type, value: ir.Value) -> Any:
            if not isinstance(kind, types.BaseTuple):
                return context.cast(builder, value, kind, types.int64)
            members = [whole(kind[n], builder.extract_value(value, n)) for n in range(len(kind))]
            return (
                kind.instance_class(*members)
                if isinstance(kind, types.BaseNamedTuple)
                else tuple(members)
            )

        generate(builder, *map(whole, signature.args, values))
        return context.get_dummy_value()

    return types.void(*kinds), emit


def prefetch(
    builder: ir.IRBuilder, place: ir.Value, *, to_write: bool = False, nearest: bool = False
) -> None:
    """Prefetch the cache line at `place`: to write, or to read, into the first-level cache or the
    second-level one.

    Any address will do.
    """
    hints = (1, 3, 1) if to_write else (0, 2 + nearest, 1)
    name, byte = "llvm.prefetch.p0", ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, INT, INT, INT])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(
        function, [builder.inttoptr(place, byte), *(ir.Constant(INT, value) for value in hints)]
    )


def fence(builder: ir.IRBuilder) -> None:
    """Keep the compiler from moving loads and stores past here, and from unrolling the loop around
    this.

    It emits no instruction. Loads that the compiler moves ahead of their step need registers that a
    tile does not have.
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

    def generate(
        _context: Any, builder: ir.IRBuilder, _signature: Any, arguments: list[ir.Value]
    ) -> ir.Value:
        return emit_fma(builder, *arguments)

    return signature, generate


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

    def generate(
        _context: Any, builder: ir.IRBuilder, _signature: Any, values: list[ir.Value]
    ) -> ir.Value:
        return entry_of(builder, *values)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _clear_one(context: Any, out: Any) -> Any:
    def generate(builder: ir.IRBuilder, out: ir.Value) -> None:
        builder.store(
            ir.Constant(FLOAT, 0.0), address(builder, out, index(0), FLOAT), align=FLOAT_BYTES
        )

    return numbers_only(1, generate)


@intrinsic
def _clear_many(context: Any, out: Any, count: Any) -> Any:
    def generate(builder: ir.IRBuilder, out: ir.Value, count: ir.Value) -> None:
        size = builder.mul(count, index(FLOAT_BYTES))
        cgutils.memset(builder, address(builder, out, index(0), FLOAT), size, 0)

    return numbers_only(2, generate)


@intrinsic
def prefetch_line(context: Any, place: Any) -> Any:
    """Prefetch the cache line at an address into the second-level cache."""
    return numbers_only(1, prefetch)


@compiled
def clear(out: Any, count: Any) -> None:
    """Write `count` zero floats from the address `out` on."""
    if count > _FEW:
        _clear_many(out, count)
    else:
        for number in range(count):
            _clear_one(out + FLOAT_BYTES * number)


@intrinsic
def copy_rows(
    context: Any,
    vectors: Any,
    panel: Any,
    source: Any,
    source_step: Any,
    rows: Any,
    lanes: Any,
    ahead: Any,
) -> Any:
    """Copy rows of `lanes` floats, `source_step` apart, to rows of `vectors` vectors side by side,
    with zeros behind.

    There is at least one row, and a lane in the last vector. The lines `ahead` bytes after each row
    are prefetched.
    """

    def generate(builder: ir.IRBuilder, vectors: ir.Value, *values: ir.Value) -> None:
        done = builder.append_basic_block("copied")
        switch = builder.switch(vectors, done)
        for count in range(1, FORM.vectors + 1):
            case = builder.append_basic_block(f"copy_{count}")
            switch.add_case(index(count), case)
            with builder.goto_block(case):
                _copy_rows(builder, count, *values)
                builder.branch(done)
        builder.position_at_end(done)

    return numbers_only(7, generate)


def _copy_rows(
    builder: ir.IRBuilder,
    vectors: int,
    panel: ir.Value,
    source: ir.Value,
    source_step: ir.Value,
    rows: ir.Value,
    lanes: ir.Value,
    ahead: ir.Value,
) -> None:
    width, kind = FORM.width, vector(FORM.width)
    row_bytes, step_bytes = (
        FLOAT_BYTES * vectors * width,
        builder.mul(source_step, index(FLOAT_BYTES)),
    )
    mask = first_lanes(builder, builder.sub(lanes, index((vectors - 1) * width)), width)
    before, loop, after = (
        builder.block,
        builder.append_basic_block("rows"),
        builder.append_basic_block("end"),
    )
    builder.branch(loop)

    builder.position_at_end(loop)
    come, to, left = (builder.phi(INDEX) for _ in range(3))
    places = [address(builder, come, index(number * width), kind) for number in range(vectors)]
    values = [builder.load(place, align=FLOAT_BYTES) for place in places[:-1]]
    values.append(masked_load(builder, places[-1], mask, width))
    for number, value in enumerate(values):
        builder.store(value, address(builder, to, index(number * width), kind), align=FLOAT_BYTES)
    for line in range(0, row_bytes, LINE_BYTES):
        prefetch(builder, builder.add(builder.add(come, ahead), index(line)))
    following = (
        builder.add(come, step_bytes),
        builder.add(to, index(row_bytes)),
        builder.sub(left, index(1)),
    )
    for phi, start, value in zip((come, to, left), (source, panel, rows), following, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed(">", following[-1], index(0)), loop, after)
    builder.position_at_end(after)
