"""The order of the training samples: its own in each epoch, for each seed."""

import itertools

import numpy as np
import pytest

from emuchain.emulator.device import epoch_order

SAMPLES = 1000


@pytest.mark.parametrize("seed", [0, 1, 2**53 + 1, 2**63 - 1])
def test_orders_of_epochs_have_nothing_in_common(seed: int) -> None:
    orders = [epoch_order(seed, epoch, SAMPLES) for epoch in (0, 1, 2, 3, 511, 512, 2**40)]
    for order in orders:
        assert np.array_equal(np.sort(order), np.arange(SAMPLES))
    for one, other in itertools.combinations(orders, 2):
        assert np.count_nonzero(one == other) < 10  # 1 on average


def test_orders_of_seeds_have_nothing_in_common() -> None:
    seeds = (1, 2, 2**53, 2**53 + 1, 2**63 - 1)
    for one, other in itertools.combinations([epoch_order(seed, 3, SAMPLES) for seed in seeds], 2):
        assert np.count_nonzero(one == other) < 10


def test_the_orders_stay_as_they_are() -> None:
    """Weights after training depend on them."""
    assert epoch_order(1, 0, 10).tolist() == [2, 5, 0, 7, 6, 1, 8, 9, 3, 4]
    assert epoch_order(1, 1, 10).tolist() == [7, 0, 2, 5, 6, 8, 4, 1, 9, 3]
