"""The samples that a timeline shows: their window, the place of each in the run, and what an
observer keeps of them.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ....comm import Served, Times
from ...common import InputError
from ...plan import ChainPlan
from ...schedule import Kind, Schedule


@dataclasses.dataclass(frozen=True)
class Window:
    """Samples `first` to `last`, both included, counted from 0 since the start of the run."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str, key: str) -> Window:
        """Return the window that a text such as 0-63 names, or 5 for one sample; errors name `key`.

        Raises:
            InputError: the text is no range, or the range is empty.
        """
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
        if match is None:
            raise InputError(
                f"`{key}` = {text!r}: is not a range of samples, counted from 0, such as 0-63"
            )
        return cls.of(int(match[1]), int(match[2] or match[1]), key)

    @classmethod
    def of(cls, first: int, last: int, key: str) -> Window:
        """Return the window of two sample numbers; errors name `key`.

        Raises:
            InputError: the window is empty.
        """
        if not 0 <= first <= last:
            raise InputError(
                f"`{key}` = '{first}-{last}': holds no sample; the first number is at most the"
                " second"
            )
        return cls(first, last)

    def within(self, samples: int, key: str) -> Window:
        """Return the part of the window that a run of `samples` samples has; errors name `key`.

        Raises:
            InputError: there is none.
        """
        if self.first >= samples:
            raise InputError(f"`{key}` = '{self}': the run has samples 0-{samples - 1} only")
        return Window(self.first, min(self.last, samples - 1))

    def around(self, samples: int) -> Window:
        """Return the window with `samples` more samples on either side; before the first there is
        none.
        """
        return Window(max(0, self.first - samples), self.last + samples)

    @property
    def numbers(self) -> range:
        """The numbers of the samples."""
        return range(self.first, self.last + 1)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


DEFAULT_WINDOW = Window(0, 63)


class Place(NamedTuple):
    """The place of a sample: its epoch, counted from 1, and its mini-batch and micro-batch in the
    epoch, from 0.
    """

    epoch: int
    mini_batch: int
    micro_batch: int


class Versions(NamedTuple):
    """The version of the weights, numbered in each epoch from 0, that a stage uses in FP and EB of
    a sample.
    """

    forward: int | None
    backward: int | None


@dataclasses.dataclass(frozen=True)
class RunSamples:
    """The samples of a plan's first replica, which has `samples` of them in each epoch.

    All about them follows from the schedule, in simulation as in training.
    """

    plan: ChainPlan
    samples: int

    @classmethod
    def of(cls, plan: ChainPlan, all_samples: int) -> RunSamples:
        """Return those of epochs of `all_samples` samples over all replicas."""
        return cls(plan, len(plan.data_parallel.samples_of(0, all_samples, plan.config.batch)))

    @property
    def number(self) -> int:
        """Number of samples in all epochs."""
        return self.samples * self.plan.config.epochs

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of devices, with their boards."""
        cluster = self.plan.cluster
        return tuple(
            f"device {device} ({cluster.board(device).name})" for device in range(self.plan.devices)
        )

    @functools.cached_property
    def schedule(self) -> Schedule:
        """The schedule of an epoch."""
        return self.plan.schedule(self.samples)

    def place(self, sample: int) -> Place:
        """Return the place of a sample, counted since the start of the run."""
        epoch, at = divmod(sample, self.samples)
        blocks = self.schedule.micro_batches
        block = blocks[
            bisect.bisect_right(blocks, at, key=lambda micro_batch: micro_batch.begin) - 1
        ]
        return Place(epoch + 1, block.step, block.index)

    def steps(self, window: Window) -> range:
        """Return the mini-batches of a window's samples, counted since the start of the run."""
        first, last = (self.place(sample) for sample in (window.first, window.last))
        begin, end = (
            (place.epoch - 1) * self.schedule.steps + place.mini_batch for place in (first, last)
        )
        return range(begin, end + 1)

    def step_args(self, step: int) -> dict[str, int]:
        """Return the epoch, from 1, and the mini-batch in it, from 0, of a mini-batch since the
        start of the run.
        """
        epoch, mini_batch = divmod(step, self.schedule.steps)
        return {"epoch": epoch + 1, "mini_batch": mini_batch}

    def versions(self, samples: range) -> list[Mapping[int, Versions]]:
        """Return, for each stage, the versions that it uses for these samples, counted since the
        start of the run.
        """
        within = {sample % self.samples for sample in samples}
        used: list[dict[Kind, dict[int, int | None]]] = [
            {Kind.FORWARD: {}, Kind.BACKWARD: {}} for _ in range(self.plan.stage_count)
        ]
        devices = range(self.plan.devices)
        for device, program in self.schedule.programs(devices).items():
            # Programs are as long as an epoch, and windows are mostly at its beginning: stop once
            # all are found.
            missing = 2 * len(within) * self.plan.chunks
            for action in program:
                versions = used[action.chunk * len(devices) + device].get(action.kind)
                if versions is not None:
                    span = self.schedule.micro_batches[action.index].span_of(action).slice
                    shown = [number for number in range(span.start, span.stop) if number in within]
                    versions.update(dict.fromkeys(shown, action.version))
                    missing -= len(shown)
                if not missing:
                    break
        by_stage: list[Mapping[int, Versions]] = []
        for kinds in used:
            forward, backward = kinds.values()
            by_stage.append(
                {
                    n: Versions(forward[n % self.samples], backward[n % self.samples])
                    for n in samples
                }
            )
        return by_stage


class Kept(NamedTuple):
    """The rows of a sample on a resource: when they were ready and when they left, in ps, and the
    time of each.

    They had this share of their full bytes. A whole action, a message or an exchange counts as one
    row.
    """

    ready_ps: Times
    left_ps: Times
    row_ps: int
    share: float

    @property
    def start_ps(self) -> int:
        """When the first row started."""
        return int(self.left_ps[0]) - self.row_ps

    @property
    def end_ps(self) -> int:
        """When the last row left."""
        return int(self.left_ps[-1])


class SpanRecorder:
    """An observer of a run that keeps what resources serve: of each the `wanted` numbers, counted
    in its order.
    """

    def __init__(self, wanted: Mapping[str, Collection[int]]) -> None:
        self._wanted = {
            resource: (min(kept), max(kept), kept) for resource, kept in wanted.items() if kept
        }
        self._served = dict.fromkeys(self._wanted, 0)
        self.kept: dict[str, dict[int, Kept]] = {}

    def __call__(self, served: Served) -> None:
        """Take note of what a resource has served."""
        if served.resource not in self._wanted:
            return
        first, (least, most, wanted) = self._served[served.resource], self._wanted[served.resource]
        end = self._served[served.resource] = first + len(served.left_ps)
        for number in range(max(first, least), min(end, most + 1)):
            if number in wanted:
                ready_ps, left_ps = (
                    served.ready_ps[number - first].copy(),
                    served.left_ps[number - first].copy(),
                )
                rows = Kept(ready_ps, left_ps, served.row_ps, served.share)
                self.kept.setdefault(served.resource, {})[number] = rows


def kept_by(recorders: Collection[SpanRecorder]) -> dict[str, dict[int, Kept]]:
    """Return what the recorders of all ranks have kept, by resource."""
    return {resource: rows for recorder in recorders for resource, rows in recorder.kept.items()}
