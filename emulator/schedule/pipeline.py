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
import itertools
from collections.abc import Collection, Iterator

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

    def changes(self) -> set[int]:
        """The samples at which a lag differs from the sample's before."""
        return {
            sample
            for lags in (self.forward, self.backward)
            for sample, (before, now) in enumerate(itertools.pairwise(lags), 1)
            if before != now
        }


def sync(devices: int, samples: int, batch: int, micro_batch: int) -> Schedule:
    """Update after each mini-batch, pipeline drained: the weights are those of mini-batch SGD, bit for bit."""
    none = Lags((0,) * batch, (0,) * batch)
    return _pipeline("sync", [none] * devices, samples, batch, micro_batch)


def fpdeep(lags: list[Lags], samples: int, batch: int, micro_batch: int) -> Schedule:
    """FPDeep's continuous pipeline with slightly unaligned weights; micro-batches are cut where a version changes."""
    return _pipeline("fpdeep", lags, samples, batch, micro_batch)


def cut_samples(samples: int, batch: int, micro_batch: int, also_at: set[int]) -> list[MicroBatch]:
    """Micro-batches of at most `micro_batch` samples, cut at mini-batches and, within them, at `also_at`."""
    cuts = sorted({*range(0, batch, micro_batch), *also_at, batch})
    found: list[MicroBatch] = []
    for step, first in enumerate(range(0, samples, batch)):
        for low, high in itertools.pairwise(cuts):
            if first + low < samples:
                found.append(MicroBatch(len(found), step, first + low, min(first + high, samples)))
    return found


def _pipeline(name: str, lags: list[Lags], samples: int, batch: int, micro_batch: int) -> Schedule:
    cuts = set().union(*(device_lags.changes() for device_lags in lags))
    micro_batches = cut_samples(samples, batch, micro_batch, cuts)

    def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
        chain = [
            _Device(device_lags, micro_batches, batch, in_flight=2 * (len(lags) - device) + 1)
            for device, device_lags in enumerate(lags)
        ]
        buffers: dict[int, collections.deque[Action]] = {device: collections.deque() for device in devices}

        def program(device: int) -> Iterator[Action]:
            while buffers[device] or _advance(chain, buffers):
                if buffers[device]:
                    yield buffers[device].popleft()

        return {device: program(device) for device in devices}

    return Schedule(name, len(lags), micro_batches, programs)


def _advance(chain: list[_Device], buffers: dict[int, collections.deque[Action]]) -> bool:
    """Let every device do one action, if there is one that it can do; whether any did."""
    moved = False
    for number, device in enumerate(chain):
        f_here = chain[number - 1].f if number else len(device.forward)
        b_here = chain[number + 1].b if number + 1 < len(chain) else device.f
        action = device.next_action(f_here, b_here)
        if action is not None:
            moved = True
            if number in buffers:
                buffers[number].append(action)
    return moved


class _Device:
    """How far a device is: micro-batches forward (f), backward (b), in gradients (w), and its version of the weights.

    Backward goes first, which frees Act-RAM; forward runs ahead by `in_flight` micro-batches. An update waits for all
    that is due with the weights that it ends, and where that is a forward, the bound on those in flight gives way.
    """

    def __init__(self, lags: Lags, micro_batches: list[MicroBatch], batch: int, in_flight: int) -> None:
        self.steps = [mb.step for mb in micro_batches]
        self.forward = [max(0, mb.step - lags.forward[mb.begin - mb.step * batch]) for mb in micro_batches]
        self.backward = [max(0, mb.step - lags.backward[mb.begin - mb.step * batch]) for mb in micro_batches]
        self.in_flight = in_flight
        self.f = self.b = self.w = self.version = 0

    def next_action(self, f_here: int, b_here: int) -> Action | None:
        """The next action, where the messages of so many F and B are there; None if there is nothing to do yet."""
        if self.w < self.b and self.steps[self.w] == self.version:
            self.w += 1
            return Action(Kind.GRADIENT, self.w - 1)
        in_step = self.w > 0 and self.steps[self.w - 1] == self.version
        step_done = in_step and self._due(self.steps, self.w) > self.version
        f_due = self._due(self.forward, self.f) == self.version
        b_due = self._due(self.backward, self.b) == self.version
        if step_done and not f_due and not b_due:
            self.version += 1
            return Action(Kind.UPDATE, self.version)
        if b_due and self.b < min(b_here, self.f):
            self.b += 1
            return Action(Kind.BACKWARD, self.b - 1, self.version)
        if f_due and self.f < f_here and (self.f - self.b < self.in_flight or step_done):
            self.f += 1
            return Action(Kind.FORWARD, self.f - 1, self.version)
        return None

    @staticmethod
    def _due(versions: list[int], index: int) -> int:
        """The version or step of a micro-batch; beyond the last one, later than any."""
        return versions[index] if index < len(versions) else len(versions) + 1
