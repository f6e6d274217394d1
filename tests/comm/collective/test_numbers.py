"""What collectives make of values: sums in the order of their steps, the same bits at all ranks."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from emuchain.comm.collective import Goal, carry_out, check, collectives, piece_bounds

SUMS = [name for name, kind in collectives().items() if kind.goal is Goal.ALL_REDUCE]


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [1, 5, 1003])
def test_all_ranks_have_the_sum(name: str, ranks: int, count: int) -> None:
    collective = collectives()[name]()
    random = np.random.default_rng(3)
    before = random.normal(size=(ranks, count)).astype(np.float32)
    values = [*before.copy()]
    values += [np.zeros(count, np.float32) for _ in range(collective.nodes(ranks) - ranks)]
    carry_out(check(collective, ranks), values)
    assert all(np.array_equal(values[0], other) for other in values[1:ranks])
    assert values[0] == pytest.approx(before.sum(axis=0, dtype=np.float64), abs=1e-5)


def test_a_ring_adds_each_piece_from_the_rank_of_its_number_on() -> None:
    random = np.random.default_rng(4)
    before = random.normal(size=(4, 10)).astype(np.float32)
    values = [*before.copy()]
    carry_out(check(collectives()["ring"](), 4), values)
    bounds = piece_bounds(10, 4)
    for piece in range(4):
        part = slice(bounds[piece], bounds[piece + 1])
        order = [(piece + step) % 4 for step in range(4)]
        total = functools.reduce(np.add, (before[rank][part] for rank in order))
        assert np.array_equal(values[2][part], total)


def test_a_tree_adds_the_far_half_to_the_near_one() -> None:
    before = np.array([[1], [2**-24], [2**-24], [2**-24]], np.float32)
    values = [*before.copy()]
    carry_out(check(collectives()["tree"](), 4), values)
    near = before[0] + before[1]
    assert np.array_equal(values[3], near + (before[2] + before[3]))
