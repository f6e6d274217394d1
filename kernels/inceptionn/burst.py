"""Bursts of INCEPTIONN's format: eight values at once become tags and payloads, and back (see
`inceptionn.py`).

The tags of four values are one byte. So a table of 256 byte shuffles says where each byte of four
values goes, and one instruction moves all sixteen (as Lemire, Kurz and Rupp do for integers,
"Stream VByte", 2018). It is x86's PSHUFB or Arm's TBL; in the portable form values are stored, or
loaded, one after the other, each four bytes wide, and the next one overwrites the excess. Every
form gives the same bytes.

A lane, 32 bits, holds a value in between: the value itself where it is kept, else its sign and 15
bits of fraction, in the two low bytes. The 8-bit payload is the upper one of them.

Of a long buffer, four readers read at once. The beginning of a burst depends on the tags of the one
before: from address to tags to length to address. So a reader waits for most of its time, and four
wait no longer than one. Nothing marks where bursts begin. But a reader that starts anywhere is soon
in step: it mistakes payloads for tags until it happens to end where a burst does, and from there on
it ends where each does. The reader before it checks this when it arrives there, and counts the
bursts up to there, which give the positions of values. So the first reader decompresses its
quarter, while two others only count theirs; then three decompress the rest. If one was not in step,
the first goes on alone.

    buffer  |    quarter 0     |    quarter 1     |    quarter 2     |    quarter 3     |
    first   0 decompresses ->   1 counts ->         2 counts ->        3 is in step, and waits
    then                        1 decompresses ->   2 decompresses ->  3 decompresses ->

Arguments are addresses. A burst may be read, and is written, up to its greatest length, LONGEST
bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..jit import compiled
from ..llvm import INDEX, INT, broadcast, index, shuffle, vector
from . import stages
from .format import (
    BURST,
    LANE_BYTES,
    LENGTHS,
    LONGEST,
    ONE,
    PACKED,
    SPREAD,
    STEP,
    TAG_BYTES,
    UNPACKED,
)
from .stages import (
    BYTE,
    BYTES,
    IN_PAIRS,
    IN_STAGES,
    emit_stages,
    entry,
    load,
    pack_pairs,
    row,
    shuffled,
    store,
)

_HALF, _LANES = BURST // 2, ir.VectorType(INT, BURST)
_SIGN, _FRACTION = 0x8000, 0x7FFF
_LENGTHS_WITH_TAGS = LENGTHS + TAG_BYTES, LENGTHS
"""For the first four payloads of a burst together with all its tags, and for the last four
payloads.
"""
STEP_BITS = int(np.float32(STEP).view(np.uint32))


@compiled
def compress(source: Any, bursts: Any, out: Any, room: Any, limits: Any, done: Any) -> None:
    """Compress whole bursts while `out` has room for LONGEST bytes; write to `done` the bytes used,
    and the bursts.
    """
    zero_below, wide_from, digits, tolerance = limits
    end, last, place, at = source + BURST * LANE_BYTES * bursts, out + room, source, out
    if tolerance >= STEP:
        if IN_PAIRS and zero_below >= STEP_BITS:
            place, at = pack_pairs(place, end, at, last, zero_below, digits)
        place, at = _pack_coarsely(place, end, at, last, zero_below, wide_from, digits)
    else:
        place, at = _pack_finely(place, end, at, last, zero_below, tolerance)
    done[0], done[1] = at - out, (place - source) // (BURST * LANE_BYTES)


@compiled
def read_on(source: Any, end: Any, bursts: Any, out: Any, reached: Any) -> None:
    """Decompress bursts that begin less than `end` bytes after `source`; the last may be read up to
    LONGEST bytes.

    `reached` holds the bytes used, the bursts done, and where the last of these began; continue
    from it and update it.
    """
    # A burst's address depends on the tags of the one before: one chain from address to tags to
    # length to address.
    at, burst, last = source + reached[0], reached[1], source + reached[2]
    place = out.ctypes.data
    while burst < bursts and at < source + end:
        last = at
        at = unpack(at, place + BURST * LANE_BYTES * burst)
        burst += 1
    reached[0], reached[1], reached[2] = at - source, burst, last - source


@compiled
def count_tags(source: Any, end: Any, bursts: Any, counts: Any, reached: Any) -> None:
    """Count how often each byte of tags occurs; the arguments are as in `read_on`."""
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
    def emit(
        context: Any, builder: ir.IRBuilder, _signature: Any, values: list[ir.Value]
    ) -> ir.Value:
        return builder.zext(load(builder, values[0], ir.IntType(16)), INDEX)

    return types.int64(types.int64), emit


@dataclasses.dataclass(frozen=True)
class Values:
    """Eight values to choose widths for: bits without sign, mask of 1 and more, values clipped
    below 1, fractions.
    """

    size: ir.Value
    large: ir.Value
    clipped: ir.Value
    fraction: ir.Value


_IsWide = Callable[[ir.IRBuilder, Values, tuple[ir.Value, ...]], tuple[ir.Value, ir.Value]]


@intrinsic
def _pack_coarsely(
    context: Any,
    source: Any,
    end: Any,
    out: Any,
    last: Any,
    zero_below: Any,
    wide_from: Any,
    digits: Any,
) -> Any:
    """Compress bursts where 15 bits of fraction are always enough; return where it has come to in
    both.
    """

    def is_wide(
        builder: ir.IRBuilder, value: Values, limits: tuple[ir.Value, ...]
    ) -> tuple[ir.Value, ir.Value]:
        _, wide_from, digits = limits
        lost = builder.and_(value.fraction, _spread(builder, digits))
        over = builder.icmp_signed("!=", lost, _all(0))
        return builder.or_(
            builder.icmp_signed(">=", value.size, _spread(builder, wide_from)), over
        ), value.large

    return _packer(is_wide, (0,) if IN_PAIRS else IN_STAGES, types.int64, types.int64, types.int64)


@intrinsic
def _pack_finely(
    context: Any, source: Any, end: Any, out: Any, last: Any, zero_below: Any, tolerance: Any
) -> Any:
    """Compress bursts by what each payload would lose, to the last bit; return where it has come to
    in both.
    """

    def is_wide(
        builder: ir.IRBuilder, value: Values, limits: tuple[ir.Value, ...]
    ) -> tuple[ir.Value, ir.Value]:
        tolerance = broadcast(builder, limits[1], BURST)

        def is_over(digits: ir.Value, step: float) -> ir.Value:
            # Exact: both are multiples of the value's last bit, and the difference has no more bits
            # than the value.
            cut = builder.fmul(builder.sitofp(digits, vector(BURST)), _floats(step))
            return builder.fcmp_ordered(">=", builder.fsub(value.clipped, cut), tolerance)

        over_short, over_long = (
            is_over(builder.lshr(value.fraction, _all(8)), 2**8 * STEP),
            is_over(value.fraction, STEP),
        )
        return builder.or_(value.large, over_short), builder.or_(value.large, over_long)

    return _packer(is_wide, IN_STAGES, types.int64, types.float32)


def _packer(is_wide: _IsWide, loops: tuple[int, ...], *limits: types.Type) -> tuple[Any, Any]:
    """Return signature and code generator of an intrinsic of values, out and `limits`, the first
    one `zero_below`.

    `loops` are those of `emit_stages`.
    """

    def emit(
        context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]
    ) -> ir.Value:
        source, end, out, last, *limits = values
        steps = BURST * LANE_BYTES, LONGEST

        def prepare(place: ir.Value) -> tuple[ir.Value, ir.Value]:
            return emit_lanes(builder, is_wide, place, *limits)

        def finish(_place: ir.Value, at: ir.Value, lanes: ir.Value, tags: ir.Value) -> ir.Value:
            return emit_stores(builder, at, lanes, tags)

        reached = emit_stages(builder, prepare, finish, steps, (source, end), (out, last), loops)
        return context.make_tuple(builder, signature.return_type, reached)

    return types.UniTuple(types.int64, 2)(*[types.int64] * 4, *limits), emit


def emit_lanes(
    builder: ir.IRBuilder, is_wide: _IsWide, source: ir.Value, *limits: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Emit code that makes the eight floats at `source` a burst's lanes and tags.

    `is_wide` emits the masks of the values that take more than 8 bits, and of those that take more
    than 16.
    """
    bits = load(builder, source, _LANES)
    size = builder.and_(bits, _all(0x7FFF_FFFF))
    large = builder.icmp_signed(">=", size, _all(ONE))
    below_one = builder.select(builder.icmp_signed("<", size, _all(ONE)), size, _all(ONE - 1))
    clipped = builder.bitcast(below_one, vector(BURST))
    fraction = builder.fptosi(builder.fmul(clipped, _floats(1 / STEP)), _LANES)
    wide, kept = is_wide(builder, Values(size, large, clipped, fraction), limits)
    not_zero = builder.icmp_signed(">=", size, _spread(builder, limits[0]))
    narrow = builder.xor(builder.xor(not_zero, wide), kept)  # each of these masks includes the next
    tags = builder.or_(
        _spread_out(builder, narrow), builder.shl(_spread_out(builder, wide), index(1))
    )
    sign = builder.and_(builder.lshr(bits, _all(16)), _all(_SIGN))
    return builder.select(kept, bits, builder.or_(sign, fraction)), tags


