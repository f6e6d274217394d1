"""Algorithm 1 and the exchanges of Figs. 1, 2 and 6: which worker sends which block when, and the
results.

A ring runs on sets (the workers whose gradients are in a block) or on numbers, with the indices of
the exchange times.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ...comm import Interconnect
from ...comm.exchange import (
    after_step,
    aggregator_ps,
    block_sizes,
    hierarchy_ps,
    ring_messages,
    ring_steps,
    sent_block,
)
from ..claim import Measured
from .evidence import WORKERS, values

SIZES = (2, 4, 8)
_WIRE = Interconnect(bandwidth_mbps=8_000_000, latency_ps=0)
"""One byte per picosecond and no other cost: times are in bytes."""

Held = list[list[set[int]]]


def _run(workers: int, steps: int | None = None) -> Held:
    """Return the workers whose gradients each worker has in each block, after `steps` steps or
    all.
    """
    held: Held = []
    for worker in range(workers):
        held.append([{worker} for _ in range(workers)])
    for step in list(ring_steps(workers))[:steps]:
        # Copies: in a step all send what they had before it.
        moved = [set(held[worker][sent_block(worker, step, workers)]) for worker in range(workers)]
        for worker in range(workers):
            block = sent_block((worker - 1) % workers, step, workers)
            held[worker][block] = moved[worker - 1] | (
                held[worker][block] if step < workers else set()
            )
    return held


def _whole(held: Held) -> list[list[int]]:
    """Return the blocks in which each worker has the sum of all gradients."""
    whole = []
    for blocks in held:
        whole.append([block for block, summed in enumerate(blocks) if len(summed) == len(held)])
    return whole


def missing() -> Measured:
    """Count the blocks that are no sums of all gradients at the end."""
    wrong = sum(workers - len(blocks) for workers in SIZES for blocks in _whole(_run(workers)))
    return Measured(
        wrong,
        f"blocks that are not sums of all at the end, on {', '.join(map(str, SIZES))} workers",
    )


def steps(*phases: int) -> Measured:
    """Count the steps of phases."""
    counts = []
    for workers in SIZES:
        counts.append(sum((2 if step >= workers else 1) in phases for step in ring_steps(workers)))
    return Measured(counts, f"with {', '.join(map(str, SIZES))} workers")


def other_blocks(way: str, phase: int, shift: int) -> Measured:
    """Count the steps of workers in a phase whose sent or received block is not (i - s + shift) mod
    N.
    """
    wrong = count = 0
    for workers in SIZES:
        for step in (step for step in ring_steps(workers) if (step >= workers) is (phase == 2)):
            for worker in range(workers):
                block = sent_block((worker - (way == "received")) % workers, step, workers)
                wrong += block != (worker - step + shift) % workers
                count += 1
    return Measured(wrong, f"of {count} steps of workers")


def owners() -> Measured:
    """Return the block that each worker owns after the first phase."""
    return Measured([block for [block] in _whole(_run(WORKERS, WORKERS - 1))])


def step_4() -> Measured:
    """Return the whole blocks after the first step of the second phase."""
    whole = _whole(_run(WORKERS, WORKERS))
    return Measured(
        [whole[0], [len(blocks) for blocks in whole]], "worker 0's blocks; how many each worker has"
    )


def neighbours() -> Measured:
    """Find the workers that are late after one step if worker 0 begins late."""
    # A block of 400 bytes takes 400 ps, so that only waiting for worker 0 makes others as late.
    ready = np.array([10**6, *[0] * 7])
    own = _WIRE.transfer_ps(ring_messages(800, 8)[0])
    times = after_step(_WIRE, ready, own, np.roll(ready, 1), np.roll(own, 1), np.ones(8, np.int64))
    return Measured(
        np.flatnonzero(times >= 10**6).tolist(),
        "of 8 workers, late after a step if worker 0 begins late",
    )


def blocks() -> Measured:
    """Measure by how many values blocks differ."""
    spans = [
        int(np.ptp(block_sizes(values(name), WORKERS)))
        for name in ("alexnet", "hdc", "resnet50", "vgg16")
    ]
    return Measured(
        spans, "values by which blocks differ, four networks; none where they divide evenly"
    )


def sum_error() -> Measured:
    """Compare the ring's sum of float32 gradients, block by block in its order, with the sum in 64
    bits.
    """
    gradients = np.random.default_rng(1).standard_normal((WORKERS, WORKERS, 100)).astype(np.float32)
    held = gradients.copy()
    for step in ring_steps(WORKERS):
        # All send before any adds, as in a step of Algorithm 1.
        moved = [
            held[worker, sent_block(worker, step, WORKERS)].copy() for worker in range(WORKERS)
        ]
        for worker in range(WORKERS):
            block = sent_block((worker - 1) % WORKERS, step, WORKERS)
            held[worker, block] = moved[worker - 1] + (
                held[worker, block] if step < WORKERS else np.float32(0)
            )
    exact = gradients.astype(np.float64).sum(0)
    return Measured(
        float(np.abs(held - exact).max() / np.abs(exact).max()), "largest difference of any worker"
    )


def even() -> Measured:
    """Measure the bytes on the busiest worker's link over those on the least busy one's."""
    sent = ring_messages(values("alexnet"), WORKERS).sum(0)
    return Measured(
        float(sent.max() / sent.min()),
        "AlexNet; of an aggregator's link, 4 of 4 gradients against 1",
    )


def aggregator() -> Measured:
    """Measure the aggregator's messages, in gradients."""
    done = aggregator_ps(_WIRE, np.zeros(WORKERS, np.int64), 1000)
    return Measured(
        float(done.max() / 4000),
        "messages one after the other: 4 gradients in, 3 rounds of weights out",
    )


def gradients_leg() -> Measured:
    """Measure the share of the aggregator's time that remains when gradients shrink to nothing."""
    # Only the wire is asked for; the NICs' engines would take time for all bytes before the codec.
    wire = dataclasses.replace(_WIRE, engines=dataclasses.replace(_WIRE.engines, clock_period_ps=0))
    plain, compressed = (
        aggregator_ps(wire, np.zeros(WORKERS, np.int64), 1000, made).max()
        for made in (None, np.zeros(WORKERS, np.int64))
    )
    return Measured(float(compressed / plain), "of 7 messages the 3 with weights")


def hierarchy(top: str) -> Measured:
    """Measure the time of rings in groups, in gradients on the wire."""
    done = hierarchy_ps(
        _WIRE, np.zeros((4, 4), np.int64), 1600, "ring" if top == "ring" else "aggregator"
    )
    how = "4 groups of 4, time in gradients on the wire: rings, then "
    return Measured(
        float(done.max() / 6400), how + {"ring": "a ring, 2 rounds", "tree": "4 + 3, 2 rounds"}[top]
    )
