"""Bursts of INCEPTIONN's format: eight values at once become tags and payloads, and back (see `inceptionn.py`).

The tags of four values are one byte. So a table of 256 byte shuffles says where each byte of four values goes, and one
instruction moves all sixteen (as Lemire, Kurz and Rupp do for integers, "Stream VByte", 2018). It is x86's PSHUFB or
Arm's TBL; in the portable form values are stored, or loaded, one after the other, each four bytes wide, and the next
one overwrites the excess. Every form gives the same bytes.

A lane, 32 bits, holds a value in between: the value itself where it is kept, else its sign and 15 bits of fraction, in
the two low bytes. The 8-bit payload is the upper one of them.

Arguments are addresses. A burst may be read, and is written, up to its greatest length, LONGEST bytes.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from ..form import FORM
from ..jit import compiled
from ..llvm import INDEX, INT, broadcast, shuffle, vector
from .format import BURST, LANE_BYTES, LENGTHS, ONE, PACKED, SPREAD, STEP, TAG_BYTES, UNPACKED

_BYTE, _HALF = ir.IntType(8), BURST // 2
_LANES, _BYTES = ir.VectorType(INT, BURST), ir.VectorType(_BYTE, LANE_BYTES * _HALF)
_SIGN, _FRACTION = 0x8000, 0x7FFF
_LENGTHS_WITH_TAGS = LENGTHS + TAG_BYTES, LENGTHS
"""For the first four payloads of a burst together with all its tags, and for the last four payloads."""
_SHUFFLES = {"x86_64": "llvm.x86.ssse3.pshuf.b.128", "aarch64": "llvm.aarch64.neon.tbl1.v16i8"}


def shuffle_of(form: str, triple: str, features: str) -> str | None:
    """Return the LLVM intrinsic with which a form and a processor shuffle 16 bytes; None where there is none."""
    has = {"x86_64": "+ssse3", "aarch64": "+neon"}
    processor = triple.partition("-")[0]
    return _SHUFFLES[processor] if form != "portable" and has.get(processor) in features.split(",") else None


_SHUFFLE = shuffle_of(FORM.name, binding.get_process_triple(), binding.get_host_cpu_features().flatten())


@compiled
def compress(source: Any, bursts: Any, out: Any, zero_below: Any, wide_from: Any, digits: Any, tolerance: Any) -> Any:
    """Compress whole bursts; return the number of bytes written. `out` has room for LONGEST bytes for each burst."""
    at = out
    if tolerance >= STEP:
        for burst in range(bursts):
            at += _pack_coarsely(source + BURST * LANE_BYTES * burst, at, zero_below, wide_from, digits)
    else:
        for burst in range(bursts):
            at += _pack_finely(source + BURST * LANE_BYTES * burst, at, zero_below, tolerance)
    return at - out


@compiled
def decompress(source: Any, end: Any, bursts: Any, out: Any, reached: Any) -> None:
    """Decompress bursts that begin less than `end` bytes after `source`; the last may be read up to LONGEST bytes.

    `reached` holds the bytes used, the bursts done, and where the last of these began; continue from it and update it.
    """
    # A burst's address depends on the tags of the one before: one chain from address to tags to length to address.
    at, burst, last = source + reached[0], reached[1], source + reached[2]
    place = out.ctypes.data
    while burst < bursts and at < source + end:
        last = at
        at = unpack(at, place + BURST * LANE_BYTES * burst)
        burst += 1
    reached[0], reached[1], reached[2] = at - source, burst, last - source


@compiled
def count_tags(source: Any, end: Any, bursts: Any, counts: Any, reached: Any) -> None:
    """Count how often each byte of tags occurs; the arguments are as in `decompress`."""
    at, burst, last = source + reached[0], reached[1], source + reached[2]
    while burst < bursts and at < source + end:
        last = at
        tags = _tags_at(at)
        counts[tags & 255] += 1
        counts[tags >> 8] += 1
        at = end_of(at)
        burst += 1
    reached[0], reached[1], reached[2] = at - source, burst, last - source


@intrinsic
def _tags_at(context: Any, place: Any) -> Any:
    def emit(context: Any, builder: ir.IRBuilder, _signature: Any, values: list[ir.Value]) -> ir.Value:
        return builder.zext(_load(builder, values[0], ir.IntType(16)), INDEX)

    return types.int64(types.int64), emit


@dataclasses.dataclass(frozen=True)
class Values:
    """Eight values to choose widths for: bits without sign, mask of 1 and more, values clipped below 1, fractions."""

    size: ir.Value
    large: ir.Value
    clipped: ir.Value
    fraction: ir.Value


_IsWide = Callable[[ir.IRBuilder, Values, tuple[ir.Value, ...]], tuple[ir.Value, ir.Value]]


@intrinsic
def _pack_coarsely(context: Any, source: Any, out: Any, zero_below: Any, wide_from: Any, digits: Any) -> Any:
    """Compress a burst where 15 bits of fraction are always enough; return its length."""

    def is_wide(builder: ir.IRBuilder, value: Values, limits: tuple[ir.Value, ...]) -> tuple[ir.Value, ir.Value]:
        _, wide_from, digits = limits
        lost = builder.and_(value.fraction, _spread(builder, digits))
        over = builder.icmp_signed("!=", lost, _all(0))
        return builder.or_(builder.icmp_signed(">=", value.size, _spread(builder, wide_from)), over), value.large

    return _packer(is_wide, types.int64, types.int64, types.int64)


@intrinsic
def _pack_finely(context: Any, source: Any, out: Any, zero_below: Any, tolerance: Any) -> Any:
    """Compress a burst by what each payload would lose, to the last bit; return its length."""

    def is_wide(builder: ir.IRBuilder, value: Values, limits: tuple[ir.Value, ...]) -> tuple[ir.Value, ir.Value]:
        tolerance = broadcast(builder, limits[1], BURST)

        def is_over(digits: ir.Value, step: float) -> ir.Value:
            # Exact: both are multiples of the value's last bit, and the difference has no more bits than the value.
            cut = builder.fmul(builder.sitofp(digits, vector(BURST)), _floats(step))
            return builder.fcmp_ordered(">=", builder.fsub(value.clipped, cut), tolerance)

        over_short, over_long = (
            is_over(builder.lshr(value.fraction, _all(8)), 2**8 * STEP),
            is_over(value.fraction, STEP),
        )
        return builder.or_(value.large, over_short), builder.or_(value.large, over_long)

    return _packer(is_wide, types.int64, types.float32)


def _packer(is_wide: _IsWide, *limits: types.Type) -> tuple[Any, Any]:
    """Return signature and code generator of an intrinsic of source, out and `limits`, the first one `zero_below`."""

    def emit(context: Any, builder: ir.IRBuilder, _signature: Any, values: list[ir.Value]) -> ir.Value:
        return emit_pack(builder, is_wide, *values)

    return types.int64(types.int64, types.int64, *limits), emit


def emit_pack(builder: ir.IRBuilder, is_wide: _IsWide, source: ir.Value, out: ir.Value, *limits: ir.Value) -> ir.Value:
    """Emit code that compresses the eight floats at `source` to a burst at `out`; return its length.

    `is_wide` emits the masks of the values that take more than 8 bits, and of those that take more than 16.
    """
    bits = _load(builder, source, _LANES)
    size = builder.and_(bits, _all(0x7FFF_FFFF))
    large = builder.icmp_signed(">=", size, _all(ONE))
    below_one = builder.select(builder.icmp_signed("<", size, _all(ONE)), size, _all(ONE - 1))
    clipped = builder.bitcast(below_one, vector(BURST))
    fraction = builder.fptosi(builder.fmul(clipped, _floats(1 / STEP)), _LANES)
    wide, kept = is_wide(builder, Values(size, large, clipped, fraction), limits)
    not_zero = builder.icmp_signed(">=", size, _spread(builder, limits[0]))
    narrow = builder.xor(builder.xor(not_zero, wide), kept)  # each of these masks includes the next
    tags = builder.or_(_spread_out(builder, narrow), builder.shl(_spread_out(builder, wide), _index(1)))
    _store(builder, builder.trunc(tags, ir.IntType(16)), out)
    sign = builder.and_(builder.lshr(bits, _all(16)), _all(_SIGN))
    lanes = builder.select(kept, bits, builder.or_(sign, fraction))
    store = _store_each if _SHUFFLE is None else _store_halves
    return builder.sub(store(builder, lanes, tags, builder.add(out, _index(TAG_BYTES))), out)


def _spread_out(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Return the bits of a mask with a zero between neighbours."""
    return _entry(builder, SPREAD, builder.zext(builder.bitcast(mask, _BYTE), INDEX))


