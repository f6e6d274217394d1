"""The dry run: a schedule carried out with tokens instead of numbers, before anything starts.

It finds what would hang or go wrong: an action whose message never comes, messages in an order that the receiver does
not expect, a sample left out or done twice, weights of a version that does not exist yet or was freed.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from ..common import InputError
from .action import Action, Kind, MicroBatch, Schedule
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
    of_step: list[list[int]] = [[] for _ in range(schedule.steps)]
    for micro_batch in schedule.micro_batches:
        of_step[micro_batch.step].append(micro_batch.index)
    devices = [_Device(schedule, of_step, device, programs[device]) for device in range(schedule.devices)]
    for left, right in itertools.pairwise(devices):
        left.right, right.left = right, left
    for user, store in stores:
        devices[user].stores.append(devices[store])
        devices[store].users.append(devices[user])
    awake = collections.deque(devices)
    while awake:
        device = awake.popleft()
        device.waits = False
        while device.step(awake):
            pass
        device.waits = device.current is not None
    waiting = [device for device in devices if device.waits]
    if waiting:
        raise InputError(f"schedule {schedule.name}: deadlock: " + "; ".join(device.complaint() for device in waiting))
    for device in devices:
        device.check_complete()


class _Messages:
    """The samples that a neighbour has sent and the device has not taken yet, in the order sent."""

    def __init__(self) -> None:
        self.spans: collections.deque[tuple[int, int, int]] = collections.deque()
        """Micro-batch, begin and end; spans that follow on one another in a micro-batch are one."""

    def send(self, index: int, begin: int, end: int) -> None:
        """Add a span of a micro-batch."""
        if self.spans:
            of, first, last = self.spans[-1]
            if of == index and last == begin:
                self.spans[-1] = of, first, end
                return
        self.spans.append((index, begin, end))

    def take(self, index: int, begin: int, end: int) -> bool:
        """Take a span of a micro-batch, and return whether all of it has arrived; otherwise take nothing.

        Raises:
            LookupError: the next message is of other samples; with a phrase that says of which.
        """
        if not self.spans:
            return False
        of, first, last = self.spans[0]
        if of == index and first == begin:
            if last > end:
                self.spans[0] = of, end, last
            elif last == end:
                self.spans.popleft()
            elif len(self.spans) == 1:
                return False
            else:
                of, first, _ = self.spans[1]
            if last >= end:
                return True
        raise LookupError(f"micro-batch {of}" + (f", from its sample {first}" if first else ""))


class _Device:
    """A device's position in its list, its versions, and the samples that its neighbours have sent it."""

    def __init__(
        self, schedule: Schedule, of_step: Sequence[Sequence[int]], number: int, program: Iterator[Action]
    ) -> None:
        self.schedule = schedule
        self.number = number
        self.left: _Device | None = None
        self.right: _Device | None = None
        self.from_left, self.from_right = _Messages(), _Messages()
        self.stores: list[_Device] = []
        self.users: list[_Device] = []
        self.version = 0
        self.waits = False
        self._micro_batches = schedule.micro_batches
        self._of_step = of_step
        kinds = (Kind.FORWARD, Kind.BACKWARD, Kind.GRADIENT)
        self._done = {kind: [0] * len(schedule.micro_batches) for kind in kinds}  # samples of each micro-batch
        self._versions = {0}
        self._used: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)  # (end of span, version) of F
        self._actions = with_versions(program)
        self.current = next(self._actions, None)

    def step(self, awake: collections.deque[_Device]) -> bool:
        """Do the current action if its message is there, and wake a neighbour that waits for what it sends.

        Return whether it was done.
        """
        if self.current is None:
            return False
        action = self.current.action
        kind = action.kind
        if action.chunk:
            self._fail(action, f"is of chunk {action.chunk}, but the chain has one stage on each device")
        if kind is Kind.UPDATE:
            if self._late_stores() or self._late_users():
                return False
            self._update(action)
        else:
            micro_batch = self._micro_batches[action.index]
            begin, end = action.span or (0, micro_batch.samples)
            if kind is Kind.FORWARD:
                if self.left is not None and not self._take(self.from_left, action, begin, end):
                    return False
                if self.right is not None:
                    self.right.from_left.send(action.index, begin, end)
                    self.right.wake(awake)
            elif kind is Kind.BACKWARD:
                if self.right is not None and not self._take(self.from_right, action, begin, end):
                    return False
                if self.left is not None:
                    self.left.from_right.send(action.index, begin, end)
                    self.left.wake(awake)
            self._compute(action, micro_batch, begin, end)
        self._free(self.current)
        if self.stores or self.users:
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
        done = self._done[Kind.GRADIENT]
        return [index for index in self._of_step[step] if not done[index]] if step < len(self._of_step) else []

    def wake(self, awake: collections.deque[_Device]) -> None:
        """Let the device try again, if it waits."""
        if self.waits:
            self.waits = False
            awake.append(self)

    def _take(self, messages: _Messages, action: Action, begin: int, end: int) -> bool:
        """Take the samples that the action needs, in order; return whether all have arrived."""
        try:
            return messages.take(action.index, begin, end)
        except LookupError as error:
            self._fail(action, f"the neighbour's next message is of {error}")

    def _compute(self, action: Action, of: MicroBatch, begin: int, end: int) -> None:
        kind, index = action.kind, action.index
        done = self._done[kind]
        if done[index] > begin:
            self._fail(action, "is done twice")
        if done[index] < begin:
            self._fail(action, f"leaves out samples from {done[index]} on")
        before = _BEFORE.get(kind)
        if before is not None and self._done[before][index] < end:
            self._fail(action, f"comes before {before.value}{index}")
        if kind is Kind.GRADIENT and of.step != self.version:
            self._fail(action, f"is of step {of.step}, but {self.version} updates are done")
        self._check_version(action, end)
        done[index] = end

    def _check_version(self, action: Action, end: int) -> None:
        version = action.version
        if version is None:
            if action.kind is not Kind.GRADIENT:
                self._fail(action, "names no version of the weights")
            return
        if action.kind is Kind.FORWARD:
            self._used[action.index].append((end, version))
        if version == self.version:
            return
        if version > self.version:
            self._fail(action, f"needs version {version} of the weights; the device has {self.version}")
        if version not in self._versions:
            self._fail(action, f"needs version {version} of the weights, which was freed after its last use")
        # F takes samples in order, and versions that do not descend.
        of_forward = next(used for of_end, used in self._used[action.index] if of_end >= end)
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
        if done.frees:
            self._versions.difference_update(done.frees)

    def check_complete(self) -> None:
        """Check that every micro-batch went forward, backward and into a gradient, and that every step updated."""
        for mb in self._micro_batches:
            for kind, done in self._done.items():
                if done[mb.index] < mb.samples:
                    raise InputError(f"{self._name()} never does {kind.value}{mb.index}")
        if self.version != self.schedule.steps:
            raise InputError(f"{self._name()} makes {self.version} updates of {self.schedule.steps}")
        if self.from_left.spans or self.from_right.spans:
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

    def _fail(self, action: Action, why: str) -> NoReturn:
        raise InputError(f"{self._name()}: {action} {why}")

    def _name(self) -> str:
        return f"schedule {self.schedule.name}: device {self.number}"
