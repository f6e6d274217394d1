"""What both directions of the codec emit: bytes at plain addresses, tables, byte shuffles, and a
loop in stages.

In such a loop, bursts are prepared some rounds before they are stored (software pipelining).

Where a burst goes depends on the tags before it, and tags come out of a long chain of vector
instructions. A processor that meets the loads and stores of a burst right after this chain holds
them until it is through, and soon has no room for more: it waits, though hardly any of them depends
on another. So their tags are made some rounds before.

With AVX2, and for bounds of 2^-15 or more, that loop takes two bursts at once (`burst.py`
compresses all others). Such a bound is a multiple of a fraction's last bit, so 15 bits of fraction
decide a value's width; and sixteen of them are one vector. The masks of two tests, for at least the
bound and for 16 bits or more, become the tags of both bursts.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ..form import FORM, cpu_features
from ..llvm import INDEX, INT, broadcast, index, shuffle, vector
from .format import BURST, LANE_BYTES, LENGTHS, LONGEST, PACKED, STEP, TAG_BYTES

STAGES = 4
"""Rounds between preparing and storing: fewer leave the processor waiting, and more do not make it
faster.
"""
IN_STAGES = STAGES, 0
"""Two loops: one in stages, and one for what is too little for it."""

Prepare = Callable[[ir.Value], tuple[ir.Value, ...]]
"""Emits what comes of the values at an address before it is known where it goes."""
Finish = Callable[..., ir.Value]
"""Emits the stores, from the address of the values, that of the output, and what was prepared;
returns their end.
"""
Span = tuple[ir.Value, ir.Value]
"""Two addresses: where something begins, and where it ends."""


def emit_stages(
    builder: ir.IRBuilder,
    prepare: Prepare,
    finish: Finish,
    steps: tuple[int, int],
    values: Span,
    out: Span,
    loops: tuple[int, ...] = IN_STAGES,
) -> tuple[ir.Value, ir.Value]:
    """Emit loops over the values while there are any and there is room; return where they have come
    to in both.

    `steps` are the bytes of values of a round, and the most that it may write; `loops` the stages
    of each loop.
    """
    (place, end), (at, last) = values, out
    for stages in loops:
        place, at = _emit_loop(builder, stages, prepare, finish, steps, (place, end), (at, last))
    return place, at


def _emit_loop(
    builder: ir.IRBuilder,
    stages: int,
    prepare: Prepare,
    finish: Finish,
    steps: tuple[int, int],
    values: Span,
    out: Span,
) -> tuple[ir.Value, ir.Value]:
    (source, end), (begin, last) = values, out
    step, most = steps
    rounds = max(
        stages, 1
    )  # of an iteration: with as many as stages, each value stays in its register
    last_place = builder.sub(end, index(step * (stages + rounds)))
    last_at = builder.sub(last, index(most * (stages + rounds)))

    def ahead(place: ir.Value, rounds: int) -> ir.Value:
        return builder.add(place, index(step * rounds))

    def goes_on(place: ir.Value, at: ir.Value) -> ir.Value:
        """Return whether there are values, and room, for an iteration and for what it prepares."""
        is_before = builder.icmp_signed("<=", place, last_place)
        return builder.and_(is_before, builder.icmp_signed("<=", at, last_at))

    before = builder.block
    first, loop, rest, after = (
        builder.append_basic_block(name) for name in ("first", "loop", "rest", "after")
    )
    builder.cbranch(goes_on(source, begin), first, after)

    builder.position_at_end(first)
    prepared = [prepare(ahead(source, stage)) for stage in range(stages)]
    builder.branch(loop)

    builder.position_at_end(loop)
    place, at = builder.phi(INDEX), builder.phi(INDEX)
    waiting = []
    for one in prepared:
        waiting.append(tuple(builder.phi(value.type) for value in one))
    line, next_at = [*waiting], at
    for number in range(rounds):
        line.append(prepare(ahead(place, stages + number)))
        next_at = finish(ahead(place, number), next_at, *line.pop(0))
    next_place = ahead(place, rounds)
    nexts = [next_place, next_at, *itertools.chain(*line)]
    starts = [source, begin, *itertools.chain(*prepared)]
    for phi, start, following in zip(
        [place, at, *itertools.chain(*waiting)], starts, nexts, strict=True
    ):
        phi.add_incoming(start, first)
        phi.add_incoming(following, loop)
    builder.cbranch(goes_on(next_place, next_at), loop, rest)

    builder.position_at_end(rest)
    end_at = next_at
    for number, one in enumerate(line):
        end_at = finish(ahead(next_place, number), end_at, *one)
    end_place = ahead(next_place, stages)
    builder.branch(after)

    builder.position_at_end(after)
    reached = builder.phi(INDEX), builder.phi(INDEX)
    for phi, unchanged, changed in zip(reached, (source, begin), (end_place, end_at), strict=True):
        phi.add_incoming(unchanged, before)
        phi.add_incoming(changed, rest)
    return reached


BYTE = ir.IntType(8)
BYTES = ir.VectorType(BYTE, LANE_BYTES * BURST // 2)
"""Four lanes: what one shuffle moves, and the size of a row of its tables."""
_SHUFFLES = {"x86_64": "llvm.x86.ssse3.pshuf.b.128", "aarch64": "llvm.aarch64.neon.tbl1.v16i8"}


def shuffle_of(form: str, triple: str, features: str) -> str | None:
    """Return the LLVM intrinsic with which a form and a processor shuffle 16 bytes; None where
    there is none.
    """
    has = {"x86_64": "+ssse3", "aarch64": "+neon"}
    processor = triple.partition("-")[0]
    return (
        _SHUFFLES[processor]
        if form != "portable" and has.get(processor) in features.split(",")
        else None
    )


SHUFFLE = shuffle_of(FORM.name, binding.get_process_triple(), cpu_features())


def shuffled(builder: ir.IRBuilder, value: ir.Value, order: ir.Value) -> ir.Value:
    """Return the bytes of `value` at the places in `order`, and 0 for places that are marked as
    none.
    """
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
    at = builder.add(
        _address(builder, table), builder.mul(place, ir.Constant(INDEX, table.itemsize))
    )
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


IN_PAIRS = FORM.name in ("avx2", "avx512") and "+avx2" in cpu_features().split(",")

_PAIR, _OUT, _HALF = 2, BURST * LANE_BYTES, BURST // 2
_SHORT, _LANES = ir.IntType(16), ir.VectorType(INT, BURST)
_SHORTS = ir.VectorType(_SHORT, _PAIR * BURST)
_WIDE_BYTES, _QUARTERS = ir.VectorType(BYTE, _PAIR * BURST * 2), ir.VectorType(INDEX, 4)
_ROW_BITS = 4  # a row of PACKED has 16 bytes
_LENGTHS = [(LENGTHS + extra).astype("<u8").repeat(2) for extra in (TAG_BYTES, 0)]
"""For each half of a burst, in rows as long as those of PACKED, which then have the same offset."""


@intrinsic
def pack_pairs(
    context: Any, source: Any, end: Any, out: Any, last: Any, zero_below: Any, digits: Any
) -> Any:
    """Compress bursts in pairs while there are two, and room for them; return where it has come to
    in both.
    """

    def emit(
        context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]
    ) -> ir.Value:
        source, end, out, last, zero_below, digits = values
        bound = builder.bitcast(builder.trunc(zero_below, INT), ir.FloatType())
        steps = builder.fptosi(builder.fmul(bound, ir.Constant(ir.FloatType(), 1 / STEP)), INT)
        below = builder.trunc(builder.sub(steps, ir.Constant(INT, 1)), _SHORT)
        wide = builder.or_(builder.trunc(digits, _SHORT), ir.Constant(_SHORT, 0x8000))
        limits = [broadcast(builder, limit, _PAIR * BURST) for limit in (below, wide)]
        reached = emit_stages(
            builder,
            lambda place: _emit_tags(builder, place, *limits),
            lambda place, at, tags, fractions: _emit_stores(builder, place, at, tags, fractions),
            (_PAIR * _OUT, _PAIR * LONGEST),
            (source, end),
            (out, last),
        )
        return context.make_tuple(builder, signature.return_type, reached)

    return types.UniTuple(types.int64, 2)(*[types.int64] * 6), emit


def _emit_tags(
    builder: ir.IRBuilder, source: ir.Value, below: ir.Value, wide: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Emit the tags of two bursts, and their fractions; of 1 and more (and of NaN) the fraction is
    0x8000.

    AVX2 packs within halves of its registers: fractions are those of values 0-3 of both bursts,
    then of values 4-7.
    """
    cuts = []
    for bits in _both(builder, source):
        # Below 0, what is too large and what is NaN become the same number: the least.
        negative = builder.bitcast(builder.or_(bits, _lanes(0x8000_0000)), vector(BURST))
        scaled = builder.fmul(negative, ir.Constant(vector(BURST), [1 / STEP] * BURST))
        cuts.append(called(builder, "llvm.x86.avx.cvtt.ps2dq.256", _LANES, scaled))
    fractions = builder.sub(_shorts(0), called(builder, "llvm.x86.avx2.packssdw", _SHORTS, *cuts))
    is_narrow = builder.icmp_signed("==", builder.and_(fractions, wide), _shorts(0))
    is_some = builder.icmp_signed(">", fractions, below)
    # The upper byte of each mask is that of the tag's upper bit, inverted. So is the lower one, of
    # its lower bit: of 8 and of 32 bits, both masks or neither are set (0x8000, as a signed number,
    # is not above the bound).
    narrow, some = builder.sext(is_narrow, _SHORTS), builder.sext(is_some, _SHORTS)
    mask = builder.bitcast(builder.xor(narrow, builder.lshr(some, _shorts(8))), _QUARTERS)
    in_order = builder.bitcast(shuffle(builder, mask, mask, [0, 2, 1, 3]), _WIDE_BYTES)
    inverted = called(builder, "llvm.x86.avx2.pmovmskb", INT, in_order)
    return builder.zext(builder.not_(inverted), INDEX), fractions