def _store_halves(builder: ir.IRBuilder, lanes: ir.Value, tags: ir.Value, payload: ir.Value) -> ir.Value:
    """Store the payloads; return where they end."""
    for half, part in enumerate(_halves(builder, tags)):
        four = shuffle(builder, lanes, lanes, [*range(_HALF * half, _HALF * (half + 1))])
        order = _row(builder, PACKED, part)
        _store(builder, _shuffled(builder, builder.bitcast(four, _BYTES), order), payload)
        payload = builder.add(payload, _entry(builder, LENGTHS, part))
    return payload


def _store_each(builder: ir.IRBuilder, lanes: ir.Value, tags: ir.Value, payload: ir.Value) -> ir.Value:
    for lane in range(BURST):
        tag, lane_bits = _tag(builder, tags, lane), builder.extract_element(lanes, ir.Constant(INT, lane))
        is_byte = builder.icmp_unsigned("==", tag, _index(1))
        _store(builder, builder.select(is_byte, builder.lshr(lane_bits, ir.Constant(INT, 8)), lane_bits), payload)
        payload = builder.add(payload, _entry(builder, LENGTHS, tag))
    return payload


@intrinsic
def end_of(context: Any, source: Any) -> Any:
    """Return where the burst at an address ends."""

    def emit(context: Any, builder: ir.IRBuilder, _signature: Any, values: list[ir.Value]) -> ir.Value:
        (end,) = values
        for half, lengths in enumerate(_LENGTHS_WITH_TAGS):
            end = builder.add(end, _entry(builder, lengths, _part(builder, values[0], half)))
        return end

    return types.int64(types.int64), emit


