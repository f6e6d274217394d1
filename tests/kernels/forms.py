"""Formats of numbers worked out in double precision, for comparison with the kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

F = np.float32


@dataclasses.dataclass(frozen=True)
class Form:
    """Fraction bits, the least exponent, the largest number, and elements of a block with a
    scale.
    """

    fraction: int
    least: int
    largest: float
    block: int = 0
    by_chance: bool = False
    scales: Form | None = None
    """Of blocks, relative to a scale of the last axis."""

    def round(self, values: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Round, in blocks along the last axis; `words` are for those by chance."""
        result = np.empty(values.shape)
        exact = values.astype(np.float64)
        if self.scales is not None:
            return self._in_tensors(exact, words)
        for begin in range(0, values.shape[-1], self.block or values.shape[-1]):
            place = slice(begin, begin + (self.block or values.shape[-1]))
            scale: Any = 1.0
            if self.block:
                most = np.abs(exact[..., place]).max(axis=-1, keepdims=True)
                most = np.where(most > 0, most, self.largest)
                scale = 2.0 ** np.ceil(np.log2(most / self.largest))
            own = exact[..., place] / scale
            result[..., place] = self._elements(own, words[..., place]) * scale
        return result.astype(F)

    def _in_tensors(self, exact: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Round, each line of the last axis under a scale of its own."""
        assert self.scales is not None
        result, most = np.empty(exact.shape), np.abs(exact).max(axis=-1, keepdims=True)
        top = self.largest * self.scales.largest
        exact_scale = np.where(most > 0, most, top) / top
        tensor = 2.0 ** np.maximum(np.ceil(np.log2(exact_scale)), -126)
        for begin in range(0, exact.shape[-1], self.block):
            place = slice(begin, begin + self.block)
            own = exact[..., place] / tensor
            share = np.abs(own).max(axis=-1, keepdims=True) / self.largest
            scale = np.maximum(self.scales._elements(share, words[..., :1]), 2.0**-9)
            quotient = (own / scale).astype(F).astype(np.float64)
            result[..., place] = self._elements(quotient, words[..., place]) * scale * tensor
        return result.astype(F)

    def _elements(self, values: np.ndarray, words: np.ndarray) -> np.ndarray:
        _, exponents = np.frexp(values)
        steps = 2.0 ** (np.maximum(exponents - 1, self.least) - self.fraction)
        counts = np.abs(values) / steps
        if self.by_chance:
            whole = np.floor(counts)
            counts = whole + (words < np.floor((counts - whole) * 2**32))
        else:
            counts = np.rint(counts)  # halves to even
        return np.copysign(np.minimum(counts * steps, self.largest), values)


BF16 = Form(7, -126, np.inf)
E4M3 = Form(3, -6, 448)
E2M1 = Form(1, 0, 6)
NVFP4 = Form(1, 0, 6, 16, scales=E4M3)
