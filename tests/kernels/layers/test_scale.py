"""Sums of products for factors of channels: against NumPy in float64, sample by sample, and
doors.
"""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.kernels.layers.scale import gate_error, scale_gradient, total_gradient

F = np.float32
Maps = np.ndarray
SHAPES = [(3, 4, 5, 12), (2, 1, 1, 6), (1, 7, 3, 1)]


def numbers(shape: tuple[int, ...]) -> tuple[Maps, Maps]:
    """Inputs, the first channels of wider maps, and errors of the outputs."""
    random = np.random.default_rng(3)
    wide = random.standard_normal((*shape[:3], shape[3] + 2), F)
    return wide[..., : shape[3]], random.standard_normal(shape, F)


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_are_those_in_float64(shape: tuple[int, ...]) -> None:
    x, dy = numbers(shape)
    products = x.astype(np.float64) * dy
    errors, gradient = np.empty((shape[0], 1, 1, shape[3]), F), np.ones(shape[3], F)
    gate_error(x, dy, errors)
    scale_gradient(x, dy, gradient, fresh=True)
    expected = products.sum((1, 2), keepdims=True)
    assert np.abs(errors - expected).max() <= 1e-6 * np.abs(expected).max()
    one = np.ones(1, F)
    total_gradient(x, dy, one, fresh=True)
    assert abs(one[0] - products.sum()) <= 1e-6 * np.abs(products.sum((1, 2, 3))).sum()
    total = products.sum((0, 1, 2))
    assert np.abs(gradient - total).max() <= 1e-6 * np.abs(products).sum((0, 1, 2)).max()


@pytest.mark.parametrize("shape", SHAPES)
def test_samples_do_not_depend_on_others(shape: tuple[int, ...]) -> None:
    """Bits are the same one by one; gradients add them in order."""
    x, dy = numbers(shape)
    errors, gradient = np.empty((shape[0], 1, 1, shape[3]), F), np.empty(shape[3], F)
    gate_error(x, dy, errors)
    scale_gradient(x, dy, gradient, fresh=True)
    total, whole, one_by_one = np.zeros(shape[3], F), np.empty(1, F), np.zeros(1, F)
    total_gradient(x, dy, whole, fresh=True)
    for n in range(len(x)):
        own = slice(n, n + 1)
        one = np.empty((1, 1, 1, shape[3]), F)
        gate_error(x[own], dy[own], one)
        assert np.array_equal(one, errors[own])
        scale_gradient(x[own], dy[own], total, fresh=False)
        total_gradient(x[own], dy[own], one_by_one, fresh=False)
    assert np.array_equal(whole, one_by_one)
    assert np.array_equal(total, gradient)


def test_other_shapes_are_refused() -> None:
    x, dy = numbers(SHAPES[0])
    with pytest.raises(ValueError, match="errors have shape"):
        gate_error(x, dy, np.empty((3, 1, 1, 6), F))
    with pytest.raises(ValueError, match="need a gradient of shape"):
        scale_gradient(x, dy, np.empty(6, F), fresh=True)
    with pytest.raises(ValueError, match="need a gradient of shape"):
        total_gradient(x, dy, np.empty(12, F), fresh=True)
    with pytest.raises(ValueError, match="must have one shape"):
        gate_error(x, dy[:2], np.empty((3, 1, 1, 12), F))
