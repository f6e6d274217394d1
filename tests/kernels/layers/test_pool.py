"""Pooling against PyTorch, and its independence of micro-batches."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.kernels.layers import pool
from emuchain.kernels.window import output_size

relaxed = settings(deadline=None, max_examples=60)
ROUNDING = 2.0**-24
Window = dict[str, Any]


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, Window]:
    """Maps and a window as PyTorch allows it: padded by at most half the kernel."""
    kernel = draw(st.tuples(*[st.integers(1, 6)] * 2))
    stride = draw(st.just(kernel) | st.tuples(*[st.integers(1, 7)] * 2))
    pad = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    h, w = (draw(st.integers(max(1, k - 2 * p), k + 9)) for k, p in zip(kernel, pad, strict=True))
    shape = draw(st.integers(1, 4)), h, w, draw(st.integers(1, 5) | st.integers(30, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    few = draw(st.booleans())  # few different values, for many equal ones in a window
    x = (
        rng.integers(-2, 3, shape).astype(np.float32)
        if few
        else rng.standard_normal(shape, np.float32)
    )
    return x, {"kernel": kernel, "stride": stride, "pad": pad, "ceil": draw(st.booleans())}


def to_pytorch(window: Window) -> Window:
    keys = {"kernel_size": window["kernel"], "stride": window["stride"], "padding": window["pad"]}
    return {**keys, "ceil_mode": window["ceil"]}


def channels_first(maps: np.ndarray) -> np.ndarray:
    """The maps in PyTorch's order."""
    return maps.transpose(0, 3, 1, 2)


def output_shape(x: np.ndarray, window: Window) -> tuple[int, ...]:
    keys = {key: window[key] for key in ("stride", "pad", "ceil") if key in window}
    size = output_size(x.shape[1:3], window["kernel"], **keys)
    return len(x), *size, x.shape[3]


def unset(shape: tuple[int, ...]) -> np.ndarray:
    """An array all of whose values are to be replaced."""
    return np.full(shape, np.nan, np.float32)


def max_forward(x: np.ndarray, window: Window) -> tuple[np.ndarray, np.ndarray]:
    y = unset(output_shape(x, window))
    places = np.full(y.shape, 255, np.uint8)
    pool.max_forward(x, y, places, **window)
    return y, places


def max_error(dy: np.ndarray, places: np.ndarray, x: np.ndarray, window: Window) -> np.ndarray:
    dx = unset(x.shape)
    pool.max_error(dy, places, dx, **window)
    return dx


def average_forward(x: np.ndarray, window: Window) -> np.ndarray:
    y = unset(output_shape(x, window))
    pool.average_forward(x, y, **window)
    return y


def average_error(dy: np.ndarray, x: np.ndarray, window: Window) -> np.ndarray:
    dx = unset(x.shape)
    pool.average_error(dy, dx, **window)
    return dx


