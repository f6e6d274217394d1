"""Attention number by number, as `emuchain.kernels.attention.summed` states it: sums of blocks are
those of fractions, and operands are rounded again, block by block of what a query or key sees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ..conv import exact
from ..forms import Form
from .reference import F, chain, exponential

Total = Callable[[np.ndarray, np.ndarray, Any], float]
"""Returns the sum of products at some places, in their order."""


def in_blocks(size: int) -> Total:
    """Return sums that are exact within `size` places, from place 0 on."""

    def total(a: np.ndarray, b: np.ndarray, places: Any) -> float:
        blocks: dict[int, list[tuple[float, float]]] = {}
        for place in places:
            blocks.setdefault(place // size, []).append((float(a[place]), float(b[place])))
        return exact.summed(0.0, blocks.values())

    return total


def in_narrow(dtype: Any) -> Total:
    """Return sums that are rounded after each product; operands have at most 8 bits."""

    def total(a: np.ndarray, b: np.ndarray, places: Any) -> float:
        value = F(0)
        for place in places:
            value = F(float(a[place]) * float(b[place]) + float(value)).astype(dtype).astype(F)
        return float(value)

    return total


BF16_SUMS = in_narrow(ml_dtypes.bfloat16)


@dataclasses.dataclass(frozen=True)
class Words:
    """Random words: of pairs (keys, queries), of q, k and v (3, rows, size), and of errors."""

    shares: np.ndarray
    score_errors: np.ndarray
    inputs: np.ndarray
    errors: np.ndarray


def no_words(rows: int, size: int) -> Words:
    pairs = np.zeros((rows, rows), np.uint32)
    return Words(pairs, pairs, np.zeros((3, rows, size), np.uint32), pairs[:, :1].repeat(size, 1))


@dataclasses.dataclass(frozen=True)
class Summed:
    """How a head's products are added, and in which forms operands are; None: as they are."""

    total: Total
    activations: Form | None = None
    errors: Form | None = None
    again: bool = False
    """Whether operands are rounded again."""

    def _over(self, form: Form | None, a: Any, rows: Any, words: Any, places: Any) -> np.ndarray:
        """Sum a row of pairs times rows at some places."""
        own = rows.copy()
        if self.again and form is not None and form.block:
            for begin in range(0, len(rows), form.block):
                some = [place for place in sorted(places) if begin <= place < begin + form.block]
                if some:
                    own[some] = form.round(rows[some].T, words[some].T).T
        return F([self.total(a, own[:, channel], places) for channel in range(rows.shape[1])])

    def _channels(self, form: Form | None, rows: np.ndarray, words: np.ndarray) -> np.ndarray:
        size = rows.shape[1]
        if not self.again or form is None or not form.block:
            return rows
        whole = size % form.block == 0 or form.block % size == 0
        return rows if whole else form.round(rows, words)

    def run(
        self,
        inputs: np.ndarray,
        dy: np.ndarray,
        words: Words,
        scale: float,
        causal: bool,
        length: int,
        kept: np.ndarray,
    ) -> tuple[np.ndarray, ...]:
        """Return y, the statistics, and dq, dk and dv, of inputs (3, rows, size)."""
        q, k, v = inputs
        rows, size = q.shape
        y, statistics = np.zeros((rows, size), F), np.zeros((2, rows), F)
        dq, dk, dv = (np.zeros((rows, size), F) for _ in range(3))
        shares, errors = np.zeros((rows, rows), F), np.zeros((rows, rows), F)  # query, key
        of_q, of_k, of_v = (
            self._channels(self.activations, own, own_words)
            for own, own_words in zip(inputs, words.inputs, strict=True)
        )
        of_dy = self._channels(self.errors, dy, words.errors)
        channels, seen = range(size), []
        for t in range(rows):
            keys = t + 1 if causal else length
            seen.append(range(keys))
            if not keys:
                continue
            s = F([self.total(of_q[t], of_k[key], channels) for key in range(keys)])
            top = F(scale) * s.max()
            p, total = exponential(F(scale) * s - top), F(0)
            for one in p:
                total += one
            statistics[:, t] = top, F(1) / total
            own = p * statistics[1, t]
            e = F([self.total(of_dy[t], of_v[key], channels) for key in range(keys)])
            e *= kept[t, :keys]
            d = chain(np.zeros(1, F), own, e[:, None])
            shares[t, :keys], errors[t, :keys] = own * kept[t, :keys], (own * (e - d)) * F(scale)
            line = _rounded(self.activations, shares[t, :keys], words.shares[:keys, t])
            y[t] = self._over(self.activations, line, v, words.inputs[2], seen[t])
            line = _rounded(self.errors, errors[t, :keys], words.score_errors[:keys, t])
            dq[t] = self._over(self.activations, line, k, words.inputs[1], seen[t])
        for key in range(rows):
            places = [t for t in reversed(range(rows)) if key in seen[t]]
            line = _rounded(self.errors, errors[:, key], words.score_errors[key])
            dk[key] = self._over(self.activations, line, q, words.inputs[0], places)
            line = _rounded(self.activations, shares[:, key], words.shares[key])
            dv[key] = self._over(self.errors, line, dy, words.errors, places)
        return y, statistics, dq, dk, dv


def _rounded(form: Form | None, values: np.ndarray, words: np.ndarray) -> np.ndarray:
    return values if form is None else form.round(values, words)
