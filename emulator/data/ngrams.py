"""The simplest models of a text, for comparison: bits per character of a unigram and of a bigram model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .dataset import Dataset
from .lazy import Images


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
