"""Subsets and normalisation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset, Normalisation


def small(n=12):
    random = np.random.default_rng(3)
    train, test = (random.integers(0, 256, (count, 2, 5, 4), dtype=np.uint8) for count in (n, 3))
    return Dataset("small", train, np.arange(n) % 2, test, np.zeros(3, np.int64), ("a", "b"))


def test_shape_and_sizes():
    data = small()
    assert (data.shape, data.n_train, data.n_test, data.n_classes) == ((2, 5, 4), 12, 3, 2)


def test_first():
    data = small().first(5)
    np.testing.assert_array_equal(data.train_images, small().train_images[:5])
    np.testing.assert_array_equal(data.train_labels, small().train_labels[:5])
    assert data.n_test == 3


@pytest.mark.parametrize("samples", [0, -1, 13])
def test_first_out_of_range(samples):
    with pytest.raises(
        InputError, match=f"`samples` = {samples}: but small has 12 .* from 1 to 12"
    ):
        small().first(samples)


def test_no_more_test_samples_than_there_are():
    assert small().test_first(3).n_test == 3
    for samples in (0, 4):
        with pytest.raises(
            InputError, match=f"`test_samples` = {samples}: but small has 3 test .* from 1 to 3"
        ):
            small().test_first(samples)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9000), st.integers(0, 5))
def test_normalisation(n, seed):
    images = np.random.default_rng(seed).integers(0, 256, (n, 2, 2, 3), dtype=np.uint8)
    normalisation = Normalisation.of(images)
    assert normalisation.mean.dtype == normalisation.std.dtype == np.float32
    np.testing.assert_allclose(normalisation.mean, images.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(normalisation.std, images.std((0, 2, 3)), rtol=1e-6)
    normal = normalisation.apply(images)
    assert normal.dtype == np.float32
    assert normal.shape == images.shape
    np.testing.assert_allclose(normal.mean((0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(normal.std((0, 2, 3)), 1, rtol=1e-4)


def test_normalisation_does_not_depend_on_order():
    images = small().train_images
    one, other = Normalisation.of(images), Normalisation.of(images[::-1])
    assert one.mean.tobytes() == other.mean.tobytes()
    assert one.std.tobytes() == other.std.tobytes()


def test_normalisation_of_one_value():
    images = np.full((3, 1, 2, 2), 7, np.uint8)
    normalisation = Normalisation.of(images)
    assert (normalisation.mean, normalisation.std) == (7, 1)
    assert not normalisation.apply(images).any()
