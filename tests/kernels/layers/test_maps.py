"""Bias, rectifier, normalisation and dropout: values against PyTorch, independence of
micro-batches, slices of maps.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.kernels.jit import arrays
from emuchain.kernels.layers import activations, element_wise, normalisation

relaxed = settings(deadline=None, max_examples=40)
ROUNDING = 2.0**-24
Shape = tuple[int, int, int, int]
shapes = st.tuples(
    st.integers(1, 4),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 20) | st.integers(30, 70),
)
seeds = st.integers(0, 2**32)
margins = st.tuples(st.integers(0, 3), st.integers(0, 3))
Margins = tuple[int, int]


def numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


class Wider:
    """Maps that are some channels of wider ones; the channels to their left and right must not
    change.
    """

    def __init__(self, maps: np.ndarray, margins: Margins) -> None:
        left, right = margins
        self._whole = np.full((*maps.shape[:3], left + maps.shape[3] + right), 12345, np.float32)
        self._beside = np.delete(
            np.arange(self._whole.shape[3]), np.s_[left : left + maps.shape[3]]
        )
        self.maps = self._whole[..., left : left + maps.shape[3]]
        self.maps[...] = maps

    def beside_is_unchanged(self) -> bool:
        return bool((self._whole[..., self._beside] == 12345).all())


def test_pitch_is_the_step_from_pixel_to_pixel() -> None:
    maps = np.zeros((2, 3, 4, 5), np.float32)
    assert arrays.pitch(maps) == 5
    for part in (maps[..., 1:3], maps[..., 4:], maps[:1, ..., 1:3], maps[:, :, :, :1]):
        assert arrays.pitch(part) == 5
    assert arrays.pitch(maps[:, :, :1, 1:3]) == 20  # from row to row, as there is one column
    assert arrays.pitch(maps[:, :1, :1, 1:3]) == 60
    assert arrays.pitch(maps[:, :, ::2]) == 10
    for part in (
        maps[:, ::2],
        maps[:, :, :3],
        maps[..., ::2],
        maps[:, ::-1],
        maps.transpose(0, 3, 1, 2),
    ):
        assert arrays.pitch(part) == 0
    assert arrays.pitch(np.broadcast_to(maps[:, :, :1], maps.shape)) == 0
    overlapping = np.lib.stride_tricks.sliding_window_view(maps.reshape(-1), 5)[None, None]
    assert arrays.pitch(overlapping) == 0
    assert arrays.pitch(maps[:1, :1, ::-1]) == 0


def test_maps_of_another_layout_are_copied_to_read_and_refused_to_write() -> None:
    y = numbers((2, 6, 4, 5), 0)
    for view in (y[:, ::2], y[..., ::2], y.transpose(0, 3, 1, 2)):
        dy = np.ones(view.shape, np.float32)
        activations.rectified_error(view, dy)
        assert np.array_equal(dy, view > 0)
        with pytest.raises(ValueError, match="y is written in place"):
            activations.rectify(view)
    y.flags.writeable = False
    dy = np.ones(y.shape, np.float32)
    activations.rectified_error(y, dy)
    assert np.array_equal(dy, y > 0)
    with pytest.raises(ValueError, match="writeable"):
        activations.rectify(y)
    with pytest.raises(TypeError, match="y must be float32, not float64"):
        activations.rectify(np.zeros((1, 1, 1, 1)))
    with pytest.raises(ValueError, match=r"maps \(n, rows, columns, channels\), not \(3,\)"):
        activations.rectify(np.zeros(3, np.float32))


@relaxed
@given(shapes, seeds, margins)
def test_bias_is_added_to_every_place_and_its_gradient_in_order(
    shape: Shape, seed: int, margins: Margins
) -> None:
    start, b = numbers(shape, seed), numbers(shape[3:], seed + 1)
    wider = Wider(start, margins)
    y = wider.maps
    element_wise.add_bias(y, b)
    assert np.array_equal(y, start + b)
    assert wider.beside_is_unchanged()

    db = numbers(b.shape, seed + 2)
    split, fresh = db.copy(), np.full_like(db, np.nan)
    lines = np.concatenate([db[None], y.reshape(-1, shape[3])])
    element_wise.add_bias_gradient(db, y, fresh=False)
    assert np.array_equal(db, np.add.accumulate(lines, axis=0, dtype=np.float32)[-1])
    for sample in range(shape[0]):
        element_wise.add_bias_gradient(split, y[sample : sample + 1], fresh=False)
    assert np.array_equal(split, db)
    lines[0] = 0
    for sample in range(shape[0]):
        element_wise.add_bias_gradient(fresh, y[sample : sample + 1], fresh=sample == 0)
    assert np.array_equal(fresh, np.add.accumulate(lines, axis=0, dtype=np.float32)[-1])


def test_bias_that_does_not_fit_is_refused() -> None:
    y, b = np.zeros((1, 3, 3, 2), np.float32), np.zeros(3, np.float32)
    with pytest.raises(ValueError, match="a bias"):
        element_wise.add_bias(y, b)
    with pytest.raises(ValueError, match="a bias"):
        element_wise.rectify_with_bias(y, b)
    with pytest.raises(ValueError, match="a bias"):
        element_wise.add_bias_gradient(b, y, fresh=True)
    with pytest.raises(ValueError, match="a bias"):
        element_wise.add_bias(y[0], b[:2])


@relaxed
@given(shapes, seeds, margins, margins)
def test_rectifier(shape: Shape, seed: int, margins: Margins, others: Margins) -> None:
    x, errors, b = numbers(shape, seed), numbers(shape, seed + 1), numbers(shape[3:], seed + 2)
    x[x > 1.5] = 0
    wider = Wider(x, margins)
    activations.rectify(wider.maps)
    assert np.array_equal(wider.maps, np.maximum(x, 0))
    assert wider.beside_is_unchanged()

    back = Wider(errors, others)
    activations.rectified_error(wider.maps, back.maps)
    assert np.array_equal(back.maps, np.where(x > 0, errors, 0))
    assert back.beside_is_unchanged()

    back, marks = Wider(errors, others), np.full(shape, 7, np.uint8)
    activations.mark(wider.maps, marks)
    assert np.array_equal(marks, x > 0)
    activations.marked_error(marks, back.maps)
    assert np.array_equal(back.maps, np.where(x > 0, errors, 0))
    assert back.beside_is_unchanged()

    wider = Wider(x, margins)
    element_wise.rectify_with_bias(wider.maps, b)
    assert np.array_equal(wider.maps, np.maximum(x + b, 0))
    assert wider.beside_is_unchanged()


def test_rectifier_keeps_nans_and_gives_no_negative_zeros() -> None:
    for rectify in (
        activations.rectify,
        lambda y: element_wise.rectify_with_bias(y, np.zeros(y.shape[3], np.float32)),
    ):
        y = np.full((1, 1, 1, 40), -0.0, np.float32)
        y[..., 20:] = np.nan
        rectify(y)
        assert np.isnan(y[..., 20:]).all()
        assert not np.signbit(y[..., :20]).any()
        dy = np.full(y.shape, -1, np.float32)
        activations.rectified_error(y, dy)
        assert not np.signbit(dy).any()
        assert not dy.any()
        dy, marks = np.full(y.shape, -1, np.float32), np.ones(y.shape, np.uint8)
        activations.mark(y, marks)
        activations.marked_error(marks, dy)
        assert not np.signbit(dy).any()
        assert not dy.any()


def test_marks_that_do_not_fit_are_refused() -> None:
    y = np.zeros((1, 3, 3, 2), np.float32)
    for marks in (
        np.zeros(y.shape, np.bool_),
        np.zeros(y.shape[1:], np.uint8),
        np.zeros((1, 3, 3, 4), np.uint8)[..., ::2],
    ):
        with pytest.raises(ValueError, match=r"marks must be uint8 \(1, 3, 3, 2\)"):
            activations.mark(y, marks)
        with pytest.raises(ValueError, match=r"marks must be uint8 \(1, 3, 3, 2\)"):
            activations.marked_error(marks, y)


def test_rectifier_refuses_errors_of_another_shape() -> None:
    y = np.zeros((1, 2, 3, 4), np.float32)
    with pytest.raises(ValueError, match="outputs and their errors must have one shape"):
        activations.rectified_error(y, y[:, :1])


def normalise(x: np.ndarray, **keys: Any) -> tuple[np.ndarray, np.ndarray]:
    y, scale = np.full(x.shape, np.nan, np.float32), np.full(x.shape, np.nan, np.float32)
    normalisation.lrn_forward(x, y, scale, **keys)
    return y, scale


def normalise_back(
    x: np.ndarray, y: np.ndarray, scale: np.ndarray, dy: np.ndarray, **keys: Any
) -> np.ndarray:
    dx = np.full(x.shape, np.nan, np.float32)
    normalisation.lrn_error(x, y, scale, dy, dx, **keys)
    return dx


@relaxed
@given(
    shapes,
    seeds,
    st.integers(1, 7),
    st.floats(1e-4, 2),
    st.just(0.75) | st.floats(0.1, 2),
    st.floats(0.5, 3),
)
def test_normalisation_is_that_of_pytorch(
    shape: Shape, seed: int, size: int, alpha: float, beta: float, k: float
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    keys: dict[str, Any] = {"size": size, "alpha": alpha, "beta": beta, "k": k}
    x, dy = numbers(shape, seed), numbers(shape, seed + 1)
    tx = torch.tensor(x.transpose(0, 3, 1, 2), dtype=torch.float64, requires_grad=True)
    expected = torch.nn.functional.local_response_norm(tx, **keys)
    expected.backward(torch.tensor(dy.transpose(0, 3, 1, 2), dtype=torch.float64))
    y, scale = normalise(x, **keys)
    dx = normalise_back(x, y, scale, dy, **keys)

    # scale is a sum of size + 1 terms, none negative, so its relative error is at most (size + 4)
    # roundings; a power, of an exponent below 2 that is rounded too, at most doubles and adds to
    # that.
    relative = (4 * (size + 4) + 2 * np.log(scale.max()) + 16) * ROUNDING
    exact_y, exact_dx = (
        expected.detach().numpy().transpose(0, 2, 3, 1),
        tx.grad.numpy().transpose(0, 2, 3, 1),
    )
    assert np.all(abs(y - exact_y) <= relative * abs(exact_y) + 1e-38)
    # dx is a difference of terms with such errors each: the bound is relative to the sum of their
    # sizes
    spread = np.zeros(shape)
    terms = abs(dy.astype(np.float64) * y / scale)
    for channel in range(shape[3]):
        spread[..., channel] = terms[
            ..., max(channel - (size - 1) // 2, 0) : channel + size // 2 + 1
        ].sum(3)
    bound = abs(dy) / scale.astype(np.float64) ** beta + 2 * alpha * beta / size * abs(x) * spread
    assert np.all(abs(dx - exact_dx) <= 3 * relative * bound + 1e-38)


@relaxed
@given(shapes, seeds, margins, st.integers(1, 30))
def test_normalisation_of_a_pixel_depends_on_no_other_and_takes_slices(
    shape: Shape, seed: int, margins: Margins, size: int
) -> None:
    keys: dict[str, Any] = {"size": size, "alpha": 0.1, "beta": 0.75, "k": 2.0}
    x, dy = numbers(shape, seed), numbers(shape, seed + 1)
    y, scale = normalise(x, **keys)
    dx = normalise_back(x, y, scale, dy, **keys)
    for n, row, column in np.ndindex(*shape[:3]):
        one = np.s_[n : n + 1, row : row + 1, column : column + 1]
        y_one, scale_one = normalise(x[one], **keys)
        assert np.array_equal(y_one, y[one])
        assert np.array_equal(scale_one, scale[one])
        assert np.array_equal(normalise_back(x[one], y[one], scale[one], dy[one], **keys), dx[one])
    results = [Wider(np.zeros(shape, np.float32), margins) for _ in range(3)]
    normalisation.lrn_forward(x, results[0].maps, results[1].maps, **keys)
    normalisation.lrn_error(
        Wider(x, margins).maps, results[0].maps, results[1].maps, dy, results[2].maps, **keys
    )
    for result, expected in zip(results, (y, scale, dx), strict=True):
        assert np.array_equal(result.maps, expected)
        assert result.beside_is_unchanged()
    normalisation.lrn_error(x, y, scale, dy, dy, **keys)
    assert np.array_equal(dy, dx)


def test_normalisation_refuses_what_does_not_fit() -> None:
    x = np.zeros((1, 3, 3, 2), np.float32)
    with pytest.raises(ValueError, match="at least one channel"):
        normalise(x, size=0, alpha=1, beta=1, k=1)
    with pytest.raises(ValueError, match="one shape"):
        normalisation.lrn_forward(x, x.copy(), x[:, :1].copy(), size=3, alpha=1, beta=1, k=1)
    with pytest.raises(ValueError, match="one shape"):
        normalisation.lrn_error(x, x, x, x[:, :1], x.copy(), size=3, alpha=1, beta=1, k=1)


def drop(shape: Shape, **keys: Any) -> np.ndarray:
    mask = np.full(shape, np.nan, np.float32)
    normalisation.dropout_mask(mask, **keys)
    return mask


@relaxed
@given(
    shapes,
    st.floats(0, 0.9),
    st.integers(0, 2**63 - 1),
    st.integers(0, 99),
    st.integers(0, 2**40),
    margins,
)
def test_dropout_depends_on_the_sample_and_not_on_its_batch(
    shape: Shape, rate: float, seed: int, layer: int, first: int, margins: Margins
) -> None:
    samples = np.arange(first, first + shape[0])
    whole = drop(shape, rate=rate, seed=seed, layer=layer, samples=samples)
    for n in reversed(range(shape[0])):
        one = drop((1, *shape[1:]), rate=rate, seed=seed, layer=layer, samples=samples[n : n + 1])
        assert np.array_equal(one[0], whole[n])
    assert set(np.unique(whole)) <= {np.float32(0), np.float32(1 / (1 - rate))}
    wider = Wider(np.zeros(shape, np.float32), margins)
    normalisation.dropout_mask(wider.maps, rate=rate, seed=seed, layer=layer, samples=samples)
    assert np.array_equal(wider.maps, whole)
    assert wider.beside_is_unchanged()


def mixed(z: int) -> int:
    """The finaliser of splitmix64, in whole numbers."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_dropout_by_hand() -> None:
    """The elements of a sample count channel by channel, row by row, whatever the layout."""
    (n, rows, columns, channels), rate, seed, layer, step = (
        (2, 3, 4, 40),
        0.3,
        2**63 - 5,
        7,
        0x9E3779B97F4A7C15,
    )
    samples = np.array([2**40, 3])
    mask = drop((n, rows, columns, channels), rate=rate, seed=seed, layer=layer, samples=samples)
    stream = mixed((mixed((seed + step) % 2**64) + layer + step) % 2**64)
    for sample, row, column, channel in np.ndindex(n, rows, columns, channels):
        key = mixed((stream + int(samples[sample]) + step) % 2**64)
        element = (channel * rows + row) * columns + column
        share = mixed((key + (element + 1) * step) % 2**64) / 2**64
        assert mask[sample, row, column, channel] == (0 if share < rate else np.float32(1 / 0.7))


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_dropout_drops_at_its_rate(rate: float) -> None:
    mask = drop((10, 100, 100, 10), rate=rate, seed=1, layer=2, samples=np.arange(10))
    deviation = np.sqrt(rate * (1 - rate) / mask.size)  # of the mean of as many independent draws
    assert abs((mask == 0).mean() - rate) <= 5 * deviation


def test_dropout_of_other_seeds_layers_and_samples_is_unrelated() -> None:
    keys: list[tuple[int, int, int]] = [
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (1, 1, 0),
        (2, 0, 0),
        (0, 0, 2),
    ]
    masks = [
        drop((1, 10, 10, 100), rate=0.5, seed=seed, layer=layer, samples=np.array([sample])) > 0
        for seed, layer, sample in keys
    ]
    for i, a in enumerate(masks):
        for b in masks[:i]:
            assert abs((a == b).mean() - 0.5) <= 5 * 0.5 / 100  # 5 standard deviations


def test_dropout_refuses_what_is_not_possible() -> None:
    with pytest.raises(ValueError, match="less than 1"):
        drop((1, 1, 1, 1), rate=1.0, seed=0, layer=0, samples=np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="one sample number"):
        drop((2, 1, 1, 1), rate=0.5, seed=0, layer=0, samples=np.zeros(1, np.int64))
