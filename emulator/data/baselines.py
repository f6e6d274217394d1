"""The simplest models of a data set, for comparison: softmax regression on pixels, n-grams of a text.

Softmax regression takes normalised pixels, and SGD with momentum and a learning rate that falls to zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .dataset import Dataset
from .lazy import Images

_BATCH = 100
_STEPS = 3000
_MOMENTUM = 0.9
_RATE = 1e-3
_DECAY = 1e-3


def linear_accuracy(data: Dataset, steps: int = _STEPS) -> tuple[float, float]:
    """Return training and test accuracy, in [0, 1], of softmax regression after `steps` mini-batches of 100 images."""
    normalisation = data.normalisation()
    inputs = int(np.prod(data.shape))
    weights = np.zeros((inputs + 1, data.n_classes), np.float32)
    velocity = np.zeros_like(weights)

    def features(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        flat = normalisation.apply(images).reshape(len(images), inputs)
        return np.concatenate([flat, np.ones((len(images), 1), np.float32)], axis=1)

    def accuracy(images: Images, labels: NDArray[np.int64]) -> float:
        blocks = range(0, len(images), 1000)
        hits = [(features(images[i : i + 1000]) @ weights).argmax(1) == labels[i : i + 1000] for i in blocks]
        return float(np.concatenate(hits).mean())

    random = np.random.default_rng(0)
    for step in range(steps):
        chosen = random.integers(data.n_train, size=_BATCH)
        x = features(data.train_images[chosen])
        scores = x @ weights
        errors = np.exp(scores - scores.max(axis=1, keepdims=True))
        errors /= errors.sum(axis=1, keepdims=True)
        errors[np.arange(_BATCH), data.train_labels[chosen]] -= 1
        rate = np.float32(_RATE * (1 - step / steps))
        velocity *= np.float32(_MOMENTUM)
        velocity -= rate * (x.T @ errors / np.float32(_BATCH) + np.float32(_DECAY) * weights)
        weights += velocity
    return accuracy(data.train_images, data.train_labels), accuracy(data.test_images, data.test_labels)


class NgramBits(NamedTuple):
    """Bits a character of both models on the test part."""

    unigram: float
    bigram: float


def ngram_bits(data: Dataset) -> NgramBits:
    """Return the mean cross-entropy, in bits, of the test's labels under models that count the training labels.

    The unigram model goes by how often a symbol is, the bigram model by how often it follows the one before it. One is
    added to every count (Laplace's rule), so that what never occurred has a probability.
    """
    before, symbols = _pairs(data.train_images, data.train_labels)
    test_before, test_symbols = _pairs(data.test_images, data.test_labels)
    single = np.bincount(symbols, minlength=data.symbols) + 1
    followed = np.bincount(before, minlength=data.symbols) + data.symbols
    codes, counts = np.unique(before * data.symbols + symbols, return_counts=True)
    test_codes = test_before * data.symbols + test_symbols
    places = np.minimum(np.searchsorted(codes, test_codes), len(codes) - 1)
    pairs = np.where(codes[places] == test_codes, counts[places], 0) + 1
    return NgramBits(_bits(single[test_symbols] / single.sum()), _bits(pairs / followed[test_before]))


def _pairs(images: Images, labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all symbols that have a label, and their labels."""
    counts = labels >= 0
    return np.asarray(images)[:, 0, :, 0][counts].astype(np.int64), labels[counts]


def _bits(probabilities: NDArray[np.float64]) -> float:
    return float(-np.log2(probabilities).mean())
