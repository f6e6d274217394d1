"""Adam and AdamW against PyTorch, and by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.kernels.optimizers import adam

KEYS = {"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0}


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(1, 300),
    st.floats(1e-4, 0.1),
    st.floats(0, 0.99),
    st.floats(0.5, 0.999),
    st.floats(1e-8, 1e-2),
    st.floats(0, 0.1),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_update_is_that_of_pytorch(
    shape: list[int],
    count: int,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    seed: int,
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(shape, np.float32)
    first, second = np.zeros_like(w), np.zeros_like(w)
    tw = torch.nn.Parameter(torch.tensor(w, dtype=torch.float64))
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimizer = kind(
        [tw], lr=learning_rate, betas=(beta1, beta2), eps=epsilon, weight_decay=weight_decay
    )
    for number in range(1, 6):
        # Gradients well away from 0: their quotient is of 1 then, whatever their size, and rounded
        # as they are.
        gradient = rng.uniform(1, 2, shape).astype(np.float32) * np.float32(count)
        tw.grad = torch.tensor(gradient, dtype=torch.float64) / count
        optimizer.step()
        before = gradient.copy()
        adam.update(
            w,
            gradient,
            first,
            second,
            count=count,
            number=number,
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
            weight_decay=weight_decay,
            decoupled=decoupled,
        )
        assert np.array_equal(gradient, before)
        state = optimizer.state[tw]
        assert np.allclose(first, state["exp_avg"].numpy(), rtol=1e-5, atol=1e-6)
        assert np.allclose(second, state["exp_avg_sq"].numpy(), rtol=1e-5, atol=0)
    assert np.allclose(w, tw.detach().numpy(), rtol=0, atol=3e-6)


def test_update_by_hand() -> None:
    w, gradient, first, second = (np.array([value], np.float32) for value in (8, 12, 4, 5))
    keys = {
        "learning_rate": 0.5,
        "beta1": 0.5,
        "beta2": 0.75,
        "epsilon": 0.25,
        "weight_decay": 0.125,
    }
    adam.update(w, gradient, first, second, count=4, number=1, decoupled=False, **keys)
    g = 12 / 4 + 0.125 * 8
    m, v = 0.5 * 4 + 0.5 * g, 0.75 * 5 + 0.25 * g * g
    assert (first.item(), second.item(), gradient.item()) == (m, v, 12)
    expected = 8 - 0.5 / 0.5 * m / (math.sqrt(v) / math.sqrt(0.25) + 0.25)
    assert w.item() == pytest.approx(expected, rel=2**-23)


def test_decoupled_decay_leaves_the_moments_alone() -> None:
    w, gradient, first, second = (np.array([value], np.float32) for value in (8, 0, 0, 0))
    keys = {**KEYS, "weight_decay": 0.5}
    adam.update(w, gradient, first, second, count=1, number=1, decoupled=True, **keys)
    assert (w.item(), first.item(), second.item()) == (
        np.float32(8 * np.float32(1 - 0.1 * 0.5)),
        0,
        0,
    )


def test_what_gets_no_gradient_stays() -> None:
    """Such as the zeros with which weights are packed."""
    w, zeros = np.array([0, 3], np.float32), [np.zeros(2, np.float32) for _ in range(3)]
    for number in range(1, 4):
        adam.update(w, *zeros, count=1, number=number, decoupled=False, **KEYS)
    assert w.tolist() == [0, 3]


def test_update_refuses_what_does_not_fit() -> None:
    a = [np.zeros(2, np.float32) for _ in range(4)]
    for place, of in ((1, "gradients"), (2, "first moments"), (3, "second moments")):
        wrong = [*a[:place], np.zeros(3, np.float32), *a[place + 1 :]]
        with pytest.raises(ValueError, match=f"their {of} must have one shape"):
            adam.update(*wrong, count=1, number=1, decoupled=False, **KEYS)
    for count, number in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="numbered from 1"):
            adam.update(*a, count=count, number=number, decoupled=False, **KEYS)
    with pytest.raises(ValueError, match="second is changed in place"):
        adam.update(
            *a[:3], np.zeros(4, np.float32)[::2], count=1, number=1, decoupled=False, **KEYS
        )
