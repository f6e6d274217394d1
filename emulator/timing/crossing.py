"""The virtual time of what crosses the chain once a mini-batch: gradients of tied weights, and the norm of gradients.

A device begins to pass on a symbol's row when it has arrived, and, if the device adds a part of its own, when all its
gradients of the mini-batch are there. Rows follow one another on each link, which is theirs alone: other streams are
not slowed. All rows of a table are as long, so the first and the last say when each arrives.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...comm import FifoResource, Served, Times, Topology
from ..cluster import Link
from ..mapping import Crossing, NormSum, StreamKey, TiedWeights
from ..schedule import Fold
from .routes import Hop, Leg, hop_name


class Burst(FifoResource):
    """A direction of a link, for the rows of a table: times are (1, 2), those of the first and of the last row."""

    def __init__(self, name: str, crossing: Crossing, link: Link) -> None:
        super().__init__(name, link.transfer_ps(crossing.row_bytes), link.latency_ps)
        self._rows = crossing.rows

    @property
    def table_ps(self) -> int:
        """Time in ps of all rows, without latency."""
        return self._rows * self.row_ps

    def serve(self, ready: Times) -> Times:
        """Return when the first and the last row arrive, in ps, given when they are ready."""
        [[first_ps, last_ps]] = ready.tolist()
        begin_ps = max(first_ps, self.free_ps)
        left_ps = max(last_ps, begin_ps + (self._rows - 1) * self.row_ps) + self.row_ps
        self.free_ps = left_ps
        self.served_rows += self._rows
        self.busy_ps += self.table_ps
        if self.observer is not None:
            self.observer(Served(self.name, np.array([[begin_ps]]), np.array([[left_ps]]), left_ps - begin_ps))
        arrives_ps = np.array([[begin_ps + self.row_ps, left_ps]], np.int64)
        return arrives_ps + self.latency_ps


Bursts = Mapping[StreamKey, Burst]
"""What a device sends before an update, by stream; hops that take no time are left out."""


class TiedHop(NamedTuple):
    """A device's part in a direction of an exchange: when the first and the last row come, and are at the next one."""

    came_ps: Times
    sends_ps: Times


def hop(bursts: Bursts, key: StreamKey, came_ps: Times | None, ready_ps: Times | int | None) -> TiedHop:
    """Return what a device makes of what came in a direction; a part that it adds, if it does, is at `ready_ps`."""
    came = np.zeros((1, 2), np.int64) if came_ps is None else came_ps
    times = came if ready_ps is None else np.maximum(came, ready_ps)
    return TiedHop(came, bursts[key].serve(times) if key in bursts else times)


@dataclasses.dataclass(frozen=True)
class Ways:
    """The ways over links of what crosses a chain: how its stages lie on boards, and what lies between these."""

    fold: Fold
    topology: Topology
    link_at: Callable[[int], Link]

    def hop(self, device: int, table: Crossing, *, forward: bool) -> Hop | None:
        """Return over which link a device sends what crosses the chain before an update; None if it sends nothing.

        Ends of boards with several stages are stages.
        """
        fold, link = self.fold, device if forward else device - 1
        if not table.crosses(link):
            return None
        if fold.chunks > 1:
            first_way = fold.in_v or (link < fold.devices - 1 if forward else link >= fold.count - fold.devices)
            return (device, link + forward) if first_way and fold.link(link) is not None else None
        stops = [stop for stop in range(table.first, table.last + 1) if table.stops_at(stop)]
        behind = bisect.bisect_right(stops, link)
        return Leg(stops[behind - 1], stops[behind]).hop(self.topology, link, forward=forward)

    def bursts(self, tables: Iterable[Crossing], device: int) -> dict[StreamKey, Burst]:
        """Return what a device sends before each update, as resources.

        Where a device has several stages, they pass each link once: forward from the first of all stages on, backward
        from the last. In a V they pass the links of all stages.
        """
        bursts, device_of = dict[StreamKey, Burst](), self.fold.device
        for table, forward in itertools.product(tables, (True, False)):
            hop, key = self.hop(device, table, forward=forward), table.key(forward=forward)
            if hop is not None:
                name = f"{hop_name((device_of(hop[0]), device_of(hop[1])))}, {key}"
                bursts[key] = Burst(name, table, self.link_at(min(hop)))
        return bursts


