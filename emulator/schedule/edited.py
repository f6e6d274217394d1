"""Schedules from files, such as `emuchain schedule` prints, which were edited: read, checked, and
trained.

A file has one mini-batch or several, after which the pipeline is empty, and a run repeats them; the
last mini-batch of a run leaves out the micro-batches that it does not have. Where the pipeline
drains at each update, the numbers are those of `sync`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import os
import pathlib
import re
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from ..common import InputError, escaped, plural, read_text
from .action import Action, Kind, Schedule, cut_samples, parse, to_text
from .dry_run import check_complete, dry_run
from .kind import PipelineKind, pipelines
from .pytorch import parse_csv
from .shape import Backward, EpochShape, Machine, Shape

_MOST_WORDS = 4_000_000
_CSV = re.compile(r"\s*([\d\",(]|$)")
"""How CSV begins, and a schedule as text does not."""


def read_schedule(file: str) -> Schedule:
    """Return the schedule in a file, which is text or CSV.

    Raises:
        InputError: the file cannot be read or parsed.
    """
    return _parsed(_content(file), file)


def _content(file: str) -> str:
    try:
        return read_text(pathlib.Path(file))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None


def _parsed(content: str, file: str) -> Schedule:
    words = sum(map(content.count, ", \n"))
    if words > _MOST_WORDS:
        raise InputError(f"{file}: has {words:,} actions or so; at most {_MOST_WORDS:,} are read")
    return (
        parse_csv(content, file)
        if file.endswith(".csv") or _CSV.match(content)
        else parse(content, file)
    )


def is_schedule_file(value: str) -> bool:
    """Return whether a value that is no schedule's name should be that of a file."""
    return value.lower().endswith((".csv", ".txt")) or os.path.isfile(value)


class Ordered(NamedTuple):
    """An action of the mini-batch `step`, whose micro-batches are numbered from 0; an update ends
    its mini-batch.
    """

    step: int
    action: Action