@intrinsic
def unpack(context: Any, source: Any, out: Any) -> Any:
    """Decompress a burst to eight floats; return where it ends."""

    def emit(context: Any, builder: ir.IRBuilder, _signature: Any, values: list[ir.Value]) -> ir.Value:
        return emit_unpack(builder, *values)

    return types.int64(types.int64, types.int64), emit


def emit_unpack(builder: ir.IRBuilder, source: ir.Value, out: ir.Value) -> ir.Value:
    """Emit code that decompresses the burst at `source` to eight floats at `out`; return where the burst ends."""
    lanes, kept, end = (_load_each if _SHUFFLE is None else _load_halves)(builder, source)
    fraction = builder.sitofp(builder.and_(lanes, _all(_FRACTION)), vector(BURST))
    size = builder.bitcast(builder.fmul(fraction, _floats(STEP)), _LANES)
    sign = builder.shl(builder.and_(lanes, _all(_SIGN)), _all(16))
    _store(builder, builder.select(kept, lanes, builder.or_(sign, size)), out)
    return end


def _load_halves(builder: ir.IRBuilder, source: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return the lanes, the mask of those kept in 32 bits, and where the payloads end."""
    fours, orders, payload, end = [], [], builder.add(source, _index(TAG_BYTES)), source
    for half, lengths in enumerate(_LENGTHS_WITH_TAGS):
        part = _part(builder, source, half)
        order = _row(builder, UNPACKED, part)
        four = _shuffled(builder, _load(builder, payload, _BYTES), order)
        fours.append(builder.bitcast(four, ir.VectorType(INT, _HALF)))
        orders.append(builder.bitcast(order, ir.VectorType(INT, _HALF)))
        payload = end = builder.add(end, _entry(builder, lengths, part))
    lanes, order = (shuffle(builder, low, high, [*range(BURST)]) for low, high in (fours, orders))
    # Places are not negative, and the mark of an absent byte is: a lane with an uppermost byte holds all its bits.
    return lanes, builder.icmp_signed(">=", order, _all(0)), end


def _load_each(builder: ir.IRBuilder, source: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    lanes, kept = ir.Constant(_LANES, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(1), BURST), ir.Undefined)
    tags, payload = builder.zext(_load(builder, source, ir.IntType(16)), INDEX), builder.add(source, _index(TAG_BYTES))
    masks = np.array([0, 0xFF, 0xFFFF, 0xFFFFFFFF], np.uint32)
    for lane in range(BURST):
        tag, place = _tag(builder, tags, lane), ir.Constant(INT, lane)
        mask = builder.trunc(_entry(builder, masks, tag), INT)
        payload_bits = builder.and_(_load(builder, payload, INT), mask)
        is_byte = builder.icmp_unsigned("==", tag, _index(1))
        payload_bits = builder.select(is_byte, builder.shl(payload_bits, ir.Constant(INT, 8)), payload_bits)
        lanes = builder.insert_element(lanes, payload_bits, place)
        kept = builder.insert_element(kept, builder.icmp_unsigned("==", tag, _index(3)), place)
        payload = builder.add(payload, _entry(builder, LENGTHS, tag))
    return lanes, kept, payload


def _part(builder: ir.IRBuilder, source: ir.Value, half: int) -> ir.Value:
    """Return the tags of four values of the burst at an address."""
    return builder.zext(_load(builder, builder.add(source, _index(half)), _BYTE), INDEX)


def _index(value: int) -> ir.Constant:
    return ir.Constant(INDEX, value)


def _all(value: int) -> ir.Constant:
    return ir.Constant(_LANES, [value] * BURST)


def _floats(value: float) -> ir.Constant:
    return ir.Constant(vector(BURST), [value] * BURST)


def _spread(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return broadcast(builder, builder.trunc(value, INT), BURST)


def _halves(builder: ir.IRBuilder, tags: ir.Value) -> tuple[ir.Value, ir.Value]:
    return builder.and_(tags, _index(255)), builder.lshr(tags, _index(8))


def _tag(builder: ir.IRBuilder, tags: ir.Value, lane: int) -> ir.Value:
    return builder.and_(builder.lshr(tags, _index(2 * lane)), _index(3))


def _load(builder: ir.IRBuilder, place: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.load(builder.inttoptr(place, kind.as_pointer()), align=1)


def _store(builder: ir.IRBuilder, value: ir.Value, place: ir.Value) -> None:
    builder.store(value, builder.inttoptr(place, value.type.as_pointer()), align=1)


def _table(builder: ir.IRBuilder, table: Any) -> ir.Value:
    """Return the address of a copy of a table in the module."""
    name = f"table.{zlib.crc32(table.tobytes())}"
    known = builder.module.globals.get(name)
    if known is None:
        items = table.tobytes()
        kind = ir.ArrayType(_BYTE, len(items))
        known = ir.GlobalVariable(builder.module, kind, name)
        known.linkage, known.global_constant, known.align = "internal", True, 64
        known.initializer = ir.Constant(kind, bytearray(items))
    return builder.ptrtoint(known, INDEX)


def _entry(builder: ir.IRBuilder, table: Any, place: ir.Value) -> ir.Value:
    """Return table[place] as a 64-bit integer."""
    at = builder.add(_table(builder, table), builder.mul(place, _index(table.itemsize)))
    return builder.zext(_load(builder, at, ir.IntType(8 * table.itemsize)), INDEX)


def _row(builder: ir.IRBuilder, table: Any, place: ir.Value) -> ir.Value:
    """Return the 16 bytes table[place]."""
    return _load(builder, builder.add(_table(builder, table), builder.mul(place, _index(16))), _BYTES)


def _shuffled(builder: ir.IRBuilder, value: ir.Value, order: ir.Value) -> ir.Value:
    known = builder.module.globals.get(_SHUFFLE)
    function = known or ir.Function(builder.module, ir.FunctionType(_BYTES, [_BYTES, _BYTES]), _SHUFFLE)
    return builder.call(function, [value, order])
