"""`fpdeep`, the continuous pipeline with slightly unaligned weights (FPDeep, section 4.4).

The chain is fed micro-batch after micro-batch, one forward, one backward at a time, and each sample
sees weights as late as the staleness of its device says.

`fpdeep` never drains: "the forward propagation of training samples in the next mini-batch follows
using the old parameters until the last training sample is backward propagated". Which samples those
are follows from virtual time; here they are given, as staleness. If a device's version changes
within a micro-batch, it does that micro-batch in spans.
"""

from __future__ import annotations

import collections
import heapq
import math
from collections.abc import Collection, Iterator, Sequence

from ..common import InputError, plural
from .action import Action, Kind, MicroBatch, Schedule, cut_samples
from .kind import ScheduleKind
from .shape import EpochShape, Staleness


def fpdeep(epoch: EpochShape) -> Schedule:
    """Return FPDeep's continuous pipeline for the staleness of each device.

    Reading its programs raises InputError if weights and samples would wait for one another.
    """
    return pipeline("fpdeep", list(epoch.staleness), epoch)


def pipeline(name: str, staleness: Sequence[Staleness], epoch: EpochShape) -> Schedule:
    """Return the schedule in which each device uses weights as late as its staleness says.

    Reading its programs raises InputError if weights and samples would wait for one another.

    Raises:
        InputError: not a staleness for each device, of all samples of a mini-batch.
    """
    wanted = (
        f"should be a Staleness of {plural(epoch.batch, 'sample')} for each of"
        f" {plural(epoch.devices, 'device')}"
    )
    if not isinstance(staleness, Sequence) or len(staleness) != epoch.devices:
        raise InputError(f"schedule {name}: staleness {staleness!r:.80}: {wanted}")
    for device, late in enumerate(staleness):
        if not isinstance(late, Staleness) or len(late.forward) != epoch.batch:
            raise InputError(
                f"schedule {name}: staleness of device {device}, {late!r:.80}: {wanted}"
            )
    micro_batches = cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)

    def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
        chain = _Chain(name, staleness, micro_batches, epoch).actions()
        buffers: dict[int, collections.deque[Action]] = {
            device: collections.deque() for device in devices
        }

        def program(device: int) -> Iterator[Action]:
            while True:
                while not buffers[device]:
                    made = next(chain, None)
                    if made is None:
                        return
                    number, action = made
                    # Actions of devices on other ranks only move the chain on: those ranks generate
                    # them, too.
                    if number in buffers:
                        buffers[number].append(action)
                yield buffers[device].popleft()

        return {device: program(device) for device in devices}

    return Schedule(name, len(staleness), micro_batches, programs)


