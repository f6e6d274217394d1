"""The time of a gradient exchange among p workers: ring, aggregator, and the hierarchies of both.

INCEPTIONN (MICRO 2018), section IV, Algorithm 1: each worker's gradient is cut into p blocks. In
P1, p - 1 steps, each worker sends a block to its right neighbour and adds the one from the left to
its own; so each block goes round and ends at one worker as the sum of all. In P2, p - 1 more steps,
the sums go round. In step s (from 1), worker i sends block (i - s + 1) mod p and receives block
(i - s) mod p; the listing's indices for P2 are off by one against the paper's own example.

The aggregator (section II-B) receives one gradient after the other through its one link, adds them
up, and sends the weights back by a binomial tree.

With equal blocks, all ready at once, links that send and receive at the same time and no packet
overhead, this is section VIII-D, where alpha, beta n and gamma n are latency, transfer and sum of
the whole gradient:

    ring        2 (p-1) alpha + 2 ((p-1)/p) n beta + ((p-1)/p) n gamma
    aggregator  (1+L) alpha + (p+L) n beta + (p-1) n gamma,    L = ceil(log2(p+1))

The paper has log p for L. But p workers and the aggregator are p + 1 nodes, and a message reaches
at most twice as many nodes in each round: 4 workers take 3 rounds, not 2. Its own Table II has 7.4
to 7.6 n beta for 4 workers.

The topology (`comm/topology`) orders the ring so that no two messages of a step share a direction
of a link. Those of several groups, or of a tree, may on a torus: each then has an equal part of it.
The aggregator stands behind the last worker.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...kernels.number import FP32
from ..collective import piece_bounds
from ..collective.rings import in_ring, sent_block
from ..collective.trees import broadcast_rounds
from ..interconnect import Count, Interconnect, later
from ..topology import Topology

Times = NDArray[np.int64]
Sizes = NDArray[np.int64]
Compressed = Callable[[Sizes], Sizes]
"""Sizes of messages after the codec, from their sizes before it, in bytes."""


def after_step(
    interconnect: Interconnect,
    ready_ps: Count,
    own_ps: Count,
    left_ready_ps: Count,
    left_ps: Count,
    hops: Count,
) -> Count:
    """Return when a worker ends a step of the ring: its block is sent and the left neighbour's has
    arrived, in ps.

    `own_ps` and `left_ps` are the transfer times of what the two send, `hops` the latencies from
    the left neighbour. With `blocking`, a worker sends and receives one after the other.
    """
    latency_ps = hops * interconnect.latency_ps
    if interconnect.blocking:
        return later(ready_ps, left_ready_ps) + own_ps + left_ps + 2 * latency_ps
    return later(ready_ps + own_ps, left_ready_ps + left_ps + latency_ps)


def block_sizes(values: int, workers: int) -> Sizes:
    """Return the number of values in each block of a gradient: equal, the first ones a value
    longer.
    """
    return np.diff(piece_bounds(values, workers))


def ring_steps(workers: int) -> range:
    """Return the steps of both phases; those below `workers` are P1."""
    return range(1, 2 * workers - 1)


def ring_messages(values: int, workers: int) -> Sizes:
    """Return the bytes that each worker sends in each step, before compression: (step, worker)."""
    return np.array([*_sent_in_steps(values, workers)], np.int64).reshape(-1, workers)


def _sent_in_steps(
    values: int, workers: int, steps: Sequence[int] | None = None
) -> Iterator[Sizes]:
    """Generate the rows of `ring_messages`, which together take memory with the square of the
    workers; by default those of all steps.
    """
    bytes_ = FP32.bytes_of(block_sizes(values, workers))
    steps = ring_steps(workers) if steps is None else steps
    return (bytes_[sent_block(np.arange(workers), step, workers)] for step in steps)


def ring_shares(topology: Topology, rings: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return for each node of some rings, in their order, among how many its message to the next
    shares a link.

    Of a topology's rings that exchange at the same time, as those of groups do.
    """
    messages = [pair for ring in rings for pair in zip(ring, [*ring[1:], ring[0]], strict=True)]
    shares = iter(topology.shares(messages))
    return [list(itertools.islice(shares, len(ring))) for ring in rings]


