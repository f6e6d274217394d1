"""Times of exchanges: section VIII-D's closed forms exactly, small ones by hand, and what holds for
any workers.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm import Chain, Cycle, Interconnect, NicEngines, Switch, Topology, Torus
from emuchain.comm.exchange import (
    after_step,
    aggregator_ps,
    block_sizes,
    broadcast_ps,
    broadcast_rounds,
    broadcast_shares,
    bytes_at_ratio,
    hierarchy_ps,
    ring_messages,
    ring_ps,
    ring_steps,
    sent_block,
)

ALPHA, BETA, GAMMA = 7_000, 800, 118
"""Picoseconds: for a message, a byte, a byte."""
PLAIN = Interconnect(bandwidth_mbps=10_000, latency_ps=ALPHA, sum_ps_per_kbyte=1000 * GAMMA)
WORKERS = st.integers(1, 40)


def at_once(workers: int) -> np.ndarray:
    return np.zeros(workers, np.int64)


@given(WORKERS, st.integers(1, 1000))
def test_closed_form_of_the_ring(p: int, block: int) -> None:
    n = 4 * block * p
    closed = 2 * (p - 1) * ALPHA + 2 * (p - 1) * n // p * BETA + (p - 1) * n // p * GAMMA
    assert ring_ps(PLAIN, at_once(p), block * p).tolist() == [closed] * p


@given(WORKERS, st.integers(1, 1000))
def test_closed_form_of_the_aggregator(p: int, values: int) -> None:
    n, rounds = 4 * values, math.ceil(math.log2(p + 1))
    closed = (1 + rounds) * ALPHA + (p + rounds) * n * BETA + (p - 1) * n * GAMMA
    assert max(aggregator_ps(PLAIN, at_once(p), values)) == closed


@given(WORKERS, st.integers(1, 1000))
def test_closed_form_of_the_blocking_ring(p: int, block: int) -> None:
    """Twice the wire's and the latency's part: a worker sends and receives one after the other."""
    n = 4 * block * p
    closed = 4 * (p - 1) * ALPHA + 4 * (p - 1) * n // p * BETA + (p - 1) * n // p * GAMMA
    assert set(
        ring_ps(dataclasses.replace(PLAIN, blocking=True), at_once(p), block * p).tolist()
    ) == {closed}


def simulated(values: int, p: int) -> list[list[set[int]]]:
    """Algorithm 1 with sets for gradients: for each worker and block, the workers whose gradients
    are in it.
    """
    held = [[{worker} for _ in range(p)] for worker in range(p)]
    for step in ring_steps(p):
        moved = [held[worker][sent_block(worker, step, p)] for worker in range(p)]
        for worker in range(p):
            block = sent_block((worker - 1) % p, step, p)
            came = moved[worker - 1]
            assert block == (worker - step) % p
            if step < p:
                assert not came & held[worker][block], "no gradient is added twice"
                came = came | held[worker][block]
            held[worker][block] = came
    return held


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 16])
def test_after_all_steps_every_worker_has_every_sum(p: int) -> None:
    assert simulated(100, p) == [[set(range(p))] * p] * p
    assert len(ring_steps(p)) == 2 * p - 2


def test_the_example_of_section_iv() -> None:
    """Worker 0 sends block 0 first; worker 3 sends the summed block 0 to worker 0 in step 4."""
    assert [sent_block(worker, 1, 4) for worker in range(4)] == [0, 1, 2, 3]
    assert sent_block(3, 4, 4) == 0


@given(st.integers(0, 1000), WORKERS)
def test_blocks_differ_by_a_value_at_most(values: int, p: int) -> None:
    sizes = block_sizes(values, p)
    assert sizes.sum() == values
    assert sizes.max() - sizes.min() <= 1
    assert ring_messages(values, p).shape == (2 * p - 2, p)
    assert ring_messages(values, p).sum() == 4 * values * (2 * p - 2)


def test_two_workers_by_hand() -> None:
    # 3 values: blocks of 8 and 4 bytes. Step 1: worker 0 sends 8 bytes, worker 1 sends 4; the other
    # way in step 2. Worker 0, step 1: own 6400; the left's come at 3200 + 7000 = 10200; + 4 * 118.
    # Worker 1: 6400 + 7000 + 8 * 118. Worker 1 then sends the summed 8 bytes: worker 0 has them at
    # 14344 + 6400 + 7000; worker 1 has 4 from worker 0 at 10672 + 3200 + 7000, while its own are
    # sent at 14344 + 6400.
    assert ring_ps(PLAIN, at_once(2), 3).tolist() == [27_744, 20_872]


def test_a_late_worker_is_waited_for() -> None:
    late = at_once(4)
    late[2] = 10**9
    times, prompt = ring_ps(PLAIN, late, 400), ring_ps(PLAIN, at_once(4), 400)
    assert (times >= 10**9).all()
    assert (times <= 10**9 + prompt).all()


READY = st.lists(st.integers(0, 10**12), min_size=1, max_size=12)


@given(READY, st.integers(0, 1000), st.booleans(), st.booleans())
def test_arrays_are_steps_one_by_one(
    ready: list[int], values: int, blocking: bool, chain: bool
) -> None:
    """The time of the ring is that of each worker's steps."""
    interconnect = dataclasses.replace(
        PLAIN, blocking=blocking, topology=Chain() if chain else Switch()
    )
    p, times, places = len(ready), ready, interconnect.topology.ring_places(len(ready)).tolist()
    for step in ring_steps(p):
        sent = [4 * int(block_sizes(values, p)[sent_block(worker, step, p)]) for worker in range(p)]
        done = []
        for worker in range(p):
            own, left = (
                interconnect.transfer_ps(sent[worker]),
                interconnect.transfer_ps(sent[worker - 1]),
            )
            hops = interconnect.hops(places[worker], places[worker - 1])
            time = after_step(interconnect, times[worker], own, times[worker - 1], left, hops)
            done.append(time + (interconnect.sum_ps(sent[worker - 1]) if step < p else 0))
        times = done
    assert ring_ps(interconnect, np.array(ready), values).tolist() == times


