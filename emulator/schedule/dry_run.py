"""The dry run: a schedule carried out with tokens instead of numbers, before anything starts.

It finds what would hang or go wrong: an action whose message never comes, messages in an order that the receiver does
not expect, a sample left out or done twice, weights of a version that the device does not have.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

from ..errors import InputError
from .action import Action, Kind, Schedule


def dry_run(schedule: Schedule) -> None:
    """Check a schedule.

    Raises:
        InputError: what would go wrong, on which device, at which action.
    """
    programs = schedule.programs(range(schedule.devices))
    devices = [_Device(schedule, device, programs[device]) for device in range(schedule.devices)]
    moved = True
    while moved:
        moved = False
        for device in devices:
            while device.step(devices):
                moved = True
    waiting = [device for device in devices if device.current is not None]
    if waiting:
        raise InputError(f"schedule {schedule.name}: deadlock: " + "; ".join(device.complaint() for device in waiting))
    for device in devices:
        device.check_complete()


class _Device:
    """A device's position in its list, and the tokens that its neighbours have left for it."""

    def __init__(self, schedule: Schedule, number: int, program: Iterator[Action]) -> None:
        self.schedule = schedule
        self.number = number
        self.from_left: collections.deque[int] = collections.deque()
        self.from_right: collections.deque[int] = collections.deque()
        self.done: dict[Kind, set[int]] = {kind: set() for kind in Kind}
        self.version = 0
        self._actions = program
        self.current = next(self._actions, None)

    def step(self, devices: list[_Device]) -> bool:
        """Do the current action if its message is there; whether it was done."""
        action = self.current
        if action is None:
            return False
        left = devices[self.number - 1] if self.number else None
        right = devices[self.number + 1] if self.number + 1 < len(devices) else None
        if action.kind is Kind.FORWARD:
            if left is not None and not self._take(self.from_left, action):
                return False
            if right is not None:
                right.from_left.append(action.index)
        elif action.kind is Kind.BACKWARD:
            if right is not None and not self._take(self.from_right, action):
                return False
            if left is not None:
                left.from_right.append(action.index)
        self._check(action)
        self.done[action.kind].add(action.index)
        self.current = next(self._actions, None)
        return True

    def _take(self, tokens: collections.deque[int], action: Action) -> bool:
        if not tokens:
            return False
        if tokens[0] != action.index:
            self._fail(action, f"the neighbour's next message is of micro-batch {tokens[0]}")
        tokens.popleft()
        return True

    def _check(self, action: Action) -> None:
        kind, index = action.kind, action.index
        if index in self.done[kind]:
            self._fail(action, "was done before")
        if kind is Kind.BACKWARD and index not in self.done[Kind.FORWARD]:
            self._fail(action, f"comes before F{index}")
        if kind is Kind.GRADIENT and index not in self.done[Kind.BACKWARD]:
            self._fail(action, f"comes before B{index}")
        step = self.schedule.micro_batches[index].step if kind is Kind.GRADIENT else self.version
        if step != self.version:
            self._fail(action, f"is of step {step}, but {self.version} updates are done")
        if kind is Kind.UPDATE:
            self._check_update(action)
        elif kind is not Kind.GRADIENT and action.version != self.version:
            self._fail(action, f"needs version {action.version} of the weights; the device has {self.version}")

    def _check_update(self, action: Action) -> None:
        missing = [
            mb.index
            for mb in self.schedule.micro_batches
            if mb.step == self.version and mb.index not in self.done[Kind.GRADIENT]
        ]
        if action.index != self.version + 1:
            self._fail(action, f"must be U{self.version + 1}")
        if missing:
            self._fail(action, f"comes before W{missing[0]}")
        self.version += 1

    def check_complete(self) -> None:
        """Every micro-batch forward, backward and in a gradient, every step updated."""
        for mb in self.schedule.micro_batches:
            for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.GRADIENT):
                if mb.index not in self.done[kind]:
                    raise InputError(f"{self._name()} never does {kind.value}{mb.index}")
        if self.version != self.schedule.steps:
            raise InputError(f"{self._name()} makes {self.version} updates of {self.schedule.steps}")
        if self.from_left or self.from_right:
            raise InputError(f"{self._name()} leaves messages unread")

    def complaint(self) -> str:
        """What the device waits for."""
        side = "left" if self.current and self.current.kind is Kind.FORWARD else "right"
        return f"device {self.number} waits at {self.current} for its {side} neighbour"

    def _fail(self, action: Action, why: str) -> None:
        raise InputError(f"{self._name()}: {action} {why}")

    def _name(self) -> str:
        return f"schedule {self.schedule.name}: device {self.number}"
