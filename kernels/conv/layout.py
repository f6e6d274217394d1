"""Changes of layout: maps into frames of zeros and back, weights into panels and back, blocks
transposed in registers.

Maps are channels last, (n, rows, columns, channels), with a pitch from pixel to pixel that is
larger than the number of channels where they are a slice of wider maps. A frame holds them channel
by channel, (n, channels, rows, columns), with zeros around each, so that the micro-kernel's reads
lie close together. `microkernel.py` describes panels.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from ..jit import FLOAT_BYTES, compiled
from ..llvm import (
    INDEX,
    LINE_BYTES,
    address,
    bits_to_mask,
    clear,
    copy,
    entry_of,
    index,
    lane_bits,
    masked_load,
    masked_store,
    numbers_only,
    prefetch,
    shuffle,
    vector,
)
from .microkernel import WIDTH, padded_lanes, vectors_of

SIDE = 16  # rows and columns of a block
HALF = SIDE // 2


def _transposed(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """Transpose SIDE vectors, in four rounds of shuffles that interleave pairs of vectors.

    The first two rounds transpose blocks of 4 x 4, the last two the 4 x 4 blocks as a whole. All
    shuffles are of kinds that AVX-512 does in one instruction.
    """
    quads = range(0, SIDE, 4)
    singles, doubles, blocks = [], [], []
    for half in (0, 2):
        singles.append([4 * (i // 4) + half + i // 2 % 2 + SIDE * (i % 2) for i in range(SIDE)])
        doubles.append([4 * (i // 4) + half + i % 2 + SIDE * (i // 2 % 2) for i in range(SIDE)])
    for quad in (0, 4):
        of_low = [*range(quad, quad + 4), *range(quad + 8, quad + 12)]
        blocks.append(of_low + [SIDE + place for place in of_low])
    columns = []  # columns[n][c]: in block g, column 4 g + c of rows 4 n .. 4 n + 3
    for n in quads:
        upper = [shuffle(builder, rows[n], rows[n + 1], places) for places in singles]
        lower = [shuffle(builder, rows[n + 2], rows[n + 3], places) for places in singles]
        columns.append(
            [
                shuffle(builder, *pair, places)
                for pair in zip(upper, lower, strict=True)
                for places in doubles
            ]
        )
    result: list[ir.Value] = [None] * SIDE
    for c in range(4):
        for g, places in enumerate(blocks):
            low = shuffle(builder, columns[0][c], columns[1][c], places)
            high = shuffle(builder, columns[2][c], columns[3][c], places)
            result[4 * g + c] = shuffle(builder, low, high, blocks[0])
            result[4 * (g + 2) + c] = shuffle(builder, low, high, blocks[1])
    return result


def _lines(builder: ir.IRBuilder, base: ir.Value, step: ir.Value) -> list[ir.Value]:
    """Return the address of each line of a block."""
    return [
        address(builder, base, builder.mul(index(number), step), vector(SIDE))
        for number in range(SIDE)
    ]


def _some_lines(
    builder: ir.IRBuilder, base: ir.Value, step: ir.Value, count: ir.Value, run: ir.Value
) -> list[tuple[ir.Value, ir.Value]]:
    """Return address and mask of each line; a line beyond `count` repeats the last one, with an
    empty mask.
    """
    lines, offset, full = [], index(0), lane_bits(builder, run)
    for number in range(SIDE):
        known = builder.icmp_signed("<", index(number), count)
        offset = builder.add(offset, builder.select(known, step, index(0))) if number else offset
        mask = bits_to_mask(builder, builder.select(known, full, index(0)), SIDE)
        lines.append((address(builder, base, offset, vector(SIDE)), mask))
    return lines


@intrinsic
def transpose_block(
    context: Any, source: Any, source_step: Any, rows: Any, columns: Any, out: Any, out_step: Any
) -> Any:
    """Set out[j * out_step + i] = source[i * source_step + j] for i < rows and j < columns, both
    from 1 to SIDE.

    `source` and `out` are addresses; steps count floats and may be negative. Nothing else is read
    or written.
    """

    def generate(builder: ir.IRBuilder, *values: ir.Value) -> None:
        source, source_step, rows, columns, out, out_step = values
        full = index(SIDE)
        with builder.if_else(builder.icmp_signed("==", columns, full)) as (wide, part):
            with wide, builder.if_else(builder.icmp_signed("==", rows, full)) as (whole, few):
                with whole:
                    taken = [
                        builder.load(place, align=FLOAT_BYTES)
                        for place in _lines(builder, source, source_step)
                    ]
                    for row, place in zip(
                        _transposed(builder, taken), _lines(builder, out, out_step), strict=True
                    ):
                        builder.store(row, place, align=FLOAT_BYTES)
                        further = builder.add(builder.ptrtoint(place, INDEX), index(2 * LINE_BYTES))
                        prefetch(builder, further, to_write=True)
                with few:  # as in the rows of small maps: masks take longer than all the rest
                    lines = _some_lines(builder, source, source_step, rows, full)
                    taken = [builder.load(place, align=FLOAT_BYTES) for place, _ in lines]
                    mask = bits_to_mask(builder, lane_bits(builder, rows), SIDE)
                    for row, place in zip(
                        _transposed(builder, taken), _lines(builder, out, out_step), strict=True
                    ):
                        masked_store(builder, row, place, mask, SIDE)
            with part:
                taken = [
                    masked_load(builder, place, mask, SIDE)
                    for place, mask in _some_lines(builder, source, source_step, rows, columns)
                ]
                lines = _some_lines(builder, out, out_step, columns, rows)
                for row, (place, mask) in zip(_transposed(builder, taken), lines, strict=True):
                    masked_store(builder, row, place, mask, SIDE)

    return numbers_only(6, generate)


def _generate_rows(lanes: int) -> Callable[..., None]:
    def generate(builder: ir.IRBuilder, *values: ir.Value) -> None:
        table, begin, out, out_step, read_ahead, write_ahead = values
        further = builder.mul(builder.add(begin, read_ahead), index(FLOAT_BYTES))
        taken = []
        for number in range(lanes):
            row = entry_of(builder, table, index(number))
            taken.append(
                builder.load(address(builder, row, begin, vector(SIDE)), align=FLOAT_BYTES)
            )
            prefetch(builder, builder.add(row, further))
        columns = _transposed(
            builder, taken + [ir.Constant(vector(SIDE), ir.Undefined)] * (SIDE - lanes)
        )
        beyond = builder.mul(write_ahead, index(FLOAT_BYTES))
        for column, place in zip(columns, _lines(builder, out, out_step), strict=True):
            some = column if lanes == SIDE else shuffle(builder, column, column, list(range(lanes)))
            begins = builder.ptrtoint(place, INDEX)
            builder.store(some, builder.inttoptr(begins, some.type.as_pointer()), align=FLOAT_BYTES)
            prefetch(builder, builder.add(begins, beyond), to_write=True)

    return generate


@intrinsic
def transpose_rows(
    context: Any, table: Any, begin: Any, out: Any, out_step: Any, read_ahead: Any, write_ahead: Any
) -> Any:
    """Set out[j * out_step + i] = row_i[begin + j] for i, j < SIDE, where row_i lies at the address
    table[i].

    The lines `read_ahead` floats further in each row are prefetched, and those `write_ahead` floats
    further in `out`.
    """
    return numbers_only(6, _generate_rows(SIDE))


@intrinsic
def transpose_half(
    context: Any, table: Any, begin: Any, out: Any, out_step: Any, read_ahead: Any, write_ahead: Any
) -> Any:
    """Do what `transpose_rows` does for i < HALF."""
    return numbers_only(6, _generate_rows(HALF))


_AT_ONCE = 32768  # floats: where planes are that small, writing all of them twice beats many short pieces of zeros


@compiled
def _transpose(
    source: Any, source_step: Any, rows: Any, columns: Any, out: Any, out_step: Any
) -> None:
    """Set out[j * out_step + i] = source[i * source_step + j] for i < rows and j < columns."""
    for j in range(0, columns, SIDE):
        for i in range(0, rows, SIDE):
            come, to = (
                source + FLOAT_BYTES * (i * source_step + j),
                out + FLOAT_BYTES * (j * out_step + i),
            )
            transpose_block(
                come, source_step, min(SIDE, rows - i), min(SIDE, columns - j), to, out_step
            )


@compiled
def frame(
    maps: Any,
    pitch: Any,
    samples: Any,
    channels: Any,
    size: Any,
    before: Any,
    after: Any,
    flipped: Any,
    out: Any,
) -> None:
    """Write maps to their frame; `before` and `after` are the (rows, columns) of zeros on either
    side.

    Where `flipped`, each sample's frame is reversed as a whole, its last number first.
    """
    h, w = size
    hp, wp = before[0] + h + after[0], before[1] + w + after[1]
    top, gap, bottom = before[0] * wp + before[1], before[1] + after[1], after[1] + after[0] * wp
    way, area, first = 1, hp * wp, 0
    if flipped:
        top, bottom = bottom, top
        way, first = -1, channels - 1
    for sample in range(samples):
        begin = out + FLOAT_BYTES * sample * channels * area
        come = maps + FLOAT_BYTES * sample * h * w * pitch
        if top + gap + bottom == 0:
            if h * w == 1 and not flipped:
                copy(begin, come, channels)
            else:
                pixel = h * w - 1 if flipped else 0
                to = begin + FLOAT_BYTES * first * area
                _transpose(
                    come + FLOAT_BYTES * pixel * pitch, way * pitch, h * w, channels, to, way * area
                )
            continue
        for channel in range(0, channels, SIDE):  # some planes at a time, each from start to end
            some = min(SIDE, channels - channel)
            if some * area <= _AT_ONCE:
                lowest = channel + some - 1 if flipped else channel
                clear(begin + FLOAT_BYTES * (first + way * lowest) * area, some * area)
            else:
                for number in range(channel, channel + some):
                    plane = begin + FLOAT_BYTES * (first + way * number) * area
                    clear(plane, top)
                    for row in range(h - 1):
                        clear(plane + FLOAT_BYTES * (top + row * wp + w), gap)
                    clear(plane + FLOAT_BYTES * (top + (h - 1) * wp + w), bottom)
            for row in range(h):
                pixel = (h - 1 - row) * w + w - 1 if flipped else row * w
                to = begin + FLOAT_BYTES * ((first + way * channel) * area + top + row * wp)
                _transpose(
                    come + FLOAT_BYTES * (pixel * pitch + channel),
                    way * pitch,
                    w,
                    some,
                    to,
                    way * area,
                )


@compiled
def unframe(source: Any, samples: Any, channels: Any, pixels: Any, maps: Any, pitch: Any) -> None:
    """Write a frame without zeros, (n, channels, pixels), back to maps."""
    for sample in range(samples):
        come = source + FLOAT_BYTES * sample * channels * pixels
        _transpose(
            come, pixels, channels, pixels, maps + FLOAT_BYTES * sample * pixels * pitch, pitch
        )


@compiled
def pack(w: Any, lanes: Any, depth: Any, out: Any, back: Any) -> None:
    """Write weights w[lane][k] to panels; or, where `back`, panels to weights."""
    if not back:
        clear(out, padded_lanes(lanes) * depth)
    panel, lane = out, 0
    while lane < lanes:
        row = vectors_of(lanes - lane) * WIDTH
        width = min(row, lanes - lane)
        if back:
            _transpose(panel, row, depth, width, w + FLOAT_BYTES * lane * depth, depth)
        else:
            _transpose(w + FLOAT_BYTES * lane * depth, depth, width, depth, panel, row)
        panel += FLOAT_BYTES * depth * row
        lane += row


@compiled
def turn(packed: Any, oc: Any, ic: Any, kernel: Any, phase: Any, stride: Any, out: Any) -> None:
    """Write one phase of the packed weights of FP to panels as EB reads them.

    Lanes are then input channels, and k runs over output channels descending, then over the kernel
    rows and columns phase[0] + i * stride[0] and phase[1] + j * stride[1], ascending.
    """
    kh, kw = kernel
    down, across = (
        (kh - phase[0] + stride[0] - 1) // stride[0],
        (kw - phase[1] + stride[1] - 1) // stride[1],
    )
    taps, depth = kh * kw, ic * kh * kw
    if ic % WIDTH:
        clear(out, padded_lanes(ic) * oc * down * across)
    target, lane = out, 0
    while lane < ic:
        row = vectors_of(ic - lane) * WIDTH
        width = min(row, ic - lane)
        panel, channel = packed, 0
        while channel < oc:
            panel_row = vectors_of(oc - channel) * WIDTH
            channels = min(panel_row, oc - channel)
            for some in range(0, width, SIDE):  # this order reads memory sequentially
                come_from, put_to = (
                    panel + FLOAT_BYTES * (lane + some) * taps * panel_row,
                    target + FLOAT_BYTES * some,
                )
                for i in range(down):
                    for j in range(across):
                        tap = (phase[0] + i * stride[0]) * kw + phase[1] + j * stride[1]
                        come = come_from + FLOAT_BYTES * tap * panel_row
                        k = ((oc - 1 - channel) * down + i) * across + j
                        to, step = put_to + FLOAT_BYTES * k * row, -down * across * row
                        _transpose(
                            come, taps * panel_row, min(SIDE, width - some), channels, to, step
                        )
            panel += FLOAT_BYTES * depth * panel_row
            channel += panel_row
        target += FLOAT_BYTES * oc * down * across * row
        lane += row


@compiled
def turn_blocks(
    packed: Any,
    oc: Any,
    ic: Any,
    kernel: Any,
    phase: Any,
    stride: Any,
    block: Any,
    out: Any,
) -> None:
    """Do what `turn` does where k runs over blocks of `block` channels, then over the kernel, then
    over channels; of EB, over blocks from the last one on, which may be shorter.
    """
    kh, kw = kernel
    down, across = (
        (kh - phase[0] + stride[0] - 1) // stride[0],
        (kw - phase[1] + stride[1] - 1) // stride[1],
    )
    taps, places, rest = kh * kw, down * across, oc % block
    if ic % WIDTH:
        clear(out, padded_lanes(ic) * oc * places)
    target, lane = out, 0
    while lane < ic:
        row = vectors_of(ic - lane) * WIDTH
        end, first = min(lane + row, ic), lane
        while first < end:  # channels that lie in one block of k, and in one panel
            begin_ic = first // block * block
            size_ic = min(block, ic - begin_ic)
            some = min(SIDE, end - first, begin_ic + size_ic - first)
            panel, channel = packed, 0
            while channel < oc:
                panel_row = vectors_of(oc - channel) * WIDTH
                panel_end, one = min(channel + panel_row, oc), channel
                while one < panel_end:
                    whole = one < oc - rest
                    begin_oc = one // block * block if whole else oc - rest
                    size_oc = block if whole else rest
                    more = min(SIDE, panel_end - one, begin_oc + size_oc - one)
                    begin_k = oc - begin_oc - size_oc
                    for place in range(places):
                        i, j = place // across, place % across
                        tap = (phase[0] + i * stride[0]) * kw + phase[1] + j * stride[1]
                        k = begin_ic * taps + tap * size_ic + first - begin_ic
                        to = begin_k * places + place * size_oc + one - begin_oc
                        _transpose(
                            panel + FLOAT_BYTES * (k * panel_row + one - channel),
                            panel_row,
                            some,
                            more,
                            target + FLOAT_BYTES * (to * row + first - lane),
                            row,
                        )
                    one += more
                panel += FLOAT_BYTES * ic * taps * panel_row
                channel += panel_row
            first += some
        target += FLOAT_BYTES * oc * places * row
        lane += row


@compiled
def frame_pixels(
    maps: Any, pitch: Any, samples: Any, channels: Any, size: Any, before: Any, after: Any, out: Any
) -> None:
    """Write maps to a frame that has the channels last, as they have; see `frame`."""
    (h, w), to = size, out
    wide = (before[1] + w + after[1]) * channels
    for sample in range(samples):
        come = maps + FLOAT_BYTES * sample * h * w * pitch
        clear(to, before[0] * wide + before[1] * channels)
        to += FLOAT_BYTES * (before[0] * wide + before[1] * channels)
        for row in range(h):
            if pitch == channels:
                copy(to, come, w * channels)
            else:
                for column in range(w):
                    place = FLOAT_BYTES * column
                    copy(to + place * channels, come + place * pitch, channels)
            come += FLOAT_BYTES * w * pitch
            to += FLOAT_BYTES * w * channels
            gap = (before[1] + after[1]) * channels if row < h - 1 else after[1] * channels
            clear(to, gap)
            to += FLOAT_BYTES * gap
        clear(to, after[0] * wide)
        to += FLOAT_BYTES * after[0] * wide


@compiled
def inputs_at(pixels: Any, steps: Any, samples: Any, size: Any, channels: Any, out: Any) -> None:
    """Write pixels of a frame that has the channels last, (samples, *size, channels), to (samples,
    channels, *size); `steps` are the floats from one sample, row and column to the next.
    """
    (by_sample, by_row, by_column), (rows, columns) = steps, size
    for sample in range(samples):
        for row in range(rows):
            come = pixels + FLOAT_BYTES * (sample * by_sample + row * by_row)
            to = out + FLOAT_BYTES * (sample * channels * rows + row) * columns
            _transpose(come, by_column, columns, channels, to, rows * columns)
