"""Queries of one sequence, keys and values of another: bits of attention within one sequence, and
values of NumPy in float64.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from emuchain.kernels.attention import Attention, backward, forward

F = np.float32


def drawn(samples: int, keys: int, rows: int, channels: int) -> tuple[Any, Any]:
    random = np.random.default_rng(keys)
    x = random.standard_normal((samples, 2 * keys + rows, channels), F)
    return x, random.standard_normal((samples, rows, channels), F)


def in_float64(
    x: Any, dy: Any, heads: int, keys: int, scale: float, kept: Any = 1.0
) -> tuple[Any, Any]:
    """Outputs and input errors by the formulas of softmax(scale q k') v."""
    apart = x.astype(np.float64).reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
    k, v, q = np.split(apart, (keys, 2 * keys), 2)
    of_rows = dy.astype(np.float64).reshape(*dy.shape[:2], heads, -1).swapaxes(1, 2)
    shares = np.exp(scale * q @ k.swapaxes(2, 3))
    shares /= shares.sum(-1, keepdims=True)
    of_shares = kept * (of_rows @ v.swapaxes(2, 3))
    of_scores = scale * shares * (of_shares - (of_shares * shares).sum(-1, keepdims=True))
    parts = of_scores.swapaxes(2, 3) @ q, (shares * kept).swapaxes(2, 3) @ of_rows, of_scores @ k
    dx = np.concatenate(parts, 2).swapaxes(1, 2).reshape(x.shape)
    return ((shares * kept) @ v).swapaxes(1, 2).reshape(dy.shape), dx


@pytest.mark.parametrize(("keys", "rows"), [(1, 9), (9, 1), (7, 5), (130, 70), (70, 130)])
@pytest.mark.parametrize(("heads", "size"), [(1, 3), (3, 20), (2, 32)])
@pytest.mark.parametrize("drops", [False, True])
def test_values_are_those_of_float64(
    keys: int, rows: int, heads: int, size: int, drops: bool
) -> None:
    x, dy = drawn(2, keys, rows, heads * size)
    masks: dict[str, Any] = {}
    if drops:
        draws = np.random.default_rng(3).random((2, heads, rows, keys))
        masks["kept"] = np.where(draws < 0.25, 0, 1 / 0.75).astype(F)
    for scale in (None, 0.1):
        attention = Attention(heads, size, causal=False, scale=scale, keys=keys)
        y, statistics = forward(x, attention, **masks)
        dx = backward(x, statistics, dy, attention, **masks)
        expected = in_float64(x, dy, heads, keys, scale or size**-0.5, **masks)
        for ours, theirs in zip((y, dx), expected, strict=True):
            assert np.abs(ours - theirs).max() <= 1e-6 * max(1, np.abs(theirs).max())


@pytest.mark.parametrize("rows", [1, 64, 70, 130])
def test_one_sequence_is_its_own_other(rows: int) -> None:
    """Bits do not depend on where queries, keys and values stand."""
    heads, size = 3, 20
    x, dy = drawn(2, rows, rows, heads * size)
    k, v, q = (own.reshape(2, rows, heads, size) for own in np.split(x, 3, 1))
    one = np.ascontiguousarray(np.stack([q, k, v], 3).reshape(2, rows, -1))
    lengths = np.array([rows, rows // 2])
    for masks in ({}, {"lengths": lengths}):
        crossed, own = Attention(heads, size, False, keys=rows), Attention(heads, size, False)
        (y, statistics), (expected, other) = (
            forward(x, crossed, **masks),
            forward(one, own, **masks),
        )
        assert y.tobytes() == expected.tobytes() and statistics.tobytes() == other.tobytes()
        made = backward(x, statistics, dy, crossed, **masks)
        parts = backward(one, other, dy, own, **masks).reshape(2, rows, heads, 3, size)
        for part, place in zip(np.split(made, 3, 1), (1, 2, 0), strict=True):
            assert part.tobytes() == np.ascontiguousarray(parts[:, :, :, place]).tobytes()


@pytest.mark.parametrize("cuts", [[0, 70], [0, 1, 64, 70], [0, 33, 40, 70]])
def test_calls_and_heads_change_no_bit(cuts: list[int]) -> None:
    x, dy = drawn(2, 90, 70, 60)
    attention = Attention(3, 20, causal=False, keys=90)
    y, statistics = forward(x, attention)
    dx = backward(x, statistics, dy, attention)
    own, numbers, errors = np.empty_like(y), np.empty_like(statistics), np.empty_like(dx)
    spans = [*itertools.pairwise(cuts)]
    for rows in spans:
        attention.forward(x, own, numbers, rows=rows)
    for rows in reversed(spans):
        attention.backward(x, numbers, dy, errors, rows=rows)
    assert own.tobytes() == y.tobytes() and errors.tobytes() == dx.tobytes()
    one = Attention(1, 20, causal=False, keys=90)
    for head in range(3):
        some = slice(20 * head, 20 * head + 20)
        alone, of_one = forward(x[..., some], one)
        assert alone.tobytes() == np.ascontiguousarray(y[..., some]).tobytes()
        part = backward(x[..., some], of_one, dy[..., some], one)
        assert part.tobytes() == np.ascontiguousarray(dx[..., some]).tobytes()
