"""Kinds of schedules: a file of this folder has one or several, found by name, with order, machine and closed form."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping
from typing import Literal

from ...kernels import instances
from ..common import InputError, did_you_mean
from .action import Schedule
from .formulas import one_by_one
from .machine import Backward, Machine
from .own import own_schedule, shown
from .shape import ClosedForm, EpochShape, Shape

_STEPS_TO_CHECK = 6


class Offload(enum.Enum):
    """What a GPU gives to an FPGA of the training of recurrent layers, or does itself (FARNN)."""

    OVERLAPPED = "overlapped"
    """The FPGA does R-MVM and activations, the GPU all else, side by side with transfers and with the FPGA."""
    IN_TURN = "in turn"
    """The same, with each task after the one before it."""
    ALL_STEPS = "all steps"
    """The FPGA does I-MVM, too; GC and WU stay on the GPU."""
    STANDARD = "standard"
    """The GPU alone, in cuDNN's standard form: each time step is a phase of its own."""
    PERSISTENT = "persistent"
    """The GPU alone, in cuDNN's persistent form: one kernel for all time steps."""

    @property
    def devices(self) -> int:
        """Number of devices: a GPU alone, or with an FPGA."""
        return 1 if self in (Offload.STANDARD, Offload.PERSISTENT) else 2


@dataclasses.dataclass(frozen=True)
class ScheduleKind:
    """A way to schedule an epoch.

    `generate` is a pure function that returns the schedule of an epoch. Where the schedule `drains`, the pipeline is
    empty at each update; otherwise samples enter without a pause. Where it `replicates`, each device holds the whole
    network, and devices exchange gradients in this way. Where it `repeats`, each mini-batch has the actions of the one
    before it with all numbers higher, once no sample of either uses the first weights. `summary` is a line for --help.

    `chunks` is the number of stages on a device where none is asked for; only a kind that has more than one takes
    another number. `warm_ups` gives each device's warm-up forwards for a number of devices; only a kind that has
    it takes others. Where it is `aligned`, F, B and W of a sample use the same version of the weights; otherwise each
    sees those that are newest in the steady pipeline (`EpochShape.staleness`). With `offload`, a GPU trains recurrent
    layers, alone or with an FPGA.
    """

    name: str
    generate: Callable[[EpochShape], Schedule]
    summary: str
    drains: bool
    replicates: Literal["ring", "aggregator"] | None = None
    repeats: bool = False
    chunks: int = 1
    warm_ups: Callable[[int], tuple[int, ...]] | None = None
    aligned: bool = True
    offload: Offload | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name and self.name.isprintable() and isinstance(self.summary, str)):
            raise InputError(f"schedule {shown(self.name)}: should have a name and a summary of one line of text each")
        if not callable(self.generate):
            raise InputError(
                f"schedule {self.name}: `generate` is {shown(self.generate)}; should be a function that takes an"
                " EpochShape and returns a Schedule"
            )
        if type(self.chunks) is not int or self.chunks < 1:
            raise InputError(f"schedule {self.name}: `chunks` is {shown(self.chunks)}; should be an int, 1 or more")
        if self.replicates not in (None, "ring", "aggregator"):
            raise InputError(
                f"schedule {self.name}: `replicates` is {shown(self.replicates)}; should be ring, aggregator or None"
            )
        if not (self.offload is None or isinstance(self.offload, Offload)):
            raise InputError(f"schedule {self.name}: `offload` is {shown(self.offload)}; should be an Offload or None")

    def schedule_of(self, epoch: EpochShape) -> Schedule:
        """Return the schedule of an epoch; that of a user's own kind is checked as it is read.

        Raises:
            InputError: the user's own builder returns none of this epoch; reading the programs raises it, too.
        """
        return self.generate(epoch) if self.is_shipped else own_schedule(self.name, self.generate, epoch)

    @property
    def is_shipped(self) -> bool:
        """Whether it comes with emuchain."""
        return self == _kinds().get(self.name)

    @property
    def takes_warm_ups(self) -> bool:
        """Whether `EpochShape.warm_ups` changes its schedule."""
        return self.warm_ups is not None

    @property
    def splits_backward(self) -> bool:
        """Whether errors leave before the parameter gradients are computed."""
        return False

    def steps_to_check(self, epoch: EpochShape) -> int:
        """Return the number of mini-batches whose dry run shows what that of any number would.

        If staleness is at most L, mini-batches 0 to L use the first weights. Number L + 1 is the first in which every
        wait is one for weights that were made, and of a schedule that repeats all further ones wait alike: for samples
        of the same mini-batch, or for versions up to L earlier. So a circle of waits closes within L + 2 mini-batches.
        Balanced parameters wait for updates of other devices, too, in chains that may be longer; then, and where a
        schedule does not say that it repeats, more are checked.
        """
        if not self.repeats or epoch.stores:
            return _STEPS_TO_CHECK
        late = max(max(each.forward + each.backward) for each in epoch.staleness) if not self.drains else 0
        return min(late + 2, _STEPS_TO_CHECK)


def _of_all(shape: Shape) -> int:
    """Return the number of micro-batches of one mini-batch."""
    return shape.micro_batches


@dataclasses.dataclass(frozen=True)
class PipelineKind(ScheduleKind):
    """A schedule of a pipeline whose devices take actions as a whole, and whose time is asked for by itself.

    `machine` is the kind of devices that it is meant for; it runs on any. `closed_form` is the time of a mini-batch by
    a formula, None where none applies. `mini_batch` says of how many micro-batches a mini-batch is when a number of
    them is timed on some devices: of all, unless the pipeline has no flush. Where messages are stored, a device waits
    for them unless the kind `overlaps` them. A kind that `searches` its warm-ups finds them by timing them; without
    times, it cannot train.
    """

    machine: Machine = dataclasses.field(default_factory=Machine)
    closed_form: Callable[[Shape], ClosedForm | None] = one_by_one
    mini_batch: Callable[[Shape], int] = _of_all
    overlaps: bool = True
    searches: bool = False

    @property
    def splits_backward(self) -> bool:
        """Whether errors leave before the parameter gradients are computed."""
        return self.machine.backward is Backward.SPLIT


@functools.cache
def _kinds() -> Mapping[str, ScheduleKind]:
    """Return all kinds by name: those of one chain, of replicas, then of GPUs."""

    def place(kind: ScheduleKind) -> tuple[bool, bool, str]:
        return kind.offload is not None, kind.replicates is not None, kind.name

    return {kind.name: kind for kind in sorted(instances(__package__, ScheduleKind), key=place)}


@functools.cache
def schedules() -> Mapping[str, ScheduleKind]:
    """Return all kinds that train, by name."""
    return {name: kind for name, kind in _kinds().items() if name not in pipelines() or not pipelines()[name].searches}


@functools.cache
def pipelines() -> Mapping[str, PipelineKind]:
    """Return all kinds of pipelines, by name."""
    return {name: kind for name, kind in _kinds().items() if isinstance(kind, PipelineKind)}


def pipeline_kind(name: str) -> PipelineKind:
    """Return the kind of pipeline of a name.

    Raises:
        InputError: there is none of that name.
    """
    if name not in pipelines():
        hint = did_you_mean(name, pipelines())
        raise InputError(f"`schedule` = {name!r}: {hint}must be one of {', '.join(pipelines())}")
    return pipelines()[name]