@given(READY, st.integers(0, 1000), st.integers(0, 11), st.integers(1, 10**9))
def test_a_later_worker_makes_none_earlier(
    ready: list[int], values: int, which: int, more: int
) -> None:
    later = np.array(ready)
    later[which % len(ready)] += more
    for exchange in (ring_ps, aggregator_ps):
        assert (exchange(PLAIN, later, values) >= exchange(PLAIN, np.array(ready), values)).all()


@given(READY, st.integers(0, 1000), st.floats(1, 16))
def test_compression_never_slows_down(ready: list[int], values: int, ratio: float) -> None:
    """Where the engines keep up; a burst that is not full takes a cycle too."""
    interconnect = dataclasses.replace(PLAIN, engines=NicEngines(clock_period_ps=1))
    times, p = np.array(ready), len(ready)
    compressed = functools.partial(bytes_at_ratio, ratio=ratio)
    assert (
        ring_ps(interconnect, times, values, compressed) <= ring_ps(interconnect, times, values)
    ).all()
    gradients = bytes_at_ratio(np.full(p, 4 * values), ratio)
    smaller, plain = (
        aggregator_ps(interconnect, times, values, sizes) for sizes in (gradients, None)
    )
    assert (smaller <= plain).all()


def test_compression_by_the_codecs_bytes() -> None:
    """Four workers, blocks of 4,000 bytes compressed to 1,000: a quarter of the wire's time; sums
    take as long.
    """
    quarter = functools.partial(bytes_at_ratio, ratio=4)
    assert set(ring_ps(PLAIN, at_once(4), 4000, quarter).tolist()) == {
        6 * (ALPHA + 1250 * 1000) + 3 * 4000 * GAMMA
    }
    # 4,000 bytes are 125 bursts of 10 ns: 1.25 us, where the wire's 1,000 bytes take 0.8 us. So at
    # the aggregator:
    four = aggregator_ps(PLAIN, at_once(4), 1000, np.full(4, 1000))
    assert max(four) == 4 * ALPHA + 4 * 1_250_000 + 3 * 4000 * BETA + 3 * 4000 * GAMMA


def test_the_sum_is_in_the_workers_order() -> None:
    """Worker 1 is late: 2 and 3 wait behind it, though their gradients are there."""
    ready = at_once(4)
    ready[1] = 10**9
    first = 10**9 + ALPHA + 3 * 4000 * (BETA + GAMMA)
    assert max(aggregator_ps(PLAIN, ready, 1000)) == first + 3 * (ALPHA + 4000 * BETA)


@given(st.integers(1, 200))
def test_broadcast_reaches_all_once(nodes: int) -> None:
    have = {0}
    rounds = list(broadcast_rounds(nodes))
    for pairs in rounds:
        assert {source for source, _ in pairs} <= have
        targets = [target for _, target in pairs]
        assert not have & set(targets) and len(set(targets)) == len(targets)
        have |= set(targets)
    assert have == set(range(nodes))
    assert len(rounds) == math.ceil(math.log2(nodes))


def test_a_chain_costs_hops() -> None:
    chain = dataclasses.replace(PLAIN, topology=Chain())
    assert Chain().ring_places(6).tolist() == [0, 2, 4, 5, 3, 1]
    assert set(ring_ps(chain, at_once(2), 200)) == set(ring_ps(PLAIN, at_once(2), 200))
    # Nothing to send: 2 latencies a step along the ring's longest way.
    assert max(ring_ps(chain, at_once(6), 0)) <= 10 * 2 * ALPHA
    # The aggregator, at the end, hands to nodes 3, 2 (of 5) and 1 links away.
    assert broadcast_ps(chain, at_once(5), 0).tolist() == [
        6 * ALPHA,
        6 * ALPHA,
        5 * ALPHA,
        4 * ALPHA,
        4 * ALPHA,
    ]


