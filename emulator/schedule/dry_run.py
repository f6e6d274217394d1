"""The dry run: a schedule carried out with tokens instead of numbers, before anything starts.

It finds what would hang or go wrong: an action whose message never comes, messages in an order that the receiver does
not expect, a sample left out or done twice, weights of a version that the device does not have.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator

from ..common.errors import InputError
from .action import Action, Kind, Portion, Schedule

_BEFORE = {Kind.BACKWARD: Kind.FORWARD, Kind.GRADIENT: Kind.BACKWARD}


def dry_run(schedule: Schedule, loans: Iterable[tuple[int, int]] = ()) -> None:
    """Check a schedule; `loans` says which devices use parameters that others store: (user, store).

    The update of the one waits for that of the other, which waits for the gradients.

    Raises:
        InputError: what would go wrong, on which device, at which action.
    """
    programs = schedule.programs(range(schedule.devices))
    devices = [_Device(schedule, device, programs[device]) for device in range(schedule.devices)]
    for user, store in loans:
        devices[user].stores.append(devices[store])
        devices[store].users.append(devices[user])
    awake = collections.deque(devices)
    while awake:
        device = awake.popleft()
        device.waits = False
        while device.step(devices, awake):
            pass
        device.waits = device.current is not None
    waiting = [device for device in devices if device.waits]
    if waiting:
        raise InputError(f"schedule {schedule.name}: deadlock: " + "; ".join(device.complaint() for device in waiting))
    for device in devices:
        device.check_complete()


class _Device:
    """A device's position in its list, and the tokens that its neighbours have left for it: portions."""

    def __init__(self, schedule: Schedule, number: int, program: Iterator[Action]) -> None:
        self.schedule = schedule
        self.number = number
        self.from_left: collections.deque[Portion] = collections.deque()
        self.from_right: collections.deque[Portion] = collections.deque()
        self.done: dict[tuple[Kind, int], int] = collections.defaultdict(int)  # samples of a micro-batch
        self.stores: list[_Device] = []
        self.users: list[_Device] = []
        self.version = 0
        self.waits = False
        self._actions = program
        self.current = next(self._actions, None)

    def step(self, devices: list[_Device], awake: collections.deque[_Device]) -> bool:
        """Do the current action if its message is there, and wake a neighbour that waits for what it sends.

        Returns whether it was done.
        """
        action = self.current
        if action is None:
            return False
        if action.kind is Kind.UPDATE:
            if self._lenders() or self._borrowers():
                return False
            self._update(action)
        else:
            portion = self.schedule.micro_batches[action.index].portion(action)
            forward, backward = action.kind is Kind.FORWARD, action.kind is Kind.BACKWARD
            left = devices[self.number - 1] if self.number else None
            right = devices[self.number + 1] if self.number + 1 < len(devices) else None
            if forward and left is not None and not self._take(self.from_left, action, portion):
                return False
            if backward and right is not None and not self._take(self.from_right, action, portion):
                return False
            if forward and right is not None:
                right.from_left.append(portion)
                right.wake(awake)
            if backward and left is not None:
                left.from_right.append(portion)
                left.wake(awake)
            self._compute(action, portion)
        for other in (*self.stores, *self.users):
            other.wake(awake)
        self.current = next(self._actions, None)
        return True

    def _lenders(self) -> list[int]:
        """The devices whose new weights are not here yet."""
        return [store.number for store in self.stores if store.version <= self.version]

    def _borrowers(self) -> list[int]:
        """The devices whose gradients are not all here yet."""
        return [user.number for user in self.users if user.missing_gradients(self.version)]

    def missing_gradients(self, step: int) -> list[int]:
        """The micro-batches of a step whose W is not done."""
        return [
            mb.index for mb in self.schedule.micro_batches if mb.step == step and not self.done[Kind.GRADIENT, mb.index]
        ]

    def wake(self, awake: collections.deque[_Device]) -> None:
        """Let it look again, if it waits."""
        if self.waits:
            self.waits = False
            awake.append(self)

    def _take(self, tokens: collections.deque[Portion], action: Action, portion: Portion) -> bool:
        """Take as many samples as the action needs, if they are there, in order."""
        first = portion.begin
        for taken, token in enumerate(tokens):
            if (token.of, token.begin) != (portion.of, first):
                where = "" if token.is_whole else f", from its sample {token.begin}"
                self._fail(action, f"the neighbour's next message is of micro-batch {token.of.index}{where}")
            first = token.end
            if first >= portion.end:
                for _ in range(taken + 1):
                    tokens.popleft()
                if first > portion.end:
                    tokens.appendleft(Portion(portion.of, portion.end, first))
                return True
        return False

    def _compute(self, action: Action, portion: Portion) -> None:
        kind, index = action.kind, action.index
        if self.done[kind, index] > portion.begin:
            self._fail(action, "was done before")
        if self.done[kind, index] < portion.begin:
            self._fail(action, f"leaves out samples from {self.done[kind, index]} on")
        before = _BEFORE.get(kind)
        if before is not None and self.done[before, index] < portion.end:
            self._fail(action, f"comes before {before.value}{index}")
        step = portion.of.step if kind is Kind.GRADIENT else self.version
        if step != self.version:
            self._fail(action, f"is of step {step}, but {self.version} updates are done")
        if kind is not Kind.GRADIENT and action.version != self.version:
            self._fail(action, f"needs version {action.version} of the weights; the device has {self.version}")
        self.done[kind, index] = portion.end

    def _update(self, action: Action) -> None:
        missing = self.missing_gradients(self.version)
        if action.index <= self.version:
            self._fail(action, "was done before")
        if action.index != self.version + 1:
            self._fail(action, f"must be U{self.version + 1}")
        if missing:
            self._fail(action, f"comes before W{missing[0]}")
        self.version += 1

    def check_complete(self) -> None:
        """Every micro-batch forward, backward and in a gradient, every step updated."""
        for mb in self.schedule.micro_batches:
            for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.GRADIENT):
                if self.done[kind, mb.index] < mb.samples:
                    raise InputError(f"{self._name()} never does {kind.value}{mb.index}")
        if self.version != self.schedule.steps:
            raise InputError(f"{self._name()} makes {self.version} updates of {self.schedule.steps}")
        if self.from_left or self.from_right:
            raise InputError(f"{self._name()} leaves messages unread")

    def complaint(self) -> str:
        """What the device waits for."""
        if self.current is not None and self.current.kind is Kind.UPDATE:
            whom = ", ".join(map(str, self._borrowers() or self._lenders()))
            what = "gradients" if self._borrowers() else "weights"
            return f"device {self.number} waits at {self.current} for {what} from device {whom}"
        side = "left" if self.current and self.current.kind is Kind.FORWARD else "right"
        return f"device {self.number} waits at {self.current} for its {side} neighbour"

    def _fail(self, action: Action, why: str) -> None:
        raise InputError(f"{self._name()}: {action} {why}")

    def _name(self) -> str:
        return f"schedule {self.schedule.name}: device {self.number}"
