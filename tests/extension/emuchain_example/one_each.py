"""A schedule: F, B and W of a micro-batch before the next one begins."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from emuchain.emulator.schedule import Action, EpochShape, Kind, PipelineKind, Schedule, cut_samples


def one_each(epoch: EpochShape) -> Schedule:
    """Return the schedule in which each device finishes a micro-batch before it begins the next
    one.
    """
    micro_batches = cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)

    def program() -> Iterator[Action]:
        for here, after in zip(micro_batches, (*micro_batches[1:], None), strict=True):
            yield Action(Kind.FORWARD, here.index, here.step)
            yield Action(Kind.BACKWARD, here.index, here.step)
            yield Action(Kind.GRADIENT, here.index)
            if after is None or after.step > here.step:
                yield Action(Kind.UPDATE, here.step + 1)

    def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
        return {device: program() for device in devices}

    return Schedule("one-each", epoch.devices, micro_batches, programs)


ONE_EACH = PipelineKind("one-each", one_each, "one micro-batch at a time", drains=True)
