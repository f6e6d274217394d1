"""Attention number by number, as the docstrings of `emuchain.kernels.attention` state it: float32,
chains of fma.

Masked keys are left out of every sum. Nothing of the kernels is used but `fma`.
"""

from __future__ import annotations

import numpy as np

from ..recurrent.reference import chain, fused
from ..recurrent.reference import exponential as parts

F = np.float32


def exponential(u: np.ndarray) -> np.ndarray:
    """exp(u) for u <= 0, but 0 below -64."""
    s, p = parts(np.maximum(u, F(-64)))
    return np.where(u < F(-64), F(0), fused(s, p, s)).astype(F)


def attention(q, k, v, dy, scale, causal, length, kept, shares_to=None, errors_to=None):
    """Run a head of a sample forward and backward; return y, (top, inverse), dq, dk, dv.

    `shares_to` and `errors_to` round what query t has of its keys, and the errors of its scores:
    functions of these and of t.
    """
    rows, size = q.shape
    y, statistics = np.zeros((rows, size), F), np.zeros((2, rows), F)
    dq, dk, dv = (np.zeros((rows, size), F) for _ in range(3))
    shares, errors = {}, {}
    for t in range(rows):
        keys = t + 1 if causal else length
        if keys == 0:
            continue
        s = chain(np.zeros(keys, F), q[t], k[:keys].T)
        top = F(scale) * s.max()
        p = exponential(F(scale) * s - top)
        total = F(0)
        for one in p:
            total += one
        inverse = F(1) / total
        statistics[:, t] = top, inverse
        y[t] = chain(np.zeros(size, F), p * kept[t, :keys], v[:keys]) * inverse
        own = p * inverse
        if shares_to is not None:
            y[t] = chain(np.zeros(size, F), shares_to(own * kept[t, :keys], t), v[:keys])
        e = chain(np.zeros(keys, F), dy[t], v[:keys].T) * kept[t, :keys]
        d = chain(np.zeros(1, F), own, e[:, None])
        shares[t], errors[t] = own * kept[t, :keys], (own * (e - d)) * F(scale)
        if shares_to is not None:
            shares[t] = shares_to(shares[t], t)
        if errors_to is not None:
            errors[t] = errors_to(errors[t], t)
        dq[t] = chain(np.zeros(size, F), errors[t], k[:keys])
    for t in range(rows):
        queries = [query for query in reversed(range(rows)) if len(shares.get(query, ())) > t]
        dk[t] = chain(dk[t], np.array([errors[query][t] for query in queries], F), q[queries])
        dv[t] = chain(dv[t], np.array([shares[query][t] for query in queries], F), dy[queries])
    return y, statistics, dq, dk, dv
