"""Kinds of schedules, found by name, with order, machine and closed form; those that ship, and a
user's own.

A file of this folder has one kind or several. What a user's own builder returns is checked as it is
read, so that nothing trips over it later.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeVar

from ...kernels import by_name, instances, registry
from ..common import InputError, did_you_mean, escaped, plural
from .action import MOVES, Action, Kind, MicroBatch, Schedule
from .shape import Backward, ClosedForm, EpochShape, Machine, Shape, one_by_one

_MOST_SHOWN = 80
T = TypeVar("T")


def own_schedule(
    name: str,
    generate: Callable[[EpochShape], Schedule],
    epoch: EpochShape,
    *,
    recomputes: bool = False,
) -> Schedule:
    """Return the schedule that a builder makes for an epoch; it has R where it `recomputes`.

    Raises:
        InputError: the builder fails, or returns no schedule of this epoch; reading its programs
            raises it where they fail, or hold what is no action of their device.
    """
    return _Own(name, epoch, recomputes).schedule(generate)


def shown(value: object) -> str:
    """Return a value of a user's own as Python writes it, on one line and cut short."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return escaped(" ".join(text.split())[:_MOST_SHOWN])


class _Own:
    """The schedule of one epoch by the builder of a kind."""

    def __init__(self, name: str, epoch: EpochShape, recomputes: bool) -> None:
        self._name, self._epoch, self._recomputes = name, epoch, recomputes

    def _fail(self, what: str, wanted: str, cause: Exception | None = None) -> NoReturn:
        raise InputError(f"schedule {self._name}: {what}; {wanted}") from cause

    def _made(self, maker: str, wanted: str, make: Callable[[], T]) -> T:
        """Return what the user's code makes; what it raises is reported."""
        try:
            return make()
        except InputError:
            raise
        except Exception as error:
            self._fail(f"its {maker} raised {_reason(error)}", wanted, error)

    def schedule(self, generate: Callable[[EpochShape], Schedule]) -> Schedule:
        """Return what the builder returns, after checking its form."""
        epoch = self._epoch
        devices, samples = plural(epoch.devices, "device"), plural(epoch.samples, "sample")
        wanted = f"it should return a Schedule for {devices} and {samples}"
        schedule = self._made("builder", wanted, lambda: generate(epoch))
        if not isinstance(schedule, Schedule):
            self._fail(f"its builder returned {shown(schedule)}", wanted)
        if type(schedule.devices) is not int or schedule.devices != epoch.devices:
            self._fail(
                f"its builder returned one whose `devices` is {shown(schedule.devices)}", wanted
            )
        if type(schedule.chunks) is not int or schedule.chunks != epoch.chunks:
            stages = (
                f"has {shown(schedule.chunks)} stages on a device, and the chain has {epoch.chunks}"
            )
            self._fail(stages, "its kind's `chunks` should match")
        self._check_micro_batches(schedule.micro_batches)

        def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
            return self._programs(schedule, devices)

        return Schedule(
            self._name, epoch.devices, schedule.micro_batches, programs, epoch.chunks, schedule.in_v
        )

    def _check_micro_batches(self, micro_batches: Sequence[MicroBatch]) -> None:
        epoch, begin = self._epoch, 0
        wanted = (
            f"cut_samples({epoch.samples}, {epoch.batch}, {epoch.micro_batch}) makes those of this"
            " epoch"
        )
        if not isinstance(micro_batches, Sequence):
            self._fail(f"its micro-batches are {shown(micro_batches)}", wanted)
        for index, micro_batch in enumerate(micro_batches):
            step = begin // epoch.batch
            most = min(begin + epoch.micro_batch, (step + 1) * epoch.batch, epoch.samples)
            fits = isinstance(micro_batch, MicroBatch) and type(micro_batch.end) is int
            if not fits or micro_batch != MicroBatch(index, step, begin, micro_batch.end):
                self._fail(f"its micro-batch {index} is {shown(micro_batch)}", wanted)
            if not begin < micro_batch.end <= most:
                self._fail(f"its micro-batch {index} is {shown(micro_batch)}", wanted)
            begin = micro_batch.end
        if begin != epoch.samples:
            self._fail(f"its micro-batches have {begin} samples of {epoch.samples}", wanted)

    def _programs(
        self, schedule: Schedule, devices: Collection[int]
    ) -> dict[int, Iterator[Action]]:
        wanted = f"`programs` should return the actions of each of devices {_first(devices)}"
        programs = self._made("`programs`", wanted, lambda: schedule.programs(devices))
        if not isinstance(programs, Mapping):
            self._fail(f"its `programs` returned {shown(programs)}", wanted)
        if {*programs} != {*devices}:
            self._fail(f"its `programs` returned those of {_first(programs)}", wanted)
        return {device: self._actions(schedule, device, programs[device]) for device in devices}

    def _actions(self, schedule: Schedule, device: int, program: Any) -> Iterator[Action]:
        blame, wanted = (
            f"the program of device {device}",
            "it should be an iterator of the device's Actions",
        )
        # Each sample may be a span of its own.
        most = 4 * schedule.chunks * self._epoch.samples + schedule.steps
        try:
            for count, action in enumerate(program):
                wrong = (
                    _wrong(action, schedule, self._recomputes)
                    if count < most
                    else f"and this epoch has no more than {most} actions"
                )
                if wrong:
                    self._fail(f"{blame} has {shown(action)}, {wrong}", wanted)
                yield action
        except InputError:
            raise
        except Exception as error:
            self._fail(f"{blame} raised {_reason(error)}", wanted, error)


