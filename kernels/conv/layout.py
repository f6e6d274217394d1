"""Changes of layout: maps into frames of zeros and back, weights into panels and back.

Maps are channels last, (n, rows, columns, channels), with a pitch from pixel to pixel that is larger than the number of
channels where they are a slice of wider maps. A frame holds them channel by channel, (n, channels, rows, columns), with
zeros around each, so that the micro-kernel's reads lie close together. `microkernel.py` describes panels.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

from ..jit import FLOAT_BYTES, compiled
from ..llvm import clear, copy
from .microkernel import WIDTH, padded_lanes, vectors_of
from .transpose import SIDE, transpose_block

_AT_ONCE = 32768  # floats: where planes are that small, writing all of them twice beats many short pieces of zeros


@compiled
def _transpose(source: Any, source_step: Any, rows: Any, columns: Any, out: Any, out_step: Any) -> None:
    """Set out[j * out_step + i] = source[i * source_step + j] for i < rows and j < columns."""
    for j in range(0, columns, SIDE):
        for i in range(0, rows, SIDE):
            come, to = source + FLOAT_BYTES * (i * source_step + j), out + FLOAT_BYTES * (j * out_step + i)
            transpose_block(come, source_step, min(SIDE, rows - i), min(SIDE, columns - j), to, out_step)


@compiled
def frame(
    maps: Any, pitch: Any, samples: Any, channels: Any, size: Any, before: Any, after: Any, flipped: Any, out: Any
) -> None:
    """Write maps to their frame; `before` and `after` are the (rows, columns) of zeros on either side.

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
                _transpose(come + FLOAT_BYTES * pixel * pitch, way * pitch, h * w, channels, to, way * area)
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
                _transpose(come + FLOAT_BYTES * (pixel * pitch + channel), way * pitch, w, some, to, way * area)


@compiled
def unframe(source: Any, samples: Any, channels: Any, pixels: Any, maps: Any, pitch: Any) -> None:
    """Write a frame without zeros, (n, channels, pixels), back to maps."""
    for sample in range(samples):
        come = source + FLOAT_BYTES * sample * channels * pixels
        _transpose(come, pixels, channels, pixels, maps + FLOAT_BYTES * sample * pixels * pitch, pitch)


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

    Lanes are then input channels, and k runs over output channels descending, then over the kernel rows and columns
    phase[0] + i * stride[0] and phase[1] + j * stride[1], ascending.
    """
    kh, kw = kernel
    down, across = (kh - phase[0] + stride[0] - 1) // stride[0], (kw - phase[1] + stride[1] - 1) // stride[1]
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
                come_from, put_to = panel + FLOAT_BYTES * (lane + some) * taps * panel_row, target + FLOAT_BYTES * some
                for i in range(down):
                    for j in range(across):
                        tap = (phase[0] + i * stride[0]) * kw + phase[1] + j * stride[1]
                        come = come_from + FLOAT_BYTES * tap * panel_row
                        k = ((oc - 1 - channel) * down + i) * across + j
                        to, step = put_to + FLOAT_BYTES * k * row, -down * across * row
                        _transpose(come, taps * panel_row, min(SIDE, width - some), channels, to, step)
            panel += FLOAT_BYTES * depth * panel_row
            channel += panel_row
        target += FLOAT_BYTES * oc * down * across * row
        lane += row
