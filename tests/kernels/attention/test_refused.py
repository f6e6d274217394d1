"""Arrays that attention refuses, and those without a row or a sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from emuchain.kernels.attention import Attention, backward, forward

F = np.float32
FULL, CAUSAL = Attention(2, 3, causal=False), Attention(2, 3, causal=True)
X, Y, STATISTICS = np.zeros((2, 5, 18), F), np.zeros((2, 5, 6), F), np.zeros((2, 2, 2, 5), F)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Attention(0, 3, causal=True), "heads = 0"),
        (lambda: Attention(2, 0, causal=True), "size = 0"),
        (lambda: Attention(2, 3, causal=True, scale=0.0), "scale = 0.0"),
        (lambda: Attention(2, 3, causal=True, scale=np.inf), "scale = inf"),
        (lambda: forward(X[0], FULL), "samples, rows, 3"),
        (lambda: forward(X[..., :17], FULL), r"\(2, 5, 17\); \(2, 5, 18\)"),
        (lambda: forward(np.zeros((18, 5, 2), F).T, FULL), "x has strides"),
        (lambda: forward(X, CAUSAL, lengths=[5, 5]), "causal attention takes no lengths"),
        (lambda: forward(X, FULL, lengths=[5]), "2 whole numbers from 0 to 5"),
        (lambda: forward(X, FULL, lengths=[5, 6]), "2 whole numbers from 0 to 5"),
        (lambda: forward(X, FULL, lengths=[5, 0.5]), "2 whole numbers from 0 to 5"),
        (
            lambda: forward(X, FULL, kept=np.zeros((2, 2, 5, 4), F)),
            r"kept has shape \(2, 2, 5, 4\)",
        ),
        (lambda: FULL.forward(X, Y[..., :5], STATISTICS), "y has shape"),
        (lambda: FULL.forward(X, Y, STATISTICS[:, :1]), "statistics has shape"),
        (lambda: FULL.forward(X, Y, STATISTICS, rows=(3, 2)), r"rows = \(3, 2\): x has 5 rows"),
        (lambda: FULL.forward(X, Y, STATISTICS, rows=(0, 6)), r"rows = \(0, 6\)"),
        (lambda: FULL.backward(X, STATISTICS, Y[:, :4], X), "dy has shape"),
        (lambda: FULL.backward(X, STATISTICS, Y, X[..., :6]), "dx has shape"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_only_float32_is_taken() -> None:
    with pytest.raises(TypeError, match="x must be float32"):
        forward(X.astype(np.float64), FULL)


@pytest.mark.parametrize("shape", [(0, 5), (2, 0)])
def test_nothing_is_no_trouble(shape: tuple[int, int]) -> None:
    y, statistics = forward(np.zeros((*shape, 18), F), FULL)
    assert y.shape == (*shape, 6) and statistics.shape == (shape[0], 2, 2, shape[1])
    assert backward(np.zeros((*shape, 18), F), statistics, y, FULL).shape == (*shape, 18)
