"""The built-in set is the same everywhere, balanced, and not for linear classifiers."""

import hashlib

import numpy as np
import pytest
from click.testing import CliRunner

from emuchain.emulator.data import describe_data, linear, load, load_data, shapes

GOLDEN = "9b12b660a3d569de074e2e04a94f23467325b730f6c09890f298a0fe66c99ef0"


@pytest.fixture(scope="module")
def drawn():
    return load_data("shapes")


def test_golden(drawn):
    digest = hashlib.sha256()
    for array in (drawn.train_images, drawn.train_labels, drawn.test_images, drawn.test_labels):
        digest.update(array.tobytes())
    assert digest.hexdigest() == GOLDEN


def test_splitmix64_is_the_published_one():
    """The first outputs of the reference implementation from the state 1234567."""
    step = 0x9E3779B97F4A7C15
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    inverse = pow(step, -1, 1 << 64)
    counters = [(1234567 + (i + 1) * step) * inverse - 1 for i in range(4)]
    found = shapes.splitmix64(np.array([counter % (1 << 64) for counter in counters], np.uint64))
    assert found.tolist() == expected


def test_sizes_and_balance(drawn):
    assert describe_data("shapes")[:4] == (
        drawn.n_train,
        drawn.n_test,
        drawn.shape,
        drawn.n_classes,
    )
    assert (drawn.n_train, drawn.n_test, drawn.shape, drawn.n_classes) == (
        10_000,
        2_000,
        (3, 32, 32),
        10,
    )
    assert drawn.train_images.dtype == np.uint8
    assert drawn.train_labels.dtype == np.int64
    assert (np.sort(drawn.train_labels.reshape(-1, 10), axis=1) == np.arange(10)).all()


def test_a_smaller_set_is_the_beginning(drawn):
    part = shapes.draw(train=777, test=3)
    np.testing.assert_array_equal(part.train_images, drawn.train_images[:777])
    np.testing.assert_array_equal(part.train_labels, drawn.train_labels[:777])
    np.testing.assert_array_equal(part.test_images, drawn.test_images[:3])
    np.testing.assert_array_equal(part.test_labels, drawn.test_labels[:3])


def test_no_image_occurs_twice(drawn):
    everything = np.concatenate([drawn.train_images, drawn.test_images])
    assert len({image.tobytes() for image in everything}) == 12_000


def test_classes_have_the_same_mean(drawn):
    means = [drawn.train_images[drawn.train_labels == k].mean(axis=(0, 2, 3)) for k in range(10)]
    assert np.ptp(means, axis=0).max() < 6


def test_linear_classifier_fails():
    part = shapes.draw(2000, 500)
    train, test = linear.linear_accuracy(part, steps=40)
    assert test < 0.35
    assert (train, test) == linear.linear_accuracy(part, steps=40)


def test_linear_command(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(load, "load_data", lambda where: shapes.draw(200, 50))
    monkeypatch.setattr(linear, "linear_accuracy", lambda data: (0.5, 0.125))
    result = CliRunner().invoke(linear.main, [])
    assert result.output == "shapes: linear classifier, test accuracy 12.5% (training 50.0%)\n"
    monkeypatch.undo()
    result = CliRunner().invoke(
        linear.main, ["--data", str(tmp_path)], env={"OMP_NUM_THREADS": "1"}
    )
    assert result.exit_code == 2
    assert "emuchain: error: " in result.output
