"""`interleaved`: 1F1B where each device holds several stages, its chunks (Narayanan et al., SC 2021, section 2.2).

Chunk c of device d is stage c N + d. Micro-batches go in rounds of about N: a round is done on one chunk, then on the
next. Chunks of the last stages come first in B. The order is that of PyTorch's `ScheduleInterleaved1F1B`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

from ..common import InputError
from .action import Action, Kind, Schedule, cut_samples
from .kind import EpochShape, ScheduleKind


def interleaved(epoch: EpochShape) -> Schedule:
    """Return the schedule of an epoch on devices with `epoch.chunks` stages each.

    Reading its programs raises InputError if a mini-batch cannot be cut into equal rounds.
    """
    micro_batches = cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)

    def program(device: int) -> Iterator[Action]:
        for step, group in itertools.groupby(micro_batches, key=lambda micro_batch: micro_batch.step):
            numbers = [micro_batch.index for micro_batch in group]
            yield from _mini_batch(numbers, step, device, epoch.devices, epoch.chunks)
            yield Action(Kind.UPDATE, step + 1)

    def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
        return {device: program(device) for device in devices}

    return Schedule("interleaved", epoch.devices, micro_batches, programs, epoch.chunks)


def _mini_batch(numbers: list[int], step: int, device: int, devices: int, chunks: int) -> Iterator[Action]:
    """Yield F, B and W of the micro-batches of one mini-batch."""
    size = _round_size(len(numbers), devices)

    def passes(kind: Kind) -> Iterator[Action]:
        order = range(chunks) if kind is Kind.FORWARD else reversed(range(chunks))
        rounds = [numbers[begin : begin + size] for begin in range(0, len(numbers), size)]
        for group, chunk in itertools.product(rounds, list(order)):
            yield from (Action(kind, number, step, chunk=chunk) for number in group)

    forwards, backwards = passes(Kind.FORWARD), passes(Kind.BACKWARD)
    yield from itertools.islice(forwards, (chunks - 1) * size + 2 * (devices - 1 - device))
    for backward in backwards:
        yield from itertools.islice(forwards, 1)
        yield backward
        yield Action(Kind.GRADIENT, backward.index, chunk=backward.chunk)


def _round_size(micro_batches: int, devices: int) -> int:
    """Return the number of micro-batches of a round, at least one for each device if there are as many."""
    rounds = max(1, micro_batches // devices)
    if micro_batches % rounds:
        raise InputError(
            f"`micro_batches` = {micro_batches}: interleaved on {devices} devices does them in {rounds} equal rounds;"
            f" must be a multiple of {rounds}, such as {micro_batches - micro_batches % devices}"
        )
    return micro_batches // rounds


INTERLEAVED = ScheduleKind(
    "interleaved",
    interleaved,
    "one forward, one backward, several stages on each device",
    drains=True,
    repeats=True,
    chunks=2,
)
