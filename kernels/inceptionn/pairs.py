"""Two bursts at once with AVX2, for bounds of 2^-15 or more (see `burst.py`, which compresses all others).

Such a bound is a multiple of a fraction's last bit, so 15 bits of fraction decide a value's width; and sixteen of them
are one vector. The masks of two tests, for at least the bound and for 16 bits or more, become the tags of both bursts.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..form import FORM, cpu_features
from ..llvm import INDEX, INT, broadcast, index, shuffle, vector
from .format import BURST, LANE_BYTES, LENGTHS, LONGEST, PACKED, STEP, TAG_BYTES
from .shuffles import BYTE, BYTES, called, load, row, shuffled, store
from .stages import emit_stages

IN_PAIRS = FORM.name in ("avx2", "avx512") and "+avx2" in cpu_features().split(",")

_PAIR, _OUT, _HALF = 2, BURST * LANE_BYTES, BURST // 2
_SHORT, _LANES = ir.IntType(16), ir.VectorType(INT, BURST)
_SHORTS = ir.VectorType(_SHORT, _PAIR * BURST)
_WIDE_BYTES, _QUARTERS = ir.VectorType(BYTE, _PAIR * BURST * 2), ir.VectorType(INDEX, 4)
_ROW_BITS = 4  # a row of PACKED has 16 bytes
_LENGTHS = [(LENGTHS + extra).astype("<u8").repeat(2) for extra in (TAG_BYTES, 0)]
"""For each half of a burst, in rows as long as those of PACKED, which then have the same offset."""


@intrinsic
def pack_pairs(context: Any, source: Any, end: Any, out: Any, last: Any, zero_below: Any, digits: Any) -> Any:
    """Compress bursts in pairs while there are two, and room for them; return where it has come to in both."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]) -> ir.Value:
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


def _emit_tags(builder: ir.IRBuilder, source: ir.Value, below: ir.Value, wide: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Emit the tags of two bursts, and their fractions; of 1 and more (and of NaN) the fraction is 0x8000.

    AVX2 packs within halves of its registers: fractions are those of values 0-3 of both bursts, then of values 4-7.
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
    # The upper byte of each mask is that of the tag's upper bit, inverted. So is the lower one, of its lower bit: of 8
    # and of 32 bits, both masks or neither are set (0x8000, as a signed number, is not above the bound).
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
        joined = shuffle(builder, codes, fractions, [p for place in places for p in (place, 2 * BURST + place)])
        code = builder.bitcast(joined, _LANES)
        lanes = builder.select(builder.icmp_signed("<", code, _lanes(0)), bits, code)
        store(builder, builder.trunc(builder.lshr(tags, index(16 * burst)), _SHORT), at)
        for half, lengths in enumerate(_LENGTHS):
            offset = _row_offset(builder, tags, 16 * burst + 8 * half)
            four = shuffle(builder, lanes, lanes, [*range(_HALF * half, _HALF * (half + 1))])
            packed = shuffled(builder, builder.bitcast(four, BYTES), row(builder, PACKED, offset, BYTES))
            store(builder, packed, at if half else builder.add(at, index(TAG_BYTES)))
            at = builder.add(at, row(builder, lengths, offset, INDEX))
    return at


def _both(builder: ir.IRBuilder, source: ir.Value) -> list[ir.Value]:
    return [load(builder, builder.add(source, index(_OUT * burst)), _LANES) for burst in range(_PAIR)]


def _row_offset(builder: ir.IRBuilder, tags: ir.Value, begin: int) -> ir.Value:
    """Return the offset of the row for the byte of tags that begins at a bit."""
    by = begin - _ROW_BITS
    moved = builder.lshr(tags, index(by)) if by >= 0 else builder.shl(tags, index(-by))
    return builder.and_(moved, index(0xFF << _ROW_BITS))


def _lanes(value: int) -> ir.Constant:
    return ir.Constant(_LANES, [value] * BURST)


def _shorts(value: int) -> ir.Constant:
    return ir.Constant(_SHORTS, [value] * _PAIR * BURST)
