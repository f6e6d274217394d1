"""Softmax and cross-entropy where each part of the channels is elsewhere: one sequence of float32
operations.

Rows are folded channel by channel, ascending, into `top`, the largest logit so far, and `total`,
from -inf and +0:

    e = exponential(-|x - top|)
    x > top:    total = fma(total, e, 1);  top = x
    otherwise:  total = total + e

Each slice continues with the `top` and `total` of the slice before it, so no bit depends on where
the channels are cut. With those of all channels, the errors of the logits x are

    exponential(x - top) / total, less 1 for the label; then divided by the number of steps that
    count

Rows are lanes of the fold (the running maximum of Milakov and Gimelshein, 2018), channels those of
the errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from ..jit import FLOAT_BYTES, compiled
from .emit import FLOAT, address, broadcast, index, numbers_only
from .lanes import WIDTH, Lanes, Units, exponential, for_units, fused

TOGETHER = 64  # channels that are turned, so that those of all lanes lie side by side, before they are folded


@intrinsic
def _fold(context: Any, x: Any, top: Any, total: Any) -> Any:
    """Fold a channel of WIDTH rows into their `top` and `total`."""

    def generate(builder: ir.IRBuilder, x: ir.Value, top: ir.Value, total: ir.Value) -> None:
        lanes = Units(builder, None)
        logit, most, powers = (lanes.load(place) for place in (x, top, total))
        apart = logit - most
        power = exponential(logit.where(">", most, -apart, apart))
        lanes.store(
            logit.where(">", most, fused(powers, power, logit.all(1.0)), powers + power), total
        )
        lanes.store(logit.where(">", most, logit, most), top)

    return numbers_only(3, generate)


@intrinsic
def _shares(context: Any, count: Any, x: Any, state: Any, y: Any) -> Any:
    """Set `count` <= WIDTH numbers y of a row to exponential(x - top) / total, which lie at `state`
    in this order.
    """

    def generate(
        builder: ir.IRBuilder, count: ir.Value, x: ir.Value, state: ir.Value, y: ir.Value
    ) -> None:
        top, total = (
            Lanes(
                builder,
                broadcast(
                    builder, builder.load(address(builder, state, index(place), FLOAT)), WIDTH
                ),
            )
            for place in range(2)
        )
        for_units(
            builder, count, lambda units: units.store(exponential(units.load(x) - top) / total, y)
        )

    return numbers_only(4, generate)


@compiled
def fold(logits: Any, labels: Any, first: Any, state: Any) -> None:
    """Fold logits (n, c), of channels from `first` on, into `state` (n, 4).

    That is top, total, the label's logit, and whether this is the first largest one; a label of -1
    is none.
    """
    n, channels = logits.shape
    lanes, turned = np.zeros((2, WIDTH), np.float32), np.zeros((TOGETHER, WIDTH), np.float32)
    top, total = lanes[0].ctypes.data, lanes[1].ctypes.data
    for begin in range(0, n, WIDTH):
        rows = min(WIDTH, n - begin)
        for row in range(rows):
            lanes[0, row], lanes[1, row] = state[begin + row, 0], state[begin + row, 1]
        for at in range(0, channels, TOGETHER):
            count = min(TOGETHER, channels - at)
            for row in range(rows):
                for c in range(count):
                    turned[c, row] = logits[begin + row, at + c]
            for c in range(count):
                _fold(turned.ctypes.data + FLOAT_BYTES * WIDTH * c, top, total)
        for row in range(rows):
            _judge(
                logits[begin + row], labels[begin + row] - first, lanes[0, row], state[begin + row]
            )
            state[begin + row, 0], state[begin + row, 1] = lanes[0, row], lanes[1, row]


@compiled
def _judge(logits: Any, label: Any, top: Any, state: Any) -> None:
    """Note the label's logit if it is one of these, and whether it is the first largest, given the
    largest so far.
    """
    if top > state[0]:
        state[3] = 0
    if 0 <= label < len(logits):
        own = logits[label]
        state[2] = own
        if own == top and own > state[0]:
            state[3] = 1
            for c in range(label):
                if logits[c] == own:
                    state[3] = 0


@compiled
def errors(logits: Any, labels: Any, first: Any, sums: Any, steps: Any, out: Any) -> None:
    """Write the errors of logits (n, c), of channels from `first` on, to `out`, from `sums` (n, 2):
    top and total.

    `steps` (n,) are what a row's errors are divided by; those of a row without a label are +0.
    """
    n, channels = logits.shape
    for row in range(n):
        own, divisor = out[row], steps[row]
        if labels[row] < 0:
            own[:] = 0
            continue
        come, to, state = logits[row].ctypes.data, own.ctypes.data, sums[row].ctypes.data
        for c in range(0, channels, WIDTH):
            _shares(min(WIDTH, channels - c), come + FLOAT_BYTES * c, state, to + FLOAT_BYTES * c)
        if 0 <= labels[row] - first < channels:
            own[labels[row] - first] -= np.float32(1)
        if divisor != 1:
            for c in range(channels):
                own[c] = own[c] / divisor
