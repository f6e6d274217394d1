"""The virtual time of a stage whose device takes actions as a whole, micro-batch by micro-batch.

It stands in for `DeviceClock` where boards are not FPDeep's: an action starts when its device is free and all its
messages are there, takes as long as its stage's costs say, and its message leaves when it is done (`stored`) or while
it runs (`hidden`). All streams of an action are one message. An update takes no time of its own.

Where F and B share a pool, the end of one depends on messages that come while it runs, so on the whole chain. Then the
timeline engine says beforehand when each action of the epoch runs, the same on every rank.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from ...comm import Observer, Times
from ..mapping import DeviceStreams, Stream, StreamKey
from ..network import Phase
from ..schedule import PASSES, Backward, Kind, Machine, SampleSpan, StageCosts
from .program import Step, work_ps
from .stage_device import Ran, StageDevice


class StageTimes(Protocol):
    """The costs of a plan's stages on its machine."""

    @property
    def machine(self) -> Machine:
        """How devices and links work."""

    @property
    def chunks(self) -> int:
        """Number of stages of a device."""

    def costs(self, stage: int, samples: int) -> StageCosts:
        """Return the costs of a stage for a micro-batch of `samples` samples, without transfers."""

    def message_bytes(self, streams: Iterable[Stream], samples: int) -> int:
        """Return the bytes of a message with `samples` samples of some streams."""

    def memory_bytes(self, stage: int) -> tuple[tuple[int, int, int], int]:
        """Return a stage's bytes of weights, gradients and features on chip, and all its bytes off chip."""

    def port_bytes(self, stage: int, samples: int) -> int:
        """Return the bytes that such a micro-batch moves over the memory port."""


@dataclasses.dataclass(frozen=True)
class EpochCourse:
    """When actions of an epoch start and end, and their messages arrive, in ps from its begin."""

    ran_ps: Mapping[Step, tuple[int, int]]
    arrives_ps: Mapping[Step, int]
    makespan_ps: int


