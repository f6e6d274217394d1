"""Looking symbols up: the bits of a convolution over maps that are 1 in one channel."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels.conv import LookUp, convolution

SIZES = st.integers(1, 40)


@given(
    symbols=SIZES,
    features=SIZES,
    steps=st.integers(1, 12),
    samples=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_has_the_bits_of_a_convolution(
    symbols: int, features: int, steps: int, samples: int, seed: int
) -> None:
    draws = np.random.default_rng(seed)
    weights = draws.normal(size=(features, symbols, 1, 1)).astype(np.float32)
    dy = draws.normal(size=(samples, steps, 1, features + 3)).astype(np.float32)[
        ..., 2:-1
    ]  # channels of wider maps
    numbers = draws.integers(0, symbols, (samples, steps, 1, 1)).astype(np.float32)
    one_hot = (numbers == np.arange(symbols)).astype(np.float32)
    gradients, outputs = [], []
    table, whole = LookUp(symbols, features, steps), ((steps, 1), (1, 1), (1, 1), (0, 0))
    for kernel, x in ((table, numbers), (convolution(symbols, [features], *whole), one_hot)):
        packed, frame = kernel.pack(weights), np.empty(kernel.frame_shape(samples), np.float32)
        kernel.frame(x, frame)
        y = np.empty((samples, steps, 1, features), np.float32)
        kernel.forward(y, frame, packed, fresh=True)
        kernel.gradient(packed, frame, dy, fresh=True)
        kernel.gradient(packed, frame, dy, fresh=False)
        outputs.append(y)
        gradients.append(kernel.unpack(packed))
    np.testing.assert_array_equal(*outputs)
    np.testing.assert_array_equal(*gradients)


def test_adds_to_what_is_there_and_packs_in_place() -> None:
    table, weights = LookUp(3, 2, 1), np.arange(6, dtype=np.float32).reshape(2, 3, 1, 1)
    packed, y = np.empty(6, np.float32), np.ones((1, 1, 1, 2), np.float32)
    assert table.pack(weights, packed) is packed
    np.testing.assert_array_equal(table.unpack(packed), weights)
    table.forward(y, np.full((1, 1), 2, np.float32), packed, fresh=False)
    np.testing.assert_array_equal(y, [[[[3, 6]]]])


def test_bad_arguments() -> None:
    table = LookUp(3, 2, 1)
    with pytest.raises(ValueError, match="symbols from 3.0 to 3.0 are not among 3"):
        table.frame(np.full((1, 1, 1, 1), 3, np.float32), np.empty((1, 1), np.float32))
    with pytest.raises(ValueError, match="weights"):
        table.pack(np.ones((3, 2, 1, 1), np.float32))