@pytest.mark.parametrize("topology", [Cycle(), Torus(), Torus(shape=(1, 12)), Torus(shape=(6, 2))])
def test_a_ring_on_a_ring_has_the_closed_form(topology: Topology) -> None:
    """2 (p-1) (alpha + n/p beta) + (p-1) n/p gamma, for every worker: no hop is longer than a
    link.
    """
    p, n = 12, 12_000
    wired = dataclasses.replace(PLAIN, topology=topology).among(p)
    expected = 2 * (p - 1) * (ALPHA + n // p * BETA) + (p - 1) * (n // p) * GAMMA
    assert set(ring_ps(wired, at_once(p), n // 4).tolist()) == {expected}


def test_messages_of_a_tree_that_meet_have_parts_of_the_link() -> None:
    """On a torus of 6 x 6 two messages of a round take one link; the other topologies have none
    such.
    """
    torus = dataclasses.replace(PLAIN, topology=Torus()).among(36)
    shares = broadcast_shares(torus.topology, [range(36)])
    shared = {pair for pair, share in shares.items() if share > 1}
    assert {shares[pair] for pair in shared} == {2} and len(shared) == 2
    # Seen from the last node: it has the message once its sender, and all before that, have passed
    # it on.
    assert (
        broadcast_ps(torus, at_once(36), 1000).max()
        > broadcast_ps(torus, at_once(36), 0).max() + 6 * 1000 * BETA
    )


def test_a_broadcast_does_not_wait_for_a_late_receiver() -> None:
    """Node 0 sends to node 2, then to node 1; node 2, ready long after, has the message when it is
    ready.
    """
    ends = broadcast_ps(PLAIN, np.array([0, 0, 1_000_000]), 10)
    assert ends.tolist() == [2 * (ALPHA + 10 * BETA), 2 * (ALPHA + 10 * BETA), 1_000_000]


def test_hierarchies_by_hand() -> None:
    """Two groups of two, 4,000 bytes: rings of two, then two leaders, then one round in each
    group.
    """
    n = 4000
    two = 2 * ALPHA + n * BETA + n // 2 * GAMMA
    pass_on = ALPHA + n * BETA
    both = np.zeros((2, 2), np.int64)
    assert set(hierarchy_ps(PLAIN, both, n // 4, "ring").ravel()) == {2 * two + pass_on}
    top = 3 * ALPHA + 4 * n * BETA + n * GAMMA  # two gradients in, two rounds of weights
    assert hierarchy_ps(PLAIN, both, n // 4, "aggregator").max() == two + top + pass_on


@pytest.mark.parametrize("top", ["ring", "aggregator"])
def test_hierarchies_of_one_level(top: str) -> None:
    """Groups of one member have no rings of their own: the top is all."""
    ready = at_once(6)
    flat = {"ring": ring_ps, "aggregator": aggregator_ps}[top]
    found = hierarchy_ps(PLAIN, ready[:, None], 600, top)  # type: ignore[arg-type]
    assert found.ravel().tolist() == flat(PLAIN, ready, 600).tolist()


@pytest.mark.parametrize("top", ["ring", "aggregator"])
def test_hierarchies_compress_nothing_but_gradients(top: str) -> None:
    wire = dataclasses.replace(PLAIN, latency_ps=0, sum_ps_per_kbyte=0)
    half = functools.partial(bytes_at_ratio, ratio=2)
    times = [
        hierarchy_ps(wire, np.zeros((4, 4), np.int64), 4000, top, codec).max()
        for codec in (None, half)
    ]  # type: ignore[arg-type]
    # 16,000 bytes: group rings 1.5 n, then a ring of 1.5 n and 2 rounds, or 4 gradients in and 3 +
    # 2 rounds of weights.
    n = 16_000 * BETA
    assert times[0] == {"ring": 5 * n, "aggregator": 10.5 * n}[top]
    assert times[1] == {"ring": 2.5 * n, "aggregator": 5 * n + 5.5 * n / 2}[top]


def test_flat_for_the_ring_linear_for_the_aggregator() -> None:
    sizes = [4, 8, 64, 1024]
    rings = [max(ring_ps(PLAIN, at_once(p), 61_000_000)) for p in sizes]
    aggregators = [max(aggregator_ps(PLAIN, at_once(p), 61_000_000)) for p in sizes]
    assert max(rings) / min(rings) < 1 / (1 - 1 / 4) + 0.001  # (p - 1) / p
    for (p, slow), (q, slower) in itertools.pairwise(zip(sizes, aggregators, strict=True)):
        assert slower / slow == pytest.approx(q / p, rel=0.45)


@pytest.mark.parametrize("groups", [1, 2])
def test_memory_near_the_number_of_workers(groups: int) -> None:
    """All messages of a ring of 1,000 workers have sizes of 16 MB before the codec, and as much
    after it.
    """
    half, ready = functools.partial(bytes_at_ratio, ratio=2), np.zeros((groups, 1000), np.int64)
    tracemalloc.start()
    try:
        in_groups = hierarchy_ps(PLAIN, ready, 10_000, "ring", half) if groups > 1 else None
        times = ring_ps(PLAIN, ready[0], 10_000, half) if in_groups is None else in_groups
        assert tracemalloc.get_traced_memory()[1] < 4e6
    finally:
        tracemalloc.stop()
    assert times.size == groups * 1000
