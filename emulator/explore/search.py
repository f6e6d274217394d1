"""Orders of F, B and W, and R where that is allowed, searched for the times of a pipeline's stages,
under a limit of memory.

List schedules (Qi et al., ICLR 2024, section 3: W fills gaps, or frees memory that is full) and the
orders of kinds that ship are where it begins; the best is improved by moves along its critical
path, and orders of few actions are searched by branch and bound. All times are whole numbers, and
nothing is drawn but from a fixed seed: the same question has the same answer.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ...kernels import pipeline as kernels
from ..common import InputError
from ..schedule import (
    PASSES,
    Action,
    Backward,
    Engines,
    Fold,
    Kind,
    Schedule,
    Shape,
    Transport,
    cut_samples,
    dry_run,
)
from .again import Again, Parts, completed, fitted, peaks_of

Orders = NDArray[np.int64]
"""Actions of each device, (N, actions), as `kernels.pipeline` numbers them."""

_MOST_TRIES = 300_000
_TRIED_FOR_NODE = 100
"""What a node of branch and bound counts for, where actions are tried."""
_MOST_EXACT = 200
"""Actions of the largest order that is searched by branch and bound."""
_PAPER_SHARE = Fraction(32, 74)
"""What a transformer layer keeps from B to W, of what it keeps from F to B: 32 of 34 + 5 a s / h
bytes for each value (Qi et al., Table 1), with heads of 128 and sequences of 1,024."""


@dataclasses.dataclass(frozen=True)
class Search:
    """A kind of search: its name, the chunks of a device, whether stages lie in a V.

    It is for mini-batches that follow one another without a common wait, if it is of `spans`: then
    its time is the longest of a device from its first action to its last. `limit` times N
    micro-batches are kept at most, where nothing else is asked for; None is no limit. Orders are
    improved until `tried` actions have been timed.
    """

    name: str
    summary: str
    chunks: int = 1
    in_v: bool = False
    spans: bool = False
    limit: int | None = None
    share: Fraction = Fraction(1)
    tried: int = 500_000_000


SEARCHES = {
    search.name: search
    for search in (
        Search("search", "the shortest order within the memory, searched for the stages' times"),
        Search(
            "zb-2p",
            "the same for mini-batches one after another, twice the memory of 1F1B",
            spans=True,
            limit=2,
            share=_PAPER_SHARE,
        ),
        Search(
            "zb-v",
            "the same, two stages in a V on each device, the memory of 1F1B",
            chunks=2,
            in_v=True,
            spans=True,
            limit=1,
            share=_PAPER_SHARE,
        ),
    )
}
"""ZB-2p and ZB-V of Qi et al., sections 3 and 6, and the search without their limits."""

BY_TIMES = {
    "zero-bubble": Search("zero-bubble", "", limit=1, tried=2_000_000),
    "interleaved": Search("interleaved", "", chunks=2, tried=2_000_000),
    "2bw": Search("2bw", "", limit=1, tried=2_000_000),
}
"""Kinds with an order for equal stages, as they are on stages that differ: in the same memory.