@dataclasses.dataclass(frozen=True)
class Order:
    """The order of a file's actions by device, over `steps` mini-batches of as many micro-batches
    each.
    """

    name: str
    micro_batches: int
    steps: int
    actions: tuple[tuple[Ordered, ...], ...]
    chunks: int = 1
    in_v: bool = False

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.actions)

    @property
    def late(self) -> tuple[int, ...]:
        """By device the most updates by which weights are late."""
        latest = []
        for program in self.actions:
            late = (step - action.version for step, action in program if action.version is not None)
            latest.append(max(late, default=0))
        return tuple(latest)

    @property
    def recomputes(self) -> bool:
        """Whether it has R as an action of its own."""
        return any(
            action.kind is Kind.RECOMPUTE for program in self.actions for _, action in program
        )

    @property
    def offloads(self) -> bool:
        """Whether it has O, and so L."""
        return any(action.kind is Kind.OFFLOAD for program in self.actions for _, action in program)

    def of_mini_batch(self, _: Shape) -> int:
        """Return the number of micro-batches of a mini-batch, which no shape changes."""
        return self.micro_batches

    def schedule(self, epoch: EpochShape) -> Schedule:
        """Return the schedule of an epoch.

        Raises:
            InputError: the epoch has other devices, stages or micro-batches.
        """
        self.check(epoch)
        micro_batches = cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)
        firsts = [
            micro_batch for micro_batch in micro_batches if micro_batch.begin % epoch.batch == 0
        ]

        def program(device: int) -> Iterator[Action]:
            for begin in range(0, len(firsts), self.steps):
                for step, action in self.actions[device]:
                    if begin + step >= len(firsts):
                        continue
                    if action.kind is Kind.UPDATE:
                        yield Action(Kind.UPDATE, begin + action.index)
                        continue
                    first = firsts[begin + step].index
                    index = first + action.index
                    if index < len(micro_batches) and micro_batches[index].step == begin + step:
                        yield action.moved(first, begin) if first or begin else action

        def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
            return {device: program(device) for device in devices}

        return Schedule(self.name, self.devices, micro_batches, programs, self.chunks, self.in_v)

    def check(self, epoch: EpochShape) -> None:
        """Check that an epoch has the devices, stages and micro-batches of the file.

        Raises:
            InputError: it has others.
        """
        count = -(-epoch.batch // epoch.micro_batch)
        if (epoch.devices, epoch.chunks, count) == (self.devices, self.chunks, self.micro_batches):
            return
        raise InputError(
            f"`schedule` = {self.name!r}: has"
            f" {_sizes(self.devices, self.chunks, self.micro_batches)}; this run has"
            f" {_sizes(epoch.devices, epoch.chunks, count)}, as {plural(epoch.batch, 'sample')} by"
            f" {epoch.micro_batch}; change `devices`, `batch` or `micro_batch`, or the file"
        )


def _sizes(devices: int, chunks: int, micro_batches: int) -> str:
    stages = f" with {plural(chunks, 'stage')} each" if chunks > 1 else ""
    return (
        f"{plural(devices, 'device')}{stages} and {plural(micro_batches, 'micro-batch')} in a"
        " mini-batch"
    )


@dataclasses.dataclass(frozen=True)
class EditedKind(PipelineKind):
    """The schedule of a file, whose name it has; `text` is what the file said."""

    order: Order = dataclasses.field(kw_only=True)
    text: str = dataclasses.field(kw_only=True)

    @property
    def file(self) -> str | None:
        """The file."""
        return self.name

    def schedule_of(self, epoch: EpochShape) -> Schedule:
        """Return the schedule of an epoch.

        Raises:
            InputError: the epoch has other devices, stages or micro-batches.
        """
        return self.generate(epoch)

    def steps_to_check(self, epoch: EpochShape) -> int:
        """Return the number of mini-batches whose dry run shows what that of any number would."""
        return max(self.order.steps, super().steps_to_check(epoch))


def edited_kind(file: str, text: str | None = None) -> EditedKind:
    """Return the kind of schedule of a file; `text`, if it is given, is what the file said.

    Raises:
        InputError: the file cannot be read, its schedule fails the dry run, or is none that
            repeats.
    """
    return _kind_of(_content(file), file, _parsed) if text is None else _kind_of(text, file, parse)


@functools.lru_cache(maxsize=2)
def _kind_of(content: str, file: str, parsed: Callable[[str, str], Schedule]) -> EditedKind:
    """Return the kind of schedule of a file's content; a command asks several times, and a long one
    takes seconds.
    """
    schedule = parsed(content, file)
    machine, text = _machine_of(schedule), to_text(schedule)
    schedule = dataclasses.replace(schedule, name=escaped(file))
    check_complete(schedule)
    dry_run(schedule, aligned=True)
    order = _order_of(schedule)
    return EditedKind(
        schedule.name,
        order.schedule,
        "from a file",
        drains=not any(order.late),
        repeats=True,
        chunks=schedule.chunks,
        in_v=schedule.in_v,
        recomputes=order.recomputes,
        offloads=order.offloads,
        machine=machine,
        mini_batch=order.of_mini_batch,
        order=order,
        text=text,
    )


def _order_of(schedule: Schedule) -> Order:
    """Return the order of a schedule's actions.

    Raises:
        InputError: it does a micro-batch in parts, or mini-batches differ in their micro-batches.
    """
    blame = f"schedule {schedule.name}"
    of_steps = collections.Counter(micro_batch.step for micro_batch in schedule.micro_batches)
    sizes = [of_steps[step] for step in range(schedule.steps)]
    if len({*sizes}) > 1:
        counts = ", ".join(map(str, sizes[:8]))
        raise InputError(
            f"{blame}: its mini-batches have {counts} micro-batches; all should have as many"
        )
    programs = schedule.programs(range(schedule.devices))
    actions = tuple(
        tuple(_ordered(program, sizes[0], f"{blame}: device {device}"))
        for device, program in programs.items()
    )
    return Order(schedule.name, sizes[0], len(sizes), actions, schedule.chunks, schedule.in_v)


def _ordered(program: Iterator[Action], size: int, blame: str) -> Iterator[Ordered]:
    """Yield a device's actions with their mini-batches, of `size` micro-batches each."""
    for action in program:
        if action.kind is Kind.UPDATE:
            yield Ordered(action.index - 1, action)
            continue
        if action.span is not None:
            raise InputError(
                f"{blame}: {action}: is a part of a micro-batch; what is trained should do whole"
                " ones"
            )
        step, index = divmod(action.index, size)
        yield Ordered(step, action.moved(index - action.index) if step else action)


def _machine_of(schedule: Schedule) -> Machine:
    """Return the devices that a schedule is meant for: W is apart where one does not follow its B
    in the same cell.
    """
    kind = pipelines().get(schedule.name)
    machine = Machine() if kind is None else kind.machine
    for program in schedule.programs(range(schedule.devices)).values():
        for action, following in itertools.pairwise(program):
            own_w = (following.kind, following.index, following.chunk) == (
                Kind.GRADIENT,
                action.index,
                action.chunk,
            )
            if action.kind is Kind.BACKWARD and (action.joined is False or not own_w):
                return dataclasses.replace(machine, backward=Backward.SPLIT)
    return machine
