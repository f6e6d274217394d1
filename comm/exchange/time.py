"""The time of a gradient exchange among p workers: ring, aggregator, and the hierarchies of both.

INCEPTIONN (MICRO 2018), section IV, Algorithm 1: each worker's gradient is cut into p blocks. In P1, p - 1 steps, each
worker sends a block to its right neighbour and adds the one from the left to its own; so each block goes round and
comes to one worker as the sum of all. In P2, p - 1 steps more, the sums go round. In step s (from 1), worker i sends
block (i - s + 1) mod p and receives block (i - s) mod p; the listing's indices for P2 are off by one against the
paper's own example.

The aggregator (section II-B) receives one gradient after the other through its one link, adds them up, and sends the
weights back by a binomial tree.

With equal blocks, all ready at once, links that send and receive at the same time and no overhead of packets, this is
section VIII-D, where alpha, beta n and gamma n are latency, transfer and sum of the whole gradient:

    ring        2 (p-1) alpha + 2 ((p-1)/p) n beta + ((p-1)/p) n gamma
    aggregator  (1+L) alpha + (p+L) n beta + (p-1) n gamma,    L = ceil(log2(p+1))

The paper has log p for L. But p workers and the aggregator are p + 1 nodes, and a message reaches at most twice as many
nodes in each round: 4 workers take 3 rounds, not 2. Its own Table II has 7.4 to 7.6 n beta for 4 workers.

In a chain the ring is folded, its workers at the places 0, 2, 4, ..., 5, 3, 1: neighbours are two links apart at most,
and no two messages of a step share a direction of a link. The aggregator stands at the chain's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..interconnect import Count, Network, later

Times = NDArray[np.int64]
Sizes = NDArray[np.int64]
Made = Callable[[Sizes], Sizes]
"""What a codec makes of messages, in bytes."""

VALUE_BYTES = 4


def after_step(
    network: Network, ready_ps: Count, own_ps: Count, left_ready_ps: Count, left_ps: Count, hops: Count
) -> Count:
    """When a worker is done with a step of the ring: its block is sent and the left neighbour's is there, in ps.

    `own_ps` and `left_ps` are the transfer times of what the two send, `hops` the latencies from the left neighbour.
    Blocking, a worker sends and receives one after the other.
    """
    latency_ps = hops * network.latency_ps
    if network.blocking:
        return later(ready_ps, left_ready_ps) + own_ps + left_ps + 2 * latency_ps
    return later(ready_ps + own_ps, left_ready_ps + left_ps + latency_ps)


def block_sizes(values: int, workers: int) -> Sizes:
    """How many values the blocks of a gradient have: as equal as may be, longer ones first."""
    return values // workers + (np.arange(workers) < values % workers)


def sent_block(worker: Count, step: int, workers: int) -> Count:
    """The block that a worker sends in a step, from 1; its right neighbour receives it."""
    return (worker - step + 1) % workers


def ring_steps(workers: int) -> range:
    """The steps of both phases; those below `workers` are P1."""
    return range(1, 2 * workers - 1)


def ring_messages(values: int, workers: int) -> Sizes:
    """What each worker sends in each step, in bytes, before compression: (step, worker)."""
    bytes_ = VALUE_BYTES * block_sizes(values, workers)
    steps = [bytes_[sent_block(np.arange(workers), step, workers)] for step in ring_steps(workers)]
    return np.array(steps, np.int64).reshape(-1, workers)


def ring_places(workers: int) -> Sizes:
    """Where in a chain the workers of a ring stand, in the ring's order: 0, 2, 4, ..., 5, 3, 1."""
    places = np.arange(workers)
    return np.concatenate([places[::2], places[1::2][::-1]])


def ring_ps(network: Network, ready_ps: Times, values: int, made_bytes: Sizes | None = None, spacing: int = 1) -> Times:
    """When each worker has the sum of all gradients, in ps; they have their own at `ready_ps`.

    `made_bytes` (step, worker) is what the codec made of `ring_messages`. In a chain, workers are `spacing` apart.
    """
    workers = len(ready_ps)
    places = spacing * ring_places(workers)
    hops = network.hops(np.roll(places, 1), places)
    times = np.array(ready_ps, np.int64)
    for step, sent in zip(ring_steps(workers), ring_messages(values, workers), strict=True):
        own_ps = network.transfer_ps(sent, None if made_bytes is None else made_bytes[step - 1])
        times = after_step(network, times, own_ps, np.roll(times, 1), np.roll(own_ps, 1), hops)
        if step < workers:
            times += network.sum_ps(np.roll(sent, 1))
    return times


def ring_of_nodes_ps(
    network: Network, ready_ps: Times, values: int, made_bytes: Sizes | None = None, spacing: int = 1
) -> Times:
    """As `ring_ps`, with nodes in their own order; in a chain the ring of them is folded."""
    workers = len(ready_ps)
    order = ring_places(workers) if network.topology == "chain" else np.arange(workers)
    times = np.empty(workers, np.int64)
    times[order] = ring_ps(network, ready_ps[order], values, made_bytes, spacing)
    return times


