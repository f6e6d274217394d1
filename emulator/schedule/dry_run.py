"""The dry run: a schedule carried out with tokens instead of numbers, before anything starts.

It finds what would hang or go wrong: an action whose message never comes, messages in an order that
the receiver does not expect, a sample left out or done twice, weights of a version that does not
exist yet or was freed.

Messages carry the numbers of samples in place of maps.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from ..common import InputError
from .action import MICRO_BATCH_KINDS, MOVES, PASSES, Action, Kind, MicroBatch, Schedule
from .versions import VersionedAction, with_versions


class Messages:
    """The samples that a stage's neighbour has sent and the stage has not taken yet, in the order
    sent.
    """

    def __init__(self) -> None:
        self.spans: collections.deque[tuple[int, int, int]] = collections.deque()
        """Micro-batch, begin and end; spans that follow on one another in a micro-batch are one."""

    def send(self, index: int, begin: int, end: int) -> None:
        """Add a span of a micro-batch."""
        if self.spans:
            held, first, last = self.spans[-1]
            if held == index and last == begin:
                self.spans[-1] = held, first, end
                return
        self.spans.append((index, begin, end))

    def take(self, index: int, begin: int, end: int) -> bool:
        """Take a span of a micro-batch, and return whether all of it has arrived; otherwise take
        nothing.

        Raises:
            LookupError: the next message is of other samples; with a phrase that says of which.
        """
        if not self.spans:
            return False
        held, first, last = self.spans[0]
        if held == index and first == begin:
            if last > end:
                self.spans[0] = held, end, last
            elif last == end:
                self.spans.popleft()
            elif len(self.spans) == 1:
                return False
            else:
                held, first, _ = self.spans[1]
            if last >= end:
                return True
        raise LookupError(f"micro-batch {held}" + (f", from its sample {first}" if first else ""))


class Stage:
    """A stage of a device, with a queue of messages from each neighbour.

    What is wrong is raised as a LookupError, with a phrase that follows the name of the action.
    """

    def __init__(self, number: int, device: int, micro_batches: Sequence[MicroBatch]) -> None:
        self.number, self.device = number, device
        self.left: Stage | None = None
        self.right: Stage | None = None
        self.messages = {Kind.FORWARD: Messages(), Kind.BACKWARD: Messages()}
        self._micro_batches = micro_batches
        self._done = {
            kind: [0] * len(micro_batches) for kind in MICRO_BATCH_KINDS
        }  # samples of each micro-batch
        self._used: dict[int, list[tuple[int, int]]] = collections.defaultdict(
            list
        )  # (end of span, version) of F
        self._recomputed = set[int]()  # micro-batches whose F kept nothing

    def source(self, kind: Kind) -> Stage | None:
        """Return the stage whose message an action of this kind needs."""
        return self._neighbours(kind)[0]

    def _neighbours(self, kind: Kind) -> tuple[Stage | None, Stage | None]:
        """Return the stage whose message an action needs, and the one that gets what it makes."""
        if kind is Kind.FORWARD:
            return self.left, self.right
        return (self.right, self.left) if kind is Kind.BACKWARD else (None, None)

    def step(self, action: Action) -> tuple[bool, Stage | None]:
        """Do an action if its message is there; return whether it was, and the stage that gets what
        it makes.
        """
        kind, index = action.kind, action.index
        begin, end = action.span or (0, self._micro_batches[index].samples)
        if self._done[kind][index] > begin:
            raise LookupError("is done twice")
        self._check_recomputed(action)
        self._check_moved(action)
        source, to = self._neighbours(kind)
        if source is not None:
            try:
                if not self.messages[kind].take(index, begin, end):
                    return False, None
            except LookupError as error:
                why = (
                    f"does not follow the order of its neighbour, whose next message is of {error}"
                )
                raise LookupError(why) from None
        if to is not None:
            to.messages[kind].send(index, begin, end)
        self._compute(action, begin, end)
        return True, to

    def _check_recomputed(self, action: Action) -> None:
        """Check that an R is of a whole micro-batch whose F keeps nothing, ahead of its B."""
        kind, index = action.kind, action.index
        if kind is Kind.FORWARD and action.recomputed:
            if action.span is not None:
                raise LookupError("is a part of a micro-batch, which no R can compute again")
            self._recomputed.add(index)
        elif kind is Kind.RECOMPUTE:
            if action.span is not None:
                raise LookupError("is a part of a micro-batch; R does whole ones")
            if self._done[Kind.FORWARD][index] and index not in self._recomputed:
                raise LookupError("has nothing to do: its F keeps all features")
            if self._done[Kind.BACKWARD][index]:
                raise LookupError(f"comes after B{index}")
        awaits = kind is Kind.BACKWARD and index in self._recomputed
        if awaits and not self._done[Kind.RECOMPUTE][index]:
            raise LookupError(f"comes before R{index}")

    def _check_moved(self, action: Action) -> None:
        """Check that O and L are of a whole micro-batch that keeps its features, ahead of its B."""
        kind, index, done = action.kind, action.index, self._done
        if kind in MOVES:
            if action.span is not None:
                raise LookupError(f"is a part of a micro-batch; {kind.value} does whole ones")
            if index in self._recomputed:
                raise LookupError(f"has nothing to move: R{index} computes the features again")
            if done[Kind.BACKWARD][index]:
                raise LookupError(f"comes after B{index}")
        elif kind is Kind.BACKWARD and done[Kind.OFFLOAD][index] > done[Kind.LOAD][index]:
            raise LookupError(f"comes before L{index}")

    def _compute(self, action: Action, begin: int, end: int) -> None:
        """Note the samples of an action, which must follow on those done and have been through the
        kind before.
        """
        index, done = action.index, self._done[action.kind]
        if done[index] < begin:
            raise LookupError(f"leaves out samples from {done[index]} on")
        before = action.kind.before
        if before is not None and self._done[before][index] < end:
            raise LookupError(f"comes before {before.value}{index}")
        done[index] = end
        if action.kind is Kind.FORWARD and action.version is not None:
            self._used[index].append((end, action.version))

    def version_of_forward(self, action: Action) -> int:
        """Return the version that F of an action's last sample used."""
        _, end = self._samples(action)
        # Spans of F are in order: the first that reaches this sample has it.
        return next(version for of_end, version in self._used[action.index] if of_end >= end)

    def lacks(self, kind: Kind, index: int) -> bool:
        """Return whether samples of a micro-batch are still to be done."""
        return self._done[kind][index] < self._micro_batches[index].samples

    def _samples(self, action: Action) -> tuple[int, int]:
        return action.span or (0, self._micro_batches[action.index].samples)


