"""Activations, against PyTorch in float64, or NumPy, on whole maps and on slices of channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels import recurrent
from emuchain.kernels.layers.activations import activations

torch = pytest.importorskip("torch", reason="PyTorch, the peer of these tests, is not installed")

Maps = np.ndarray


def both_ways(name: str, x: Maps, dy: Maps, *parameters: float) -> tuple[Maps, Maps]:
    """Results of an activation, and the errors of its inputs; where it overwrites those, those of a
    copy.
    """
    of = activations()[name]
    y, kept = of.forward(x.copy() if of.overwrites else x, np.empty, *parameters)
    of.error(kept, dy, *parameters)
    return y, dy


KINDS: dict[str, Any] = {
    "relu": torch.relu,
    "relu6": torch.nn.functional.relu6,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": torch.nn.functional.silu,
    "mish": torch.nn.functional.mish,
    "hard-sigmoid": torch.nn.functional.hardsigmoid,
    "hard-swish": torch.nn.functional.hardswish,
}
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(1, 20))


def maps(seed: int, shape: tuple[int, ...], wider: int) -> Maps:
    """Random maps, the first channels of wider ones, some at the corners of the lines."""
    random = np.random.default_rng(seed)
    found = (4 * random.standard_normal((*shape[:3], shape[3] + wider))).astype(np.float32)
    corner = random.random(found.shape) < 0.1
    found[corner] = random.choice(
        np.array([-3, -0.0, 0, 3, 6, 100, -100], np.float32), corner.sum()
    )
    return found[..., : shape[3]]


@pytest.mark.parametrize("name", KINDS)
@given(st.integers(0, 1000), SHAPES, st.integers(0, 3))
def test_both_ways_are_those_of_pytorch(
    name: str, seed: int, shape: tuple[int, ...], wider: int
) -> None:
    theirs = KINDS[name]
    x, dy = maps(seed, shape, wider), maps(seed + 1, shape, 0)
    tx = torch.tensor(x.astype(np.float64), requires_grad=True)
    expected = theirs(tx)
    expected.backward(torch.tensor(dy.astype(np.float64)))
    y, dx = both_ways(name, x, dy.copy())
    assert np.abs(y - expected.detach().numpy()).max() <= 3e-7 * max(1, np.abs(x).max())
    assert np.abs(dx - tx.grad.numpy()).max() <= 1e-6 * np.abs(dy).max() * max(1, np.abs(x).max())


@pytest.mark.parametrize("name", KINDS)
def test_each_value_is_on_its_own(name: str) -> None:
    """The same bits, whatever stands beside it: in vectors, in the rest of one, and in a slice."""
    x, dy = maps(1, (2, 3, 3, 37), 0), maps(2, (2, 3, 3, 37), 0)
    y, dx = both_ways(name, x, dy.copy())
    for channel in (0, 17, 36):
        one = slice(channel, channel + 1)
        few_y, few_dx = both_ways(
            name, np.ascontiguousarray(x[:1, ..., one]), np.ascontiguousarray(dy[:1, ..., one])
        )
        assert few_y.tobytes() == y[:1, ..., one].tobytes()
        assert few_dx.tobytes() == dx[:1, ..., one].tobytes()


@pytest.mark.parametrize("name", KINDS)
def test_a_nan_stays_a_nan(name: str) -> None:
    x = np.full((1, 1, 1, 2), np.nan, np.float32)
    assert np.isnan(both_ways(name, x, np.ones_like(x))[0]).all()


def test_sigmoid_has_the_bits_of_recurrent_layers() -> None:
    x = maps(3, (2, 3, 3, 5), 0)
    y = activations()["sigmoid"].infer(x, np.empty)
    assert y.tobytes() == recurrent.sigmoid(x).tobytes()


@pytest.mark.parametrize("name", KINDS)
def test_shapes_must_agree(name: str) -> None:
    x, other = np.zeros((1, 2, 2, 3), np.float32), np.zeros((1, 2, 2, 4), np.float32)
    with pytest.raises(
        ValueError, match="must have one shape" if name != "relu" else "marks must be"
    ):
        both_ways(name, x, other)


WITH_NUMBERS: dict[str, tuple[Any, tuple[float, ...]]] = {
    "elu": (torch.nn.functional.elu, (1.0,)),
    "elu of another scale": (torch.nn.functional.elu, (0.7,)),
    "clip": (torch.nn.functional.hardtanh, (-1.0, 1.0)),
    "clip to other limits": (torch.nn.functional.hardtanh, (-0.5, 2.5)),
}


@pytest.mark.parametrize("name", WITH_NUMBERS)
@given(st.integers(0, 1000), SHAPES, st.integers(0, 3))
def test_those_with_numbers_are_those_of_pytorch(
    name: str, seed: int, shape: tuple[int, ...], wider: int
) -> None:
    theirs, numbers = WITH_NUMBERS[name]
    x, dy = maps(seed, shape, wider), maps(seed + 1, shape, 0)
    tx = torch.tensor(x.astype(np.float64), requires_grad=True)
    expected = theirs(tx, *numbers)
    expected.backward(torch.tensor(dy.astype(np.float64)))
    y, dx = both_ways(name.partition(" ")[0], x, dy.copy(), *numbers)
    assert np.abs(y - expected.detach().numpy()).max() <= 3e-7 * max(1, np.abs(x).max())
    assert np.abs(dx - tx.grad.numpy()).max() <= 1e-6 * np.abs(dy).max()
    nan = np.full((1, 1, 1, 2), np.nan, np.float32)
    assert np.isnan(both_ways(name.partition(" ")[0], nan, np.ones_like(nan), *numbers)[0]).all()


SLOPES = st.sampled_from([0.0, 0.01, 0.1, 0.25, 0.9])


def with_zeros(seed: int, shape: tuple[int, ...], wider: int) -> Maps:
    """Random maps, which are the first channels of wider ones; some values are zeros of both
    signs.
    """
    random = np.random.default_rng(seed)
    found = random.standard_normal((*shape[:3], shape[3] + wider)).astype(np.float32)
    found[random.random(found.shape) < 0.1] = 0
    found[random.random(found.shape) < 0.1] = -0.0
    return found[..., : shape[3]]


@given(st.integers(0, 1000), SHAPES, st.integers(0, 3), SLOPES)
def test_the_leaky_rectifier(seed: int, shape: tuple[int, ...], wider: int, slope: float) -> None:
    x, y = with_zeros(seed, shape, wider), with_zeros(seed + 1, shape, wider)
    found, kept = activations()["leaky-relu"].forward(x, lambda *_: y, slope)
    assert found is y
    assert y.tobytes() == np.where(x > 0, x, np.float32(slope) * x).tobytes()

    dy = with_zeros(seed + 2, shape, wider)
    expected = np.where(x > 0, dy, np.float32(slope) * dy)
    activations()["leaky-relu"].error(kept, dy, slope)
    assert dy.tobytes() == expected.tobytes()


def test_the_leaky_rectifier_keeps_nans_and_takes_one_shape() -> None:
    leaky, x = activations()["leaky-relu"], np.full((1, 1, 1, 2), np.nan, np.float32)
    y, kept = leaky.forward(x, np.empty, 0.1)
    assert np.isnan(y).all()
    with pytest.raises(ValueError, match="the errors must have one shape"):
        leaky.error(kept, np.zeros((1, 1, 1, 3), np.float32), 0.1)
    with pytest.raises(ValueError, match="one shape"):
        leaky.forward(x, lambda *_: np.zeros((1, 1, 1, 3), np.float32), 0.1)
