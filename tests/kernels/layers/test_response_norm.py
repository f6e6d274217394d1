"""Global response normalisation: against PyTorch in float64, sample by sample, and doors."""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.kernels.layers.response_norm import response_norm_error, response_norm_forward

F = np.float32
Maps = np.ndarray
SHAPES = [(3, 4, 5, 12), (2, 1, 1, 6), (2, 7, 3, 5), (1, 3, 3, 1)]
"""Samples, rows, columns, channels."""


def numbers(shape: tuple[int, ...]) -> tuple[Maps, Maps]:
    """Inputs, of which one channel is zeros where there are others, and errors of the outputs."""
    random = np.random.default_rng(3)
    x, dy = (random.standard_normal(shape, F) for _ in range(2))
    x[..., 1:2] = 0
    return F(3) * x + F(1) * (x != 0), dy


def both_ways(x: Maps, dy: Maps, *, in_place: bool = False) -> tuple[Maps, Maps]:
    """Outputs, and errors of the inputs."""
    y, lengths = np.empty_like(x), np.empty((len(x), x.shape[3]), F)
    response_norm_forward(x, y, lengths, epsilon=1e-6)
    dx = dy.copy() if in_place else np.empty_like(x)
    response_norm_error(x, lengths, dx if in_place else dy, dx, epsilon=1e-6)
    return y, dx


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_that_of_pytorch_in_float64(shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    x, dy = numbers(shape)
    maps = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    length = torch.norm(maps, p=2, dim=(1, 2), keepdim=True)
    made = maps * (length / (length.mean(-1, keepdim=True) + 1e-6))
    made.backward(torch.tensor(dy, dtype=torch.float64))
    for ours, own in zip(both_ways(x, dy), (made.detach(), maps.grad), strict=True):
        assert np.abs(ours - own.numpy()).max() <= 1e-6 * np.abs(own.numpy()).max()


def test_it_is_that_by_hand() -> None:
    """Channels of lengths 5 and 15, whose mean is 10; dy is 1 at the first pixel of the first."""
    x = np.array([[[[3, 9]], [[4, -12]]]], F)
    dy = np.zeros_like(x)
    dy[0, 0, 0, 0] = 1
    y, dx = both_ways(x, dy)
    assert np.allclose(y, x * [[[[0.5, 1.5]]]], rtol=1e-6)
    # s = 3, 0; the mean of s times shares is 0.75: factors (3 - 0.75) / 10 / 5, (0 - 0.75) / 10 / 15
    assert np.allclose(dx, 0.5 * dy + x * np.array([0.045, -0.005]), rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_samples_do_not_depend_on_others(shape: tuple[int, ...]) -> None:
    """Bits are the same one by one, and errors may be in place."""
    x, dy = numbers(shape)
    y, dx = both_ways(x, dy)
    again = both_ways(x, dy, in_place=True)
    assert np.array_equal(y, again[0]) and np.array_equal(dx, again[1])
    for n in range(len(x)):
        own = slice(n, n + 1)
        y1, dx1 = both_ways(x[own], dy[own])
        assert np.array_equal(y1, y[own]) and np.array_equal(dx1, dx[own])


@pytest.mark.parametrize("lengths", [(2, 12), (3, 11), (3,)])
def test_shapes_must_fit(lengths: tuple[int, ...]) -> None:
    x, dy = numbers(SHAPES[0])
    own = np.empty(lengths, F)
    with pytest.raises(ValueError, match="lengths has shape"):
        response_norm_forward(x, np.empty_like(x), own, epsilon=1e-6)
    with pytest.raises(ValueError, match="lengths has shape"):
        response_norm_error(x, own, dy, np.empty_like(x), epsilon=1e-6)