def dry_run(
    schedule: Schedule,
    stores: Iterable[tuple[int, int]] = (),
    tied: Iterable[tuple[int, int]] = (),
    *,
    aligned: bool = False,
) -> None:
    """Check a schedule.

    Args:
        schedule: the schedule to check.
        stores: pairs of devices (user, store), of which the first uses parameters that the second
            stores: the user's update waits for the store's, which waits for the gradients.
        tied: pairs of devices, of which the first's update waits for gradients of the second, with
            weights tied to its own.
        aligned: whether F, B and W of a sample must use the same version. Otherwise B and W may use
            a newer one than F.

    Raises:
        InputError: what would go wrong, on which device, at which action.
    """
    programs = schedule.programs(range(schedule.devices))
    of_step: list[list[int]] = [[] for _ in range(schedule.steps)]
    for micro_batch in schedule.micro_batches:
        of_step[micro_batch.step].append(micro_batch.index)
    fold = schedule.fold
    stages = [
        Stage(number, fold.device(number), schedule.micro_batches) for number in range(fold.count)
    ]
    for left, right in itertools.pairwise(stages):
        left.right, right.left = right, left
    devices = []
    for device_number, program in programs.items():
        held = [stages[stage] for stage in fold.stages(device_number)]
        devices.append(_Device(schedule, held, of_step, program, aligned))
    for user, store in stores:
        devices[user].stores.append(devices[store])
        devices[store].users.append(devices[user])
    for waiting, other in tied:
        # `users` are those for whose gradients an update waits: here for the other holder's.
        devices[waiting].users.append(devices[other])
        devices[other].awaited_by.append(devices[waiting])
    awake = collections.deque(devices)
    while awake:
        device = awake.popleft()
        device.waits = False
        while (concerned := device.step()) is not None:
            for number in concerned:
                # Only those that wait are put there, so that each stands in `awake` once.
                if devices[number].waits:
                    devices[number].waits = False
                    awake.append(devices[number])
        device.waits = device.current is not None
    stuck = [device for device in devices if device.waits]
    if stuck:
        raise InputError(
            f"schedule {schedule.name}: deadlock: "
            + "; ".join(device.complaint() for device in stuck)
        )
    for device in devices:
        device.check_complete()


