"""The choice of test samples, for data sets that do not define them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..common import InputError


def shuffled(numbers: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return numbers in a random order, so that the first of images sorted by class are of all classes."""
    stream = np.random.Generator(np.random.Philox(key=np.array([seed, 1 << 63], np.uint64)))
    return stream.permutation(numbers)


def split(
    labels: NDArray[np.int64], classes: int, share: float, seed: int, where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of the training and of the test samples, both ascending: a share of each class is the test.

    Which of a class these are depends on the seed, the class, and its number of samples alone; at least one sample of
    each stays for training, and at least one of two is the test.

    Raises:
        InputError: the test would be empty.
    """
    is_test = np.zeros(len(labels), bool)
    by_class = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[by_class], np.arange(classes + 1))
    bits = np.random.Philox(key=np.array([seed, 0], np.uint64))
    fresh, stream = bits.state, np.random.Generator(bits)
    for k in np.flatnonzero(np.diff(bounds) > 1).tolist():
        members = by_class[bounds[k] : bounds[k + 1]]
        count = min(max(1, int(share * len(members) + 0.5)), len(members) - 1)
        fresh["state"]["key"][1] = k
        bits.state = fresh  # as a new generator with this key, in a fraction of the time
        is_test[stream.permutation(members)[:count]] = True
    if not is_test.any():
        raise InputError(f"{where}: no class has two images, one for training and one for testing")
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
