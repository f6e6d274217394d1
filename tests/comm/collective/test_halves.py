"""All-reduces in two halves: each rank has the sum of a piece of its own between them, and the
times are those of the steps.
"""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.comm import Chain, Cycle, Interconnect, Switch, Topology
from emuchain.comm.collective import (
    Goal,
    as_text,
    check,
    collective_of,
    halves,
    laid_out,
    own_pieces,
    sums,
)
from emuchain.comm.exchange import DataParallel, exchange_ps, half_ends_ps, played_ends_ps

IN_HALVES = ["ring", "halving-doubling"]


def sums_after(name: str, ranks: int) -> np.ndarray:
    """What the pieces of each rank hold after the first half, with bit r in those of rank r."""
    held = np.repeat(1 << np.arange(ranks)[:, None], ranks, axis=1)
    for phase in halves(collective_of(name)).phases(ranks):
        for steps in phase.rounds if not phase.of_weights else ():
            before = held.copy()
            for step in steps:
                piece = slice(step.first, step.stop)
                held[step.receiver, piece] += before[step.sender, piece]
    return held


@pytest.mark.parametrize("name", IN_HALVES)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_each_rank_has_the_sum_of_its_piece_between_the_halves(name: str, ranks: int) -> None:
    phases = check(halves(collective_of(name)), ranks)
    own = own_pieces(phases, ranks)
    assert sorted(own) == list(range(ranks))
    assert [phase.of_weights for phase in phases] == [False, True]
    whole = (1 << ranks) - 1
    held = sums_after(name, ranks)
    assert [int(held[rank, piece]) for rank, piece in enumerate(own)] == [whole] * ranks
    assert int((held == whole).sum()) == ranks


@pytest.mark.parametrize("name", IN_HALVES)
def test_the_steps_are_those_of_the_whole(name: str) -> None:
    both = halves(collective_of(name)).phases(4)
    [whole] = collective_of(name).phases(4)
    joined = [[*steps] for phase in both for steps in phase.rounds]
    assert joined == [[*steps] for steps in whole.rounds]


@pytest.mark.parametrize("name", [name for name in sums() if name not in IN_HALVES])
def test_others_leave_no_equal_pieces(name: str) -> None:
    assert collective_of(name).problem(4) is None
    assert "do not leave each of 4 ranks an equal piece" in str(
        halves(collective_of(name)).problem(4)
    )


def test_steps_that_are_written_have_halves() -> None:
    text = as_text(collective_of("halving-doubling").phases(4))
    phases = halves(collective_of(text)).phases(4)
    assert own_pieces(phases, 4) == own_pieces(
        halves(collective_of("halving-doubling")).phases(4), 4
    )
    assert collective_of("halving-doubling").goal is Goal.ALL_REDUCE


@pytest.mark.parametrize("kind", [Switch, Chain, Cycle])
@pytest.mark.parametrize("workers", [2, 3, 7])
@pytest.mark.parametrize("count", [5, 1000])
def test_a_ring_has_the_times_of_its_steps(kind: type[Topology], workers: int, count: int) -> None:
    """In closed form, for unequal blocks and workers that are ready one after another."""
    topology = kind(workers)
    over = Interconnect(10_000, 1_000_000, sum_ps_per_kbyte=200, topology=topology)
    parallel = DataParallel(workers, zero=1)
    ready = np.arange(workers, dtype=np.int64)[::-1] * 700_000
    for of_weights in (False, True):
        laid = laid_out(parallel.collective, workers, topology)
        phases = [part for part in laid if part.phase.of_weights == of_weights]
        ends = half_ends_ps(parallel, over, count, ready, of_weights=of_weights)
        assert ends.tolist() == played_ends_ps(phases, over, count, ready).tolist()
        assert (ends > ready).all()


def test_the_time_of_both_halves_by_hand() -> None:
    """4 workers, 400 values, 10 Gb/s, 1 us: 3 + 3 steps of 400 bytes, 320 ns; 0.2 ns/B to add."""
    over = Interconnect(10_000, 1_000_000, sum_ps_per_kbyte=200, topology=Switch())
    step_ps, sum_ps = 1_000_000 + 320_000, 400 * 200 // 1000
    zeros = np.zeros(4, np.int64)
    parallel = DataParallel(4, zero=1)
    first = half_ends_ps(parallel, over, 400, zeros, of_weights=False)
    second = half_ends_ps(parallel, over, 400, zeros, of_weights=True)
    assert first.tolist() == [3 * (step_ps + sum_ps)] * 4
    assert second.tolist() == [3 * step_ps] * 4
    assert exchange_ps(parallel, over, 400) == exchange_ps(DataParallel(4), over, 400)
    assert exchange_ps(parallel, over, 400) == 6 * step_ps + 3 * sum_ps
