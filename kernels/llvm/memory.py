"""Copies and zeros at plain addresses, for compiled code: of floats, and of rows into a panel."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from .emit import (
    FLOAT,
    INDEX,
    LINE_BYTES,
    address,
    entry_of,
    first_lanes,
    index,
    masked_load,
    numbers_only,
    prefetch,
    vector,
)

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
    context: Any, vectors: Any, panel: Any, source: Any, source_step: Any, rows: Any, lanes: Any, ahead: Any
) -> Any:
    """Copy rows of `lanes` floats, `source_step` apart, to rows of `vectors` vectors side by side, with zeros behind.

    There is at least one row, and a lane in the last vector. The lines `ahead` bytes after each row are prefetched.
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
    row_bytes, step_bytes = FLOAT_BYTES * vectors * width, builder.mul(source_step, index(FLOAT_BYTES))
    mask = first_lanes(builder, builder.sub(lanes, index((vectors - 1) * width)), width)
    before, loop, after = builder.block, builder.append_basic_block("rows"), builder.append_basic_block("end")
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
    following = builder.add(come, step_bytes), builder.add(to, index(row_bytes)), builder.sub(left, index(1))
    for phi, start, value in zip((come, to, left), (source, panel, rows), following, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed(">", following[-1], index(0)), loop, after)
    builder.position_at_end(after)