Under `2bw` mini-batches of N micro-batches have no more than that in flight, so that the version
before the newest is always there.
"""


@dataclasses.dataclass(frozen=True)
class Searched:
    """An order that was found; its time, and a bound that no order's is below, in ps.

    `memory` is what each device keeps at most, in micro-batches of all its stages.
    """

    schedule: Schedule
    time_ps: int
    bound_ps: int
    memory: tuple[Fraction, ...]


def search_order(
    search: Search,
    shape: Shape,
    memory: Sequence[Fraction] | None = None,
    share: Fraction | None = None,
    begin: Schedule | None = None,
    waiting: Fraction | None = None,
    parts: Sequence[Parts] | None = None,
) -> Searched:
    """Return the best order that is found of F, B and W of one mini-batch, and of R.

    Args:
        search: the kind of search.
        shape: stages, micro-batches, costs, the machine.
        memory: for each device, how many micro-batches of all its stages it may keep; without it,
            as many as the search says.
        share: the part of a micro-batch that is kept from B to W; without it, the search's.
        begin: an order of one mini-batch that the answer takes no longer than; where B includes W,
            it is needed.
        waiting: the part of a micro-batch that is kept from F to R; without it, there is no R.
        parts: by stage, what a micro-batch keeps, in place of `share` and `waiting`; `memory` is in
            the same units then.

    Raises:
        InputError: there is no room for one micro-batch, or the machine has no order of actions.
    """
    shares = search.share if share is None else share, waiting
    problem = _Problem(search, shape, memory, shares, begin, parts)
    order, time = problem.best()
    schedule = problem.schedule(order)
    dry_run(schedule, aligned=True)
    return Searched(schedule, time, min(problem.bound_ps, time), problem.peaks(order))


class _Problem:
    """A search of one shape, as the kernels have it."""

    def __init__(
        self,
        search: Search,
        shape: Shape,
        memory: Sequence[Fraction] | None,
        shares: tuple[Fraction, Fraction | None],
        begin: Schedule | None = None,
        parts: Sequence[Parts] | None = None,
    ) -> None:
        (share, waiting), machine = shares, shape.machine
        self._fused, self._from = machine.backward is Backward.FUSED, begin
        if machine.engines is not Engines.TURNS or machine.transport is Transport.STREAMED:
            raise InputError(
                f"`schedule` = {search.name!r}: searches orders for devices that do one action"
                " after another, with messages stored or hidden; leave out --engines and"
                " --transport"
            )
        if self._fused and begin is None:
            raise InputError(f"`schedule` = {search.name!r}: has W apart from B; leave out --fused")
        if not 0 <= share <= 1:
            raise InputError(f"`gradient_features` = {share}: must be from 0 to 1")
        if waiting is not None and not 0 <= waiting <= 1:
            raise InputError(f"`recompute_features` = {waiting}: must be from 0 to 1")
        # Where B includes W, that is an action of no time, and nothing is kept for it.
        share = Fraction(0) if self._fused else share
        self._search, self._shape, self._share = search, shape, share
        self._recomputes = waiting is not None or parts is not None
        waiting = Fraction(1) if waiting is None else waiting
        self._fold = Fold(shape.devices, shape.chunks, search.in_v)
        costs, stages = shape.costs, range(self._fold.count)
        # A micro-batch of one stage is as many units as make what is kept of it a whole number.
        unit = math.lcm(share.denominator, waiting.denominator)
        own = Parts(unit, int(share * unit), int(waiting * unit))
        self._parts = (own,) * self._fold.count if parts is None else tuple(parts)
        wholes = []
        for device in range(shape.devices):
            wholes.append(max(1, sum(self._parts[s].kept for s in self._fold.stages(device))))
        self._wholes = wholes
        if parts is not None and memory is not None:
            memory = [size / whole for size, whole in zip(memory, wholes, strict=True)]
        limits = self._limits(memory)
        columns = (
            [self._fold.device(stage) for stage in stages],
            [cost.forward_ps for cost in costs],
            [cost.backward_ps if self._fused else cost.eb_ps for cost in costs],
            [0 if self._fused else cost.known_pg_ps for cost in costs],
            [cost.transfer_ps for cost in costs],
            [0, *(cost.sent_errors_ps for cost in costs[:-1])],
            [part.kept for part in self._parts],
            [part.late for part in self._parts],
            [cost.recompute_ps for cost in costs],
            [part.waiting for part in self._parts],
            [part.beside for part in self._parts],
        )
        self._times = tuple(np.array(column, np.int64) for column in columns)
        stored = int(machine.transport is Transport.STORED)
        kinds = len(PASSES) + self._recomputes
        self._sizes = (shape.devices, shape.micro_batches, machine.latency_ps, stored, kinds)
        rooms = [math.floor(limit * whole) for limit, whole in zip(limits, wholes, strict=True)]
        self._limit = np.array(rooms, np.int64)
        self._spans = int(search.spans)
        self._begin = np.zeros((shape.devices, self._length), np.int64)
        self._came = np.zeros((2, self._fold.count, shape.micro_batches), np.int64)
        self.bound_ps = self._bound()

    @property
    def _length(self) -> int:
        """Number of a device's actions."""
        return self._sizes[4] * self._shape.chunks * self._shape.micro_batches

    def _limits(self, memory: Sequence[Fraction] | None) -> Sequence[Fraction]:
        devices, count = self._shape.devices, self._shape.micro_batches
        if memory is None:
            most = count if self._search.limit is None else self._search.limit * devices
            return [Fraction(most)] * devices
        for device, limit in enumerate(memory):
            if limit < 1:
                raise InputError(
                    f"`memory` = {float(limit):g}: device {device} needs room for 1 micro-batch"
                )
        # More would not be used, and numbers stay small.
        return [min(limit, Fraction(count)) for limit in memory]

    def best(self) -> tuple[Again, int]:
        """Return the best order and its time in ps."""
        plan, time = min(self._starts(), key=lambda start: start[1])
        order = plan.order
        tries = min(self._search.tried // order.size, _MOST_TRIES)
        if time > self.bound_ps:
            arguments = self._times, self._sizes, self._limit, self._spans
            time = kernels.improve_order(*plan, *arguments, tries, self.bound_ps, 1)
        if time > self.bound_ps and not self._spans and self._fold.chunks == 1:
            plan, time = self._exact(plan, time)
        return plan, time

    def _exact(self, plan: Again, time: int) -> tuple[Again, int]:
        """Search all orders, where these are few enough; return the best and its time."""
        if plan.order.size > _MOST_EXACT:
            return plan, time
        arguments = self._times, self._sizes, self._limit, self._most
        order, again = plan.order.copy(), plan.again.copy()
        most = self._search.tried // _TRIED_FOR_NODE
        nodes = kernels.best_order(order, again, *arguments, time, most)
        if (order != plan.order).any():
            plan = Again(completed(order, again) if self._recomputes else order, again)
            time = self._time(plan)
        if nodes >= 0:
            self.bound_ps = time
        return plan, time

    @property
    def _most(self) -> Orders:
        """By device, the most micro-batches between F and W, as far as a bound knows."""
        if self._share == 1 and not self._recomputes:
            return self._limit // self._parts[0].kept
        return np.full(self._shape.devices, self._shape.micro_batches, np.int64)

    def _time(self, plan: Again) -> int:
        arguments = self._times, self._sizes, self._spans, self._begin, self._came
        return int(kernels.time_order(*plan, *arguments))

    def _starts(self) -> Iterator[tuple[Again, int]]:
        """Yield orders to begin with, and their times."""
        for order in self._without_r():
            shape = self._fold.count, self._shape.micro_batches
            if self._recomputes:
                plan = fitted(order, shape, self._parts, self._limit)
            else:
                plan = Again(order, np.zeros(shape, np.int64))
                plan = plan if (self._kept(order) <= self._limit).all() else None
            if plan is not None:
                yield plan, self._time(plan)

    def _without_r(self) -> Iterator[Orders]:
        """Yield orders of F, B and W, which may need more memory than there is."""
        devices = self._shape.devices
        length = len(PASSES) * self._shape.chunks * self._shape.micro_batches
        # More R leave room for more F.
        rooms = [self._limit] + [self._limit * 3 // 2, self._limit * 99] * self._recomputes
        for room, ahead, more, wait in itertools.product(
            rooms, (1, 1.5, 2, 3, 99), (-1, 0, 1), (0, 500, 1000, 10**5)
        ):
            order = np.zeros((devices, length), np.int64)
            warm = [int(ahead * (devices - d)) * self._fold.chunks + more for d in range(devices)]
            done = kernels.list_order(
                order, self._times, self._sizes, room, np.array(warm, np.int64), wait
            )
            if done == order.size:
                yield order
        yield from self._fixed()

    def _fixed(self) -> Iterator[Orders]:
        """Yield orders that know no times: those of kinds that ship are among them."""
        if self._from is not None:
            yield self._read(self._from)
        devices, count, fold = self._shape.devices, self._shape.micro_batches, self._fold
        yield self._order([_one_by_one(fold.chunks, count)] * devices)
        if self._search.in_v:
            yield self._order([_turns(devices, device, count) for device in range(devices)])
        if fold.chunks > 1:
            return
        for ahead in _warm_ups(devices, count):
            for late in (0, 1):
                yield self._order(
                    [_turned(count, ahead[device], late * device) for device in range(devices)]
                )

        yield from self._timed()

    def _timed(self) -> Iterator[Orders]:
        """Yield orders whose first B comes as F ahead are done, and in which the W that are late
        fill what a device has left after its last B; of one stage on each device.
        """
        devices, count = self._shape.devices, self._shape.micro_batches
        _, forward, backward, gradient, *_ = (column.tolist() for column in self._times)
        first, last = [0] * devices, [gradient[0]] * devices
        for device in range(1, devices):
            hops = self._hop(device - 1, device), self._hop(device, device - 1)
            first[device] = first[device - 1] + forward[device - 1] + hops[0]
            last[device] = last[device - 1] + backward[device - 1] + hops[1]
        turned = first[-1] + forward[-1] + last[-1] - gradient[0] + backward[-1]
        ahead, late = [], []
        for device in range(devices):
            back = turned - (last[device] - gradient[0]) - backward[device]
            ahead.append((back - first[device]) / forward[device])
            left = last[device] + (first[device] if self._spans else 0)
            late.append(left / max(gradient[device], 1))
        for more, part in itertools.product(
            (0, 1), (0, 0.5, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.3, 1.5)
        ):
            words = []
            for device in range(devices):
                limits = max(1, math.floor(ahead[device]) + more), math.ceil(part * late[device])
                room = self._parts[device].kept, self._parts[device].late
                words.append(_late(count, *limits, int(self._limit[device]), room))
            yield self._order(words)

    def _read(self, schedule: Schedule) -> Orders:
        """Return the order of a schedule of one mini-batch."""
        rows = []
        for device, program in schedule.programs(range(self._shape.devices)).items():
            at, row = self._fold.stages(device), []
            for action in program:
                if action.kind is not Kind.UPDATE:
                    row.append(PASSES.index(action.kind) * self._fold.count + at[action.chunk])
            rows.append(row)
        return np.array(rows, np.int64)

    def _order(self, words: Sequence[Sequence[tuple[int, int]]]) -> Orders:
        """Return the order of each device's kinds of actions and chunks."""
        rows = []
        for device, row in enumerate(words):
            at = self._fold.stages(device)
            rows.append([kind * self._fold.count + at[chunk] for kind, chunk in row])
        return np.array(rows, np.int64)

    def schedule(self, plan: Again) -> Schedule:
        """Return an order as a schedule of one mini-batch."""
        epoch, programs = self._shape.epoch, []
        for row in plan.order:
            programs.append([*_actions(row.tolist(), plan.again, self._fold, self._fused)])
        micro_batches = cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)
        return Schedule(
            self._search.name,
            epoch.devices,
            micro_batches,
            lambda devices: {device: iter(programs[device]) for device in devices},
            epoch.chunks,
            self._search.in_v,
        )

    def _kept(self, order: Orders) -> Orders:
        """Return the most that each device keeps of an order without R."""
        kinds = range(len(PASSES))
        change = np.array(
            [part.change(kind, again=False) for kind in kinds for part in self._parts]
        )
        return np.cumsum(change[order], axis=1).max(axis=1)

    def peaks(self, plan: Again) -> tuple[Fraction, ...]:
        """Return the most micro-batches, of all its stages, that each device keeps."""
        peaks = zip(peaks_of(plan, self._parts), self._wholes, strict=True)
        return tuple(Fraction(int(kept), whole) for kept, whole in peaks)

    def _bound(self) -> int:
        """Return a bound in ps that no order is below.

        A device begins with the first micro-batch, has all its work to do, and its last B waits for
        those of the stages behind it, each of which has M F and M B to do first.
        """
        _, forward, backward, gradient, *_ = (column.tolist() for column in self._times)
        fold, count = self._fold, self._shape.micro_batches
        first, last_f, last_b = [0] * fold.count, [0] * fold.count, [0] * fold.count
        for stage in range(fold.count):
            come = first[stage - 1] + forward[stage - 1] + self._hop(stage - 1, stage)
            first[stage] = come if stage else 0
            own = first[stage] + count * forward[stage]
            passed = last_f[stage - 1] + self._hop(stage - 1, stage) + forward[stage]
            last_f[stage] = max(own, passed) if stage else own
        turned = first[-1] + forward[-1]
        for stage in reversed(range(fold.count)):
            own = first[stage] + count * (forward[stage] + backward[stage])
            if stage + 1 < fold.count:
                hop = self._hop(stage + 1, stage)
                turned += backward[stage + 1] + hop
                own = max(own, last_b[stage + 1] + hop + backward[stage])
            else:
                own = max(own, last_f[stage] + backward[stage])
            last_b[stage] = max(own, turned + count * backward[stage])
        longest = 0
        for device in range(fold.devices):
            stages = fold.stages(device)
            work = sum(forward[s] + backward[s] + gradient[s] for s in stages)
            begin = min(first[s] for s in stages)
            end = max(begin + count * work, *(last_b[s] + gradient[s] for s in stages))
            longest = max(longest, end - (begin if self._spans else 0))
        return max(longest, 0 if self._spans or fold.chunks > 1 else self._with_memory())

    def _hop(self, stage: int, to: int) -> int:
        """Return the time from the end of an action on a stage to the next one on another."""
        sender, receiver = self._fold.device(stage), self._fold.device(to)
        if sender == receiver or stage < 0:
            return 0
        takes = self._times[4][stage] if to > stage else self._times[5][stage]
        work = self._times[1][stage] if to > stage else self._times[2][stage]
        late = int(takes) + self._shape.machine.latency_ps
        return late if self._sizes[3] else max(late - int(work), 0)

    def _with_memory(self) -> int:
        """Return a bound that knows the limit of memory; of one stage on each device."""
        devices, count = self._shape.devices, self._shape.micro_batches
        done, free = np.zeros((3, devices), np.int64), np.zeros(devices, np.int64)
        came, ends = (np.zeros((2, devices, count), np.int64) for _ in range(2))
        tail = np.zeros(devices, np.int64)
        arguments = self._times, self._sizes, self._most, done, free, came, ends, tail
        return int(kernels.order_bound(*arguments))


def _actions(
    codes: Sequence[int], again: Orders, fold: Fold, fused: bool = False
) -> Iterator[Action]:
    """Yield the actions of a device; each stage takes micro-batches in order, and W follows its B
    where that includes it. R is left out where nothing is computed again.
    """
    kinds, stages = (*PASSES, Kind.RECOMPUTE), fold.count
    done = [0] * (len(kinds) * stages)
    for code in codes:
        place, stage = divmod(code, stages)
        kind, chunk = kinds[place], fold.chunk(stage)
        redone = bool(again[stage, done[code]])
        if kind is Kind.RECOMPUTE and not redone:
            done[code] += 1
            continue
        version = None if kind is Kind.GRADIENT else 0
        # B and W in cells of their own, so that CSV has W apart wherever it comes.
        joined = False if kind is Kind.BACKWARD and not fused else None
        if kind is not Kind.GRADIENT or not fused:
            drops = redone and kind is Kind.FORWARD
            yield Action(kind, done[code], version, None, chunk, joined, recomputed=drops)
        if kind is Kind.BACKWARD and fused:
            yield Action(Kind.GRADIENT, done[code], None, chunk=chunk)
        done[code] += 1
    yield Action(Kind.UPDATE, 1)


_F, _B, _W = range(len(PASSES))


def _one_by_one(chunks: int, count: int) -> list[tuple[int, int]]:
    """Return the order that does one micro-batch after another, which needs the least memory."""
    passes = [(_F, chunk) for chunk in range(chunks)]
    for chunk in reversed(range(chunks)):
        passes += [(_B, chunk), (_W, chunk)]
    return passes * count


def _warm_ups(devices: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield warm-up forwards of each device: of GPipe, 1F1B and twice that, and as
    `smallest_warm_ups` tries them.
    """
    behind = range(devices - 1, -1, -1)
    yield (count,) * devices
    yield tuple(2 * (far + 1) for far in behind)
    for extra in range(2 * devices):
        yield tuple(far + 1 + -(-extra * far // max(devices - 1, 1)) for far in behind)


def _turned(count: int, ahead: int, late: int) -> list[tuple[int, int]]:
    """Return a device's order: `ahead` F first, then B and F alternately, each W `late` B after its
    own.
    """
    row = [(_F, 0)] * min(ahead, count)
    for number in range(count):
        row.append((_B, 0))
        row += [(_W, 0)] * (number >= late)
        row += [(_F, 0)] * (number + ahead < count)
    return row + [(_W, 0)] * min(late, count)


def _late(
    count: int, ahead: int, late: int, limit: int, room: tuple[int, int]
) -> list[tuple[int, int]]:
    """Return the order of a device as `_turned` does, with W sooner where memory would be full.

    A micro-batch keeps `room` from F to B, and from B to W; the device keeps `limit` at most.
    """
    kept, part = room
    row, held = [(_F, 0)], kept
    f, b, w = 1, 0, 0
    while w < count:
        if f < count and f - b < ahead and held + kept <= limit:
            row.append((_F, 0))
            f, held = f + 1, held + kept
        elif b < f and b - w <= late and (held + kept <= limit or b == w or f == count):
            row.append((_B, 0))
            b, held = b + 1, held + part - kept
        elif w < b:
            row.append((_W, 0))
            w, held = w + 1, held - part
        else:
            row.append((_B, 0))
            b, held = b + 1, held + part - kept
    return row


def _turns(devices: int, device: int, count: int) -> list[tuple[int, int]]:
    """Return a device's order of ZB-V for stages whose F, B and W take as long (Qi et al., section
    6).
    """
    row: list[tuple[int, int]] = []
    left = {(kind, chunk): count for kind in (_F, _B, _W) for chunk in (0, 1)}

    def do(*actions: tuple[int, int]) -> None:
        for action in actions:
            if left[action]:
                left[action] -= 1
                row.append(action)

    behind = devices - device
    do(*[(_F, 0)] * (2 * behind - 1))
    do(*[(_F, 1), (_F, 0)] * device)
    do(*[(_F, 1), (_B, 1), (_W, 1)] * behind)
    while left[_F, 0] or left[_F, 1]:
        do((_F, 0), (_B, 0), (_W, 0), (_F, 1), (_B, 1), (_W, 1))
    do(*[(_B, 0), (_B, 1)] * device)
    do(*[(_B, 0), (_W, 0)] * behind)
    do(*[(_B, 1)] * count, *[(_B, 0)] * count)
    do(*[(_W, 1)] * count, *[(_W, 0)] * count)
    return row
