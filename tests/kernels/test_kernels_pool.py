"""Pooling against PyTorch, and its independence of micro-batches."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.kernels import pool

relaxed = settings(deadline=None, max_examples=60)
ROUNDING = 2.0**-24


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any]]:
    """Maps and a window as PyTorch allows it: padded by at most half the kernel."""
    kernel = draw(st.tuples(*[st.integers(1, 6)] * 2))
    stride = draw(st.tuples(*[st.integers(1, 4)] * 2))
    pad = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    h, w = (draw(st.integers(max(1, k - 2 * p), k + 9)) for k, p in zip(kernel, pad, strict=True))
    shape = draw(st.integers(1, 4)), draw(st.integers(1, 5)), h, w
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    few = draw(st.booleans())  # few different values, for many equal ones in a window
    x = rng.integers(-2, 3, shape).astype(np.float32) if few else rng.standard_normal(shape, np.float32)
    return x, {"kernel": kernel, "stride": stride, "pad": pad}


def to_pytorch(window: dict[str, Any]) -> dict[str, Any]:
    return {"kernel_size": window["kernel"], "stride": window["stride"], "padding": window["pad"]}


@relaxed
@given(cases())
def test_maximum_is_that_of_pytorch(case: tuple[np.ndarray, dict[str, Any]]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    x, window = case
    tx = torch.tensor(x, requires_grad=True)
    expected = torch.nn.functional.max_pool2d(tx, **to_pytorch(window))
    y, argmax = pool.max_forward(x, **window)
    assert np.array_equal(y, expected.detach().numpy())
    errors = np.random.default_rng(0).integers(-9, 10, y.shape).astype(np.float32)  # whole: sums are exact
    expected.backward(torch.tensor(errors))
    assert np.array_equal(pool.max_error(errors, argmax, x.shape, **window), tx.grad.numpy())


@relaxed
@given(cases())
def test_average_is_that_of_pytorch(case: tuple[np.ndarray, dict[str, Any]]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    x, window = case
    area = np.prod(window["kernel"])
    tx = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    expected = torch.nn.functional.avg_pool2d(tx, **to_pytorch(window))
    y = pool.average_forward(x, **window)
    bound = pool.average_forward(abs(x), **window)  # at most one rounding for each addition, and the division
    assert np.all(abs(y - expected.detach().numpy()) <= 1.01 * area * ROUNDING * bound)
    errors = np.random.default_rng(0).standard_normal(y.shape, np.float32)
    expected.backward(torch.tensor(errors, dtype=torch.float64))
    dx = pool.average_error(errors, x.shape, **window)
    bound = pool.average_error(abs(errors), x.shape, **window)
    assert np.all(abs(dx - tx.grad.numpy()) <= 1.01 * (area + 1) * ROUNDING * bound)


@relaxed
@given(cases(), st.data())
def test_samples_and_channels_are_independent(case: tuple[np.ndarray, dict[str, Any]], data: st.DataObject) -> None:
    x, window = case
    n, channel = data.draw(st.integers(0, x.shape[0] - 1)), data.draw(st.integers(0, x.shape[1] - 1))
    part = np.s_[n : n + 1, channel : channel + 1]
    one = x[part]
    y, argmax = pool.max_forward(x, **window)
    y_one, argmax_one = pool.max_forward(one, **window)
    assert np.array_equal(y_one, y[part])
    assert np.array_equal(argmax_one, argmax[part])
    assert np.array_equal(
        pool.max_error(y[part], argmax[part], one.shape, **window), pool.max_error(y, argmax, x.shape, **window)[part]
    )
    mean = pool.average_forward(x, **window)
    assert np.array_equal(pool.average_forward(one, **window), mean[part])
    assert np.array_equal(
        pool.average_error(mean[part], one.shape, **window), pool.average_error(mean, x.shape, **window)[part]
    )


def test_first_maximum_wins_and_a_nan_is_kept() -> None:
    x = np.array([[[[1, 5], [5, 5]]]], np.float32)
    y, argmax = pool.max_forward(x, kernel=2, stride=1, pad=0)
    assert (y.item(), argmax.item()) == (5, 1)
    x[0, 0, 1, 0] = np.nan
    y, argmax = pool.max_forward(x, kernel=2, stride=1, pad=0)
    assert np.isnan(y.item())
    assert argmax.item() == 2


def test_padding_never_is_the_maximum() -> None:
    x = np.full((1, 1, 2, 2), -np.inf, np.float32)
    _, argmax = pool.max_forward(x, kernel=2, stride=2, pad=1)
    assert argmax.ravel().tolist() == [3, 2, 1, 0]


def test_shapes_that_do_not_fit_are_refused() -> None:
    x = np.zeros((1, 1, 4, 4), np.float32)
    y, argmax = pool.max_forward(x, kernel=2, stride=2, pad=0)
    with pytest.raises(ValueError, match="does not fit in 4 rows"):
        pool.max_forward(x, kernel=5, stride=1, pad=0)
    with pytest.raises(ValueError, match="gives"):
        pool.max_error(y, argmax, (1, 1, 6, 6), kernel=2, stride=2, pad=0)
    with pytest.raises(ValueError, match="argmax must be int32"):
        pool.max_error(y, argmax.astype(np.int64), x.shape, kernel=2, stride=2, pad=0)
    with pytest.raises(ValueError, match="gives"):
        pool.average_error(y[:, :, 1:], x.shape, kernel=2, stride=2, pad=0)
