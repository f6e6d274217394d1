"""`sync` and `fpdeep`: one forward, one backward at a time, with or without waiting for the weights.

Both feed the chain micro-batch after micro-batch. Under `sync` every sample of a mini-batch sees the weights that the
mini-batch before left behind, so the pipeline drains at each update. Under `fpdeep` it never drains: "the forward
propagation of training samples in the next mini-batch follows using the old parameters until the last training sample
is backward propagated" (FPDeep, section 4.4). Which samples those are is a matter of virtual time; here it is given,
as lags.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator

from ..common.errors import InputError
from .action import Action, Kind, MicroBatch, Schedule


@dataclasses.dataclass(frozen=True)
class Lags:
    """How many updates late a device's weights are: for F and for B, one number for each sample of a mini-batch.

    Samples come in order, so a lag never grows within a mini-batch, and grows by at most one from its last sample to
    the first of the next.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]

    def __post_init__(self) -> None:
        for lags in (self.forward, self.backward):
            grows = any(now > before for before, now in itertools.pairwise(lags))
            if grows or lags[0] > lags[-1] + 1 or lags[-1] < 0:
                raise ValueError(f"lags {lags} would take weights back to an older version")

    def at_least(self, other: Lags) -> Lags:
        """Where the other ones are longer, these."""
        return Lags(tuple(map(max, self.forward, other.forward)), tuple(map(max, self.backward, other.backward)))


def sync(devices: int, samples: int, batch: int, micro_batch: int) -> Schedule:
    """Update after each mini-batch, pipeline drained: the weights are those of mini-batch SGD, bit for bit."""
    none = Lags((0,) * batch, (0,) * batch)
    return _pipeline("sync", [none] * devices, samples, batch, micro_batch)


def fpdeep(
    lags: list[Lags], samples: int, batch: int, micro_batch: int, loans: Iterable[tuple[int, int]] = ()
) -> Schedule:
    """FPDeep's continuous pipeline with slightly unaligned weights.

    Where a device's version changes within a micro-batch, it does that one in portions. `loans` says which devices use
    parameters that others store: (user, store). A store's update needs its users' gradients, and a user's update the
    new weights of its stores.
    """
    return _pipeline("fpdeep", lags, samples, batch, micro_batch, loans)


def cut_samples(samples: int, batch: int, micro_batch: int) -> list[MicroBatch]:
    """Micro-batches of at most `micro_batch` samples, cut at mini-batches."""
    found: list[MicroBatch] = []
    for step, first in enumerate(range(0, samples, batch)):
        last = min(first + batch, samples)
        for begin in range(first, last, micro_batch):
            found.append(MicroBatch(len(found), step, begin, min(begin + micro_batch, last)))
    return found


def _pipeline(
    name: str,
    lags: list[Lags],
    samples: int,
    batch: int,
    micro_batch: int,
    loans: Iterable[tuple[int, int]] = (),
) -> Schedule:
    micro_batches, loans = cut_samples(samples, batch, micro_batch), sorted(set(loans))

    def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
        chain = _Chain(lags, micro_batches, samples, loans)
        buffers: dict[int, collections.deque[Action]] = {device: collections.deque() for device in devices}

        def program(device: int) -> Iterator[Action]:
            while True:
                while not buffers[device]:
                    done = chain.next_action()
                    if done is None:
                        return
                    number, action = done
                    if number in buffers:
                        buffers[number].append(action)
                yield buffers[device].popleft()

        return {device: program(device) for device in devices}

    return Schedule(name, len(lags), micro_batches, programs)


class _Chain:
    """Devices that take turns: in each round, from left to right, every device does one action, if it can do any.

    A device that could do nothing is asked again only after a neighbour's progress, so that making a schedule costs
    as much as it has actions. Where all devices wait, the bound on samples in flight is too low for the staleness that
    the virtual time asks for; then it grows.
    """

    def __init__(
        self, lags: list[Lags], micro_batches: list[MicroBatch], samples: int, loans: list[tuple[int, int]]
    ) -> None:
        self._samples, self._micro_batches = samples, len(micro_batches)
        self._devices = [
            _Device(device_lags, micro_batches, in_flight=2 * (len(lags) - device) + 1)
            for device, device_lags in enumerate(lags)
        ]
        self._stores: dict[int, list[int]] = collections.defaultdict(list)
        self._users: dict[int, list[int]] = collections.defaultdict(list)
        for user, store in loans:
            self._stores[user].append(store)
            self._users[store].append(user)
        self._now = 0
        self._turns = [(0, number) for number in range(len(lags))]
        self._awake = set(self._turns)

    def next_action(self) -> tuple[int, Action] | None:
        """Whose turn brings the next action, and the action; None if all is done.

        Raises:
            InputError: weights and samples wait for one another.
        """
        while self._turns or self._runs_further_ahead():
            turn = heapq.heappop(self._turns)
            self._awake.remove(turn)
            self._now, number = turn
            action = self._action_of(number)
            if action is not None:
                self._wake(1, number)
                if action.kind is Kind.FORWARD:
                    self._wake(0, number + 1)
                elif action.kind is Kind.BACKWARD:
                    self._wake(1, number - 1)
                elif action.kind is Kind.GRADIENT:
                    self._wake(1, *self._stores[number])
                else:
                    self._wake(1, *self._users[number])
                return number, action
        stuck = next((number for number, device in enumerate(self._devices) if not device.is_done), None)
        if stuck is None:
            return None
        raise InputError(
            f"mini-batches are too short for {len(self._devices)} devices under schedule fpdeep: device {stuck} waits"
            f" for version {self._devices[stuck].version + 1} of weights that wait for samples behind it; try a larger"
            " `batch`, or schedule sync"
        )

    def _action_of(self, number: int) -> Action | None:
        devices, device = self._devices, self._devices[number]
        f_here = devices[number - 1].f.samples if number else self._samples
        b_here = devices[number + 1].b.samples if number + 1 < len(devices) else device.f.samples
        may_update = all(devices[store].version > device.version for store in self._stores[number]) and all(
            devices[user].has_gradients_of(device.version) for user in self._users[number]
        )
        return device.next_action(f_here, b_here, may_update=may_update)

    def _runs_further_ahead(self) -> bool:
        """Let every device have one more micro-batch in flight; whether that can be of any use."""
        waiting = [number for number, device in enumerate(self._devices) if not device.is_done]
        if not waiting or self._devices[waiting[0]].in_flight > 3 * len(self._devices) + self._micro_batches:
            return False
        for number in waiting:
            self._devices[number].in_flight += 1
        self._wake(1, *waiting)
        return True

    def _wake(self, later: int, *numbers: int) -> None:
        for number in numbers:
            turn = self._now + later, number
            if 0 <= number < len(self._devices) and turn not in self._awake:
                self._awake.add(turn)
                heapq.heappush(self._turns, turn)


