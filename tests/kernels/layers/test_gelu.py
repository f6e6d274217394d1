"""GELU, exact and by tanh, against PyTorch in float64, and with the same bits in every form."""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.kernels.layers.activations import activations

from ..every_form import printed_in_every_form

F = np.float32
KINDS = [(0, "none"), (1, "tanh")]


def both_ways(x: np.ndarray, dy: np.ndarray, by_tanh: int) -> tuple[np.ndarray, np.ndarray]:
    """Results, and the errors of the inputs."""
    gelu, dx = activations()["gelu"], dy.copy()
    y, kept = gelu.forward(x, np.empty, by_tanh)
    gelu.error(kept, dx, by_tanh)
    return y, dx


@pytest.mark.parametrize(("by_tanh", "approximate"), KINDS)
def test_both_ways_are_those_of_pytorch(by_tanh: int, approximate: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    x = np.concatenate(
        [np.linspace(-15, 15, 30_001), np.logspace(-30, 2, 500), -np.logspace(-30, 2, 499)]
    )
    x = x.astype(F).reshape(2, 10, 50, 31)
    dy = np.random.default_rng(1).standard_normal(x.shape, F)
    tx = torch.tensor(x.astype(np.float64), requires_grad=True)
    expected = torch.nn.functional.gelu(tx, approximate=approximate)
    expected.backward(torch.tensor(dy.astype(np.float64)))
    y, dx = both_ways(x, dy, by_tanh)
    assert (np.abs(y - expected.detach().numpy()) <= 2e-7 * np.maximum(1, np.abs(x))).all()
    assert (np.abs(dx - tx.grad.numpy()) <= 4e-7 * np.maximum(1, np.abs(dy))).all()
    near = (x < 0) & (x > -5)  # what is small there keeps its relative precision
    assert (np.abs(y[near] / expected.detach().numpy()[near] - 1) <= 3e-6).all()


@pytest.mark.parametrize("by_tanh", [0, 1])
def test_the_ends(by_tanh: int) -> None:
    x = np.array([1e30, -1e30, 0, -0.0, np.nan], F).reshape(1, 1, 1, 5)
    y, dx = both_ways(x, np.ones_like(x), by_tanh)
    assert y.reshape(-1)[:4].tolist() == [F(1e30), 0, 0, 0] and np.isnan(y[..., 4]).all()
    assert dx.reshape(-1)[:4].tolist() == [1, 0, 0.5, 0.5] and np.isnan(dx[..., 4]).all()


@pytest.mark.parametrize("by_tanh", [0, 1])
def test_each_value_is_on_its_own(by_tanh: int) -> None:
    x, dy = (np.random.default_rng(seed).standard_normal((2, 3, 1, 37), F) for seed in (1, 2))
    y, dx = both_ways(x, dy, by_tanh)
    for some in (slice(0, 1), slice(17, 30), slice(36, 37)):
        few_y, few_dx = both_ways(
            x[:1, ..., some], np.ascontiguousarray(dy[:1, ..., some]), by_tanh
        )
        assert (
            few_y.tobytes() == y[:1, ..., some].tobytes()
            and few_dx.tobytes() == dx[:1, ..., some].tobytes()
        )


_DIGEST = """
import hashlib
import numpy as np
from emuchain.kernels.layers.activations import activations
gelu, bits = activations()["gelu"], hashlib.sha256()
x = np.linspace(-20, 20, 10_001).astype(np.float32).reshape(1, 1, -1, 1)
for by_tanh in (0, 1):
    dy = np.ones_like(x)
    y, kept = gelu.forward(x, np.empty, by_tanh)
    gelu.error(kept, dy, by_tanh)
    bits.update(y.tobytes() + dy.tobytes())
print(bits.hexdigest())
"""


@pytest.mark.slow
def test_every_form_gives_the_same_bits() -> None:
    assert len({*printed_in_every_form(_DIGEST).values()}) == 1
