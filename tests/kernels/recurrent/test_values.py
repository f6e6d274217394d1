"""Values against PyTorch, against float64 differences, and the activations against float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels import recurrent

from .helpers import Case, F

SIZES = [
    (1, 1, 7, 2),
    (17, 17, 64, 8),
    (256, 64, 5, 4),
    (64, 256, 20, 8),
    (17, 256, 64, 1),
    (1, 64, 33, 3),
]
LAYERS = [("LSTM", 0), ("LSTM", 1), ("GRU", 0)]


def close(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return bool(np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max())


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("kind", "projected"), LAYERS)
@pytest.mark.parametrize(("inputs", "hidden", "steps", "samples"), SIZES)
def test_values_are_those_of_pytorch(
    inputs: int,
    hidden: int,
    steps: int,
    samples: int,
    kind: str,
    projected: int,
    bidirectional: bool,
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    outputs = max(1, hidden // 3) if projected and hidden > 1 else 0
    torch.manual_seed(hidden)
    keys = {"proj_size": outputs} if kind == "LSTM" else {}
    layer = getattr(torch.nn, kind)(
        inputs, hidden, batch_first=True, bidirectional=bidirectional, **keys
    )
    ways, width = 1 + bidirectional, outputs or hidden
    x = torch.randn(samples, steps, inputs, requires_grad=True)
    state = [
        torch.randn(ways, samples, size, requires_grad=True)
        for size in (width, hidden)[: 1 + (kind == "LSTM")]
    ]
    y, last = layer(x, tuple(state) if kind == "LSTM" else state[0])
    last = last if kind == "LSTM" else (last,)
    dy, d_last = torch.randn(y.shape), [torch.randn(value.shape) for value in last]
    torch.autograd.backward([y, *last], [dy, *d_last])

    dx = np.zeros(x.shape, F)
    for way in range(ways):
        ending = "_l0" + "_reverse" * way
        names = [f"{name}{ending}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        weights = [getattr(layer, name) for name in names]
        own = slice(way * width, (way + 1) * width)
        arrays = [value.detach().numpy() for value in (x, *weights, *(s[way] for s in state))]
        errors, here = (
            [value[way].numpy() for value in d_last],
            np.ascontiguousarray(dy[..., own].numpy()),
        )
        if kind == "LSTM":
            p = getattr(layer, f"weight_hr{ending}") if outputs else None
            given = None if p is None else p.detach().numpy()
            our_y, *our_last, saved = recurrent.lstm_forward(*arrays, given, reverse=bool(way))
            found = recurrent.lstm_backward(saved, here, dh=errors[0], dc=errors[1])
            if p is not None:
                assert close(found.dp, p.grad.numpy())
            assert close(found.dc0, state[1].grad[way].numpy())
        else:
            our_y, *our_last, saved = recurrent.gru_forward(*arrays, reverse=bool(way))
            found = recurrent.gru_backward(saved, here, dh=errors[0])
        for ours, theirs in (
            (our_y, y[..., own]),
            *zip(our_last, (value[way] for value in last), strict=True),
        ):
            assert np.abs(ours - theirs.detach().numpy()).max() <= 2e-6
        for ours, weight in zip(found[1:5], weights, strict=True):
            assert close(ours, weight.grad.numpy())
        assert close(found.dh0, state[0].grad[way].numpy())
        dx += found.dx
    assert close(dx, x.grad.numpy())


def lstm_loss(x, w, r, b_w, b_r, h, c, p, dy, dh, dc):
    """The sum of outputs and last states, each times its error, in float64."""
    hidden, total = c.shape[1], 0.0
    for t in range(x.shape[1]):
        a = x[:, t] @ w.T + h @ r.T + b_w + b_r
        i, f, g, o = (a[:, k * hidden : (k + 1) * hidden] for k in range(4))
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        h = h if p is None else h @ p.T
        total += (h * dy[:, t]).sum()
    return total + (h * dh).sum() + (c * dc).sum()


def gru_loss(x, w, r, b_w, b_r, h, dy, dh, linear):
    """The same of a GRU in either form."""
    n, total = h.shape[1], 0.0
    for t in range(x.shape[1]):
        a, b = x[:, t] @ w.T + b_w, h @ r.T + b_r
        reset = 1 / (1 + np.exp(-a[:, :n] - b[:, :n]))
        update = 1 / (1 + np.exp(-a[:, n : 2 * n] - b[:, n : 2 * n]))
        inner = reset * b[:, 2 * n :] if linear else (reset * h) @ r[2 * n :].T + b_r[2 * n :]
        new = np.tanh(a[:, 2 * n :] + inner)
        h = (1 - update) * new + update * h
        total += (h * dy[:, t]).sum()
    return total + (h * dh).sum()


def differences(loss, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Central differences of a loss by each number of the arrays."""
    found = []
    for array in arrays:
        slope = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            before = array[place]
            array[place] = before + 1e-6
            up = loss()
            array[place] = before - 1e-6
            slope[place] = (up - loss()) / 2e-6
            array[place] = before
        found.append(slope)
    return found


