"""The choice of test samples: a share of each class, the same as before for the same seed, in linear time."""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.emulator.data.reading import split


def chosen(labels: np.ndarray, classes: int, share: float, seed: int) -> list[int]:
    """Return the test samples as they were chosen class by class, each by a generator of its own."""
    test: list[int] = []
    for k in range(classes):
        members = np.flatnonzero(labels == k)
        if len(members) > 1:
            count = min(max(1, int(share * len(members) + 0.5)), len(members) - 1)
            stream = np.random.Generator(np.random.Philox(key=np.array([seed, k], np.uint64)))
            test += stream.permutation(members)[:count].tolist()
    return sorted(test)


@pytest.mark.parametrize(("classes", "count"), [(1, 2), (3, 20), (50, 300), (200, 250)])
@pytest.mark.parametrize(("share", "seed"), [(0.1, 0), (0.4, 2**63 - 1), (0.999, 7)])
def test_samples_are_those_of_each_class_alone(classes: int, count: int, share: float, seed: int) -> None:
    labels = np.random.default_rng(count).integers(0, classes, count).astype(np.int64)
    train, test = split(labels, classes, share, seed, "it")
    assert test.tolist() == chosen(labels, classes, share, seed)
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(count))


def test_labels_are_not_looked_through_for_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, real = [], np.flatnonzero
    monkeypatch.setattr(np, "flatnonzero", lambda values: calls.append(len(values)) or real(values))  # type: ignore[func-returns-value]
    split(np.arange(2000) % 1000, 1000, 0.1, 0, "it")
    assert sum(calls) < 10 * 2000
