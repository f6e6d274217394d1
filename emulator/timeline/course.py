"""The course of a run: for each sample its epoch, mini-batch and micro-batch, and the weights that devices use for it.

All of this follows from the schedule, in simulation as in training.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

from ..plan import ChainPlan
from ..schedule import Kind, Schedule


class Place(NamedTuple):
    """The place of a sample: its epoch, counted from 1, and its mini-batch and micro-batch in the epoch, from 0."""

    epoch: int
    mini_batch: int
    micro_batch: int


class Versions(NamedTuple):
    """The version of the weights, numbered in each epoch from 0, that a device uses in FP and EB of a sample."""

    forward: int | None
    backward: int | None


@dataclasses.dataclass(frozen=True)
class Course:
    """The course of a plan's first replica, which has `samples` samples in each epoch."""

    plan: ChainPlan
    samples: int

    @classmethod
    def of(cls, plan: ChainPlan, all_samples: int) -> Course:
        """Return the course of epochs of `all_samples` samples over all replicas."""
        return cls(plan, len(plan.data_parallel.samples_of(0, all_samples, plan.config.batch)))

    @property
    def run_samples(self) -> int:
        """Number of samples in all epochs."""
        return self.samples * self.plan.config.epochs

    @functools.cached_property
    def _schedule(self) -> Schedule:
        return self.plan.schedule(self.samples)

    def place(self, sample: int) -> Place:
        """Return the place of a sample, counted since the start of the run."""
        epoch, at = divmod(sample, self.samples)
        blocks = self._schedule.micro_batches
        block = blocks[bisect.bisect_right(blocks, at, key=lambda micro_batch: micro_batch.begin) - 1]
        return Place(epoch + 1, block.step, block.index)

    def step(self, sample: int) -> int:
        """Return the mini-batch of a sample, counted since the start of the run."""
        place = self.place(sample)
        return (place.epoch - 1) * self._schedule.steps + place.mini_batch

    def step_place(self, step: int) -> tuple[int, int]:
        """Return the epoch, from 1, and the mini-batch in it, from 0, of a mini-batch since the start of the run."""
        epoch, at = divmod(step, self._schedule.steps)
        return epoch + 1, at

    def versions(self, samples: range) -> list[Mapping[int, Versions]]:
        """Return, for each device, the versions that it uses for these samples, counted since the start of the run."""
        within = {sample % self.samples for sample in samples}
        found: list[Mapping[int, Versions]] = []
        programs = self._schedule.programs(range(self.plan.devices))
        for device in range(self.plan.devices):
            used: dict[Kind, dict[int, int | None]] = {Kind.FORWARD: {}, Kind.BACKWARD: {}}
            for action in programs[device]:
                if action.kind in used:
                    span = self._schedule.micro_batches[action.index].span_of(action)
                    of_kind = used[action.kind]
                    of_kind.update((n, action.version) for n in range(span.slice.start, span.slice.stop) if n in within)
                    if all(len(of_each) == len(within) for of_each in used.values()):
                        break
            forward, backward = used[Kind.FORWARD], used[Kind.BACKWARD]
            found.append({n: Versions(forward[n % self.samples], backward[n % self.samples]) for n in samples})
        return found
