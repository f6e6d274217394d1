"""The norm of all gradients together."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels.optimizers import added, clip_factor, norm, squares_sum

FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=50)


@given(FLOATS, st.integers(0, 50), st.sampled_from([1, 1 / 2, 1 / 3, 1 / 48]))
def test_the_sum_is_exact_wherever_it_is_cut(numbers: list[float], cut: int, share: float) -> None:
    gradient = np.array(numbers, np.float32)
    squares = squares_sum(gradient, share)
    exact = sum(
        (Fraction(float(number)) ** 2 for number in gradient * np.float32(share)), Fraction()
    )
    assert Fraction(squares, 2**298) == exact
    assert added(squares_sum(gradient[cut:], share), squares_sum(gradient[:cut], share)) == squares
    assert norm(squares) == math.sqrt(float(exact))


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_one_number_that_is_not_finite_makes_all_so(number: float) -> None:
    squares = squares_sum(np.float32([1, number]), 1.0)
    assert math.isnan(norm(added(squares_sum(np.ones(3, np.float32), 1.0), squares)))
    assert np.isnan(clip_factor(squares, 1.0))


@pytest.mark.parametrize("most", [0.1, 1.0, 31.0, 1e9])
def test_gradients_are_clipped_as_pytorch_clips_them(most: float) -> None:
    torch = pytest.importorskip("torch")
    gradient = np.random.default_rng(3).standard_normal(1000).astype(np.float32)
    parameter = torch.nn.Parameter(torch.zeros(1000))
    parameter.grad = torch.from_numpy(gradient.copy())
    total = torch.nn.utils.clip_grad_norm_([parameter], most)
    squares = squares_sum(gradient, 1.0)
    assert norm(squares) == pytest.approx(float(total), rel=1e-6)
    np.testing.assert_allclose(
        gradient * clip_factor(squares, most), parameter.grad.numpy(), rtol=2e-6
    )
    assert (clip_factor(squares, most) == 1) == (most > float(total))