@pytest.mark.parametrize(
    "case",
    [
        Case(4, 2, 3, 4, 5),
        Case(4, 2, 3, 4, 5, outputs=3),
        Case(3, 2, 3, 4, 5),
        Case(3, 2, 3, 4, 5, linear=False),
    ],
    ids=str,
)
def test_gradients_are_differences(case: Case) -> None:
    x, h, c, dy, dh, dc = (array.astype(np.float64) for array in case.data)
    weights = [array.astype(np.float64) for array in case.weights]
    p = None if case.projection is None else case.projection.astype(np.float64)
    of = [x, *weights, h]
    if case.gates == 4:
        slopes = differences(
            lambda: lstm_loss(x, *weights, h, c, p, dy, dh, dc),
            [*of, c, *([] if p is None else [p])],
        )
    else:
        slopes = differences(lambda: gru_loss(x, *weights, h, dy, dh, case.linear), of)
    for ours, theirs in zip(case.run()[2 + (case.gates == 4) :], slopes, strict=True):
        assert close(ours, theirs)


def test_a_gru_that_resets_before_the_product_has_the_stated_values() -> None:
    case = Case(3, 4, 20, 17, 64, linear=False)
    x, h, *_ = (array.astype(np.float64) for array in case.data)
    w, r, b_w, b_r = (array.astype(np.float64) for array in case.weights)
    y, last, *_ = case.run()
    for t in range(case.steps):
        a = x[:, t] @ w.T + b_w + b_r
        reset, update = (1 / (1 + np.exp(-(a + h @ r.T)[:, k * 64 : (k + 1) * 64])) for k in (0, 1))
        new = np.tanh(a[:, 128:] + (reset * h) @ r[128:].T)
        h = (1 - update) * new + update * h
        assert np.abs(y[:, t] - h).max() <= 2e-6
    assert np.abs(last - h).max() <= 2e-6


def exact(name: str, x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return np.tanh(wide) if name == "tanh" else np.exp(-np.logaddexp(0, -wide))


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
def test_activations_on_a_dense_grid(name: str) -> None:
    activation = getattr(recurrent, name)
    x = np.linspace(-50, 50, 2_000_001).astype(F)
    y = activation(x)
    assert np.abs(y - exact(name, x)).max() <= 2 * 2.0**-23
    assert (np.diff(y) >= 0).all()
    assert y.min() >= (-1 if name == "tanh" else 0) and y.max() <= 1
    small = np.concatenate([sign * np.logspace(-30, 0, 10_001) for sign in (-1, 1)]).astype(F)
    assert np.abs(activation(small) / exact(name, small) - 1).max() <= 2.5e-7


def test_activations_at_the_ends() -> None:
    far = np.array([1e4, -1e4, np.inf, -np.inf, np.finfo(F).max, np.nan], F)
    assert recurrent.tanh(far)[:5].tolist() == [1, -1, 1, -1, 1]
    assert recurrent.sigmoid(far)[[0, 2, 4]].tolist() == [1, 1, 1]
    assert (recurrent.sigmoid(far)[[1, 3]] < 1e-16).all() and (
        recurrent.sigmoid(far)[[1, 3]] >= 0
    ).all()
    assert np.isnan(recurrent.tanh(far)[5]) and np.isnan(recurrent.sigmoid(far)[5])
    zeros = np.array([0.0, -0.0], F)
    assert recurrent.tanh(zeros).tobytes() == zeros.tobytes()
    assert recurrent.sigmoid(zeros).tolist() == [0.5, 0.5]


@given(st.floats(-30, 30, width=32))
def test_sigmoids_of_both_signs_add_up_to_one(x: float) -> None:
    both = recurrent.sigmoid(np.array([x, -x], F)).astype(np.float64)
    assert abs(both.sum() - 1) <= 2.0**-23
    assert recurrent.tanh(np.array([-x], F))[0] == -recurrent.tanh(np.array([x], F))[0]


@pytest.mark.parametrize("gates", [4, 3])
def test_gates_far_out_stay_finite(gates: int) -> None:
    case = Case(gates, 2, 5, 3, 9)
    x, h, c, dy, *_ = case.data
    w, r, b_w, b_r = case.weights
    far = 1e4 * np.sign(b_w)
    if gates == 4:
        y, *_, saved = recurrent.lstm_forward(x, w, r, far, b_r, h, c)
        found = [y, *recurrent.lstm_backward(saved, dy)[:-1]]
    else:
        y, _, saved = recurrent.gru_forward(x, w, r, far, b_r, h)
        found = [y, *recurrent.gru_backward(saved, dy)]
    assert all(np.isfinite(array).all() for array in found)
