"""Hadamard's transform: orthogonal, of whole blocks alone, and what it does to a sum."""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.kernels.quantise import HADAMARD_SIZES, transform


def signs_of(size: int) -> np.ndarray:
    return np.random.default_rng(size).choice(np.array([-1, 1], np.float32), size)


@pytest.mark.parametrize("size", HADAMARD_SIZES)
def test_it_is_a_matrix_of_hadamard(size: int) -> None:
    """Rows of the unit matrix become plus and minus 1 / root, at right angles to one another."""
    lines, signs = np.eye(size, dtype=np.float32), signs_of(size)
    transform(lines, signs)
    assert np.array_equal(np.abs(lines), np.full((size, size), size**-0.5))
    assert np.array_equal(lines @ lines.T, np.eye(size))
    plain = np.eye(size, dtype=np.float32)
    transform(plain, np.ones(size, np.float32))
    assert np.array_equal(lines, plain * signs[:, None]), "signs come first"
    assert np.array_equal(plain, plain.T)


@pytest.mark.parametrize("size", HADAMARD_SIZES)
@pytest.mark.parametrize("length", [1, 3, 16, 37, 64])
def test_sums_of_products_stay(size: int, length: int) -> None:
    random, signs = np.random.default_rng(length), signs_of(size)
    one, other = random.integers(-64, 64, (2, 3, 5, length)).astype(np.float32)
    sums, rest = (one * other).sum(axis=-1), one[..., length // size * size :].copy()
    transform(one, signs)
    transform(other, signs)
    assert np.array_equal((one * other).sum(axis=-1), sums), "whole numbers of few bits are exact"
    assert np.array_equal(one[..., length // size * size :], rest)


def test_what_is_large_in_one_place_is_shared_out() -> None:
    lines = np.zeros((1, 32), np.float32)
    lines[0, 5] = 64.0
    transform(lines, signs_of(16))
    assert np.array_equal(np.abs(lines[0, :16]), np.full(16, 16.0)) and not lines[0, 16:].any()