def check_complete(schedule: Schedule) -> None:
    """Check that each device has F, B and W of every micro-batch on each of its stages; all
    programs are read.

    Raises:
        InputError: the first action that is missing, and its device.
    """
    for device, program in schedule.programs(range(schedule.devices)).items():
        done = {(action.kind, action.index, action.chunk) for action in program}
        for micro_batch, chunk, kind in itertools.product(
            schedule.micro_batches, range(schedule.chunks), PASSES
        ):
            if (kind, micro_batch.index, chunk) not in done:
                missing = Action(kind, micro_batch.index, chunk=chunk)
                raise InputError(f"schedule {schedule.name}: device {device}: never does {missing}")


class _Device:
    """A device's position in its list, its stages, and the versions of its weights."""

    def __init__(
        self,
        schedule: Schedule,
        stages: Sequence[Stage],
        of_step: Sequence[Sequence[int]],
        program: Iterator[Action],
        aligned: bool,
    ) -> None:
        self.schedule = schedule
        self.number = stages[0].device
        self.stores: list[_Device] = []
        self.users: list[_Device] = []
        self.awaited_by: list[_Device] = []
        self.version = 0
        self.waits = False
        self._stages, self._of_step, self._aligned = stages, of_step, aligned
        self._versions = {0}
        self._actions = with_versions(program)
        self.current = next(self._actions, None)

    def step(self) -> Sequence[int] | None:
        """Do the current action, if what it waits for is there.

        Return the devices that may have waited for it; None if it was not done.
        """
        if self.current is None:
            return None
        action, to = self.current.action, None
        if action.kind is Kind.UPDATE:
            if self._late_stores() or self._late_users():
                return None
            self._update(action)
        else:
            stage = (
                self._stages[action.chunk]
                if action.chunk < len(self._stages)
                else self._no_stage(action)
            )
            try:
                is_done, to = stage.step(action)
            except LookupError as error:
                self._fail(action, str(error))
            if not is_done:
                return None
            self._check_version(action, stage)
        self._free(self.current)
        self.current = next(self._actions, None)
        if not (self.stores or self.users):
            return () if to is None else (to.device,)
        concerned = [] if to is None else [to.device]
        return concerned + [other.number for other in (*self.stores, *self.users, *self.awaited_by)]

    def _no_stage(self, action: Action) -> NoReturn:
        count = len(self._stages)
        has = "the chain has one stage" if count == 1 else f"there are {count} stages"
        self._fail(action, f"is of chunk {action.chunk}, but {has} on each device")

    def _late_stores(self) -> list[int]:
        """Return the devices whose new weights have not arrived yet."""
        return [store.number for store in self.stores if store.version <= self.version]

    def _late_users(self) -> list[int]:
        """Return the devices whose gradients have not all arrived yet."""
        return [user.number for user in self.users if user.missing_gradients(self.version)]

    def missing_gradients(self, step: int) -> list[Action]:
        """Return the W of a step that are not done."""
        indices = self._of_step[step] if step < len(self._of_step) else []
        return self._missing(Kind.GRADIENT, indices)

    def _missing(self, kind: Kind, indices: Iterable[int]) -> list[Action]:
        return [
            Action(kind, index, chunk=chunk)
            for index in indices
            for chunk, stage in enumerate(self._stages)
            if stage.lacks(kind, index)
        ]

    def _check_version(self, action: Action, stage: Stage) -> None:
        version, step = action.version, self.schedule.micro_batches[action.index].step
        if action.kind is Kind.GRADIENT and step != self.version:
            self._fail(action, f"is of step {step}, but {self.version} updates are done")
        if version is None:
            if action.kind is not Kind.GRADIENT and action.kind not in MOVES:
                self._fail(action, "names no version of the weights")
            return
        if version > self.version:
            self._fail(
                action, f"needs version {version} of the weights; the device has {self.version}"
            )
        if version not in self._versions:
            self._fail(
                action,
                f"needs version {version} of the weights, which was freed after its last use",
            )
        if action.kind is Kind.FORWARD:
            return
        aligned = self._aligned or action.kind is Kind.RECOMPUTE
        if version == self.version and not aligned:
            return
        of_forward = stage.version_of_forward(action)
        if version < of_forward:
            self._fail(
                action,
                f"uses version {version} of the weights, older than version {of_forward} of its F",
            )
        if aligned and version > of_forward:
            self._fail(
                action,
                f"uses version {version} of the weights, newer than version {of_forward} of its F",
            )

    def _update(self, action: Action) -> None:
        missing = self.missing_gradients(self.version)
        if action.index <= self.version:
            self._fail(action, "is done twice")
        if action.index != self.version + 1:
            self._fail(action, f"must be U{self.version + 1}")
        if missing:
            self._fail(action, f"comes before {missing[0]}")
        self.version += 1
        self._versions.add(self.version)

    def _free(self, done: VersionedAction) -> None:
        # An update that keeps nothing overwrites the version before it.
        if done.action.kind is Kind.UPDATE and not done.keeps:
            self._versions.discard(self.version - 1)
        if done.frees:
            self._versions.difference_update(done.frees)

    def check_complete(self) -> None:
        """Check that every micro-batch went forward, backward and into a gradient, and that every
        step updated.
        """
        for micro_batch in self.schedule.micro_batches:
            for kind in PASSES:
                for missing in self._missing(kind, [micro_batch.index]):
                    raise InputError(f"{self._name()} never does {missing}")
        if self.version != self.schedule.steps:
            raise InputError(
                f"{self._name()} makes {self.version} updates of {self.schedule.steps}"
            )
        if any(messages.spans for stage in self._stages for messages in stage.messages.values()):
            raise InputError(f"{self._name()} leaves messages unread")

    def complaint(self) -> str:
        """Return a phrase that says what the device waits for."""
        assert self.current is not None
        action = self.current.action
        if action.kind is Kind.UPDATE:
            whom = ", ".join(map(str, self._late_users() or self._late_stores()))
            what = "gradients" if self._late_users() else "weights"
            return f"device {self.number} waits at {action} for {what} from device {whom}"
        source = self._stages[action.chunk].source(action.kind)
        side = "left" if action.kind is Kind.FORWARD else "right"
        whom = f"its {side} neighbour"
        if len(self._stages) > 1 and source is not None:
            whom = f"stage {source.number} on device {source.device}"
        return f"device {self.number} waits at {action} for {whom}"

    def _fail(self, action: Action, why: str) -> NoReturn:
        raise InputError(f"{self._name()}: {action} {why}")

    def _name(self) -> str:
        return f"schedule {self.schedule.name}: device {self.number}"
