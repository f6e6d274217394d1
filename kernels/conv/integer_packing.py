"""Operands of `integer_kernel.py`, packed from fp32 numbers that are whole numbers of 8 bits at one
scale in each block.

Scales are found again: under that of the block's largest number, which then has 7 bits, all others
are whole, or the block has other numbers than these, and `block_kernel.py` takes its place. So it
is known whether integers hold what they are given before a sum changes.

b has its columns side by side, and so have frames, of which words are then turned to records; lines
of pixels are packed block by block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from ..jit import FLOAT_BYTES, compiled
from ..llvm import (
    INT,
    broadcast,
    first_lanes,
    index,
    integers,
    masked_load,
    of_blocks,
    vector,
)
from .integer_kernel import HEAD, OFFSET, TOGETHER, function_of
from .layout import copy_window
from .microkernel import WIDTH, vectors_of

_LANES, _INTS = vector(WIDTH), ir.VectorType(INT, WIDTH)
_FLAGS = ir.VectorType(ir.IntType(1), WIDTH)
_BITS = 6  # of the largest number of a block behind its first one
_LEAST, _MOST = 8, 254  # biased exponents of the largest numbers of blocks that are taken
_FLIP = -0x7F7F7F80 if OFFSET else 0  # adds 128 to each byte
_INFINITY = 0x7F800000
_UP = 0x1FFFF  # in units of the last bit, what is above 127/128 of a power of two, less one
_MAGIC, _MAGIC_BITS = 12582912.0, 0x4B400000  # 1.5 * 2^23: numbers beyond it have no fraction


@intrinsic
def _pack_columns(context: Any, columns: Any, come: Any, to: Any, found: Any) -> Any:
    """Write `columns.length` rows of up to WIDTH columns as integers: a row of scales and, for b,
    rows of words; for a, which has no `offset`, first one of where sums begin.

    Columns behind `columns.lanes` are zeros. The least and the largest exponents of scales, and 1
    for what is not whole, go to the three vectors at `found`.
    """
    return of_blocks(_emit_columns, columns, come, to, found)


class Columns(NamedTuple):
    """Rows of columns that are packed, `step` bytes apart, to rows `row` bytes apart."""

    lanes: int
    length: int
    step: int
    row: int
    offset: int


def _emit_columns(
    builder: ir.IRBuilder, columns: Any, come: ir.Value, to: ir.Value, found: ir.Value
) -> None:
    whole = builder.icmp_signed(">=", columns.lanes, index(WIDTH))
    mask = first_lanes(builder, columns.lanes, WIDTH)
    with builder.if_else(whole) as (all_columns, some_columns):
        with all_columns:
            _emit_packing(builder, columns, come, to, found, None)
        with some_columns:
            _emit_packing(builder, columns, come, to, found, mask)


def _emit_packing(
    builder: ir.IRBuilder,
    columns: Any,
    come: ir.Value,
    to: ir.Value,
    found: ir.Value,
    mask: ir.Value | None,
) -> None:
    def load(place: ir.Value) -> ir.Value:
        pointer = builder.inttoptr(place, _LANES.as_pointer())
        if mask is not None:
            return masked_load(builder, pointer, mask, WIDTH)
        return builder.load(pointer, align=FLOAT_BYTES)

    def store(value: ir.Value, row: ir.Value) -> None:
        builder.store(value, builder.inttoptr(row, _INTS.as_pointer()), align=FLOAT_BYTES)

    end = builder.add(come, builder.mul(columns.length, columns.step))
    [top] = _loop(
        builder,
        come,
        end,
        columns.step,
        [integers(0)],
        lambda place, held: [_larger(builder, held[0], _size_of(builder, load(place)))],
    )
    scale, inverse = _scales(builder, top, found)
    is_b = builder.icmp_signed("!=", columns.offset, index(0))
    store(scale, to)
    begins = builder.add(to, columns.row)
    first = builder.select(is_b, begins, builder.add(begins, columns.row))
    flip = builder.select(is_b, integers(_FLIP), integers(0))
    word_bytes = builder.mul(columns.step, index(TOGETHER))
    full = builder.sub(columns.length, builder.srem(columns.length, index(TOGETHER)))
    full_end = builder.add(come, builder.mul(full, columns.step))

    def integer(place: ir.Value, total: ir.Value, wrong: ir.Value) -> tuple[ir.Value, ...]:
        bits, is_wrong = _integer(builder, builder.fmul(load(place), inverse))
        word = builder.and_(bits, integers((1 << 32 // TOGETHER) - 1))
        return word, builder.add(total, bits), builder.or_(wrong, is_wrong)

    def words(place: ir.Value, held: list[ir.Value]) -> list[ir.Value]:
        total, wrong, row = held
        word = integers(0)
        for part in range(TOGETHER):
            at = builder.add(place, builder.mul(columns.step, index(part)))
            one, total, wrong = integer(at, total, wrong)
            word = builder.or_(word, builder.shl(one, integers(part * (32 // TOGETHER))))
        store(builder.xor(word, flip), row)
        return [total, wrong, builder.add(row, columns.row)]

    def rest(place: ir.Value, held: list[ir.Value]) -> list[ir.Value]:
        total, wrong, word, shift = held
        one, total, wrong = integer(place, total, wrong)
        word = builder.or_(word, builder.shl(one, shift))
        return [total, wrong, word, builder.add(shift, integers(32 // TOGETHER))]

    none = [integers(0), ir.Constant(_FLAGS, [0] * WIDTH)]
    total, wrong, row = _loop(builder, come, full_end, word_bytes, [*none, first], words)
    total, wrong, word, _ = _loop(
        builder, full_end, end, columns.step, [total, wrong, integers(0), integers(0)], rest
    )
    with builder.if_then(builder.icmp_signed("<", full, columns.length)):
        store(builder.xor(word, flip), row)
    with builder.if_then(builder.not_(is_b)):
        length = broadcast(builder, builder.trunc(columns.length, INT), WIDTH)
        sums = builder.sub(total, builder.mul(length, integers(_MAGIC_BITS)))
        store(builder.mul(sums, integers(-OFFSET)), begins)
    _note(builder, wrong, found)


def _loop(
    builder: ir.IRBuilder,
    begin: ir.Value,
    end: ir.Value,
    step: ir.Value,
    held: list[ir.Value],
    body: Callable[[ir.Value, list[ir.Value]], list[ir.Value]],
) -> list[ir.Value]:
    """Emit a loop from one address to another, maybe of no step; return what it holds at its
    end.
    """
    before = builder.block
    loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.cbranch(builder.icmp_unsigned("<", begin, end), loop, after)
    builder.position_at_end(loop)
    place = builder.phi(begin.type)
    phis = [builder.phi(value.type) for value in held]
    results = body(place, phis)
    following = builder.add(place, step)
    for phi, first, value in zip(
        [place, *phis], [begin, *held], [following, *results], strict=True
    ):
        phi.add_incoming(first, before)
        phi.add_incoming(value, builder.block)
    last = builder.block
    builder.cbranch(builder.icmp_unsigned("<", following, end), loop, after)
    builder.position_at_end(after)
    ends = [builder.phi(value.type) for value in held]
    for phi, first, value in zip(ends, held, results, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(value, last)
    return ends


def _larger(builder: ir.IRBuilder, one: ir.Value, other: ir.Value) -> ir.Value:
    return builder.select(builder.icmp_signed(">", one, other), one, other)


def _size_of(builder: ir.IRBuilder, values: ir.Value) -> ir.Value:
    """Return the bits of magnitudes, of negative numbers one less: so -128 has 7 bits, as 127."""
    bits = builder.bitcast(values, _INTS)
    return builder.add(builder.and_(bits, integers(0x7FFFFFFF)), builder.ashr(bits, integers(31)))


def _scales(builder: ir.IRBuilder, top: ir.Value, found: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the bits of scales under which blocks have 7 bits, and their inverses, by what
    `_size_of` says of the largest; note the exponents.

    Of zeros, it is 1; so it is of a least negative number, which then is not whole.
    """
    exponent, fraction = builder.lshr(top, integers(23)), integers(23)
    is_zero = builder.icmp_signed("<=", top, integers(0))
    noted = builder.select(is_zero, integers(127 + _BITS), exponent)
    scale = builder.shl(builder.sub(noted, integers(_BITS)), fraction)
    inverse = builder.shl(builder.sub(integers(254 + _BITS), noted), fraction)
    for number, order in enumerate("<>"):
        place = builder.inttoptr(
            builder.add(found, index(FLOAT_BYTES * WIDTH * number)), _INTS.as_pointer()
        )
        held = builder.load(place, align=FLOAT_BYTES)
        closer = builder.icmp_signed(order, noted, held)
        builder.store(builder.select(closer, noted, held), place, align=FLOAT_BYTES)
    return scale, builder.bitcast(inverse, _LANES)