def _emit_stores(
    builder: ir.IRBuilder, source: ir.Value, at: ir.Value, tags: ir.Value, fractions: ir.Value
) -> ir.Value:
    """Emit the stores of two bursts; return where they end."""
    both = _both(builder, source)
    signs = builder.and_(called(builder, "llvm.x86.avx2.packssdw", _SHORTS, *both), _shorts(0x8000))
    codes = builder.or_(signs, fractions)
    for burst, bits in enumerate(both):
        # A lane's upper half is the fraction: its sign says whether all the value's bits are kept.
        places = [half + _HALF * burst + value for half in (0, BURST) for value in range(_HALF)]
        joined = shuffle(
            builder, codes, fractions, [p for place in places for p in (place, 2 * BURST + place)]
        )
        code = builder.bitcast(joined, _LANES)
        lanes = builder.select(builder.icmp_signed("<", code, _lanes(0)), bits, code)
        store(builder, builder.trunc(builder.lshr(tags, index(16 * burst)), _SHORT), at)
        for half, lengths in enumerate(_LENGTHS):
            offset = _row_offset(builder, tags, 16 * burst + 8 * half)
            four = shuffle(builder, lanes, lanes, [*range(_HALF * half, _HALF * (half + 1))])
            packed = shuffled(
                builder, builder.bitcast(four, BYTES), row(builder, PACKED, offset, BYTES)
            )
            store(builder, packed, at if half else builder.add(at, index(TAG_BYTES)))
            at = builder.add(at, row(builder, lengths, offset, INDEX))
    return at


def _both(builder: ir.IRBuilder, source: ir.Value) -> list[ir.Value]:
    return [
        load(builder, builder.add(source, index(_OUT * burst)), _LANES) for burst in range(_PAIR)
    ]


def _row_offset(builder: ir.IRBuilder, tags: ir.Value, begin: int) -> ir.Value:
    """Return the offset of the row for the byte of tags that begins at a bit."""
    by = begin - _ROW_BITS
    moved = builder.lshr(tags, index(by)) if by >= 0 else builder.shl(tags, index(-by))
    return builder.and_(moved, index(0xFF << _ROW_BITS))


def _lanes(value: int) -> ir.Constant:
    return ir.Constant(_LANES, [value] * BURST)


def _shorts(value: int) -> ir.Constant:
    return ir.Constant(_SHORTS, [value] * _PAIR * BURST)