class _Progress:
    """How far a device is with F or B: samples that are through, and the first micro-batch that is not."""

    def __init__(self, kind: Kind, lags: tuple[int, ...], micro_batches: list[MicroBatch]) -> None:
        self.kind, self._lags, self._micro_batches = kind, lags, micro_batches
        self.samples = self.micro_batch = 0
        self._step_begin = 0
        self._run_ends = _run_ends(lags)
        self.version = self._next_version()

    def _next_version(self) -> int:
        """The version of the weights that the next sample needs; when all are through, later than any."""
        if self.micro_batch == len(self._micro_batches):
            return len(self._micro_batches) + 1
        return max(0, self._micro_batches[self.micro_batch].step - self._lags[self.samples - self._step_begin])

    def advance(self, here: int) -> Action:
        """Do all samples of a micro-batch that are `here` and need the same version as the next one."""
        micro_batch, version = self._micro_batches[self.micro_batch], self.version
        begin = self.samples
        end = min(micro_batch.end, here)
        if max(0, micro_batch.step - self._lags[end - 1 - self._step_begin]) != version:
            end = self._step_begin + self._run_ends[begin - self._step_begin]
        span = begin - micro_batch.begin, end - micro_batch.begin
        self.samples = end
        if end == micro_batch.end:
            self.micro_batch += 1
            following = self._micro_batches[self.micro_batch : self.micro_batch + 1]
            if following and following[0].step > micro_batch.step:
                self._step_begin = end
        self.version = self._next_version()
        return Action(self.kind, micro_batch.index, version, None if span == (0, micro_batch.samples) else span)


def _run_ends(lags: tuple[int, ...]) -> list[int]:
    """For each sample of a mini-batch, the next one that lags less; if there is none, their number."""
    ends = [len(lags)] * len(lags)
    for sample in range(len(lags) - 2, -1, -1):
        ends[sample] = ends[sample + 1] if lags[sample] == lags[sample + 1] else sample + 1
    return ends


class _Device:
    """How far a device is: forward (f), backward (b), in gradients (w, micro-batches), and its version of the weights.

    Backward goes first, which frees Act-RAM; forward runs ahead by `in_flight` micro-batches. An update waits for all
    that is due with the weights that it ends, and where that is a forward, the bound on those in flight gives way.
    Gradients are of whole micro-batches: each takes the sum so far through memory, which is as large as the weights.
    """

    def __init__(self, lags: Lags, micro_batches: list[MicroBatch], in_flight: int) -> None:
        self.micro_batches = micro_batches
        self.f = _Progress(Kind.FORWARD, lags.forward, micro_batches)
        self.b = _Progress(Kind.BACKWARD, lags.backward, micro_batches)
        self.in_flight = in_flight
        self.w = self.version = 0

    @property
    def is_done(self) -> bool:
        """Whether all updates are made."""
        return not self.micro_batches or self.version > self.micro_batches[-1].step

    def has_gradients_of(self, step: int) -> bool:
        """Whether all W of a step are done."""
        return self.w == len(self.micro_batches) or self.micro_batches[self.w].step > step

    def next_action(self, f_here: int, b_here: int, *, may_update: bool) -> Action | None:
        """The next action, where F and B of so many samples are done beside it; None if there is nothing to do yet."""
        through = self.w == len(self.micro_batches)
        step = len(self.micro_batches) if through else self.micro_batches[self.w].step
        if step == self.version and not through and self.micro_batches[self.w].end <= self.b.samples:
            self.w += 1
            return Action(Kind.GRADIENT, self.w - 1)
        step_done = self.w > 0 and self.micro_batches[self.w - 1].step == self.version and step > self.version
        f_due = self.f.version == self.version
        b_due = self.b.version == self.version
        if step_done and not f_due and not b_due and may_update:
            self.version += 1
            return Action(Kind.UPDATE, self.version)
        if b_due and self.b.samples < min(b_here, self.f.samples):
            return self.b.advance(min(b_here, self.f.samples))
        may_run_ahead = self.f.micro_batch - self.b.micro_batch < self.in_flight or step_done
        if f_due and self.f.samples < f_here and may_run_ahead:
            return self.f.advance(f_here)
        return None