def _wrong(action: Any, schedule: Schedule, recomputes: bool) -> str:
    """Return what makes something no action of a schedule; nothing where it is one."""
    if not isinstance(action, Action) or not isinstance(action.kind, Kind):
        return "which is no Action"
    if action.span is not None and not (isinstance(action.span, tuple) and len(action.span) == 2):
        return "whose span should be two numbers, or None"
    numbers = (
        action.index,
        action.chunk,
        0 if action.version is None else action.version,
        *(action.span or ()),
    )
    if any(type(number) is not int or number < 0 for number in numbers):
        return "whose numbers should be of type int, 0 or more"
    if action.kind is Kind.UPDATE:
        return ""
    if action.kind is Kind.RECOMPUTE and not recomputes:
        return "and its kind's `recomputes` is False"
    if action.kind in MOVES:
        return "which is for schedules from files"
    if action.chunk >= schedule.chunks:
        return f"and the last chunk of each device is {schedule.chunks - 1}"
    if action.index >= len(schedule.micro_batches):
        return f"and the last micro-batch is {len(schedule.micro_batches) - 1}"
    samples = schedule.micro_batches[action.index].samples
    if action.span is not None and not action.span[0] < action.span[1] <= samples:
        return f"whose span should lie in 0:{samples}"
    return ""


def _reason(error: Exception) -> str:
    said = " ".join(str(error).split())
    return escaped(f"{type(error).__name__}: {said}"[:200] if said else type(error).__name__)


def _first(devices: Collection[Any]) -> str:
    return shown([*devices][:8]).strip("[]") or "none"


_STEPS_TO_CHECK = 6


