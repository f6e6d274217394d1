"""Bias, rectifier, normalisation and dropout: values against PyTorch, independence of micro-batches."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.kernels import bias, dropout, lrn, relu

relaxed = settings(deadline=None, max_examples=40)
ROUNDING = 2.0**-24
shapes = st.tuples(st.integers(1, 4), st.integers(1, 20), st.integers(1, 9), st.integers(1, 9))
seeds = st.integers(0, 2**32)


def numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@relaxed
@given(shapes, seeds)
def test_bias_is_added_to_every_place_and_its_gradient_in_order(shape: tuple[int, int, int, int], seed: int) -> None:
    y, b = numbers(shape, seed), numbers(shape[1:2], seed + 1)
    expected = y + b[:, None, None]
    bias.add_bias(y, b)
    assert np.array_equal(y, expected)

    db = numbers(b.shape, seed + 2)
    split = db.copy()
    columns = np.moveaxis(y, 1, 0).reshape(shape[1], -1)
    expected = np.add.accumulate(np.concatenate([db[:, None], columns], 1), axis=1, dtype=np.float32)[:, -1]
    bias.add_bias_gradient(db, y)
    assert np.array_equal(db, expected)
    for sample in y:
        bias.add_bias_gradient(split, sample[None])
    assert np.array_equal(split, db)


def test_bias_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="a bias"):
        bias.add_bias(np.zeros((1, 2, 3, 3), np.float32), np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="a bias"):
        bias.add_bias_gradient(np.zeros(3, np.float32), np.zeros((1, 2, 3, 3), np.float32))


@relaxed
@given(shapes, seeds)
def test_rectifier(shape: tuple[int, int, int, int], seed: int) -> None:
    x, dy = numbers(shape, seed), numbers(shape, seed + 1)
    x[x > 1.5] = 0
    y = relu.forward(x)
    assert np.array_equal(y, np.maximum(x, 0))
    assert np.array_equal(relu.error(y, dy), np.where(x > 0, dy, 0))
    assert relu.forward(x[:, ::2]).flags.c_contiguous
    assert np.array_equal(relu.forward(x[:, ::2]), y[:, ::2])


def test_rectifier_shows_a_nan() -> None:
    assert np.isnan(relu.forward(np.full((1, 1, 1, 1), np.nan, np.float32))).all()


@relaxed
@given(shapes, seeds, st.integers(1, 7), st.floats(1e-4, 2), st.just(0.75) | st.floats(0.1, 2), st.floats(0.5, 3))
def test_normalisation_is_that_of_pytorch(
    shape: tuple[int, int, int, int], seed: int, size: int, alpha: float, beta: float, k: float
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    keys: dict[str, Any] = {"size": size, "alpha": alpha, "beta": beta, "k": k}
    x, dy = numbers(shape, seed), numbers(shape, seed + 1)
    tx = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    expected = torch.nn.functional.local_response_norm(tx, **keys)
    expected.backward(torch.tensor(dy, dtype=torch.float64))
    y, scale = lrn.forward(x, **keys)
    dx = lrn.error(x, y, scale, dy, **keys)

    # scale is a sum of size + 1 terms, none negative, so its relative error is at most (size + 4)
    # roundings; a power, of an exponent below 2 that is rounded too, at most doubles and adds to that.
    relative = (4 * (size + 4) + 2 * np.log(scale.max()) + 16) * ROUNDING
    exact_y, exact_dx = expected.detach().numpy(), tx.grad.numpy()
    assert np.all(abs(y - exact_y) <= relative * abs(exact_y) + 1e-38)
    # dx is a difference of terms with such errors each: the bound is relative to the sum of their sizes
    spread = np.zeros(shape)
    terms = abs(dy.astype(np.float64) * y / scale)
    for channel in range(shape[1]):
        spread[:, channel] = terms[:, max(channel - (size - 1) // 2, 0) : channel + size // 2 + 1].sum(1)
    bound = abs(dy) / scale.astype(np.float64) ** beta + 2 * alpha * beta / size * abs(x) * spread
    assert np.all(abs(dx - exact_dx) <= 3 * relative * bound + 1e-38)


@relaxed
@given(shapes, seeds)
def test_normalisation_treats_each_sample_alone(shape: tuple[int, int, int, int], seed: int) -> None:
    keys: dict[str, Any] = {"size": 5, "alpha": 0.1, "beta": 0.75, "k": 2.0}
    x, dy = numbers(shape, seed), numbers(shape, seed + 1)
    y, scale = lrn.forward(x, **keys)
    dx = lrn.error(x, y, scale, dy, **keys)
    for n in range(shape[0]):
        one = slice(n, n + 1)
        y_one, scale_one = lrn.forward(x[one], **keys)
        assert np.array_equal(y_one, y[one])
        assert np.array_equal(scale_one, scale[one])
        assert np.array_equal(lrn.error(x[one], y[one], scale[one], dy[one], **keys), dx[one])


def test_normalisation_refuses_what_does_not_fit() -> None:
    x = np.zeros((1, 2, 3, 3), np.float32)
    with pytest.raises(ValueError, match="at least one channel"):
        lrn.forward(x, size=0, alpha=1, beta=1, k=1)
    with pytest.raises(ValueError, match="one shape"):
        lrn.error(x, x, x, x[:, :1], size=3, alpha=1, beta=1, k=1)


@relaxed
@given(shapes, st.floats(0, 0.9), st.integers(0, 2**63 - 1), st.integers(0, 99), st.integers(0, 2**40))
def test_dropout_depends_on_the_sample_and_not_on_its_batch(
    shape: tuple[int, int, int, int], rate: float, seed: int, layer: int, first: int
) -> None:
    samples = np.arange(first, first + shape[0])
    whole = dropout.mask(shape, rate=rate, seed=seed, layer=layer, samples=samples)
    for n in reversed(range(shape[0])):
        one = dropout.mask((1, *shape[1:]), rate=rate, seed=seed, layer=layer, samples=samples[n : n + 1])
        assert np.array_equal(one[0], whole[n])
    assert set(np.unique(whole)) <= {np.float32(0), np.float32(1 / (1 - rate))}


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_dropout_drops_at_its_rate(rate: float) -> None:
    shape = (10, 10, 100, 100)
    mask = dropout.mask(shape, rate=rate, seed=1, layer=2, samples=np.arange(10))
    deviation = np.sqrt(rate * (1 - rate) / mask.size)  # of the mean of as many independent draws
    assert abs((mask == 0).mean() - rate) <= 5 * deviation


def test_dropout_of_other_seeds_layers_and_samples_is_unrelated() -> None:
    shape = (1, 1, 100, 100)
    keys: list[tuple[int, int, int]] = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (2, 0, 0), (0, 0, 2)]
    masks = [
        dropout.mask(shape, rate=0.5, seed=seed, layer=layer, samples=np.array([sample])) > 0
        for seed, layer, sample in keys
    ]
    for i, a in enumerate(masks):
        for b in masks[:i]:
            assert abs((a == b).mean() - 0.5) <= 5 * 0.5 / 100  # 5 standard deviations


def test_dropout_refuses_what_is_not_possible() -> None:
    with pytest.raises(ValueError, match="less than 1"):
        dropout.mask((1, 1, 1, 1), rate=1.0, seed=0, layer=0, samples=np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="one sample number"):
        dropout.mask((2, 1, 1, 1), rate=0.5, seed=0, layer=0, samples=np.zeros(1, np.int64))
