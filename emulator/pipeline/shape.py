"""What a pipeline schedule is made for, and the kinds of schedules; each kind is a file in `kinds/`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

from ...kernels import instances
from ..common import InputError, did_you_mean
from ..schedule import EpochShape, Schedule
from .costs import StageCosts
from .machine import Machine


@dataclasses.dataclass(frozen=True)
class Shape:
    """One mini-batch of `micro_batches` micro-batches on a chain of `devices` devices.

    `costs` are those of each stage; there are `chunks` stages on each device. `warm_ups` are each device's warm-up
    forwards, None where the kind of schedule decides.
    """

    devices: int
    micro_batches: int
    costs: Sequence[StageCosts]
    machine: Machine
    chunks: int = 1
    warm_ups: tuple[int, ...] | None = None

    @property
    def epoch(self) -> EpochShape:
        """The epoch of this one mini-batch, with micro-batches of one sample."""
        return EpochShape(
            self.devices, self.micro_batches, self.micro_batches, 1, chunks=self.chunks, warm_ups=self.warm_ups or ()
        )

    @property
    def uniform(self) -> StageCosts | None:
        """The costs of every stage, None if they differ."""
        return self.costs[0] if all(each == self.costs[0] for each in self.costs) else None


@dataclasses.dataclass(frozen=True)
class ClosedForm:
    """The time of a mini-batch in ps by a formula, and whether that is exact here; `valid` says where it is."""

    time_ps: int
    valid: str
    exact: bool


@dataclasses.dataclass(frozen=True)
class PipelineKind:
    """A way to schedule a mini-batch on a pipeline.

    `machine` is what it was meant for. `warm_ups` returns each device's warm-up forwards for a shape, None where the
    kind has none to choose. `generate` makes the schedule of a shape with these. `closed_form` gives the time by a
    formula, None where there is none. Only a kind that `interleaves` has several stages on a device. Where messages are
    stored, a device waits for them unless the kind `overlaps` them.
    """

    name: str
    summary: str
    machine: Machine
    generate: Callable[[Shape], Schedule]
    closed_form: Callable[[Shape], ClosedForm | None]
    warm_ups: Callable[[Shape], tuple[int, ...]] | None = None
    interleaves: bool = False
    overlaps: bool = True

    def schedule(self, shape: Shape) -> tuple[Schedule, ClosedForm | None]:
        """Return the schedule of a shape, and the formula for its time.

        Raises:
            InputError: the shape asks for chunks or warm-ups, and this kind has none.
        """
        if shape.chunks > 1 and not self.interleaves:
            raise InputError(f"`chunks` = {shape.chunks}: {self.name} has one stage on each device; try `interleaved`")
        if shape.warm_ups is not None and self.warm_ups is None:
            raise InputError(f"`warm_up`: {self.name} has a fixed order; kinds of 1F1B and FBP take a warm-up")
        if shape.warm_ups is None and self.warm_ups is not None:
            shape = dataclasses.replace(shape, warm_ups=self.warm_ups(shape))
        return self.generate(shape), self.closed_form(shape)


@functools.cache
def pipeline_kinds() -> Mapping[str, PipelineKind]:
    """Return all kinds of pipeline schedules by name."""
    return {kind.name: kind for kind in instances(f"{__package__}.kinds", PipelineKind)}


def pipeline_kind(name: str) -> PipelineKind:
    """Return the kind of a name.

    Raises:
        InputError: there is none of that name.
    """
    kinds = pipeline_kinds()
    if name not in kinds:
        hint = did_you_mean(name, kinds)
        raise InputError(f"`schedule` = {name!r}: {hint}must be one of {', '.join(kinds)}")
    return kinds[name]
