"""The leaky rectifier, against NumPy, on whole maps and on slices of channels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels.layers import leaky_relu

SLOPES = st.sampled_from([0.0, 0.01, 0.1, 0.25, 0.9])


def maps(seed: int, shape: tuple[int, ...], wider: int) -> np.ndarray:
    """Random maps, which are the first channels of wider ones; some values are zeros of both signs."""
    random = np.random.default_rng(seed)
    found = random.standard_normal((*shape[:3], shape[3] + wider)).astype(np.float32)
    found[random.random(found.shape) < 0.1] = 0
    found[random.random(found.shape) < 0.1] = -0.0
    return found[..., : shape[3]]


SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(1, 20))


@given(st.integers(0, 1000), SHAPES, st.integers(0, 3), SLOPES)
def test_forward(seed: int, shape: tuple[int, ...], wider: int, slope: float) -> None:
    x, y = maps(seed, shape, wider), maps(seed + 1, shape, wider)
    leaky_relu.forward(x, y, slope=slope)
    assert y.tobytes() == np.where(x > 0, x, np.float32(slope) * x).tobytes()


@given(st.integers(0, 1000), SHAPES, st.integers(0, 3), SLOPES)
def test_error(seed: int, shape: tuple[int, ...], wider: int, slope: float) -> None:
    x, dy = maps(seed, shape, wider), maps(seed + 1, shape, wider)
    expected = np.where(x > 0, dy, np.float32(slope) * dy)
    leaky_relu.error(x, dy, slope=slope)
    assert dy.tobytes() == expected.tobytes()


def test_a_nan_stays_a_nan() -> None:
    x = np.full((1, 1, 1, 2), np.nan, np.float32)
    y = np.zeros_like(x)
    leaky_relu.forward(x, y, slope=0.1)
    assert np.isnan(y).all()


@pytest.mark.parametrize("function", [leaky_relu.forward, leaky_relu.error])
def test_shapes_must_agree(function) -> None:
    x, other = np.zeros((1, 2, 2, 3), np.float32), np.zeros((1, 2, 2, 4), np.float32)
    with pytest.raises(ValueError, match="inputs and"):
        function(x, other, slope=0.1)
