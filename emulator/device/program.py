"""A device's program of an epoch, carried out in order, or with F ahead of the other actions.

FP has engines and streams of its own, so neither times nor numbers of F depend on B and W that come before it, unless
an update lies between. While B waits for errors from another rank, F of later micro-batches can be carried out.
"""

from __future__ import annotations

import collections
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ...comm import Mailbox
from ..schedule import Action, Kind, with_versions
from .device import Device, Epoch, OnStep

AHEAD = 4
"""Most actions that F goes ahead of: B and W of two micro-batches, whose maps are in memory meanwhile."""


def train_programs(
    stages: Sequence[Device], program: Iterable[Action], epoch: Epoch, on_step: OnStep | None = None, *, ahead: bool
) -> list[Coroutine[Any, Any, None]]:
    """Return coroutines that carry out an epoch's actions on a device with these stages, its chunks.

    `on_step` is called after each update. With `ahead`, F goes ahead where it can.
    """
    for stage in stages:
        stage.begin_epoch(epoch)
    if not ahead or len(stages) > 1 or not stages[0].may_go_ahead:
        return [_in_order(stages, program, epoch, on_step)]
    split = _Split(program)
    return [_forwards(stages[0], split, epoch), _others(stages[0], split, epoch, on_step)]


async def _in_order(stages: Sequence[Device], program: Iterable[Action], epoch: Epoch, on_step: OnStep | None) -> None:
    for action, keeps, frees in with_versions(program):
        await _carry_out(stages, action, epoch, on_step, keeps=keeps)
        _free(stages, frees)
    for stage in stages:
        stage.end_epoch()


async def _forwards(device: Device, split: _Split, epoch: Epoch) -> None:
    for step in split.steps(split.forwards):
        await split.others.reach(step.after)
        assert step.action is not None
        await device.do(step.action, epoch)
        split.forwards.note()


async def _others(device: Device, split: _Split, epoch: Epoch, on_step: OnStep | None) -> None:
    for action, after, keeps, frees in split.steps(split.others):
        await split.forwards.reach(after)
        if action is not None:
            await _carry_out([device], action, epoch, on_step, keeps=keeps)
        _free([device], frees)
        split.others.note()
    device.end_epoch()


async def _carry_out(
    stages: Sequence[Device], action: Action, epoch: Epoch, on_step: OnStep | None, *, keeps: bool
) -> None:
    if action.kind is not Kind.UPDATE:
        await stages[action.chunk].do(action, epoch)
        return
    step = action.index - 1
    for stage in stages:
        await stage.settle(keeps=keeps)
        await stage.sum_gradients(step, epoch)
    for stage in stages:
        await stage.join_sums()
    for stage in stages:
        await stage.update(step, keeps, on_step if stage is stages[-1] else None)


def _free(stages: Sequence[Device], versions: Sequence[int]) -> None:
    if versions:
        for stage in stages:
            stage.free(versions)


class _Step(NamedTuple):
    """An action to carry out, if any, and versions to free, once `after` steps of the other lane are done."""

    action: Action | None
    after: int
    keeps: bool = False
    frees: tuple[int, ...] = ()


class _Lane:
    """The steps of a lane that are read and not yet begun; `read` counts all that were read."""

    def __init__(self) -> None:
        self.waiting = collections.deque[_Step]()
        self.read = 0
        self._done, self._seen = Mailbox(), 0

    def add(self, step: _Step) -> None:
        """Add a step."""
        self.waiting.append(step)
        self.read += 1

    def note(self) -> None:
        """Take note that the next step is done."""
        self._done.put(None)

    async def reach(self, count: int) -> None:
        """Wait until `count` steps are done; for the other lane alone."""
        while self._seen < count:
            await self._done.get()
            self._seen += 1


class _Split:
    """A program in two lanes, F and all other actions, each in order; it is read no further than needed."""

    def __init__(self, program: Iterable[Action]) -> None:
        self.forwards, self.others = _Lane(), _Lane()
        self._program = with_versions(program)
        self._updated = 0  # steps up to the last update

    def steps(self, lane: _Lane) -> Iterator[_Step]:
        """Yield the steps of a lane."""
        while lane.waiting or self._read():
            if lane.waiting:
                yield lane.waiting.popleft()

    def _read(self) -> bool:
        entry = next(self._program, None)
        if entry is None:
            return False
        action, keeps, frees = entry
        if action.kind is Kind.FORWARD:
            self.forwards.add(_Step(action, max(self._updated, self.others.read - AHEAD)))
            if frees:  # an action that F is ahead of may still use them
                self.others.add(_Step(None, self.forwards.read, frees=frees))
        else:
            self.others.add(_Step(action, self.forwards.read, keeps, frees))
            if action.kind is Kind.UPDATE:
                self._updated = self.others.read
        return True