class _Chain:
    """Devices that take turns: in each round, from left to right, every device does one action, if
    it can do any.

    A device that could do nothing is asked again only after another's progress, so that the cost of
    a schedule is in proportion to its actions. If all devices wait, the bound on micro-batches in
    flight is too low for the staleness that virtual time requires; then it is raised.
    """

    def __init__(
        self,
        name: str,
        staleness: Sequence[Staleness],
        micro_batches: list[MicroBatch],
        epoch: EpochShape,
    ) -> None:
        self._name, self._samples, self._micro_batches = name, epoch.samples, len(micro_batches)
        devices = len(staleness)
        self._devices = [
            # A micro-batch passes N - i devices to the end of the chain, and as many back, until
            # B is done here; where that is too few, `_runs_further_ahead` raises the bound.
            _Device(late, micro_batches, in_flight=2 * (devices - device) + 1)
            for device, late in enumerate(staleness)
        ]
        self._stores: dict[int, list[int]] = collections.defaultdict(list)
        self._users: dict[int, list[int]] = collections.defaultdict(list)
        for user, store in epoch.stores:
            self._stores[user].append(store)
            self._users[store].append(user)
        self._now = 0
        # A turn is the number of its round times that of the devices, and the device: turns are
        # taken in order.
        self._turns = list(range(devices))
        self._awake = set(self._turns)

    def actions(self) -> Iterator[tuple[int, Action]]:
        """Yield devices and their next actions.

        Raises:
            InputError: weights and samples wait for one another.
        """
        devices, turns, awake, count = self._devices, self._turns, self._awake, len(self._devices)
        balanced = self._stores.keys() | self._users.keys()
        while turns or self._runs_further_ahead():
            turn = heapq.heappop(turns)
            awake.remove(turn)
            self._now, number = divmod(turn, count)
            device = devices[number]
            f_here = devices[number - 1].f.samples if number else self._samples
            # B needs the device's own F and the errors of the next one; the last device has its
            # errors from the loss, which follows its F.
            b_here = device.f.samples
            if number + 1 < count:
                b_here = min(b_here, devices[number + 1].b.samples)
            may_update = number not in balanced or self._may_update(number, device.version)
            action = device.next_action(f_here, b_here, may_update=may_update)
            if action is None:
                continue
            # Whom the action may let go on. Devices to the right have their turn in this round yet:
            #     turn        0 1 2 3 | 4 5 6 7     four devices; device 1 has acted, at turn 1
            #     its F wakes     2                 device 2, in this round
            #     its B wakes           4           device 0, in the next
            #     itself                  5
            kind, woken = action.kind, [turn + count]
            if kind is Kind.FORWARD:
                if number + 1 < count:
                    woken.append(turn + 1)
            elif kind is Kind.BACKWARD:
                if number:
                    woken.append(turn + count - 1)
            elif number in balanced:
                others = (self._stores if kind is Kind.GRADIENT else self._users).get(number, ())
                woken += [turn + count + other - number for other in others]
            for woken_device in woken:
                # A turn stands in the heap once, however many actions wake it.
                if woken_device not in awake:
                    awake.add(woken_device)
                    heapq.heappush(turns, woken_device)
            yield number, action
        stuck = next((number for number, device in enumerate(devices) if not device.is_done), None)
        if stuck is not None:
            raise InputError(
                f"mini-batches are too short for {plural(count, 'device')} under schedule"
                f" {self._name}: device {stuck} waits for version {devices[stuck].version + 1} of"
                " weights that wait for samples after it; try a larger `batch`, or schedule sync"
            )

    def _may_update(self, number: int, version: int) -> bool:
        """Return whether new weights stored elsewhere, and gradients of those stored here, have
        arrived.
        """
        devices = self._devices
        stores, users = self._stores.get(number, ()), self._users.get(number, ())
        if not all(devices[store].version > version for store in stores):
            return False
        return all(devices[user].has_gradients_of(version) for user in users)

    def _runs_further_ahead(self) -> bool:
        """Let every device have one more micro-batch in flight; return whether that can help."""
        waiting = [number for number, device in enumerate(self._devices) if not device.is_done]
        if (
            not waiting
            # Devices begin with at most 2 N + 1; beyond all micro-batches a bound holds nothing up.
            or self._devices[waiting[0]].in_flight > 3 * len(self._devices) + self._micro_batches
        ):
            return False
        for number in waiting:
            self._devices[number].in_flight += 1
            turn = (self._now + 1) * len(self._devices) + number
            if turn not in self._awake:
                self._awake.add(turn)
                heapq.heappush(self._turns, turn)
        return True


class _Progress:
    """A device's progress in F or B: the samples done, and the first micro-batch that is not."""

    def __init__(self, kind: Kind, late: tuple[int, ...], micro_batches: list[MicroBatch]) -> None:
        self.kind, self._late, self._micro_batches = kind, late, micro_batches
        self.samples = self.micro_batch = 0
        self._step_begin = 0
        self._run_ends = _run_ends(late)
        self.version = self._next_version()

    def _next_version(self) -> int:
        """Return the version of the weights that the next sample needs; after the last sample, one
        later than any.
        """
        if self.micro_batch == len(self._micro_batches):
            return len(self._micro_batches) + 1
        return self._version_of(self.samples)

    def _version_of(self, sample: int) -> int:
        """Return the version of the weights that a sample of the first micro-batch that is not done
        needs.
        """
        version = self._micro_batches[self.micro_batch].step - self._late[sample - self._step_begin]
        # The first mini-batches have no older weights than those that the epoch begins with.
        return version if version > 0 else 0

    def advance(self, here: int) -> Action:
        """Do all samples of a micro-batch that are `here` and need the same version as the next
        one.
        """
        micro_batch, version, begin = (
            self._micro_batches[self.micro_batch],
            self.version,
            self.samples,
        )
        first, last = micro_batch.begin, micro_batch.end
        end = last if last < here else here
        # Versions never fall from sample to sample: what begins and ends with one has no other in
        # between. Else the span ends with the run of equal staleness.
        if self._version_of(end - 1) != version:
            end = self._step_begin + self._run_ends[begin - self._step_begin]
        self.samples = end
        if end == last:
            self.micro_batch += 1
            following = self._micro_batches[self.micro_batch : self.micro_batch + 1]
            # Staleness is given for the samples of one mini-batch, and counted from its first.
            if following and following[0].step > micro_batch.step:
                self._step_begin = end
        self.version = self._next_version()
        span = None if begin == first and end == last else (begin - first, end - first)
        return Action(self.kind, micro_batch.index, version, span)