class Offload(enum.Enum):
    """What a GPU gives to an FPGA of the training of recurrent layers, or does itself (FARNN)."""

    OVERLAPPED = "overlapped"
    """The FPGA does R-MVM and activations, the GPU all else, side by side with transfers and with
    the FPGA.
    """
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

    `generate` is a pure function that returns the schedule of an epoch. Where the schedule
    `drains`, the pipeline is empty at each update; otherwise samples enter without a pause. Where
    it `replicates`, each device holds the whole network, and devices exchange gradients in this
    way. Where it `repeats`, each mini-batch has the actions of the one before it with all numbers
    higher, once no sample of either uses the first weights. `summary` is a line for --help.

    `chunks` is the number of stages on a device where none is asked for, which lie in a loop or
    `in_v`; only a kind that has more than one takes another number. `warm_ups` gives each device's
    warm-up forwards for a number of devices; only a kind that has it takes others. Where it is
    `aligned`, F, B and W of a sample use the same version of the weights; otherwise each sees those
    that are newest in the steady pipeline (`EpochShape.staleness`). With `offload`, a GPU trains
    recurrent layers, alone or with an FPGA. Where it `recomputes`, R is an action of its own of
    micro-batches whose F is `recomputed`; otherwise recomputation is part of B. Where it `offloads`, a
    file has O and L.
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
    in_v: bool = False
    recomputes: bool = False
    offloads: bool = False

    def __post_init__(self) -> None:
        if not (
            isinstance(self.name, str)
            and self.name
            and self.name.isprintable()
            and isinstance(self.summary, str)
        ):
            raise InputError(
                f"schedule {shown(self.name)}: should have a name and a summary of one line of text"
                " each"
            )
        if not callable(self.generate):
            raise InputError(
                f"schedule {self.name}: `generate` is {shown(self.generate)}; should be a function"
                " that takes an EpochShape and returns a Schedule"
            )
        if type(self.chunks) is not int or self.chunks < 1:
            raise InputError(
                f"schedule {self.name}: `chunks` is {shown(self.chunks)}; should be an int, 1 or"
                " more"
            )
        if self.replicates not in (None, "ring", "aggregator"):
            raise InputError(
                f"schedule {self.name}: `replicates` is {shown(self.replicates)}; should be ring,"
                " aggregator or None"
            )
        if not (self.offload is None or isinstance(self.offload, Offload)):
            raise InputError(
                f"schedule {self.name}: `offload` is {shown(self.offload)}; should be an Offload or"
                " None"
            )

    def schedule_of(self, epoch: EpochShape) -> Schedule:
        """Return the schedule of an epoch; that of a user's own kind is checked as it is read.

        Raises:
            InputError: the user's own builder returns none of this epoch; reading the programs
                raises it, too.
        """
        if self.is_shipped:
            return self.generate(epoch)
        schedule = own_schedule(self.name, self.generate, epoch, recomputes=self.recomputes)
        if schedule.in_v != self.in_v:
            raise InputError(
                f"schedule {self.name}: `in_v` is {shown(schedule.in_v)}; its kind's `in_v` should"
                " match"
            )
        return schedule

    @property
    def is_shipped(self) -> bool:
        """Whether it comes with emuchain."""
        return self == _kinds().get(self.name)

    @property
    def file(self) -> str | None:
        """The file that it is from; None if it is a function."""
        return None

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

        If staleness is at most L, mini-batches 0 to L use the first weights. Number L + 1 is the
        first in which every wait is one for weights that were made, and of a schedule that repeats
        all further ones wait alike: for samples of the same mini-batch, or for versions up to L
        earlier. So a circle of waits closes within L + 2 mini-batches. Balanced parameters wait for
        updates of other devices, too, in chains that may be longer; then, and where a schedule does
        not say that it repeats, more are checked.
        """
        if not self.repeats or epoch.stores:
            return _STEPS_TO_CHECK
        late = (
            max(max(stale.forward + stale.backward) for stale in epoch.staleness)
            if not self.drains
            else 0
        )
        return min(late + 2, _STEPS_TO_CHECK)


def _of_all(shape: Shape) -> int:
    """Return the number of micro-batches of one mini-batch."""
    return shape.micro_batches


@dataclasses.dataclass(frozen=True)
class PipelineKind(ScheduleKind):
    """A schedule of a pipeline whose devices take actions as a whole, and whose time is asked for
    by itself.

    `machine` is the kind of devices that it is meant for; it runs on any. `closed_form` is the time
    of a mini-batch by a formula, None where none applies. `mini_batch` says of how many
    micro-batches a mini-batch is when a number of them is timed on some devices: of all, unless the
    pipeline has no flush. Where messages are stored, a device waits for them unless the kind
    `overlaps` them. A kind that `searches` its warm-ups finds them by timing them; without times,
    it cannot train. Where its order is one for `equal_stages`, another may be faster on stages that
    differ.
    """

    machine: Machine = dataclasses.field(default_factory=Machine)
    closed_form: Callable[[Shape], ClosedForm | None] = one_by_one
    mini_batch: Callable[[Shape], int] = _of_all
    overlaps: bool = True
    searches: bool = False
    equal_stages: bool = False

    @property
    def splits_backward(self) -> bool:
        """Whether errors leave before the parameter gradients are computed."""
        return self.machine.backward is Backward.SPLIT


@registry
def _kinds() -> Mapping[str, ScheduleKind]:
    """Return all kinds by name: those of one chain, of replicas, then of GPUs."""

    def place(kind: ScheduleKind) -> tuple[bool, bool, str]:
        return kind.offload is not None, kind.replicates is not None, kind.name

    return by_name(sorted(instances(__package__, ScheduleKind), key=place))


@registry
def schedules() -> Mapping[str, ScheduleKind]:
    """Return all kinds that train, by name."""
    return {
        name: kind
        for name, kind in _kinds().items()
        if name not in pipelines() or not pipelines()[name].searches
    }


@registry
def pipelines() -> Mapping[str, PipelineKind]:
    """Return all kinds of pipelines, by name."""
    return {name: kind for name, kind in _kinds().items() if isinstance(kind, PipelineKind)}


def pipeline_kind(name: str, beside: Iterable[str] = ()) -> PipelineKind:
    """Return the kind of pipeline of a name; `beside` are other words that might be meant.

    Raises:
        InputError: there is none of that name.
    """
    if name not in pipelines():
        known = [*pipelines(), *beside]
        hint = did_you_mean(name, known)
        raise InputError(f"`schedule` = {name!r}: {hint}must be one of {', '.join(known)}")
    return pipelines()[name]
