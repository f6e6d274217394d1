"""The virtual time of a stage whose device takes actions as a whole, micro-batch by micro-batch.

It stands in for `DeviceClock` where boards are not FPDeep's: an action starts when its board is
free and all its messages are there, takes as long as its stage's costs say, and its message leaves
when it is done (`stored`) or while it runs (`hidden`). All streams of an action are one message. An
update takes no time of its own.

Messages say when they come, and the exchange with other replicas when weights are there, which may
depend on what a codec saves. So the clock asks its board action by action. Where F and B share a
pool, the end of one depends on messages that come while it runs, so on the whole chain; then it
replays the timeline of the epoch, which every rank knows beforehand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from ...comm import Observer, Times
from ..mapping import DeviceStreams, Stream, StreamKey
from ..network import Phase
from ..schedule import (
    MICRO_BATCH_KINDS,
    Backward,
    Fold,
    Kind,
    Machine,
    SampleSpan,
    StageCosts,
)
from .board import MAKES, ActionBoard, Ran, StageLoads, Step, work_ps
from .device_clock import Versions
from .routes import Bursts
from .timeline import Timeline


class StageTimes(Protocol):
    """The costs of a plan's stages on its machine."""

    @property
    def machine(self) -> Machine:
        """How devices and links work."""

    @property
    def fold(self) -> Fold:
        """How the stages lie on the devices."""

    @property
    def recomputed(self) -> Collection[int]:
        """The layers, by index, whose features B, or R, computes again."""

    @property
    def apart(self) -> bool:
        """Whether R is an action of its own."""

    def costs(self, stage: int, samples: int) -> StageCosts:
        """Return the costs of a stage for a micro-batch of `samples` samples, without transfers."""

    def layer_times(self, stage: int, samples: int) -> Sequence[tuple[int, int, int]]:
        """Return the times in ps of FP, EB and PG of each of a stage's layers."""

    def message_bytes(self, streams: Iterable[Stream], samples: int) -> int:
        """Return the bytes of a message with `samples` samples of some streams."""

    def memory_bytes(self, stage: int) -> tuple[tuple[int, int, int], int]:
        """Return a stage's bytes of weights, gradients and features on chip, and all its bytes off
        chip.
        """

    def port_bytes(self, stage: int, samples: int) -> int:
        """Return the bytes that such a micro-batch moves over the memory port."""