def _run_ends(late: tuple[int, ...]) -> list[int]:
    """Return for each sample of a mini-batch the next one that is less late; if there is none,
    `len(late)`.
    """
    ends = [len(late)] * len(late)
    for sample in range(len(late) - 2, -1, -1):
        ends[sample] = ends[sample + 1] if late[sample] == late[sample + 1] else sample + 1
    return ends


class _Device:
    """A device's progress: forward (`f`), backward (`b`), gradients (`w`, in micro-batches), and
    version of weights.

    Backward has priority, because it frees Act-RAM; forward runs ahead by `in_flight`
    micro-batches. An update waits for all F and B that use the weights that it replaces, and if
    that is an F, the bound `in_flight` is lifted. Gradients are of whole micro-batches, because
    each reads and writes the sum so far, which is as large as the weights.
    """

    def __init__(self, late: Staleness, micro_batches: list[MicroBatch], in_flight: int) -> None:
        self.micro_batches = micro_batches
        self.f = _Progress(Kind.FORWARD, late.forward, micro_batches)
        self.b = _Progress(Kind.BACKWARD, late.backward, micro_batches)
        self.in_flight = in_flight
        self.version = self._w = 0
        self._find_gradient()

    def _find_gradient(self) -> None:
        """Note the step of the next W, and the samples whose B it needs; after the last W, one step
        later than any.
        """
        self._w_step, self._w_end = self._steps, math.inf
        if self._w < len(self.micro_batches):
            self._w_step, self._w_end = (
                self.micro_batches[self._w].step,
                self.micro_batches[self._w].end,
            )

    @property
    def _steps(self) -> int:
        return self.micro_batches[-1].step + 1 if self.micro_batches else 0

    @property
    def is_done(self) -> bool:
        """Whether all updates are made."""
        return self.version == self._steps

    def has_gradients_of(self, step: int) -> bool:
        """Return whether all W of a step are done."""
        return self._w_step > step

    def next_action(self, f_here: int, b_here: int, *, may_update: bool) -> Action | None:
        """Return the next action, given the samples whose inputs for F and B are here; None if
        there is none yet.
        """
        f, b, version = self.f, self.b, self.version
        # W before U, which needs all W of the step; B before F, for B frees Act-RAM and F fills it.
        if self._w_step == version and self._w_end <= b.samples:
            self._w += 1
            self._find_gradient()
            return Action(Kind.GRADIENT, self._w - 1)
        step_done = self._w_step > version
        f_due, b_due = f.version == version, b.version == version
        if step_done and not f_due and not b_due and may_update:
            self.version += 1
            return Action(Kind.UPDATE, self.version)
        if b_due and b.samples < b_here:
            return b.advance(b_here)
        # Once all W of the step are done, U waits for this F alone: the bound would hold up both.
        if (
            f_due
            and f.samples < f_here
            and (f.micro_batch - b.micro_batch < self.in_flight or step_done)
        ):
            return f.advance(f_here)
        return None


FPDEEP = ScheduleKind(
    "fpdeep",
    fpdeep,
    "continuous, slightly unaligned weights",
    drains=False,
    repeats=True,
    aligned=False,
)