class StageClock:
    """The clock of one stage; `right` and `left` are what it sends to the next stage and the one before."""

    def __init__(
        self,
        streams: DeviceStreams,
        times: StageTimes,
        device: StageDevice,
        right: Sequence[Stream],
        left: Sequence[Stream],
        neighbours: tuple[int, int],
    ) -> None:
        self.streams, self.device = streams, device
        self._times, self._machine = times, times.machine
        self._sent, self._neighbours = {Kind.FORWARD: right, Kind.BACKWARD: left}, neighbours
        self._updated_ps = {0: 0}  # by version
        self._newest = 0
        self._ended_ps: dict[tuple[Kind, int], int] = {}  # by action and micro-batch
        self._course: EpochCourse | None = None
        self._begin_ps = self._next_ps = 0  # of this epoch and the next, if their course is known
        self._passed = self._begun = 0  # samples of earlier epochs, and those with a F in this one
        self._done_ps = 0  # end of the last parameter gradients
        self.port_bytes = 0
        self.busy_ps = dict.fromkeys(Phase, 0)
        self.sent_rows: dict[StreamKey, float] = {stream.key: 0.0 for stream in (*right, *left)}

    @property
    def updated_ps(self) -> int:
        """Time in ps at which the newest weights are ready."""
        return self._updated_ps[self._newest]

    def ready_ps(self, version: int) -> int:
        """Return the time in ps at which a version of the weights is ready."""
        return self._updated_ps[version]

    def begin_epoch(self, course: EpochCourse | None = None) -> None:
        """Number versions anew: the newest one is 0. `course` says when actions run, where that is known beforehand."""
        self._updated_ps, self._newest = {0: self.updated_ps}, 0
        self._passed, self._begun = self._passed + self._begun, 0
        self._begin_ps, self._course = self._next_ps, course
        self._next_ps += 0 if course is None else course.makespan_ps

    def observe(self, observer: Observer) -> None:
        """Call `observer` for everything that engines and links serve from now on."""
        self.device.observe(observer)

    def forward(
        self, span: SampleSpan, arrived: Mapping[StreamKey, Times], not_before_ps: int
    ) -> dict[StreamKey, Times]:
        """Carry out F of a span of samples; return the arrival times of what is sent."""
        costs = self._times.costs(self.streams.device, span.samples)
        self.busy_ps[Phase.FP] += costs.forward_ps
        self._begun += span.samples
        return self._run(Kind.FORWARD, span, costs, arrived, not_before_ps)

    def backward(
        self, span: SampleSpan, arrived: Mapping[StreamKey, Times], not_before_ps: int
    ) -> dict[StreamKey, Times]:
        """Carry out B of a span of samples, with its parameter gradients where the machine fuses both."""
        costs = self._times.costs(self.streams.device, span.samples)
        self.busy_ps[Phase.EB] += costs.eb_ps
        if self._machine.backward is Backward.FUSED:
            self.busy_ps[Phase.PG] += costs.known_pg_ps
        return self._run(Kind.BACKWARD, span, costs, arrived, not_before_ps)

    def gradient(self, whole: SampleSpan) -> dict[StreamKey, Times]:
        """Carry out W of a micro-batch, unless it was part of B; nothing is sent."""
        self.port_bytes += self._times.port_bytes(self.streams.device, whole.samples)
        if self._machine.backward is Backward.SPLIT:
            costs = self._times.costs(self.streams.device, whole.samples)
            self.busy_ps[Phase.PG] += costs.known_pg_ps
            self._run(Kind.GRADIENT, whole, costs)
        return {}

    def _run(
        self,
        kind: Kind,
        span: SampleSpan,
        costs: StageCosts,
        arrived: Mapping[StreamKey, Times] = MappingProxyType({}),
        not_before_ps: int = 0,
    ) -> dict[StreamKey, Times]:
        index = span.of.index
        own_ps = 0 if kind.before is None else self._ended_ps.get((kind.before, index), 0)
        ready_ps = max([not_before_ps, own_ps, *(int(times[-1, -1]) for times in arrived.values())])
        is_last = kind is self._machine.frees_features
        step = Step(kind, index, self.streams.device)
        if self._course is None:
            sample = self._passed + span.first
            ran = self.device.run(kind, ready_ps, work_ps(costs, kind, self._machine), sample, frees=is_last)
        else:
            start_ps, end_ps = self._course.ran_ps[step]
            ran = self.device.ran(kind, Ran(self._begin_ps + start_ps, self._begin_ps + end_ps))
            assert ready_ps <= ran.start_ps, f"{step}: starts at {ran.start_ps} ps, ready at {ready_ps} ps"
        self._ended_ps[kind, index] = ran.end_ps
        if is_last:
            self._done_ps = max(self._done_ps, ran.end_ps)
            if span.ends:
                for each in PASSES:
                    self._ended_ps.pop((each, index), None)
        return self._send(kind, span, ran)

    def _send(self, kind: Kind, span: SampleSpan, ran: Ran) -> dict[StreamKey, Times]:
        streams = self._sent.get(kind, ())
        if not streams:
            return {}
        arrives_ps, receiver = ran.end_ps, self._neighbours[kind is Kind.BACKWARD]
        if self._course is not None:
            step = Step(kind, span.of.index, self.streams.device)
            arrives_ps = self._begin_ps + self._course.arrives_ps.get(step, ran.end_ps - self._begin_ps)
        elif receiver != self.device.number:
            sent_bytes, sample = self._times.message_bytes(streams, span.samples), self._passed + span.first
            arrives_ps = self.device.wires[receiver].carry(ran, sent_bytes, self._machine.transport, sample)
        for stream in streams:
            self.sent_rows[stream.key] += span.samples * stream.rows
        return {stream.key: np.full((span.samples, stream.rows), arrives_ps, np.int64) for stream in streams}

    def gradients_ps(self, stored_ps: Sequence[int]) -> int:
        """Return the time in ps when all gradients of a mini-batch are here."""
        return max([self._done_ps, *stored_ps])

    def update(self, stored_ps: Sequence[int] = (), exchanged_ps: int = 0, *, keeps: bool = False) -> None:
        """Make the next version of the weights; `keeps` says whether the version before will be used again."""
        if not keeps:
            self.free([self._newest])
        self._newest += 1
        self._updated_ps[self._newest] = max(self._done_ps, exchanged_ps, *stored_ps)

    def free(self, versions: Sequence[int]) -> None:
        """Forget versions of the weights."""
        for version in versions:
            del self._updated_ps[version]

    def state(self) -> dict[str, Any]:
        """Return the state that training changes; to be called between epochs, when no sample is in flight."""
        busy_ps, sent_rows = [*self.busy_ps.values()], [*self.sent_rows.values()]
        counts = {"busy_ps": busy_ps, "sent_rows": sent_rows, "port_bytes": self.port_bytes}
        times = {"done_ps": self._done_ps, "updated_ps": self.updated_ps, "next_ps": self._next_ps}
        times["samples"] = self._passed + self._begun
        return {**counts, **times, "device": self.device.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.busy_ps = dict(zip(self.busy_ps, state["busy_ps"], strict=True))
        self.sent_rows = dict(zip(self.sent_rows, state["sent_rows"], strict=True))
        self.port_bytes = state["port_bytes"]
        self._done_ps, self._next_ps = state["done_ps"], state["next_ps"]
        self._passed, self._begun = state["samples"], 0
        self._updated_ps, self._newest = {0: state["updated_ps"]}, 0
        self.device.restore(state["device"])
