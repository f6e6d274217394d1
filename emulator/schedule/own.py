"""Schedules of a user's own: what a builder returns is checked as it is read, so that nothing trips over it later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from ..common import InputError, escaped, plural
from .action import Action, Kind, MicroBatch, Schedule
from .shape import EpochShape

_MOST_SHOWN = 80
T = TypeVar("T")


def own_schedule(name: str, generate: Callable[[EpochShape], Schedule], epoch: EpochShape) -> Schedule:
    """Return the schedule that a builder makes for an epoch.

    Raises:
        InputError: the builder fails, or returns no schedule of this epoch; reading its programs raises it where they
            fail, or hold what is no action of their device.
    """
    return _Own(name, epoch).schedule(generate)


def shown(value: object) -> str:
    """Return a value of a user's own as Python writes it, on one line and cut short."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return escaped(" ".join(text.split())[:_MOST_SHOWN])


class _Own:
    """The schedule of one epoch by the builder of a kind."""

    def __init__(self, name: str, epoch: EpochShape) -> None:
        self._name, self._epoch = name, epoch

    def _fail(self, what: str, wanted: str, cause: Exception | None = None) -> NoReturn:
        raise InputError(f"schedule {self._name}: {what}; {wanted}") from cause

    def _made(self, maker: str, wanted: str, make: Callable[[], T]) -> T:
        """Return what the user's code makes; what it raises is told."""
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
            self._fail(f"its builder returned one whose `devices` is {shown(schedule.devices)}", wanted)
        if type(schedule.chunks) is not int or schedule.chunks != epoch.chunks:
            stages = f"has {shown(schedule.chunks)} stages on a device, and the chain has {epoch.chunks}"
            self._fail(stages, "its kind's `chunks` should match")
        self._check_micro_batches(schedule.micro_batches)

        def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
            return self._programs(schedule, devices)

        return Schedule(self._name, epoch.devices, schedule.micro_batches, programs, epoch.chunks)

    def _check_micro_batches(self, micro_batches: Sequence[MicroBatch]) -> None:
        epoch, begin = self._epoch, 0
        wanted = f"cut_samples({epoch.samples}, {epoch.batch}, {epoch.micro_batch}) makes those of this epoch"
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

    def _programs(self, schedule: Schedule, devices: Collection[int]) -> dict[int, Iterator[Action]]:
        wanted = f"`programs` should return the actions of each of devices {_first(devices)}"
        programs = self._made("`programs`", wanted, lambda: schedule.programs(devices))
        if not isinstance(programs, Mapping):
            self._fail(f"its `programs` returned {shown(programs)}", wanted)
        if {*programs} != {*devices}:
            self._fail(f"its `programs` returned those of {_first(programs)}", wanted)
        return {device: self._actions(schedule, device, programs[device]) for device in devices}

    def _actions(self, schedule: Schedule, device: int, program: Any) -> Iterator[Action]:
        blame, wanted = f"the program of device {device}", "it should be an iterator of the device's Actions"
        # Each sample may be a span of its own.
        most = 3 * schedule.chunks * self._epoch.samples + schedule.steps
        try:
            for count, action in enumerate(program):
                wrong = _wrong(action, schedule) if count < most else f"and this epoch has no more than {most} actions"
                if wrong:
                    self._fail(f"{blame} has {shown(action)}, {wrong}", wanted)
                yield action
        except InputError:
            raise
        except Exception as error:
            self._fail(f"{blame} raised {_reason(error)}", wanted, error)


def _wrong(action: Any, schedule: Schedule) -> str:
    """Return what makes something no action of a schedule; nothing where it is one."""
    if not isinstance(action, Action) or not isinstance(action.kind, Kind):
        return "which is no Action"
    if action.span is not None and not (isinstance(action.span, tuple) and len(action.span) == 2):
        return "whose span should be two numbers, or None"
    numbers = (action.index, action.chunk, 0 if action.version is None else action.version, *(action.span or ()))
    if any(type(number) is not int or number < 0 for number in numbers):
        return "whose numbers should be of type int, 0 or more"
    if action.kind is Kind.UPDATE:
        return ""
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