class StageClock(Versions):
    """The clock of one stage.

    Args:
        streams: what the stage takes in.
        times: the costs of the plan's stages, and the bytes that they move.
        loads: what the stages take.
        board: where it runs.
        right: what it sends to the next stage.
        left: what it sends to the stage before.
        neighbours: the boards of these two.
        bursts: what it sends of tied weights' gradients.
    """

    def __init__(
        self,
        streams: DeviceStreams,
        times: StageTimes,
        loads: StageLoads,
        board: ActionBoard,
        right: Sequence[Stream],
        left: Sequence[Stream],
        neighbours: tuple[int, int],
        bursts: Bursts = MappingProxyType({}),
    ) -> None:
        super().__init__(bursts)
        self.streams, self.board = streams, board
        self._times, self._loads, self._machine = times, loads, loads.machine
        self._sent, self._neighbours = {Kind.FORWARD: right, Kind.BACKWARD: left}, neighbours
        self._ended_ps: dict[tuple[Kind, int], int] = {}  # by action and micro-batch
        self._timeline: Timeline | None = None
        self._passed = self._begun = 0  # samples of earlier epochs, and those with a F in this one
        self._done_ps = 0  # end of the last parameter gradients
        self.port_bytes = 0
        self.busy_ps = dict.fromkeys(Phase, 0)
        self.sent_rows: dict[StreamKey, float] = {stream.key: 0.0 for stream in (*right, *left)}

    @property
    def samples(self) -> int:
        """Samples that have begun here since the clock did."""
        return self._passed + self._begun

    def begin_epoch(self, timeline: Timeline | None = None) -> None:
        """Number versions anew: the newest is 0. `timeline` says when actions run, where that is
        known beforehand.
        """
        self._number_anew(self.updated_ps)
        self._passed, self._begun, self._timeline = self.samples, 0, timeline

    def observe(self, observer: Observer) -> None:
        """Call `observer` for everything that engines and links serve from now on."""
        self.board.observe(observer)
        for burst in self.bursts.values():
            burst.observer = observer

    def starts_ps(
        self,
        kind: Kind,
        span: SampleSpan,
        arrived: Mapping[StreamKey, Times],
        not_before_ps: int,
    ) -> int:
        """Return when F or B of a span of samples starts."""
        return self.board.starts_ps(kind, self._ready_ps(kind, span, arrived, not_before_ps))

    def layers(self, kind: Kind, span: SampleSpan) -> list[tuple[int, int]]:
        """Return for each layer, in the order in which F, R or B takes them, how many weights it
        needs first, and the time of its work in ps.

        PG needs none, nor does B of a layer without EB. Recomputed layers come in R, or else in B,
        before all others.
        """
        streams, fused = self.streams, self._machine.backward is Backward.FUSED
        times = self._times.layer_times(streams.device, span.samples)
        held = [*zip(streams.slices, streams.layer_values, times, strict=True)]
        if kind is Kind.FORWARD:
            return [(values, fp_ps) for _, values, (fp_ps, _, _) in held]
        again = [
            (values, fp_ps)
            for part, values, (fp_ps, _, _) in held
            if part.layer.index in self._times.recomputed
        ]
        if kind is Kind.RECOMPUTE:
            return again
        backward = [
            (values if part.layer.has_eb else 0, eb_ps + pg_ps * fused)
            for part, values, (_, eb_ps, pg_ps) in reversed(held)
        ]
        return backward if self._times.apart else again + backward

    def takes_ps(self, start_ps: int, work_ps: int, span: SampleSpan) -> int:
        """Return how long some of a span's work takes that begins at a time in ps."""
        return self.board.takes_ps(start_ps, work_ps, self._passed + span.first)

    def forward(
        self,
        span: SampleSpan,
        arrived: Mapping[StreamKey, Times],
        not_before_ps: int,
        end_ps: int | None = None,
    ) -> dict[StreamKey, Times]:
        """Carry out F of a span of samples; return the arrival times of what is sent.

        Its end is given where it waits for other replicas on the way.
        """
        costs = self._loads.costs(self.streams.device, span.samples)
        self.busy_ps[Phase.FP] += costs.forward_ps
        self._begun += span.samples
        return self._run(Kind.FORWARD, span, costs, arrived, not_before_ps, end_ps)

    def backward(
        self,
        span: SampleSpan,
        arrived: Mapping[StreamKey, Times],
        not_before_ps: int,
        end_ps: int | None = None,
    ) -> dict[StreamKey, Times]:
        """Carry out B of a span of samples, with its parameter gradients where the machine fuses
        both; see `forward`.
        """
        costs = self._loads.costs(self.streams.device, span.samples)
        self.busy_ps[Phase.EB] += costs.eb_ps
        if self._machine.backward is Backward.FUSED:
            self.busy_ps[Phase.PG] += costs.known_pg_ps
        return self._run(Kind.BACKWARD, span, costs, arrived, not_before_ps, end_ps)

    def recompute(self, whole: SampleSpan, not_before_ps: int, end_ps: int | None = None) -> None:
        """Carry out R of a micro-batch; nothing is sent; see `forward`."""
        costs = self._loads.costs(self.streams.device, whole.samples)
        self.busy_ps[Phase.FP] += costs.recompute_ps
        self._run(Kind.RECOMPUTE, whole, costs, not_before_ps=not_before_ps, end_ps=end_ps)

    def move(self, kind: Kind, whole: SampleSpan) -> None:
        """Carry out O or L of a micro-batch; nothing is sent to neighbours."""
        self._run(kind, whole, self._loads.costs(self.streams.device, whole.samples))

    def gradient(self, whole: SampleSpan) -> dict[StreamKey, Times]:
        """Carry out W of a micro-batch, unless it was part of B; nothing is sent."""
        self.port_bytes += self._times.port_bytes(self.streams.device, whole.samples)
        if self._machine.backward is Backward.SPLIT:
            costs = self._loads.costs(self.streams.device, whole.samples)
            self.busy_ps[Phase.PG] += costs.known_pg_ps
            self._run(Kind.GRADIENT, whole, costs)
        return {}

    def _ready_ps(
        self,
        kind: Kind,
        span: SampleSpan,
        arrived: Mapping[StreamKey, Times],
        not_before_ps: int,
    ) -> int:
        index, own_ps = span.micro_batch.index, 0
        if kind.before is not None:
            own_ps = self._ended_ps.get((kind.before, index), 0)
        if kind is Kind.BACKWARD:
            for again in (Kind.RECOMPUTE, Kind.LOAD):
                own_ps = max(own_ps, self._ended_ps.get((again, index), 0))
        # An action begins as a whole: with the last row of the last sample.
        return max([not_before_ps, own_ps, *(int(times[-1, -1]) for times in arrived.values())])

    def _run(
        self,
        kind: Kind,
        span: SampleSpan,
        costs: StageCosts,
        arrived: Mapping[StreamKey, Times] = MappingProxyType({}),
        not_before_ps: int = 0,
        end_ps: int | None = None,
    ) -> dict[StreamKey, Times]:
        index, board = span.micro_batch.index, self.board
        ready_ps = self._ready_ps(kind, span, arrived, not_before_ps)
        is_last = kind is self._machine.frees_features
        if self._timeline is None:
            # On engines of its own F would run ahead of the room for features; in turns, the
            # order of the program holds it back, but for what O frees.
            if kind in MAKES:
                ready_ps = max(ready_ps, board.room_ps)
            work = work_ps(costs, kind, self._machine)
            ran = board.run(kind, ready_ps, work, self._passed + span.first, end_ps)
        else:
            step = Step(kind, index, self.streams.device)
            # The timeline has served the boards before: here its times are read, and checked.
            ran = board.has_run(kind, self._timeline.ran[step])
            assert ready_ps <= ran.start_ps, (
                f"{step}: starts at {ran.start_ps} ps, ready at {ready_ps} ps"
            )
        self._ended_ps[kind, index] = ran.end_ps
        if is_last or kind is Kind.OFFLOAD:
            board.room_ps = max(board.room_ps, ran.end_ps)
        if is_last:
            self._done_ps = max(self._done_ps, ran.end_ps)
            if span.ends:
                # No action of the micro-batch follows; an epoch has any number of them.
                for done in MICRO_BATCH_KINDS:
                    self._ended_ps.pop((done, index), None)
        return self._send(kind, span, ran)

    def _send(self, kind: Kind, span: SampleSpan, ran: Ran) -> dict[StreamKey, Times]:
        streams = self._sent.get(kind, ())
        if not streams:
            return {}
        arrives_ps, receiver, stage = (
            ran.end_ps,
            self._neighbours[kind is Kind.BACKWARD],
            self.streams.device,
        )
        # Between stages of one board nothing travels.
        if receiver != self.board.number:
            wire = self.board.wires[receiver]
            if self._timeline is not None:
                carried = self._timeline.carried[Step(kind, span.micro_batch.index, stage)]
            else:
                message, sample = (
                    self._loads.message(kind, stage, span.samples),
                    self._passed + span.first,
                )
                carried = wire.carry(ran, message, self._machine.transport, sample)
            wire.has_carried(carried)
            arrives_ps = carried.arrival_ps
        for stream in streams:
            self.sent_rows[stream.key] += span.samples * stream.rows
        return {
            stream.key: np.full((span.samples, stream.rows), arrives_ps, np.int64)
            for stream in streams
        }

    def gradients_ps(self, stored_ps: Sequence[int]) -> int:
        """Return the time in ps when all gradients of a mini-batch are here."""
        return max([self._done_ps, *stored_ps])

    def update_ends_ps(self, stored_ps: Sequence[int] = (), exchanged_ps: int = 0) -> int:
        """See `Versions`; an update takes no time itself."""
        return max(self._done_ps, exchanged_ps, *stored_ps)

    def state(self) -> dict[str, Any]:
        """Return the state that training changes; to be called between epochs, when no sample is in
        flight.
        """
        busy_ps, sent_rows = [*self.busy_ps.values()], [*self.sent_rows.values()]
        counts = {"busy_ps": busy_ps, "sent_rows": sent_rows, "port_bytes": self.port_bytes}
        times = {"done_ps": self._done_ps, "updated_ps": self.updated_ps}
        tied = {burst.name: burst.state() for burst in self.bursts.values()}
        return {
            **counts,
            **times,
            "samples": self.samples,
            "device": self.board.state(),
            "tied": tied,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned, but for the board, which stages may share."""
        self.busy_ps = dict(zip(self.busy_ps, state["busy_ps"], strict=True))
        self.sent_rows = dict(zip(self.sent_rows, state["sent_rows"], strict=True))
        self.port_bytes = state["port_bytes"]
        self._done_ps = state["done_ps"]
        for burst in self.bursts.values():
            burst.restore(state["tied"][burst.name])
        self._passed, self._begun = state["samples"], 0
        self._number_anew(state["updated_ps"])
