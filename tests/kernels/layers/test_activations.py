"""ReLU6, sigmoid, SiLU and their hard forms, against PyTorch in float64, on whole maps and on slices of channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels import recurrent
from emuchain.kernels.layers import relu6, sigmoid, silu

torch = pytest.importorskip("torch", reason="PyTorch, the peer of these tests, is not installed")

Maps = np.ndarray


def _relu6(x: Maps, dy: Maps) -> tuple[Maps, Maps]:
    y = x.copy()
    relu6.forward(y)
    relu6.error(y, dy)
    return y, dy


def _sigmoid(x: Maps, dy: Maps) -> tuple[Maps, Maps]:
    y = np.empty_like(dy)
    sigmoid.forward(x, y)
    sigmoid.error(y, dy)
    return y, dy


def _silu(x: Maps, dy: Maps) -> tuple[Maps, Maps]:
    gate, y = np.empty_like(dy), np.empty_like(dy)
    silu.forward(x, gate, y)
    silu.error(x, gate, dy)
    return y, dy


def _hard(forward: Callable[..., None], error: Callable[..., None]) -> Callable[[Maps, Maps], tuple[Maps, Maps]]:
    def both(x: Maps, dy: Maps) -> tuple[Maps, Maps]:
        y = np.empty_like(dy)
        forward(x, y)
        error(x, dy)
        return y, dy

    return both


KINDS: dict[str, tuple[Callable[[Maps, Maps], tuple[Maps, Maps]], Any]] = {
    "relu6": (_relu6, torch.nn.functional.relu6),
    "sigmoid": (_sigmoid, torch.sigmoid),
    "silu": (_silu, torch.nn.functional.silu),
    "hard-sigmoid": (_hard(sigmoid.hard_forward, sigmoid.hard_error), torch.nn.functional.hardsigmoid),
    "hard-swish": (_hard(silu.hard_forward, silu.hard_error), torch.nn.functional.hardswish),
}
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(1, 20))


def maps(seed: int, shape: tuple[int, ...], wider: int) -> Maps:
    """Random maps, the first channels of wider ones, some at the corners of the lines."""
    random = np.random.default_rng(seed)
    found = (4 * random.standard_normal((*shape[:3], shape[3] + wider))).astype(np.float32)
    corner = random.random(found.shape) < 0.1
    found[corner] = random.choice(np.array([-3, -0.0, 0, 3, 6, 100, -100], np.float32), corner.sum())
    return found[..., : shape[3]]


@pytest.mark.parametrize("name", KINDS)
@given(st.integers(0, 1000), SHAPES, st.integers(0, 3))
def test_both_ways_are_those_of_pytorch(name: str, seed: int, shape: tuple[int, ...], wider: int) -> None:
    ours, theirs = KINDS[name]
    x, dy = maps(seed, shape, wider), maps(seed + 1, shape, 0)
    tx = torch.tensor(x.astype(np.float64), requires_grad=True)
    expected = theirs(tx)
    expected.backward(torch.tensor(dy.astype(np.float64)))
    y, dx = ours(x, dy.copy())
    assert np.abs(y - expected.detach().numpy()).max() <= 3e-7 * max(1, np.abs(x).max())
    assert np.abs(dx - tx.grad.numpy()).max() <= 1e-6 * np.abs(dy).max() * max(1, np.abs(x).max())


@pytest.mark.parametrize("name", KINDS)
def test_each_value_is_on_its_own(name: str) -> None:
    """The same bits, whatever stands beside it: in vectors, in the rest of one, and in a slice."""
    ours, _ = KINDS[name]
    x, dy = maps(1, (2, 3, 3, 37), 0), maps(2, (2, 3, 3, 37), 0)
    y, dx = ours(x, dy.copy())
    for channel in (0, 17, 36):
        one = slice(channel, channel + 1)
        few_y, few_dx = ours(np.ascontiguousarray(x[:1, ..., one]), np.ascontiguousarray(dy[:1, ..., one]))
        assert few_y.tobytes() == y[:1, ..., one].tobytes()
        assert few_dx.tobytes() == dx[:1, ..., one].tobytes()


@pytest.mark.parametrize("name", KINDS)
def test_a_nan_stays_a_nan(name: str) -> None:
    ours, _ = KINDS[name]
    x = np.full((1, 1, 1, 2), np.nan, np.float32)
    assert np.isnan(ours(x, np.ones_like(x))[0]).all()


def test_sigmoid_has_the_bits_of_recurrent_layers() -> None:
    x = maps(3, (2, 3, 3, 5), 0)
    y = np.empty_like(x)
    sigmoid.forward(x, y)
    assert y.tobytes() == recurrent.sigmoid(x).tobytes()


@pytest.mark.parametrize("name", KINDS)
def test_shapes_must_agree(name: str) -> None:
    x, other = np.zeros((1, 2, 2, 3), np.float32), np.zeros((1, 2, 2, 4), np.float32)
    with pytest.raises(ValueError, match="must have one shape"):
        KINDS[name][0](x, other)
