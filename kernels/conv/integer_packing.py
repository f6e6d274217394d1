"""Operands of `integer_kernel.py`, packed from fp32 numbers that are whole numbers of 8 bits at one
scale in each block, or are rounded to these here.

Scales are found again: under that of the block's largest number, which then has 7 bits, all others
are whole, or the block has other numbers than these, and `block_kernel.py` takes its place. So it
is known whether integers hold what they are given before a sum changes.

Blocks lie in columns, a vector of them side by side: b, and the inputs of PG, whose blocks are
pixels; or along lines: the frames of FP and EB, whose blocks are channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from ..jit import FLOAT_BYTES, compiled
from ..llvm import (
    INDEX_BYTES,
    INT,
    broadcast,
    entry_of,
    first_lanes,
    index,
    integers,
    masked_load,
    of_blocks,
    vector,
)
from .integer_kernel import HEAD, OFFSET, TOGETHER, function_of
from .microkernel import WIDTH, padded_lanes, vectors_of

_LANES, _INTS = vector(WIDTH), ir.VectorType(INT, WIDTH)
_FLAGS = ir.VectorType(ir.IntType(1), WIDTH)
_BITS = 6  # of the largest number of a block behind its first one
_LEAST, _MOST = 8, 254  # biased exponents of the largest numbers of blocks that are taken
_FLIP = -0x7F7F7F80 if OFFSET else 0  # adds 128 to each byte
_INFINITY, _SCALE_OF_1 = 0x7F800000, 127 << 23
_UP = 0x1FFFF  # in units of the last bit, what is above 127/128 of a power of two, less one
_MAGIC, _MAGIC_BITS = 12582912.0, 0x4B400000  # 1.5 * 2^23: numbers beyond it have no fraction


@intrinsic
def _pack_columns(context: Any, columns: Any, come: Any, to: Any, notes: Any) -> Any:
    """Write a block of up to WIDTH columns as integers, as rows of words: of b a row of scales, of a
    two, of exponents and of where sums begin; then rows of integers.

    Columns behind `columns.lanes` are zeros. The least and the largest exponents of scales, and 1
    for what is not whole, go to the three vectors at `notes`.
    """
    return of_blocks(_emit_columns, columns, come, to, notes)


class Columns(NamedTuple):
    """A block of columns: `length` rows, whose offsets in floats are in a table, to rows `row` bytes
    apart; 1 for `is_a` and `rounds` or 0 (see `pack_pixels`).
    """

    lanes: int
    length: int
    table: int
    row: int
    is_a: int
    rounds: int


def _emit_columns(
    builder: ir.IRBuilder, columns: Any, come: ir.Value, to: ir.Value, notes: ir.Value
) -> None:
    whole = builder.icmp_signed(">=", columns.lanes, index(WIDTH))
    mask = first_lanes(builder, columns.lanes, WIDTH)
    rounding = builder.icmp_signed("!=", columns.rounds, index(0))
    for rounds in (False, True):
        own = rounding if rounds else builder.not_(rounding)
        for masked in (False, True):
            fits = builder.not_(whole) if masked else whole
            with builder.if_then(builder.and_(own, fits)):
                some = mask if masked else None
                _emit_packing(builder, columns, come, to, notes, some, rounds=rounds)


def _emit_packing(
    builder: ir.IRBuilder,
    columns: Any,
    come: ir.Value,
    to: ir.Value,
    notes: ir.Value,
    mask: ir.Value | None,
    *,
    rounds: bool,
) -> None:
    def load(place: ir.Value, number: int = 0) -> ir.Value:
        offset = builder.mul(entry_of(builder, place, index(number)), index(FLOAT_BYTES))
        pointer = builder.inttoptr(builder.add(come, offset), _LANES.as_pointer())
        if mask is not None:
            return masked_load(builder, pointer, mask, WIDTH)
        return builder.load(pointer, align=FLOAT_BYTES)

    def store(value: ir.Value, row: ir.Value) -> None:
        builder.store(value, builder.inttoptr(row, _INTS.as_pointer()), align=FLOAT_BYTES)

    entry = index(INDEX_BYTES)
    end = builder.add(columns.table, builder.mul(columns.length, entry))
    [top] = _loop(
        builder,
        columns.table,
        end,
        entry,
        [integers(0)],
        lambda place, held: [_larger(builder, held[0], _size_of(builder, load(place), rounds))],
    )
    scale, inverse = _scales(builder, top, notes, rounds=rounds)
    is_a = builder.icmp_signed("!=", columns.is_a, index(0))
    store(builder.select(is_a, builder.sub(scale, integers(_SCALE_OF_1)), scale), to)
    begins = builder.add(to, columns.row)
    first = builder.select(is_a, builder.add(begins, columns.row), begins)
    flip = builder.select(is_a, integers(0), integers(_FLIP))
    full = builder.sub(columns.length, builder.srem(columns.length, index(TOGETHER)))
    full_end = builder.add(columns.table, builder.mul(full, entry))

    def integer(
        values: ir.Value, total: ir.Value, wrong: ir.Value
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        bits, is_wrong = _integer(builder, builder.fmul(values, inverse))
        word = builder.and_(bits, integers((1 << 32 // TOGETHER) - 1))
        return word, builder.add(total, bits), wrong if rounds else builder.or_(wrong, is_wrong)

    def words(place: ir.Value, held: list[ir.Value]) -> list[ir.Value]:
        total, wrong, row = held
        word = integers(0)
        for part in range(TOGETHER):
            one, total, wrong = integer(load(place, part), total, wrong)
            word = builder.or_(word, builder.shl(one, integers(part * (32 // TOGETHER))))
        store(builder.xor(word, flip), row)
        return [total, wrong, builder.add(row, columns.row)]

    def rest(place: ir.Value, held: list[ir.Value]) -> list[ir.Value]:
        total, wrong, word, shift = held
        one, total, wrong = integer(load(place), total, wrong)
        word = builder.or_(word, builder.shl(one, shift))
        return [total, wrong, word, builder.add(shift, integers(32 // TOGETHER))]

    none = [integers(0), ir.Constant(_FLAGS, [0] * WIDTH)]
    several = index(INDEX_BYTES * TOGETHER)
    total, wrong, row = _loop(builder, columns.table, full_end, several, [*none, first], words)
    total, wrong, word, _ = _loop(
        builder, full_end, end, entry, [total, wrong, integers(0), integers(0)], rest
    )
    with builder.if_then(builder.icmp_signed("<", full, columns.length)):
        store(builder.xor(word, flip), row)
    with builder.if_then(is_a):
        length = broadcast(builder, builder.trunc(columns.length, INT), WIDTH)
        sums = builder.sub(total, builder.mul(length, integers(_MAGIC_BITS)))
        store(builder.mul(sums, integers(-OFFSET)), begins)
    _note(builder, wrong, notes)


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


def _size_of(builder: ir.IRBuilder, values: ir.Value, rounds: bool) -> ir.Value:
    """Return the bits of magnitudes; of negative numbers that are not rounded one less, so that -128
    has 7 bits, as 127.
    """
    bits = builder.bitcast(values, _INTS)
    size = builder.and_(bits, integers(0x7FFFFFFF))
    return size if rounds else builder.add(size, builder.ashr(bits, integers(31)))


def _scales(
    builder: ir.IRBuilder, top: ir.Value, notes: ir.Value, *, rounds: bool
) -> tuple[ir.Value, ir.Value]:
    """Return the bits of scales under which blocks have 7 bits, once they are rounded, and their
    inverses, by what `_size_of` says of the largest; note the exponents.

    Of zeros, it is 1; so it is of a least negative number, which then is not whole.
    """
    is_zero, fraction = builder.icmp_signed("<=", top, integers(0)), integers(23)
    if rounds:  # what 7 bits round up to 8 under a scale has the next one
        beyond = builder.icmp_signed(">", top, integers(_INFINITY))
        top = builder.add(builder.select(beyond, integers(_INFINITY), top), integers(_UP))
    noted = builder.select(is_zero, integers(127 + _BITS), builder.lshr(top, fraction))
    scale = builder.shl(builder.sub(noted, integers(_BITS)), fraction)
    inverse = builder.shl(builder.sub(integers(254 + _BITS), noted), fraction)
    for number, order in enumerate("<>"):
        place = builder.inttoptr(
            builder.add(notes, index(FLOAT_BYTES * WIDTH * number)), _INTS.as_pointer()
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


def _note(builder: ir.IRBuilder, wrong: ir.Value, notes: ir.Value) -> None:
    place = builder.inttoptr(builder.add(notes, index(FLOAT_BYTES * WIDTH * 2)), _INTS.as_pointer())
    held = builder.load(place, align=FLOAT_BYTES)
    builder.store(builder.or_(held, builder.zext(wrong, _INTS)), place, align=FLOAT_BYTES)


@intrinsic
def _pack_line(context: Any, come: Any, length: Any, to: Any, notes: Any) -> Any:
    """Write a line of `length` numbers as a record: the words of a block of a, one after another,
    and zeros behind it; see `_pack_columns`.
    """
    return of_blocks(_emit_line, come, length, to, notes)


def _emit_line(
    builder: ir.IRBuilder, come: ir.Value, length: ir.Value, to: ir.Value, notes: ir.Value
) -> None:
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
        return [_larger(builder, held[0], _size_of(builder, load(place), False))]

    def write(place: ir.Value, held: list[ir.Value]) -> list[ir.Value]:
        total, wrong, target = held
        bits, is_wrong = _integer(builder, builder.fmul(load(place), inverse))
        pointer = builder.inttoptr(target, few.as_pointer())
        builder.store(builder.trunc(bits, few), pointer, align=narrow.width // 8)
        following = builder.add(target, index(narrow.width // 8 * WIDTH))
        own = builder.sub(bits, integers(_MAGIC_BITS))
        return [builder.add(total, own), builder.or_(wrong, is_wrong), following]

    [tops] = _loop(builder, come, end, step, [integers(0)], largest)
    top = broadcast(builder, _reduced(builder, "smax", tops), WIDTH)
    scale, inverse = _scales(builder, top, notes, rounds=False)
    none = [integers(0), ir.Constant(_FLAGS, [0] * WIDTH)]
    first = builder.add(to, index(FLOAT_BYTES * HEAD))
    total, wrong, _ = _loop(builder, come, end, step, [*none, first], write)
    _note(builder, wrong, notes)
    begin = builder.mul(_reduced(builder, "add", total), ir.Constant(INT, -OFFSET))
    own = builder.sub(builder.extract_element(scale, ir.Constant(INT, 0)), INT(_SCALE_OF_1))
    for number, value in enumerate((own, begin)):
        place = builder.add(to, index(FLOAT_BYTES * number))
        builder.store(value, builder.inttoptr(place, INT.as_pointer()), align=FLOAT_BYTES)


def _reduced(builder: ir.IRBuilder, name: str, value: ir.Value) -> ir.Value:
    full = f"llvm.vector.reduce.{name}.v{WIDTH}i32"
    return builder.call(function_of(builder, full, INT, [_INTS]), [value])


@compiled
def _are_integers(notes: Any, extremes: Any) -> bool:
    """Add the exponents of scales that were noted to the extremes; return whether all was whole,
    and scales are some of fp32.
    """
    wrong = np.int32(0)
    for lane in range(WIDTH):
        extremes[0] = min(extremes[0], notes[0, lane])
        extremes[1] = max(extremes[1], notes[1, lane])
        wrong |= notes[2, lane]
    return wrong == 0 and extremes[0] >= _LEAST and extremes[1] <= _MOST


@compiled
def _no_notes() -> Any:
    notes = np.empty((3, WIDTH), np.int32)
    notes[:2] = np.int32(127 + _BITS)
    notes[2] = np.int32(0)
    return notes


@compiled
def pack_panels(b: Any, step: Any, lanes: Any, lengths: Any, out: Any, extremes: Any) -> bool:
    """Write b, from an address on, as integers, and the exponents of scales to `extremes`; return
    whether it is some. `step` is that of its rows, or 0 where it is packed in panels of padded
    lanes.
    """
    depth, widest = lengths.sum(), np.int64(0)
    table = np.empty(depth, np.int64)
    to, lane, panel = out.ctypes.data, 0, b
    while lane < lanes:
        row = vectors_of(lanes - lane) * WIDTH
        apart = step if step else row
        if apart != widest:
            widest = np.int64(apart)
            for k in range(depth):
                table[k] = widest * k
        at = b + FLOAT_BYTES * lane if step else panel
        some = min(row, lanes - lane) if step else row
        if not _pack_blocks(at, table, some, row, lengths, (0, 0), to, extremes):
            return False
        for block in range(lengths.size):
            to += FLOAT_BYTES * row * (1 + (lengths[block] + TOGETHER - 1) // TOGETHER)
        panel += FLOAT_BYTES * row * depth
        lane += row
    return True


@compiled
def pack_pixels(
    frames: Any, table: Any, lanes: Any, lengths: Any, rounds: Any, out: Any, extremes: Any
) -> bool:
    """Write the channels of pixels, from an address and a table of offsets on, as a of blocks of
    pixels: (block, word, padded lane); see `pack_panels`.

    Where `rounds` is 1, numbers are rounded to even, under the least scale that needs 7 bits.
    """
    row, kind = padded_lanes(lanes), (1, rounds)
    return _pack_blocks(frames, table, lanes, row, lengths, kind, out.ctypes.data, extremes)


@compiled
def _pack_blocks(
    come: Any, table: Any, lanes: Any, row: Any, lengths: Any, kind: Any, out: Any, extremes: Any
) -> bool:
    notes, to = _no_notes(), out
    k: Any = np.int64(table.ctypes.data)
    head = HEAD if kind[0] else 1
    for block in range(lengths.size):
        length = lengths[block]
        for first in range(0, row, WIDTH):
            columns = Columns(lanes - first, length, k, FLOAT_BYTES * row, kind[0], kind[1])
            place = FLOAT_BYTES * first
            _pack_columns(columns, come + place, to + place, notes.ctypes.data)
        to += FLOAT_BYTES * row * (head + (length + TOGETHER - 1) // TOGETHER)
        k += INDEX_BYTES * length
        # What other formats have is seen at once.
        if block == 0 and not _are_integers(notes, extremes):
            return False
    return _are_integers(notes, extremes)


@compiled
def pack_lines(
    lines: Any, samples: Any, area: Any, lengths: Any, record: Any, out: Any, extremes: Any
) -> bool:
    """Write lines (samples, area, blocks side by side), from an address on, as records (samples,
    blocks, area), `record` words apart; see `pack_panels`.

    Up to a vector behind the last record is written.
    """
    notes, come, to = _no_notes(), lines, out.ctypes.data
    depth = lengths.sum()
    for _ in range(samples):
        begin = come
        for block in range(lengths.size):
            length = lengths[block]
            for line in range(area):
                place = begin + FLOAT_BYTES * depth * line
                _pack_line(place, length, to, notes.ctypes.data)
                to += FLOAT_BYTES * record
            begin += FLOAT_BYTES * length
        come += FLOAT_BYTES * depth * area
        if not _are_integers(notes, extremes):
            return False
    return True
