"""What replicas make of values by a collective: sums in the order of its steps, the same bits at
all of them, under a codec, too.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from emuchain.comm.collective import piece_bounds, sums
from emuchain.comm.exchange import DataParallel, sums_once
from emuchain.kernels.codec import parse_codec

from ..exchange.replicas import SWITCH, carried_out, gradients_of

LOSSY: dict[str, Any] = {"codec": parse_codec("inceptionn:-8"), "feedback": True}


def summed(name: str, gradients: Any, turns: int = 1, **how: Any) -> list[Any]:
    """The values of each replica after some exchanges."""
    ranks, count = gradients.shape
    of = DataParallel(ranks, exchange=name, **how)
    return carried_out(of, SWITCH, count, gradients, [[0] * ranks] * turns).values


@pytest.mark.parametrize("name", [*sums()])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [1, 5, 1003])
def test_all_ranks_have_the_sum(name: str, ranks: int, count: int) -> None:
    random = np.random.default_rng(3)
    before = random.normal(size=(ranks, count)).astype(np.float32)
    values = summed(name, before)
    assert all(np.array_equal(values[0], other) for other in values[1:])
    assert values[0] == pytest.approx(before.sum(axis=0, dtype=np.float64), abs=1e-5)


def test_a_ring_adds_each_piece_from_the_rank_of_its_number_on() -> None:
    random = np.random.default_rng(4)
    before = random.normal(size=(4, 10)).astype(np.float32)
    values = summed("ring", before)
    bounds = piece_bounds(10, 4)
    for piece in range(4):
        part = slice(bounds[piece], bounds[piece + 1])
        order = [(piece + step) % 4 for step in range(4)]
        total = functools.reduce(np.add, (before[rank][part] for rank in order))
        assert np.array_equal(values[2][part], total)


def test_a_tree_adds_the_far_half_to_the_near_one() -> None:
    before = np.array([[1], [2**-24], [2**-24], [2**-24]], np.float32)
    values = summed("tree", before)
    near = before[0] + before[1]
    assert np.array_equal(values[3], near + (before[2] + before[3]))


@pytest.mark.parametrize("name", [*sums()])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_replicas_stay_equal_under_a_codec(name: str, ranks: int) -> None:
    """But for those collectives in which several replicas form each sum."""
    gradients = gradients_of(ranks, 3001)
    of = DataParallel(ranks, exchange=name)
    once = sums_once(of.collective.phases(ranks), of.nodes)
    for turns in (1, 3):
        values = summed(name, gradients, turns, **LOSSY)
        equal = all(np.array_equal(values[0], other) for other in values[1:])
        assert equal == once
    assert once == (name != "doubling")