def _integer(builder: ir.IRBuilder, scaled: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return bits of which the lowest are those of a whole number of up to 16 bits, and whether it
    is none.
    """
    magic = ir.Constant(_LANES, [_MAGIC] * WIDTH)
    sums = builder.fadd(scaled, magic)
    back = builder.fsub(sums, magic)
    return builder.bitcast(sums, _INTS), builder.fcmp_unordered("!=", back, scaled)


def _note(builder: ir.IRBuilder, wrong: ir.Value, found: ir.Value) -> None:
    place = builder.inttoptr(builder.add(found, index(FLOAT_BYTES * WIDTH * 2)), _INTS.as_pointer())
    held = builder.load(place, align=FLOAT_BYTES)
    builder.store(builder.or_(held, builder.zext(wrong, _INTS)), place, align=FLOAT_BYTES)


@intrinsic
def _pack_line(context: Any, come: Any, length: Any, rounds: Any, to: Any, found: Any) -> Any:
    """Write a line of `length` numbers as a record, and zeros behind it; see `_pack_columns`.

    Where `rounds` is 1, numbers are rounded to even, under the least scale that needs 7 bits.
    """
    return of_blocks(_emit_line, come, length, rounds, to, found)


def _emit_line(
    builder: ir.IRBuilder,
    come: ir.Value,
    length: ir.Value,
    rounds: ir.Value,
    to: ir.Value,
    found: ir.Value,
) -> None:
    is_given = broadcast(builder, builder.icmp_signed("==", rounds, index(0)), WIDTH)
    end = builder.add(come, builder.mul(length, index(FLOAT_BYTES)))
    step = index(FLOAT_BYTES * WIDTH)
    narrow = ir.IntType(32 // TOGETHER)
    few = ir.VectorType(narrow, WIDTH)

    def load(place: ir.Value) -> ir.Value:
        left = builder.udiv(builder.sub(end, place), index(FLOAT_BYTES))
        some = builder.select(builder.icmp_unsigned("<", left, index(WIDTH)), left, index(WIDTH))
        mask = first_lanes(builder, some, WIDTH)
        return masked_load(builder, builder.inttoptr(place, _LANES.as_pointer()), mask, WIDTH)

    def largest(place: ir.Value, held: list[ir.Value]) -> list[ir.Value]:
        # What 7 bits round up to 8 under a scale has the next one.
        values = load(place)
        sizes = builder.and_(builder.bitcast(values, _INTS), integers(0x7FFFFFFF))
        beyond = builder.icmp_signed(">", sizes, integers(_INFINITY))
        finite = builder.select(beyond, integers(_INFINITY), sizes)
        above = builder.select(
            builder.icmp_signed(">", sizes, integers(0)),
            builder.add(finite, integers(_UP)),
            integers(0),
        )
        size = builder.select(is_given, _size_of(builder, values), above)
        return [_larger(builder, held[0], size)]

    def write(place: ir.Value, held: list[ir.Value]) -> list[ir.Value]:
        total, wrong, target = held
        bits, is_wrong = _integer(builder, builder.fmul(load(place), inverse))
        is_wrong = builder.and_(is_wrong, is_given)
        pointer = builder.inttoptr(target, few.as_pointer())
        builder.store(builder.trunc(bits, few), pointer, align=narrow.width // 8)
        following = builder.add(target, index(narrow.width // 8 * WIDTH))
        own = builder.sub(bits, integers(_MAGIC_BITS))
        return [builder.add(total, own), builder.or_(wrong, is_wrong), following]

    [tops] = _loop(builder, come, end, step, [integers(0)], largest)
    top = broadcast(builder, _reduced(builder, "smax", tops), WIDTH)
    scale, inverse = _scales(builder, top, found)
    none = [integers(0), ir.Constant(_FLAGS, [0] * WIDTH)]
    first = builder.add(to, index(FLOAT_BYTES * HEAD))
    total, wrong, _ = _loop(builder, come, end, step, [*none, first], write)
    _note(builder, wrong, found)
    begin = builder.mul(_reduced(builder, "add", total), ir.Constant(INT, -OFFSET))
    one = builder.extract_element(scale, ir.Constant(INT, 0))
    for number, value in enumerate((one, begin)):
        place = builder.add(to, index(FLOAT_BYTES * number))
        builder.store(value, builder.inttoptr(place, INT.as_pointer()), align=FLOAT_BYTES)


def _reduced(builder: ir.IRBuilder, name: str, value: ir.Value) -> ir.Value:
    full = f"llvm.vector.reduce.{name}.v{WIDTH}i32"
    return builder.call(function_of(builder, full, INT, [_INTS]), [value])


@compiled
def _are_integers(found: Any, extremes: Any) -> bool:
    """Add the exponents of scales that were found to the extremes; return whether all was whole,
    and scales are some of fp32.
    """
    wrong = np.int32(0)
    for lane in range(WIDTH):
        extremes[0] = min(extremes[0], found[0, lane])
        extremes[1] = max(extremes[1], found[1, lane])
        wrong |= found[2, lane]
    return wrong == 0 and extremes[0] >= _LEAST and extremes[1] <= _MOST


@compiled
def _nothing_found() -> Any:
    found = np.empty((3, WIDTH), np.int32)
    found[:2] = np.int32(127 + _BITS)
    found[2] = np.int32(0)
    return found


@compiled
def pack_panels(b: Any, step: Any, lanes: Any, lengths: Any, out: Any, extremes: Any) -> bool:
    """Write b, from an address on, as integers, and the exponents of scales to `extremes`; return
    whether it is some. `step` is that of its rows, or 0 where it is packed in panels of padded
    lanes.
    """
    found = _nothing_found()
    to, lane, panel = out.ctypes.data, 0, b
    while lane < lanes:
        row = vectors_of(lanes - lane) * WIDTH
        width, apart = (min(row, lanes - lane), step) if step else (row, row)
        at = b + FLOAT_BYTES * lane if step else panel
        for block in range(lengths.size):
            length = lengths[block]
            for first in range(0, row, WIDTH):
                columns = Columns(width - first, length, FLOAT_BYTES * apart, FLOAT_BYTES * row, 1)
                place = FLOAT_BYTES * first
                _pack_columns(columns, at + place, to + place, found.ctypes.data)
            to += FLOAT_BYTES * row * (1 + (length + TOGETHER - 1) // TOGETHER)
            at += FLOAT_BYTES * length * apart
            # What other formats have is seen at once.
            if block == 0 and not _are_integers(found, extremes):
                return False
        panel = at
        lane += row
    return _are_integers(found, extremes)


@compiled
def pack_maps(
    frames: Any, samples: Any, area: Any, lengths: Any, record: Any, out: Any, extremes: Any
) -> bool:
    """Write frames (samples, channels, area), from an address on, as records of blocks of channels,
    (samples, blocks, area), `record` words apart; see `pack_panels`.
    """
    found = _nothing_found()
    rows = np.empty((record, WIDTH), np.int32)
    at, place = frames, 0
    for _ in range(samples):
        for block in range(lengths.size):
            length = lengths[block]
            used = HEAD + (length + TOGETHER - 1) // TOGETHER
            for first in range(0, area, WIDTH):
                columns = Columns(area - first, length, FLOAT_BYTES * area, FLOAT_BYTES * WIDTH, 0)
                _pack_columns(
                    columns, at + FLOAT_BYTES * first, rows.ctypes.data, found.ctypes.data
                )
                for column in range(min(WIDTH, area - first)):
                    for row in range(used):
                        out[place + row] = rows[row, column]
                    place += record
            at += FLOAT_BYTES * length * area
            if not _are_integers(found, extremes):
                return False
    return True


@compiled
def pack_lines(
    planes: Any,
    count: Any,
    window: Any,
    size: Any,
    rounds: Any,
    record: Any,
    out: Any,
    extremes: Any,
) -> bool:
    """Write what a window reads of `count` planes, from an address on, as records of blocks of
    `size` pixels, (planes, blocks), `record` words apart; see `pack_panels`, and for `rounds`
    `_pack_line`.

    Up to a vector behind the last record is written.
    """
    found = _nothing_found()
    pixels = window.rows * window.columns
    line = np.empty(pixels, np.float32)
    is_line = window.across == 1 and (window.rows == 1 or window.step == window.columns)
    to = out.ctypes.data
    for plane in range(count):
        at = planes + FLOAT_BYTES * plane * window.area
        if not is_line:
            copy_window(at, window, line.ctypes.data)
            at = line.ctypes.data
        for first in range(0, pixels, size):
            length = min(size, pixels - first)
            _pack_line(at + FLOAT_BYTES * first, length, rounds, to, found.ctypes.data)
            to += FLOAT_BYTES * record
        if plane == 0 and not _are_integers(found, extremes):
            return False
    line[0] = 0  # keeps its memory until here
    return _are_integers(found, extremes)