def aggregator_ps(
    network: Network, ready_ps: Times, values: int, made_bytes: Sizes | None = None, spacing: int = 1
) -> Times:
    """When each worker has the new weights, and has passed them on, in ps.

    Gradients come in the workers' order, whenever they are ready: the sum's order is fixed. `made_bytes` (worker) is
    what the codec made of them; weights are never compressed.
    """
    return aggregator_ends_ps(network, ready_ps, values, made_bytes, spacing)[0]


def aggregator_ends_ps(
    network: Network,
    ready_ps: Times,
    values: int,
    made_bytes: Sizes | None = None,
    spacing: int = 1,
    free_ps: int = 0,
) -> tuple[Times, int]:
    """As `aggregator_ps`, and when the aggregator is through, which is free from `free_ps` on."""
    workers, message_bytes = len(ready_ps), VALUE_BYTES * values
    time_ps = free_ps
    for worker, worker_ready_ps in enumerate(ready_ps.tolist()):
        latency_ps = network.hops(spacing * worker, spacing * workers) * network.latency_ps
        made = None if made_bytes is None else int(made_bytes[worker])
        time_ps = later(time_ps, worker_ready_ps + latency_ps) + network.transfer_ps(message_bytes, made)
        time_ps += network.sum_ps(message_bytes) if worker else 0
    nodes = np.array([time_ps, *ready_ps[::-1]], np.int64)  # the aggregator, the worker beside it, and so on
    ends = broadcast_ps(network, nodes, message_bytes, spacing=spacing)
    return ends[:0:-1], int(ends[0])


def broadcast_rounds(nodes: int) -> Iterator[list[tuple[int, int]]]:
    """Who sends to whom in each round of a binomial tree from node 0: ceil(log2(nodes)) rounds.

    Who has the message holds it for the nodes behind, and hands it and half of them to the one in the middle. So, in a
    chain, no two messages of a round share a link.
    """
    held = [(0, nodes)]
    while max(count for _, count in held) > 1:
        halves = [(first, -(-count // 2), count // 2) for first, count in held]
        yield [(first, first + near) for first, near, far in halves if far]
        held = [half for first, near, far in halves for half in ((first, near), (first + near, far)) if half[1]]


def broadcast_ps(
    network: Network, ready_ps: Times, message_bytes: int, made_bytes: int | None = None, spacing: int = 1
) -> Times:
    """When each node has the message of node 0 and has passed it on, in ps. A round takes latency and transfer."""
    times, transfer_ps = ready_ps.copy(), network.transfer_ps(message_bytes, made_bytes)
    for pairs in broadcast_rounds(len(ready_ps)):
        sources, targets = np.array(pairs).T
        hops = network.hops(spacing * sources, spacing * targets)
        done_ps = later(times[sources], times[targets]) + hops * network.latency_ps + transfer_ps
        times[sources] = times[targets] = done_ps
    return times


def hierarchy_ps(
    network: Network, ready_ps: Times, values: int, top: Literal["aggregator", "ring"], made: Made | None = None
) -> Times:
    """When each worker of `ready_ps` (groups, members) is done with an exchange in two levels (Fig. 1), in ps.

    The members of each group make their sum by a ring. Then the groups' first members send theirs to an aggregator, and
    get weights (Fig. 1 (b)), or make the sum of all by a ring of their own (Fig. 1 (c)). What they then have they pass
    on in their group by a binomial tree. `made` says what the codec makes of gradients, of which alone.
    """
    return hierarchy_ends_ps(network, ready_ps, values, top, made)[0]


def hierarchy_ends_ps(
    network: Network,
    ready_ps: Times,
    values: int,
    top: Literal["aggregator", "ring"],
    made: Made | None = None,
    free_ps: int = 0,
) -> tuple[Times, int]:
    """As `hierarchy_ps`, and when the aggregator is through, if there is one, which is free from `free_ps` on."""
    groups, members = ready_ps.shape
    made_blocks = None if made is None else made(ring_messages(values, members))
    times = np.array([ring_of_nodes_ps(network, group, values, made_blocks) for group in ready_ps])
    leaders, gradient, made_of_all = times[:, 0], np.full(groups, VALUE_BYTES * values), None
    if top == "ring":
        made_blocks = None if made is None else made(ring_messages(values, groups))
        made_of_all = None if made is None else int(made(gradient)[0])
        times[:, 0] = ring_of_nodes_ps(network, leaders, values, made_blocks, spacing=members)
    else:
        made_gradients = None if made is None else made(gradient)
        times[:, 0], free_ps = aggregator_ends_ps(network, leaders, values, made_gradients, members, free_ps)
    return np.array([broadcast_ps(network, group, VALUE_BYTES * values, made_of_all) for group in times]), free_ps


def compressed_bytes(message_bytes: Sizes, ratio: float) -> Sizes:
    """What is left of messages at a compression ratio, for want of the codec's own figure."""
    return np.ceil(message_bytes / ratio).astype(np.int64)