def emit_stores(builder: ir.IRBuilder, out: ir.Value, lanes: ir.Value, tags: ir.Value) -> ir.Value:
    """Emit code that stores a burst at `out`; return where it ends."""
    store(builder, builder.trunc(tags, ir.IntType(16)), out)
    payload = builder.add(out, index(TAG_BYTES))
    return (_store_each if stages.SHUFFLE is None else _store_halves)(builder, lanes, tags, payload)


def _spread_out(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Return the bits of a mask with a zero between neighbours."""
    return entry(builder, SPREAD, builder.zext(builder.bitcast(mask, BYTE), INDEX))


def _store_halves(
    builder: ir.IRBuilder, lanes: ir.Value, tags: ir.Value, payload: ir.Value
) -> ir.Value:
    """Store the payloads; return where they end."""
    for half, part in enumerate(_halves(builder, tags)):
        four = shuffle(builder, lanes, lanes, [*range(_HALF * half, _HALF * (half + 1))])
        order = _order(builder, PACKED, part)
        store(builder, shuffled(builder, builder.bitcast(four, BYTES), order), payload)
        payload = builder.add(payload, entry(builder, LENGTHS, part))
    return payload


def _store_each(
    builder: ir.IRBuilder, lanes: ir.Value, tags: ir.Value, payload: ir.Value
) -> ir.Value:
    for lane in range(BURST):
        tag, lane_bits = (
            _tag(builder, tags, lane),
            builder.extract_element(lanes, ir.Constant(INT, lane)),
        )
        is_byte = builder.icmp_unsigned("==", tag, index(1))
        store(
            builder,
            builder.select(is_byte, builder.lshr(lane_bits, ir.Constant(INT, 8)), lane_bits),
            payload,
        )
        payload = builder.add(payload, entry(builder, LENGTHS, tag))
    return payload


@intrinsic
def end_of(context: Any, source: Any) -> Any:
    """Return where the burst at an address ends."""

    def emit(
        context: Any, builder: ir.IRBuilder, _signature: Any, values: list[ir.Value]
    ) -> ir.Value:
        (end,) = values
        for half, lengths in enumerate(_LENGTHS_WITH_TAGS):
            end = builder.add(end, entry(builder, lengths, _part(builder, values[0], half)))
        return end

    return types.int64(types.int64), emit


@intrinsic
def unpack(context: Any, source: Any, out: Any) -> Any:
    """Decompress a burst to eight floats; return where it ends."""

    def emit(
        context: Any, builder: ir.IRBuilder, _signature: Any, values: list[ir.Value]
    ) -> ir.Value:
        return emit_unpack(builder, *values)

    return types.int64(types.int64, types.int64), emit


def emit_unpack(builder: ir.IRBuilder, source: ir.Value, out: ir.Value) -> ir.Value:
    """Emit code that decompresses the burst at `source` to eight floats at `out`; return where the
    burst ends.
    """
    lanes, kept, end = (_load_each if stages.SHUFFLE is None else _load_halves)(builder, source)
    fraction = builder.sitofp(builder.and_(lanes, _all(_FRACTION)), vector(BURST))
    size = builder.bitcast(builder.fmul(fraction, _floats(STEP)), _LANES)
    sign = builder.shl(builder.and_(lanes, _all(_SIGN)), _all(16))
    store(builder, builder.select(kept, lanes, builder.or_(sign, size)), out)
    return end


def _load_halves(builder: ir.IRBuilder, source: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return the lanes, the mask of those kept in 32 bits, and where the payloads end."""
    fours, orders, payload, end = [], [], builder.add(source, index(TAG_BYTES)), source
    for half, lengths in enumerate(_LENGTHS_WITH_TAGS):
        part = _part(builder, source, half)
        order = _order(builder, UNPACKED, part)
        four = shuffled(builder, load(builder, payload, BYTES), order)
        fours.append(builder.bitcast(four, ir.VectorType(INT, _HALF)))
        orders.append(builder.bitcast(order, ir.VectorType(INT, _HALF)))
        payload = end = builder.add(end, entry(builder, lengths, part))
    lanes, order = (shuffle(builder, low, high, [*range(BURST)]) for low, high in (fours, orders))
    # Places are not negative, and the mark of an absent byte is: a lane with an uppermost byte
    # holds all its bits.
    return lanes, builder.icmp_signed(">=", order, _all(0)), end


def _load_each(builder: ir.IRBuilder, source: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    lanes, kept = (
        ir.Constant(_LANES, ir.Undefined),
        ir.Constant(ir.VectorType(ir.IntType(1), BURST), ir.Undefined),
    )
    tags, payload = (
        builder.zext(load(builder, source, ir.IntType(16)), INDEX),
        builder.add(source, index(TAG_BYTES)),
    )
    masks = np.array([0, 0xFF, 0xFFFF, 0xFFFFFFFF], np.uint32)
    for lane in range(BURST):
        tag, place = _tag(builder, tags, lane), ir.Constant(INT, lane)
        mask = builder.trunc(entry(builder, masks, tag), INT)
        payload_bits = builder.and_(load(builder, payload, INT), mask)
        is_byte = builder.icmp_unsigned("==", tag, index(1))
        payload_bits = builder.select(
            is_byte, builder.shl(payload_bits, ir.Constant(INT, 8)), payload_bits
        )
        lanes = builder.insert_element(lanes, payload_bits, place)
        kept = builder.insert_element(kept, builder.icmp_unsigned("==", tag, index(3)), place)
        payload = builder.add(payload, entry(builder, LENGTHS, tag))
    return lanes, kept, payload


def _part(builder: ir.IRBuilder, source: ir.Value, half: int) -> ir.Value:
    """Return the tags of four values of the burst at an address."""
    return builder.zext(load(builder, builder.add(source, index(half)), BYTE), INDEX)


def _all(value: int) -> ir.Constant:
    return ir.Constant(_LANES, [value] * BURST)


def _floats(value: float) -> ir.Constant:
    return ir.Constant(vector(BURST), [value] * BURST)


def _spread(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return broadcast(builder, builder.trunc(value, INT), BURST)


def _halves(builder: ir.IRBuilder, tags: ir.Value) -> tuple[ir.Value, ir.Value]:
    return builder.and_(tags, index(255)), builder.lshr(tags, index(8))


def _tag(builder: ir.IRBuilder, tags: ir.Value, lane: int) -> ir.Value:
    return builder.and_(builder.lshr(tags, index(2 * lane)), index(3))


def _order(builder: ir.IRBuilder, table: Any, part: ir.Value) -> ir.Value:
    return row(builder, table, builder.mul(part, index(table.shape[1])), BYTES)


WARM_UP, WARM_UP_WITH_PAYLOADS = 256, 16
"""Bursts after which a reader counts as in step: all, and those with payloads. Bursts of the
greatest length begin only every 34 bytes, so it may take many. Among zeros, whose bursts are at
even places, a reader that starts at an odd one never gets in step."""
LEAST_BYTES = 4 * 2 * WARM_UP * LONGEST
"""Bytes from which four readers are used: half of each one's part is then enough to get in step."""

_OUT = BURST * LANE_BYTES


@compiled
def decompress(source: Any, end: Any, bursts: Any, out: Any, reached: Any) -> None:
    """Decompress as `read_on` does; begin a long buffer with four readers."""
    if reached[0] == 0 and end >= LEAST_BYTES:
        by_four(source, end, bursts, out, reached)
    read_on(source, end, bursts, out, reached)


@compiled
def by_four(source: Any, end: Any, bursts: Any, out: Any, reached: Any) -> None:
    """Decompress from the beginning until the last of four readers is at the end, or another has
    finished its part.

    Decompress only the first quarter if they are not in step, or if there are more bursts than
    expected.
    """
    apart = end // 8 * 2  # most bursts have even lengths
    begin_1, begin_2 = (
        _in_step(source + apart, apart // 2),
        _in_step(source + 2 * apart, apart // 2),
    )
    begin_3 = _in_step(source + 3 * apart, apart // 2)

    place = out.ctypes.data
    at_0, at_1, at_2, last, done = source, begin_1, begin_2, source, 0
    while at_0 < begin_1 and done < bursts and at_1 < begin_2 and at_2 < begin_3:
        last = at_0
        at_0, at_1, at_2 = unpack(at_0, place + _OUT * done), end_of(at_1), end_of(at_2)
        done += 1
    at_1, count_1 = _count(at_1, begin_2, done)
    at_2, count_2 = _count(at_2, begin_3, done)
    reached[0], reached[1], reached[2] = at_0 - source, done, last - source
    read_on(source, begin_1 - source, bursts, out, reached)
    count_0 = reached[1]
    before = count_0 + count_1 + count_2
    if source + reached[0] != begin_1 or at_1 != begin_2 or at_2 != begin_3 or before >= bursts:
        return

    out_1, out_2, out_3 = (
        place + _OUT * count_0,
        place + _OUT * (count_0 + count_1),
        place + _OUT * before,
    )
    at_1, at_2, at_3, step = begin_1, begin_2, begin_3, 0
    while step < min(count_1, count_2, bursts - before) and at_3 < source + end:
        last, to = at_3, _OUT * step
        at_1, at_2, at_3 = (
            unpack(at_1, out_1 + to),
            unpack(at_2, out_2 + to),
            unpack(at_3, out_3 + to),
        )
        step += 1
    reached[0], reached[1] = at_1 - source, count_0 + step
    read_on(source, begin_2 - source, bursts, out, reached)
    reached[0], reached[1] = at_2 - source, count_0 + count_1 + step
    read_on(source, begin_3 - source, bursts, out, reached)
    reached[0], reached[1], reached[2] = at_3 - source, before + step, last - source


@compiled
def _in_step(at: Any, most: Any) -> Any:
    """Return where a reader from `at` on is likely to be in step, at most `most` bytes and a burst
    further on.
    """
    end, bursts, with_payloads = at + most, 0, 0
    while at < end and (bursts < WARM_UP or with_payloads < WARM_UP_WITH_PAYLOADS):
        before, at = at, end_of(at)
        bursts += 1
        with_payloads += at - before > TAG_BYTES
    return at


@compiled
def _count(at: Any, end: Any, count: Any) -> Any:
    while at < end:
        at = end_of(at)
        count += 1
    return at, count
