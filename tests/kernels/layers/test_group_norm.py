"""Group normalisation: against PyTorch in float64, sample by sample, and doors."""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.kernels.layers.group_norm import (
    group_norm_error,
    group_norm_forward,
    group_norm_gradient,
)

F = np.float32
Maps = np.ndarray
SHAPES = [(3, 4, 5, 12, 3), (2, 1, 1, 6, 2), (2, 7, 3, 5, 5), (1, 3, 3, 16, 1)]
"""Samples, rows, columns, channels, groups."""


def numbers(shape: tuple[int, ...]) -> tuple[Maps, Maps, Maps, Maps]:
    """Inputs, errors of the outputs, scale and shift."""
    random = np.random.default_rng(3)
    x, dy = (random.standard_normal(shape[:4], F) for _ in range(2))
    scale, shift = (random.standard_normal(shape[3], F) for _ in range(2))
    return F(3) * x + F(1), dy, scale, shift


def both_ways(
    x: Maps, dy: Maps, scale: Maps, shift: Maps, groups: int, *, in_place: bool = False
) -> tuple[Maps, ...]:
    """Outputs, errors of the inputs, and gradients of scale and shift."""
    y, statistics = np.empty_like(x), np.empty((len(x), groups, 2), F)
    group_norm_forward(x, y, statistics, scale, shift, epsilon=1e-5)
    dscale, dshift = np.empty_like(scale), np.empty_like(shift)
    group_norm_gradient(x, statistics, dy, dscale, dshift, fresh=True)
    dx = dy.copy() if in_place else np.empty_like(x)
    group_norm_error(x, statistics, scale, dx if in_place else dy, dx)
    return y, dx, dscale, dshift


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_that_of_pytorch_in_float64(shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    x, dy, scale, shift = numbers(shape)
    maps = torch.tensor(x.transpose(0, 3, 1, 2), dtype=torch.float64, requires_grad=True)
    arrays = [torch.tensor(own, dtype=torch.float64, requires_grad=True) for own in (scale, shift)]
    made = torch.nn.functional.group_norm(maps, shape[4], *arrays, 1e-5)
    made.backward(torch.tensor(dy.transpose(0, 3, 1, 2), dtype=torch.float64))
    expected = [made.detach(), maps.grad]
    theirs = [own.numpy().transpose(0, 2, 3, 1) for own in expected]
    theirs += [own.grad.numpy() for own in arrays]
    for ours, own in zip(both_ways(x, dy, scale, shift, shape[4]), theirs, strict=True):
        assert np.abs(ours - own).max() <= 1e-6 * np.abs(own).max()


@pytest.mark.parametrize("shape", SHAPES)
def test_samples_do_not_depend_on_others(shape: tuple[int, ...]) -> None:
    """Bits are the same one by one; gradients add them in order; errors may be in place."""
    x, dy, scale, shift = numbers(shape)
    groups = shape[4]
    y, dx, dscale, dshift = both_ways(x, dy, scale, shift, groups)
    again = both_ways(x, dy, scale, shift, groups, in_place=True)
    assert all(np.array_equal(a, b) for a, b in zip((y, dx, dscale, dshift), again, strict=True))
    ds, dt = np.zeros_like(scale), np.zeros_like(shift)
    for n in range(len(x)):
        own = slice(n, n + 1)
        y1, dx1, *_ = both_ways(x[own], dy[own], scale, shift, groups)
        assert np.array_equal(y1, y[own]) and np.array_equal(dx1, dx[own])
        statistics = np.empty((1, groups, 2), F)
        group_norm_forward(x[own], y1, statistics, scale, shift, epsilon=1e-5)
        group_norm_gradient(x[own], statistics, dy[own], ds, dt, fresh=False)
    assert np.array_equal(ds, dscale) and np.array_equal(dt, dshift)


def test_views_with_a_pitch_are_taken() -> None:
    x, dy, scale, shift = numbers(SHAPES[0])
    wide = np.zeros((*x.shape[:3], 20), F)
    wide[..., 4:16] = x
    ours, theirs = (both_ways(own, dy, scale, shift, 3) for own in (wide[..., 4:16], x))
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("groups", [5, 0])
def test_groups_that_do_not_divide_are_refused(groups: int) -> None:
    x, dy, scale, shift = numbers(SHAPES[0])
    with pytest.raises(ValueError, match="of groups that divide 12 channels"):
        both_ways(x, dy, scale, shift, groups)
    with pytest.raises(ValueError, match="a scale and a shift"):
        both_ways(x, dy, scale[:6], shift, 3)