def ring_ps(
    interconnect: Interconnect,
    ready_ps: Times,
    values: int,
    compressed: Compressed | None = None,
    nodes: Sizes | None = None,
    shares: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Times:
    """Return when each worker has the sum of all gradients, in ps.

    Args:
        interconnect: between the workers.
        ready_ps: when each worker has its own gradient.
        values: number of values in a gradient.
        compressed: gives the sizes of the blocks after the codec.
        nodes: of the workers, in the ring's order; by default the first ones.
        shares: for each worker, among how many its message shares a link; by default those of this
            ring.
        steps: those that are taken; by default all.
    """
    workers = len(ready_ps)
    steps = ring_steps(workers) if steps is None else steps
    nodes = interconnect.topology.ring_places(workers) if nodes is None else nodes
    [shared] = ring_shares(interconnect.topology, [nodes.tolist()]) if shares is None else [shares]
    # `np.roll` by 1 puts at each place what is at the place before it: the left neighbour's.
    hops = interconnect.hops(np.roll(nodes, 1), nodes)
    times = np.array(ready_ps, np.int64)
    for step, sent in zip(steps, _sent_in_steps(values, workers, steps), strict=True):
        own_ps = interconnect.transfer_ps(sent, None if compressed is None else compressed(sent))
        own_ps = own_ps * np.array(shared, np.int64)
        times = after_step(interconnect, times, own_ps, np.roll(times, 1), np.roll(own_ps, 1), hops)
        if step < workers:
            # The block that it adds is its left neighbour's, which may be a value longer or
            # shorter.
            times += interconnect.sum_ps(np.roll(sent, 1))
    return times


def ring_of_nodes_ps(
    interconnect: Interconnect,
    ready_ps: Times,
    values: int,
    compressed: Compressed | None = None,
    nodes: range | None = None,
    shares: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Times:
    """Return the times of `ring_ps`, for workers in the order of their nodes, by default the first
    ones.

    The topology orders the ring: in a chain it is folded. `shares` are in the ring's order. `steps`
    are those that are taken, by default all.
    """
    workers = len(ready_ps)
    own = np.array(range(workers) if nodes is None else nodes)
    order, times = (
        interconnect.topology.ring_places(workers, own.tolist()),
        np.empty(workers, np.int64),
    )
    times[order] = ring_ps(
        interconnect, ready_ps[order], values, compressed, own[order], shares, steps
    )
    return times


def aggregator_ps(
    interconnect: Interconnect, ready_ps: Times, values: int, compressed_bytes: Sizes | None = None
) -> Times:
    """Return when each worker has received the new weights and passed them on, in ps.

    Gradients are received in the workers' order, whenever they are ready: the sum's order is fixed.
    `compressed_bytes` (worker) are their sizes after the codec; weights are never compressed.
    """
    return aggregator_ends_ps(interconnect, ready_ps, values, compressed_bytes)[0]


def aggregator_ends_ps(
    interconnect: Interconnect,
    ready_ps: Times,
    values: int,
    compressed_bytes: Sizes | None = None,
    nodes: range | None = None,
    free_ps: int = 0,
) -> tuple[Times, int]:
    """Return the times of `aggregator_ps`, and when the aggregator, free from `free_ps` on, has
    finished.

    The workers are at `nodes`, by default the first ones; the aggregator is the node at which that
    range stops.
    """
    nodes = range(len(ready_ps)) if nodes is None else nodes
    time_ps, message_bytes = free_ps, FP32.bytes_of(values)
    for worker, worker_ready_ps in enumerate(ready_ps.tolist()):
        latency_ps = interconnect.hops(nodes[worker], nodes.stop) * interconnect.latency_ps
        compressed = None if compressed_bytes is None else int(compressed_bytes[worker])
        time_ps = later(time_ps, worker_ready_ps + latency_ps) + interconnect.transfer_ps(
            message_bytes, compressed
        )
        # The first one is put in place; the others are added: (p - 1) n gamma.
        time_ps += interconnect.sum_ps(message_bytes) if worker else 0
    tree = [nodes.stop, *reversed(nodes)]  # the aggregator, its neighbour, and so on
    ends = broadcast_ps(
        interconnect, np.array([time_ps, *ready_ps[::-1]], np.int64), message_bytes, nodes=tree
    )
    # From the tree's order, aggregator first, back to that of the workers.
    return ends[:0:-1], int(ends[0])


def broadcast_shares(
    topology: Topology, trees: Sequence[Sequence[int]]
) -> dict[tuple[int, int], int]:
    """Return among how many each message of some trees shares a link in its round, by sender and
    receiver.

    The trees are of equal size, and worked off at the same time.
    """
    shares: dict[tuple[int, int], int] = {}
    for pairs in broadcast_rounds(len(trees[0])):
        messages = [(nodes[a], nodes[b]) for nodes in trees for a, b in pairs]
        shares |= zip(messages, topology.shares(messages), strict=True)
    return shares


def broadcast_ps(
    interconnect: Interconnect,
    ready_ps: Times,
    message_bytes: int,
    compressed_bytes: int | None = None,
    nodes: Sequence[int] | None = None,
    trees: Sequence[Sequence[int]] | None = None,
) -> Times:
    """Return when each node has received the first one's message and passed it on, in ps; a round
    takes one transfer.

    `nodes` are their numbers, by default from 0 on; `trees` are those of all broadcasts at the same
    time, by default of this one. A node sends without waiting for the receiver, which takes the
    message when it is ready itself.
    """
    times, transfer_ps = ready_ps.copy(), interconnect.transfer_ps(message_bytes, compressed_bytes)
    own = list(range(len(ready_ps)) if nodes is None else nodes)
    numbers, shares = (
        np.array(own),
        broadcast_shares(interconnect.topology, [own] if trees is None else trees),
    )
    for pairs in broadcast_rounds(len(ready_ps)):
        sources, targets = np.array(pairs).T
        hops = interconnect.hops(numbers[sources], numbers[targets])
        shared = np.array([shares[own[a], own[b]] for a, b in pairs], np.int64)
        done_ps = times[sources] + hops * interconnect.latency_ps + transfer_ps * shared
        # A sender begins its next round when this message has arrived: each of L rounds takes a
        # latency and a transfer, L alpha + L n beta.
        times[targets] = later(times[targets], done_ps)
        times[sources] = done_ps
    return times


def hierarchy_ps(
    interconnect: Interconnect,
    ready_ps: Times,
    values: int,
    top: Literal["aggregator", "ring"],
    compressed: Compressed | None = None,
) -> Times:
    """Return when each worker of `ready_ps` (groups, members) has finished a two-level exchange
    (Fig. 1), in ps.

    The members of each group form their sum by a ring. Then the groups' first members send theirs
    to an aggregator and receive weights (Fig. 1 (b)), or form the total by their own ring (Fig. 1
    (c)). They broadcast the result in their groups by a binomial tree. `compressed` gives the sizes
    of gradients after the codec; weights are not compressed.
    """
    return hierarchy_ends_ps(interconnect, ready_ps, values, top, compressed)[0]


def hierarchy_ends_ps(
    interconnect: Interconnect,
    ready_ps: Times,
    values: int,
    top: Literal["aggregator", "ring"],
    compressed: Compressed | None = None,
    free_ps: int = 0,
) -> tuple[Times, int]:
    """Return the times of `hierarchy_ps`, and when the aggregator, free from `free_ps` on, has
    finished.
    """
    groups, members = ready_ps.shape
    firsts = range(0, groups * members, members)
    times, in_groups = np.empty_like(ready_ps), [range(first, first + members) for first in firsts]
    topology = interconnect.topology
    shares = ring_shares(topology, [in_ring(nodes, topology) for nodes in in_groups])
    for group, nodes in enumerate(in_groups):
        times[group] = ring_of_nodes_ps(
            interconnect, ready_ps[group], values, compressed, nodes, shares[group]
        )
    gradient_bytes, leaders, total_bytes = FP32.bytes_of(values), times[:, 0], None
    gradients = np.full(groups, gradient_bytes)
    if top == "ring":
        # A ring's total is gradients still, which the broadcast compresses; an aggregator's stands
        # for weights, and stays at its full size.
        total_bytes = None if compressed is None else int(compressed(gradients)[0])
        times[:, 0] = ring_of_nodes_ps(interconnect, leaders, values, compressed, firsts)
    else:
        sent_bytes = None if compressed is None else compressed(gradients)
        times[:, 0], free_ps = aggregator_ends_ps(
            interconnect, leaders, values, sent_bytes, firsts, free_ps
        )
    for group, nodes in enumerate(in_groups):
        times[group] = broadcast_ps(
            interconnect, times[group], gradient_bytes, total_bytes, nodes, in_groups
        )
    return times, free_ps


def bytes_at_ratio(message_bytes: Sizes, ratio: float) -> Sizes:
    """Return the sizes of messages at a compression ratio, where the codec's own figure is not
    known.
    """
    return np.ceil(message_bytes / ratio).astype(np.int64)
