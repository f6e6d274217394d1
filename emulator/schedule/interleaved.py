"""`interleaved`: 1F1B where each device holds several stages, its chunks (Narayanan et al., SC
2021, section 2.2).

Chunk c of device d is stage c N + d. Micro-batches go in rounds of about N: a round is done on one
chunk, then on the next. Chunks of the last stages come first in B. The order is that of PyTorch's
`ScheduleInterleaved1F1B`, which takes rounds of one size alone; here they may differ by one
micro-batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

from .action import Action, Kind, Schedule, cut_samples
from .kind import PipelineKind
from .shape import ClosedForm, Engines, EpochShape, Shape, Transport, equal_costs, is_plain


def interleaved(epoch: EpochShape) -> Schedule:
    """Return the schedule of an epoch on devices with `epoch.chunks` stages each."""
    micro_batches = cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)

    def program(device: int) -> Iterator[Action]:
        for step, group in itertools.groupby(
            micro_batches, key=lambda micro_batch: micro_batch.step
        ):
            numbers = [micro_batch.index for micro_batch in group]
            yield from _mini_batch(numbers, step, device, epoch.devices, epoch.chunks)
            yield Action(Kind.UPDATE, step + 1)

    def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
        return {device: program(device) for device in devices}

    return Schedule("interleaved", epoch.devices, micro_batches, programs, epoch.chunks)


def _mini_batch(
    numbers: list[int], step: int, device: int, devices: int, chunks: int
) -> Iterator[Action]:
    """Yield F, B and W of the micro-batches of one mini-batch."""
    rounds = _rounds(numbers, devices)

    def passes(kind: Kind) -> Iterator[Action]:
        order = range(chunks) if kind is Kind.FORWARD else reversed(range(chunks))
        for group, chunk in itertools.product(rounds, list(order)):
            yield from (Action(kind, number, step, chunk=chunk) for number in group)

    forwards, backwards = passes(Kind.FORWARD), passes(Kind.BACKWARD)
    # As PyTorch counts it: a round on every chunk but the last, and two F for each device behind.
    yield from itertools.islice(
        forwards, (chunks - 1) * len(rounds[0]) + 2 * (devices - 1 - device)
    )
    for backward in backwards:
        # F first: on the last device of one chunk there was no warm-up, and this is the F of the B.
        yield from itertools.islice(forwards, 1)
        yield backward
        yield Action(Kind.GRADIENT, backward.index, chunk=backward.chunk)


def _rounds(numbers: list[int], devices: int) -> list[list[int]]:
    """Return the rounds: as many as leave one micro-batch for each device, as even as possible,
    larger ones first.
    """
    count = max(1, len(numbers) // devices)
    least, larger = divmod(len(numbers), count)
    ends = itertools.accumulate([least + 1] * larger + [least] * (count - larger), initial=0)
    return [numbers[begin:end] for begin, end in itertools.pairwise(ends)]


def interleaved_form(shape: Shape) -> ClosedForm | None:
    """Return the form for interleaved 1F1B."""
    costs, machine = equal_costs(shape), shape.machine
    if (
        costs is None
        or machine.engines is not Engines.TURNS
        or not is_plain(machine)
        or costs.transfer_ps
    ):
        return None
    if machine.transport is Transport.STREAMED:
        return None
    slots = shape.micro_batches * shape.chunks + shape.devices - 1
    exact = shape.micro_batches >= shape.devices or shape.chunks == 1
    return ClosedForm(slots * costs.work_ps, "M >= N", exact)


INTERLEAVED = PipelineKind(
    "interleaved",
    interleaved,
    "one forward, one backward, several stages on each device",
    drains=True,
    repeats=True,
    chunks=2,
    closed_form=interleaved_form,
    equal_stages=True,
)
