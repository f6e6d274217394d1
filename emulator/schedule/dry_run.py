"""The dry run: a schedule carried out with tokens instead of numbers, before anything starts.

It finds what would hang or go wrong: an action whose message never comes, messages in an order that the receiver does
not expect, a sample left out or done twice, weights of a version that does not exist yet or was freed.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator

from ..common import InputError
from .action import Action, Kind, SampleSpan, Schedule
from .versions import VersionedAction, with_versions

_BEFORE = {Kind.BACKWARD: Kind.FORWARD, Kind.GRADIENT: Kind.BACKWARD}


def dry_run(schedule: Schedule, stores: Iterable[tuple[int, int]] = ()) -> None:
    """Check a schedule.

    Args:
        schedule: the schedule to check.
        stores: pairs of devices (user, store), of which the first uses parameters that the second stores: the user's
            update waits for the store's, which waits for the gradients.

    Raises:
        InputError: what would go wrong, on which device, at which action.
    """
    programs = schedule.programs(range(schedule.devices))
    devices = [_Device(schedule, device, programs[device]) for device in range(schedule.devices)]
    for user, store in stores:
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
    """A device's position in its list, its versions, and the spans of samples that its neighbours have sent it."""

    def __init__(self, schedule: Schedule, number: int, program: Iterator[Action]) -> None:
        self.schedule = schedule
        self.number = number
        self.from_left: collections.deque[SampleSpan] = collections.deque()
        self.from_right: collections.deque[SampleSpan] = collections.deque()
        self.done: dict[tuple[Kind, int], int] = collections.defaultdict(int)  # samples of a micro-batch
        self.stores: list[_Device] = []
        self.users: list[_Device] = []
        self.version = 0
        self.waits = False
        self._versions = {0}
        self._used: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)  # (end of span, version) of F
        self._actions = with_versions(program)
        self.current = next(self._actions, None)

    def step(self, devices: list[_Device], awake: collections.deque[_Device]) -> bool:
        """Do the current action if its message is there, and wake a neighbour that waits for what it sends.

        Return whether it was done.
        """
        if self.current is None:
            return False
        action = self.current.action
        if action.kind is Kind.UPDATE:
            if self._late_stores() or self._late_users():
                return False
            self._update(action)
        else:
            span = self.schedule.micro_batches[action.index].span_of(action)
            forward, backward = action.kind is Kind.FORWARD, action.kind is Kind.BACKWARD
            left = devices[self.number - 1] if self.number else None
            right = devices[self.number + 1] if self.number + 1 < len(devices) else None
            if forward and left is not None and not self._take(self.from_left, action, span):
                return False
            if backward and right is not None and not self._take(self.from_right, action, span):
                return False
            if forward and right is not None:
                right.from_left.append(span)
                right.wake(awake)
            if backward and left is not None:
                left.from_right.append(span)
                left.wake(awake)
            self._compute(action, span)
        self._free(self.current)
        for other in (*self.stores, *self.users):
            other.wake(awake)
        self.current = next(self._actions, None)
        return True

    def _late_stores(self) -> list[int]:
        """Return the devices whose new weights have not arrived yet."""
        return [store.number for store in self.stores if store.version <= self.version]

    def _late_users(self) -> list[int]:
        """Return the devices whose gradients have not all arrived yet."""
        return [user.number for user in self.users if user.missing_gradients(self.version)]

    def missing_gradients(self, step: int) -> list[int]:
        """Return the micro-batches of a step whose W is not done."""
        return [
            mb.index for mb in self.schedule.micro_batches if mb.step == step and not self.done[Kind.GRADIENT, mb.index]
        ]

    def wake(self, awake: collections.deque[_Device]) -> None:
        """Let the device try again, if it waits."""
        if self.waits:
            self.waits = False
            awake.append(self)

    def _take(self, tokens: collections.deque[SampleSpan], action: Action, span: SampleSpan) -> bool:
        """Take the samples that the action needs, in order; return whether all have arrived."""
        first = span.begin
        for taken, token in enumerate(tokens):
            if (token.of, token.begin) != (span.of, first):
                where = "" if token.is_whole else f", from its sample {token.begin}"
                self._fail(action, f"the neighbour's next message is of micro-batch {token.of.index}{where}")
            first = token.end
            if first >= span.end:
                for _ in range(taken + 1):
                    tokens.popleft()
                if first > span.end:
                    tokens.appendleft(SampleSpan(span.of, span.end, first))
                return True
        return False

    def _compute(self, action: Action, span: SampleSpan) -> None:
        kind, index = action.kind, action.index
        if self.done[kind, index] > span.begin:
            self._fail(action, "is done twice")
        if self.done[kind, index] < span.begin:
            self._fail(action, f"leaves out samples from {self.done[kind, index]} on")
        before = _BEFORE.get(kind)
        if before is not None and self.done[before, index] < span.end:
            self._fail(action, f"comes before {before.value}{index}")
        step = span.of.step if kind is Kind.GRADIENT else self.version
        if step != self.version:
            self._fail(action, f"is of step {step}, but {self.version} updates are done")
        self._check_version(action, span)
        self.done[kind, index] = span.end

    def _check_version(self, action: Action, span: SampleSpan) -> None:
        version = action.version
        if version is None:
            if action.kind is not Kind.GRADIENT:
                self._fail(action, "names no version of the weights")
            return
        if action.kind is Kind.FORWARD:
            self._used[action.index].append((span.end, version))
        if version == self.version:
            return
        if version > self.version:
            self._fail(action, f"needs version {version} of the weights; the device has {self.version}")
        if version not in self._versions:
            self._fail(action, f"needs version {version} of the weights, which was freed after its last use")
        # F takes samples in order, and versions that do not descend.
        of_forward = next(used for end, used in self._used[action.index] if end >= span.end)
        if version < of_forward:
            self._fail(action, f"uses version {version} of the weights, older than version {of_forward} of its F")

    def _update(self, action: Action) -> None:
        missing = self.missing_gradients(self.version)
        if action.index <= self.version:
            self._fail(action, "is done twice")
        if action.index != self.version + 1:
            self._fail(action, f"must be U{self.version + 1}")
        if missing:
            self._fail(action, f"comes before W{missing[0]}")
        self.version += 1
        self._versions.add(self.version)

    def _free(self, done: VersionedAction) -> None:
        if done.action.kind is Kind.UPDATE and not done.keeps:
            self._versions.discard(self.version - 1)
        self._versions.difference_update(done.frees)

    def check_complete(self) -> None:
        """Check that every micro-batch went forward, backward and into a gradient, and that every step updated."""
        for mb in self.schedule.micro_batches:
            for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.GRADIENT):
                if self.done[kind, mb.index] < mb.samples:
                    raise InputError(f"{self._name()} never does {kind.value}{mb.index}")
        if self.version != self.schedule.steps:
            raise InputError(f"{self._name()} makes {self.version} updates of {self.schedule.steps}")
        if self.from_left or self.from_right:
            raise InputError(f"{self._name()} leaves messages unread")

    def complaint(self) -> str:
        """Return a phrase that says what the device waits for."""
        assert self.current is not None
        action = self.current.action
        if action.kind is Kind.UPDATE:
            whom = ", ".join(map(str, self._late_users() or self._late_stores()))
            what = "gradients" if self._late_users() else "weights"
            return f"device {self.number} waits at {action} for {what} from device {whom}"
        side = "left" if action.kind is Kind.FORWARD else "right"
        return f"device {self.number} waits at {action} for its {side} neighbour"

    def _fail(self, action: Action, why: str) -> None:
        raise InputError(f"{self._name()}: {action} {why}")

    def _name(self) -> str:
        return f"schedule {self.schedule.name}: device {self.number}"
