"""LSTM and GRU number by number, as the docstrings of `emuchain.kernels.recurrent` state them:
float32, chains of fma.

Sequences are one sample's, [steps, ...]; weights are PyTorch's, gate by gate. Nothing of the
kernels is used but `fma`. `narrow` rounds operands: the kind, as `Operands` has it, the step, the
line of a step, and the numbers of all units.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
from numba import njit

from emuchain.kernels.llvm import fma

from ..conv.exact import cut, summed

F = np.float32
Arrays = Sequence[np.ndarray]
Narrow = Callable[[str, int, int, np.ndarray], np.ndarray]


def plain(kind: str, t: int, line: int, values: np.ndarray) -> np.ndarray:
    """Leave an operand as it is."""
    return values


@njit(cache=True)
def _fma(a, b, c, out):
    for i in range(out.size):
        out[i] = fma(a[i], b[i], c[i])


def fused(a, b, c) -> np.ndarray:
    """a * b + c with one rounding, of arrays or numbers."""
    a, b, c = (np.array(v, order="C") for v in np.broadcast_arrays(F(a), F(b), F(c)))
    out = np.empty_like(a)
    _fma(a.reshape(-1), b.reshape(-1), c.reshape(-1), out.reshape(-1))
    return out


@njit(cache=True)
def _chain(start, a, b):
    for lane in range(start.size):
        for k in range(a.size):
            start[lane] = fma(a[k], b[k, lane], start[lane])


def chain(start: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """start + sum of a[k] * b[k], k ascending."""
    total = np.array(start, F)
    _chain(total, np.ascontiguousarray(a), np.ascontiguousarray(b))
    return total


@njit(cache=True)
def add_outer(total, a, b):
    for i in range(a.size):
        for j in range(b.size):
            total[i, j] = fma(a[i], b[j], total[i, j])


class Plain:
    """Sums in fp32, product by product."""

    def forth(self, start: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """start + the sum of a[k] * b[k], k ascending."""
        return chain(start, a, b)

    def back(self, start: np.ndarray, a: np.ndarray, b: np.ndarray, gates: int) -> np.ndarray:
        """The same of channels = gates * unit + gate, descending."""
        return self.forth(start, a[::-1], b[::-1])

    def gradient(
        self, total: np.ndarray, errors: np.ndarray, source: np.ndarray, lines: Sequence[int]
    ) -> None:
        """Add the products of all steps; `lines` are the numbers of the first error, from which
        gate on it is another, and of the first column of the source.
        """
        for e, s in zip(errors, source, strict=True):
            self._add_outer(total, e, s)

    def _add_outer(self, total: np.ndarray, errors: np.ndarray, source: np.ndarray) -> None:
        add_outer(total, errors, source)


PLAIN = Plain()


class Bf16Sums(Plain):
    """Each product is added, and rounded to fp32 and then to bf16; operands have at most 8 bits."""

    def _add(self, total: np.ndarray, products: np.ndarray) -> np.ndarray:
        return (products + total).astype(F).astype(ml_dtypes.bfloat16).astype(F)

    def forth(self, start: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        total = start
        for one, row in zip(a.astype(float), b.astype(float), strict=True):
            total = self._add(total, one * row)
        return total

    def _add_outer(self, total: np.ndarray, errors: np.ndarray, source: np.ndarray) -> None:
        total[...] = self._add(total, np.outer(errors.astype(float), source.astype(float)))


class Exact(Plain):
    """Sums that are exact until they are whole, in whole numbers; they begin at 0."""

    def forth(self, start: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (start.astype(float) + a.astype(float) @ b.astype(float)).astype(F)


@dataclasses.dataclass(frozen=True)
class Blocks(Plain):
    """Sums of fractions in blocks of `size`; `again` rounds lines (lines, steps) of a kind, from a
    number on.
    """

    size: int
    again: Callable[[str, int, np.ndarray], np.ndarray] = lambda kind, first, lines: lines

    def _sum(
        self, start: np.ndarray, a: np.ndarray, b: np.ndarray, places: Sequence[Sequence[int]]
    ) -> np.ndarray:
        columns, rows = b.T.tolist(), a.tolist()
        return F(
            [
                summed(float(begin), ([(rows[k], column[k]) for k in some] for some in places))
                for begin, column in zip(start, columns, strict=True)
            ]
        )

    def forth(self, start: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._sum(start, a, b, cut(len(a), self.size))

    def back(self, start: np.ndarray, a: np.ndarray, b: np.ndarray, gates: int) -> np.ndarray:
        places = [
            [gates * unit + gate for unit in units]
            for units in reversed(cut(len(a) // gates, self.size))
            for gate in reversed(range(gates))
        ]
        return self._sum(start, a, b, places)

    def gradient(
        self, total: np.ndarray, errors: np.ndarray, source: np.ndarray, lines: Sequence[int]
    ) -> None:
        first, other, begin = lines
        columns = self.again("activations", begin, source.T.copy()).T
        rows = self.again("errors", first, errors.T.copy())
        if other:  # the last third has lines of its own
            third = len(rows) // 3
            rows[2 * third :] = self.again("errors", other, errors.T[2 * third :].copy())
        for row, own in zip(total, rows, strict=True):
            row[...] = self._sum(row.copy(), own, columns, cut(len(own), self.size))


def exponential(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    t = fused(u, 1.4426950216293335, 12582912.0)
    s = ((t.view(np.int32) << 23) + np.int32(127 << 23)).view(F)
    r = fused(t - F(12582912.0), -0.6931471824645996, u)
    q = np.full_like(r, F(0.0013882515486329794))
    for c in (0.008366547524929047, 0.04166720062494278, 0.1666654348373413, 0.4999999701976776):
        q = fused(q, r, c)
    return s, fused(r * r, q, r)


def sigmoid(x: np.ndarray) -> np.ndarray:
    s, p = exponential(-np.minimum(np.abs(x), F(40)))
    e = fused(s, p, s)
    return np.where(x >= 0, F(1), e) / (F(1) + e)


def tanh(x: np.ndarray) -> np.ndarray:
    a = np.minimum(np.abs(x), F(40))
    s, p = exponential(-(a + a))
    m = fused(s, p, s - F(1))
    return np.copysign(-m / (F(2) + m), x)


def interleaved(w: np.ndarray, gates: int) -> np.ndarray:
    """Rows gate by gate as rows of channels = gates * unit + gate."""
    return np.ascontiguousarray(w.reshape(gates, -1, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape))


def gate_major(w: np.ndarray, gates: int) -> np.ndarray:
    """Rows of channels = gates * unit + gate as rows gate by gate."""
    return np.ascontiguousarray(w.reshape(-1, gates, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape))


def lstm(
    x,
    w,
    r,
    b_w,
    b_r,
    h,
    c,
    p,
    dy,
    dh,
    dc,
    grads,
    reverse=False,
    narrow=plain,
    sums=PLAIN,
    turned=None,
):
    """Run one sample forward and backward; add to grads (dw, dr, db_w, db_r, dp); return y, h, c,
    dx, dh0, dc0.
    """
    w, r, b_w, b_r = (interleaved(v, 4) for v in (w, r, b_w, b_r))
    w_back, r_back, p_back = w, r, p
    if turned is not None:
        w_back, r_back, p_back = (
            interleaved(turned["w"], 4),
            interleaved(turned["r"], 4),
            turned.get("p"),
        )
    chain = sums.forth
    order = range(len(x))[::-1] if reverse else range(len(x))
    kept, y = {}, np.zeros((len(x), len(h)), F)
    for t in order:
        a = (chain(chain(np.zeros(len(w), F), x[t], w.T), h, r.T) + b_w) + b_r
        i, f, o = (sigmoid(a[k::4]) for k in (0, 1, 3))
        g = tanh(a[2::4])
        after = fused(f, c, i * g)
        bent = tanh(after)
        out = o * bent if p is None else narrow("inner", t, 0, o * bent)
        kept[t] = i, f, g, o, bent, c, h, out
        h, c = (out if p is None else chain(np.zeros(len(p), F), out, p.T)), after
        h = y[t] = narrow("states", t, 0, h)
    rec, dc, one = dh, dc, F(1)
    dx, deltas, outs = np.zeros_like(x), {}, {}
    for t in reversed(order):
        i, f, g, o, bent, before, _, _ = kept[t]
        e = dy[t] + rec
        if p is not None:
            e = outs[t] = narrow("inner_errors", t, 0, e)
            e = sums.back(np.zeros(p.shape[1], F), e, p_back, 1)
        d = fused(o * e, fused(-bent, bent, 1), dc)
        delta = np.empty(len(w), F)
        delta[0::4] = (i * (one - i)) * (g * d)
        delta[1::4] = (f * (one - f)) * (before * d)
        delta[2::4] = fused(-g, g, 1) * (i * d)
        delta[3::4] = (o * (one - o)) * (bent * e)
        for line in range(4):
            delta[line::4] = narrow("errors", t, line, delta[line::4].copy())
        deltas[t], dc = delta, f * d
        rec = sums.back(np.zeros(r.shape[1], F), delta, r_back, 4)
        dx[t] = sums.back(np.zeros(w.shape[1], F), delta, w_back, 4)
    dw, dr, db_w, db_r, dp = grads
    steps = range(len(x))
    errors, states = [gate_major(deltas[t], 4) for t in steps], [kept[t][6] for t in steps]
    sums.gradient(dw, F(errors), x, (0, 0, 0))
    sums.gradient(dr, F(errors), F(states), (0, 0, x.shape[1]))
    for own in errors:
        db_w += own
        db_r += own
    if p is not None:
        cells, lines = F([kept[t][7] for t in steps]), (len(w), 0, x.shape[1] + len(p))
        sums.gradient(dp, F([outs[t] for t in steps]), cells, lines)
    return y, h, c, dx, rec, dc


def gru(
    x,
    w,
    r,
    b_w,
    b_r,
    h,
    dy,
    dh,
    grads,
    linear=True,
    reverse=False,
    narrow=plain,
    sums=PLAIN,
    turned=None,
):
    """Run one sample forward and backward; add to grads (dw, dr, db_w, db_r); return y, h, dx,
    dh0.
    """
    w, r, b_w, b_r = (interleaved(v, 3) for v in (w, r, b_w, b_r))
    w_back, r_back = w, r
    if turned is not None:
        w_back, r_back = (interleaved(turned[name], 3) for name in ("w", "r"))
    chain = sums.forth
    order = range(len(x))[::-1] if reverse else range(len(x))
    kept, y, zeros = {}, np.zeros((len(x), len(h)), F), np.zeros(len(w), F)
    for t in order:
        of_x = chain(zeros, x[t], w.T)
        of_both = (chain(of_x, h, r.T) + b_w) + b_r
        reset, update = sigmoid(of_both[0::3]), sigmoid(of_both[1::3])
        m, q = (chain(zeros, h, r.T) + b_r)[2::3], reset * h
        if not linear:
            q = narrow("inner", t, 0, q)
        n = (
            tanh(fused(reset, m, (of_x + b_w)[2::3]))
            if linear
            else tanh(((chain(of_x, q, r.T) + b_w) + b_r)[2::3])
        )
        kept[t] = reset, update, n, m, h, q
        h = y[t] = narrow("states", t, 0, fused(update, h - n, n))
    rec, carry, one = dh, np.zeros_like(dh), F(1)
    dx, deltas, of_r = np.zeros_like(x), {}, {}
    for t in reversed(order):
        reset, update, n, m, before, q = kept[t]
        e = dy[t] + (rec + carry)
        delta, other = np.empty(len(w), F), np.zeros(len(w), F)
        of_n = (e * (one - update)) * fused(-n, n, 1)
        delta[2::3] = narrow("errors", t, 2, of_n)
        delta[1::3] = narrow("errors", t, 1, (e * (before - n)) * (update * (one - update)))
        if linear:
            delta[0::3] = narrow("errors", t, 0, (of_n * m) * (reset * (one - reset)))
            other[:] = delta
            other[2::3] = narrow("errors", t, 3, of_n * reset)
            carry = e * update
            of_r[t] = other
        else:
            s = sums.back(np.zeros(len(h), F), delta[2::3], r_back[2::3], 1)
            delta[0::3] = narrow("errors", t, 0, (s * before) * (reset * (one - reset)))
            other[:] = delta
            other[2::3] = 0
            carry = fused(s, reset, e * update)
            of_r[t] = delta
        deltas[t] = delta
        rec = sums.back(np.zeros(len(h), F), other, r_back, 3)
        dx[t] = sums.back(np.zeros(w.shape[1], F), delta, w_back, 3)
    dw, dr, db_w, db_r = grads
    steps, most, inputs = range(len(x)), 2 * len(h), x.shape[1]
    errors, others = ([gate_major(own[t], 3) for t in steps] for own in (deltas, of_r))
    before, inner = F([kept[t][4] for t in steps]), F([kept[t][5] for t in steps])
    sums.gradient(dw, F(errors), x, (0, 0, 0))
    if linear:
        sums.gradient(dr, F(others), before, (0, 3 * len(h), inputs))
    else:
        sums.gradient(dr[:most], F(others)[:, :most], before, (0, 0, inputs))
        sums.gradient(dr[most:], F(others)[:, most:], inner, (most, 0, inputs + len(h)))
    for own, other in zip(errors, others, strict=True):
        db_w += own
        db_r += other
    return y, h, dx, rec + carry