class UpdateWaits:
    """When stages have what their updates wait for beside their own gradients of a mini-batch, as these come.

    Gradients of tied weights pass first, then the sum of the squares of all. What passes in a direction goes on as far
    as the gradients of the stages on its way are there:

        stage      0          1          2          3
        forward    embedding ---------------------> head        the embedding's gradients; sums of squares so far
        backward   embedding <--------------------- head        the head's gradients; the sum of all squares

    Mini-batches follow one another on each link.
    """

    def __init__(self, count: int, tied: Sequence[TiedWeights], norm: NormSum | None, bursts: Sequence[Bursts]) -> None:
        self._tied, self._norm, self._bursts = tied, norm, bursts
        self._made = [0] * count
        self._open: dict[int, _MiniBatch] = {}

    def add(self, stage: int, own_ps: int) -> Iterator[tuple[int, int, int]]:
        """Take the time in ps at which a stage's own gradients of its next mini-batch are there.

        Yields what follows: a stage, the number of its mini-batch from 1 on, and when all that it takes from others for
        its update has come, 0 if it takes nothing.
        """
        self._made[stage] += 1
        number = self._made[stage]
        step = self._open.setdefault(number, _MiniBatch(len(self._made), self._tied, self._norm, self._bursts))
        for other, came_ps in step.add(stage, own_ps):
            yield other, number, came_ps
        if step.is_done:
            del self._open[number]


class _MiniBatch:
    """What the updates of a mini-batch wait for."""

    def __init__(self, count: int, tied: Sequence[TiedWeights], norm: NormSum | None, bursts: Sequence[Bursts]) -> None:
        self._bursts, self._norm = bursts, norm
        ends = itertools.product(tied, (True, False))
        self._ways = [_Way.of_tied(table, forward=forward) for table, forward in ends]
        self._needed = [sum(stage in way.needs for way in self._ways) for stage in range(count)]
        self._squares = None if norm is None else _Way.of_norm(norm, forward=True)
        self._own_ps: dict[int, int] = {}
        self._came_ps = [0] * count
        self._whole_ps: dict[int, int] = {}
        """When a stage has its gradients, with those of tied weights."""
        self._left = count

    @property
    def is_done(self) -> bool:
        """Whether all stages have what they wait for."""
        return not self._left

    def add(self, stage: int, own_ps: int) -> Iterator[tuple[int, int]]:
        """See `UpdateWaits`; yields stages, and when what they take has come."""
        self._own_ps[stage] = own_ps
        touched = {stage}
        for way in self._ways:
            for needing, came_ps in way.go_on(self._bursts, self._own_ps):
                self._came_ps[needing] = max(self._came_ps[needing], came_ps)
                self._needed[needing] -= 1
                touched.add(needing)
        for place in sorted(touched):
            if place in self._own_ps and not self._needed[place] and place not in self._whole_ps:
                self._whole_ps[place] = max(self._own_ps[place], self._came_ps[place])
                if self._squares is None:
                    self._left -= 1
                    yield place, self._came_ps[place]
        if self._squares is not None and self._norm is not None:
            for _ in self._squares.go_on(self._bursts, self._whole_ps):
                total = _Way.of_norm(self._norm, forward=False, times=self._squares.times)
                for place, total_ps in total.go_on(self._bursts, {}):
                    self._left -= 1
                    yield place, max(self._came_ps[place], total_ps)


@dataclasses.dataclass
class _Way:
    """A direction of a crossing: stages in order, those that add to it, and those that take what has come to them."""

    key: StreamKey
    stages: Sequence[int]
    adds: Collection[int]
    needs: Collection[int]
    times: Times | None = None

    @classmethod
    def of_tied(cls, tied: TiedWeights, *, forward: bool) -> _Way:
        """Return it of the embedding's gradients, which the head needs, or of the head's."""
        stages = range(tied.first, tied.last + 1)
        adds, needs = ([*filter(has, stages)] for has in (tied.has_embedding, tied.has_head))
        if forward:
            return cls(tied.key(forward=True), stages, adds, needs)
        return cls(tied.key(forward=False), stages[::-1], needs, adds)

    @classmethod
    def of_norm(cls, norm: NormSum, *, forward: bool, times: Times | None = None) -> _Way:
        """Return it of the sums of squares, which are whole behind the last stage, or of the whole sum."""
        stages = range(norm.first, norm.last + 1)
        if forward:
            return cls(norm.key(forward=True), stages, stages, (norm.last,))
        return cls(norm.key(forward=False), stages[::-1], (), stages, times)

    def go_on(self, bursts: Sequence[Bursts], ready_ps: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Go on to the first stage whose part is not there; yield stages that need what comes, and when it has come."""
        while self.stages:
            stage, adds = self.stages[0], self.stages[0] in self.adds
            if adds and stage not in ready_ps:
                return
            made = hop(bursts[stage], self.key, self.times, ready_ps[stage] if adds else None)
            self.times, self.stages = made.sends_ps, self.stages[1:]
            if stage in self.needs:
                yield stage, int(made.came_ps[0, 1])