@relaxed
@given(cases())
def test_maximum_is_that_of_pytorch(case: tuple[np.ndarray, Window]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    x, window = case
    tx = torch.tensor(channels_first(x), requires_grad=True)
    expected = torch.nn.functional.max_pool2d(tx, **to_pytorch(window))
    y, places = max_forward(x, window)
    assert np.array_equal(channels_first(y), expected.detach().numpy())
    errors = (
        np.random.default_rng(0).integers(-9, 10, y.shape).astype(np.float32)
    )  # whole: sums are exact
    expected.backward(torch.tensor(channels_first(errors)))
    assert np.array_equal(channels_first(max_error(errors, places, x, window)), tx.grad.numpy())


@relaxed
@given(cases(), st.booleans())
def test_average_is_that_of_pytorch(case: tuple[np.ndarray, Window], counts: bool) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    x, plain = case
    window: Window = {**plain, "count_include_pad": counts}
    area = np.prod(window["kernel"])
    tx = torch.tensor(channels_first(x), dtype=torch.float64, requires_grad=True)
    expected = torch.nn.functional.avg_pool2d(tx, **to_pytorch(plain), count_include_pad=counts)
    y = channels_first(average_forward(x, window))
    bound = channels_first(
        average_forward(abs(x), window)
    )  # at most one rounding for each addition, and the division
    assert np.all(abs(y - expected.detach().numpy()) <= 1.01 * area * ROUNDING * bound)
    errors = np.random.default_rng(0).standard_normal(output_shape(x, window), np.float32)
    expected.backward(torch.tensor(channels_first(errors), dtype=torch.float64))
    dx = channels_first(average_error(errors, x, window))
    bound = channels_first(average_error(abs(errors), x, window))
    assert np.all(abs(dx - tx.grad.numpy()) <= 1.01 * (area + 1) * ROUNDING * bound)


@relaxed
@given(cases(), st.integers(0, 2**32))
def test_errors_of_overlapping_windows_add_up_in_the_order_of_the_windows(
    case: tuple[np.ndarray, Window], seed: int
) -> None:
    x, window = case
    (_, kw), (sh, sw), (ph, pw) = window["kernel"], window["stride"], window["pad"]
    y, places = max_forward(x, window)
    dy = np.random.default_rng(seed).standard_normal(y.shape, np.float32)
    expected = np.zeros_like(x)
    for n, row, column, channel in np.ndindex(*y.shape):
        down, across = divmod(int(places[n, row, column, channel]), kw)
        expected[n, row * sh - ph + down, column * sw - pw + across, channel] += dy[
            n, row, column, channel
        ]
    assert np.array_equal(max_error(dy, places, x, window), expected)


@relaxed
@given(cases(), st.data())
def test_samples_and_channels_are_independent(
    case: tuple[np.ndarray, Window], data: st.DataObject
) -> None:
    """Some channels are a view with a pitch, to read and to write."""
    x, window = case
    n, channel = (
        data.draw(st.integers(0, x.shape[0] - 1)),
        data.draw(st.integers(0, x.shape[3] - 1)),
    )
    last = data.draw(st.integers(channel, x.shape[3] - 1))
    part = np.s_[n : n + 1, ..., channel : last + 1]
    other = np.ones(x.shape[3], bool)
    other[channel : last + 1] = False
    y, places = max_forward(x, window)
    mean = average_forward(x, window)
    errors, mean_errors = max_error(y, places, x, window), average_error(mean, x, window)
    some_places = places[part].copy()

    results = {
        name: np.full(shape, 12345, np.float32) for name, shape in (("y", y.shape), ("x", x.shape))
    }
    for function, arguments, shape, expected in (
        (pool.max_forward, (x[part], None, np.empty_like(some_places)), "y", y),
        (pool.max_error, (y[part], some_places, None), "x", errors),
        (pool.average_forward, (x[part], None), "y", mean),
        (pool.average_error, (mean[part], None), "x", mean_errors),
    ):
        out = results[shape]
        function(*(out[part] if argument is None else argument for argument in arguments), **window)
        assert np.array_equal(out[part], expected[part])
        out[part] = 12345
        assert (out == 12345).all()
    pool.max_forward(x[part], results["y"][part], some_places, **window)
    assert np.array_equal(some_places, places[part])


def test_first_maximum_wins_and_a_nan_is_kept() -> None:
    x = np.full((1, 2, 2, 40), 5, np.float32)
    window = {"kernel": 2, "stride": 1, "pad": 0}
    x[0, 0, 0] = 1
    y, places = max_forward(x, window)
    assert (set(y.ravel()), set(places.ravel())) == ({5}, {1})
    x[0, 1, 0] = np.nan
    y, places = max_forward(x, window)
    assert np.isnan(y).all()
    assert set(places.ravel()) == {2}


def test_padding_never_is_the_maximum() -> None:
    x = np.full((1, 2, 2, 1), -np.inf, np.float32)
    _, places = max_forward(x, {"kernel": 2, "stride": 2, "pad": 1})
    assert places.ravel().tolist() == [3, 2, 1, 0]


def test_errors_have_no_negative_zeros_whether_windows_overlap_or_not() -> None:
    x = np.zeros((1, 4, 4, 40), np.float32)
    for stride in (1, 2, 3):
        window = {"kernel": 2, "stride": stride, "pad": 0}
        y, places = max_forward(x, window)
        dy = np.full(y.shape, -0.0, np.float32)
        for dx in (max_error(dy, places, x, window), average_error(dy, x, window)):
            assert not dx.any()
            assert not np.signbit(dx).any()


def test_largest_window() -> None:
    x = np.arange(255, dtype=np.float32).reshape(1, 15, 17, 1)
    window = {"kernel": (15, 17), "stride": 1, "pad": 0}
    y, places = max_forward(x, window)
    assert (y.item(), places.item()) == (254, 254)
    assert np.argwhere(max_error(y, places, x, window)).tolist() == [[0, 14, 16, 0]]
    with pytest.raises(ValueError, match="at most 255 places: a kernel of 16 x 16"):
        max_forward(np.zeros((1, 16, 16, 1), np.float32), {"kernel": 16, "stride": 1, "pad": 0})
    assert (
        average_forward(
            np.ones((1, 16, 16, 1), np.float32), {"kernel": 16, "stride": 1, "pad": 0}
        ).item()
        == 1
    )


def test_shapes_that_do_not_fit_are_refused() -> None:
    x = np.zeros((1, 4, 4, 2), np.float32)
    y, places = max_forward(x, {"kernel": 2, "stride": 2, "pad": 0})
    with pytest.raises(ValueError, match="does not fit in 4 rows"):
        pool.max_forward(x, y, places, kernel=5, stride=1, pad=0)
    with pytest.raises(ValueError, match="the outputs have shape"):
        pool.max_forward(x, y[:, :1], places, kernel=2, stride=2, pad=0)
    with pytest.raises(ValueError, match="the outputs have shape"):
        pool.average_forward(x, y[:, :1], kernel=2, stride=2, pad=0)
    with pytest.raises(ValueError, match="gives"):
        pool.max_error(y, places, np.zeros((1, 6, 6, 2), np.float32), kernel=2, stride=2, pad=0)
    for wrong in (places.astype(np.int32), places[..., :1], places.transpose(0, 2, 1, 3)):
        with pytest.raises(ValueError, match="places must be uint8"):
            pool.max_error(y, wrong, x, kernel=2, stride=2, pad=0)
    with pytest.raises(ValueError, match="the errors have shape"):
        pool.average_error(y[..., 1:], x, kernel=2, stride=2, pad=0)
    with pytest.raises(ValueError, match="maps"):
        pool.average_forward(x[0], y, kernel=2, stride=2, pad=0)
