"""Sums of blocks of products in whole numbers and fractions: no float adds or multiplies here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

LEAST, LARGEST = Fraction(2) ** -149, Fraction(2) ** 128 - Fraction(2) ** 104


def single(value: Fraction) -> float:
    """Return the fp32 number next to a fraction; of two, the even one."""
    if not value:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    spacing = max(Fraction(2) ** (exponent - 23), LEAST)
    rounded = round(size / spacing) * spacing  # of a half, `round` takes the even side
    result = math.inf if rounded > LARGEST else float(rounded)
    return result if value > 0 else -result


def summed(start: float, blocks: Iterable[Iterable[tuple[float, float]]]) -> float:
    """Add products to a sum, block after block, each exactly and then once."""
    for block in blocks:
        total = sum((Fraction(a) * Fraction(b) for a, b in block), Fraction(0))
        start = single(Fraction(start) + total)
    return start


def cut(size: int, block: int) -> list[range]:
    """Return the places of each block."""
    return [range(begin, min(size, begin + block)) for begin in range(0, size, block)]


def forward(x, w, stride, pad, block, start=None):  # type: ignore[no-untyped-def]
    """Return y (n, oc, ho, wo) of x (n, ic, h, w) and w (oc, ic, kh, kw)."""
    (n, ic, height, width), (oc, _, kh, kw) = x.shape, w.shape
    framed = np.pad(x, ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2)).astype(float)
    ho = (height + 2 * pad[0] - kh) // stride[0] + 1
    wo = (width + 2 * pad[1] - kw) // stride[1] + 1
    y = np.zeros((n, oc, ho, wo), np.float32) if start is None else start.copy()
    for s, o, r, c in np.ndindex(*y.shape):
        y[s, o, r, c] = summed(
            float(y[s, o, r, c]),
            (
                [
                    (framed[s, i, r * stride[0] + u, c * stride[1] + v], float(w[o, i, u, v]))
                    for i in channels
                ]
                for channels in cut(ic, block)
                for u in range(kh)
                for v in range(kw)
            ),
        )
    return y


def error(dy, w, shape, stride, pad, block, start=None):  # type: ignore[no-untyped-def]
    """Return dx of a shape (n, ic, h, w)."""
    oc, _, kh, kw = w.shape
    dx = np.zeros(shape, np.float32) if start is None else start.copy()

    def products(s, i, r, c, channels, u, v):  # type: ignore[no-untyped-def]
        row, column = r + pad[0] - u, c + pad[1] - v
        if row % stride[0] or column % stride[1]:
            return []
        row, column = row // stride[0], column // stride[1]
        if not (0 <= row < dy.shape[2] and 0 <= column < dy.shape[3]):
            return []
        return [(float(dy[s, o, row, column]), float(w[o, i, u, v])) for o in channels]

    for place in np.ndindex(*shape):
        blocks = (
            products(*place, channels, u, v)
            for channels in reversed(cut(oc, block))
            for u in range(kh)
            for v in range(kw)
        )
        dx[place] = summed(float(dx[place]), blocks)
    return dx


def gradient(inputs_at, dy, shape, block, start=None):  # type: ignore[no-untyped-def]
    """Return dw of a shape (oc, ic, kh, kw); `inputs_at` returns what outputs (n, pixels) read of
    an input channel through a place.
    """
    n, _, ho, wo = dy.shape
    dw = np.zeros(shape, np.float32) if start is None else start.copy()
    errors = dy.reshape(n, shape[0], -1)
    for o, i, u, v in np.ndindex(*shape):
        taken = inputs_at(i, u, v)
        blocks = (
            [(float(taken[s, p]), float(errors[s, o, p])) for p in pixels]
            for s in range(n)
            for pixels in cut(ho * wo, block)
        )
        dw[o, i, u, v] = summed(float(dw[o, i, u, v]), blocks)
    return dw
