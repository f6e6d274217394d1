"""The virtual time of one device: the arrival times of what it sends, as a function of those of
what it takes in.

A row starts when its engine is free and every input row that it needs has arrived; it leaves when
it is done and its partial row has arrived. Samples go through an engine in order. Each action of a
schedule is one function here. Whether numbers are also computed makes no difference.

A slice's engines are FIFO resources. Of a convolution whose kernel has three rows, and which adds
to the sums that the slice before has made of other input channels (ICP):

    inputs arrive      r0    r1    r2    r3
    engine                   [ o0 ][ o1 ][ o2 ]         o0 needs r0 and r1, o1 also r2
    partial rows arrive         p0          p1
    rows leave                     o0       o1          o0 when it is done, o1 when p1 is there
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ...comm import FifoResource, Observer, Times
from ..cluster import Board, Engine
from ..mapping import DataPath, DeviceStreams, Slice, SliceEngines, StreamKey
from ..network import Layer, Phase, SfuStep
from ..schedule import SampleSpan, SpanStore
from .routes import Bursts


def engine_name(phase: Phase, part: Slice, device: int | None = None) -> str:
    """Return the name of an engine; without the device, its title."""
    title = f"{phase.value} of {part}"
    return title if device is None else f"{title} on device {device}"


def port_name(device: int) -> str:
    """Return the name of a device's memory port."""
    return f"memory of device {device}"


class SliceClock:
    """The engines of one slice, and their shares of the memory port, if some of the slice's data
    are off chip.

    An engine starts a row when the port has moved what the row needs; the port starts on it when
    its inputs are there, and those of all `block_rows` rows of its block. The slice carries out the
    SFU's steps `before_sending` on its own outputs, and undoes them on their errors. Its update, of
    one of some `shares`, takes `states_ps` more, in which the port moves what the optimiser keeps
    off chip.
    """

    def __init__(
        self,
        device: int,
        part: Slice,
        engines: SliceEngines,
        board: Board,
        ports: Mapping[Phase, FifoResource] = MappingProxyType({}),
        before_sending: Sequence[SfuStep] = (),
        states_ps: int = 0,
        block_rows: int = 1,
        shares: int = 1,
    ) -> None:
        def resource(phase: Phase, engine: Engine) -> FifoResource:
            return FifoResource(engine_name(phase, part, device), engine.row_ps)

        self.ports = dict(ports)

        self.fp = resource(Phase.FP, engines.fp)
        self.eb = resource(Phase.EB, engines.eb) if engines.eb else None
        self.pg = resource(Phase.PG, engines.pg) if engines.pg else None
        self.fp_start_ps: Times = np.zeros(0, np.int64)
        self.eb_start_ps: Times = np.zeros(0, np.int64)
        self.pg_end_ps: Times = np.zeros(0, np.int64)
        self.learns = part.layer.learns and (part.layer.has_pg or part.is_last)
        self.ends_steps = self.learns or part.layer.frozen
        """Whether an update waits for it: for its gradients, or, of what is frozen, for the samples
        to come back.
        """
        self._gradients_ps = 0
        self._rows, self._block_rows = part.layer.rows, block_rows
        self._recurs = part.layer.operation.recurs
        self._kept_errors: Times = np.zeros((0, 0), np.int64)
        self.outputs = (
            before_sending[-1].makes.number if before_sending else part.layer.makes.number
        )
        """Number of the tensor whose rows leave the slice."""
        self._pooled = [step.rows for step in before_sending if step.rows is not None]
        self._sfu = []
        for step in part.layer.sfu[len(before_sending) :]:
            reads = tuple(tensor.number for tensor in step.reads)
            self._sfu.append((reads, step.makes.number, step.row_maps))
        words = -(-len(part.out_channels) // shares)  # of each bank
        self.update_ps = (board.update_ps(words) if self.learns else 0) + states_ps

    def engines(self) -> Iterator[tuple[Phase, FifoResource]]:
        """Yield the slice's engines with their phases."""
        yield Phase.FP, self.fp
        if self.eb is not None:
            yield Phase.EB, self.eb
        if self.pg is not None:
            yield Phase.PG, self.pg

    def _serve(self, phase: Phase, engine: FifoResource, ready: Times) -> tuple[Times, Times]:
        """Return when rows leave an engine, and when each sample starts, on the memory port if the
        engine uses it.
        """
        port = self.ports.get(phase)
        if self._block_rows > 1:
            ready = _in_blocks(ready, self._block_rows)
        if port is None:
            left = engine.serve(ready)
            return left, engine.first_starts(left)
        moved = port.serve(ready)
        return engine.serve(moved), port.first_starts(moved)

    def forward(self, x: Times, partial: Times | None, not_before_ps: Times | int) -> Times:
        """Return when complete or partial output rows leave, given when input rows `x` and
        `partial` rows arrive.
        """
        ready = np.maximum(x, not_before_ps)[:, self._rows.fp]
        left, self.fp_start_ps = self._serve(Phase.FP, self.fp, ready)
        for rows in self._pooled:
            left = left[:, rows.forward]
        # Adding partial sums takes no time: a row leaves with the later of both.
        return left if partial is None else np.maximum(left, partial)

    def output_errors(self, errors: Times) -> Times:
        """Return when rows of output errors are there, given when those of what the slice sends
        arrive.
        """
        for rows in reversed(self._pooled):
            errors = errors[:, rows.backward]
        return errors

    def activate(self, times: dict[int, Times]) -> None:
        """Add the times of the SFU's results to `times`, which has those of its inputs."""
        for reads, makes, maps in self._sfu:
            came = []
            for tensor, rows in zip(reads, maps, strict=True):
                came.append(times[tensor] if rows is None else times[tensor][:, rows.forward])
            times[makes] = functools.reduce(np.maximum, came)

    def deactivate(self, times: dict[int, Times]) -> None:
        """Replace the error times of the SFU's results by those of its inputs, each that of its
        last contribution.
        """
        for reads, makes, maps in reversed(self._sfu):
            came = times.pop(makes)
            for tensor, rows in zip(reads, maps, strict=True):
                ready = came if rows is None else came[:, rows.backward]
                if rows is not None and (rows.backward < 0).any():
                    ready[:, rows.backward < 0] = 0
                times[tensor] = np.maximum(times[tensor], ready) if tensor in times else ready

    def error(self, dy: Times, partial: Times | None, not_before_ps: int) -> Times:
        """Return when rows of input errors leave, given when output errors `dy` and `partial` input
        errors arrive.

        Without EB, no row waits for weights.
        """
        if self.eb is None:
            left = dy[:, self._rows.eb]
            self.eb_start_ps = left[:, 0]
        else:
            left, self.eb_start_ps = self._serve(
                Phase.EB, self.eb, np.maximum(dy, not_before_ps)[:, self._rows.eb]
            )
        self._kept_errors = left
        left = left[:, self._rows.eb_leaves]
        return left if partial is None else np.maximum(left, partial)

    def kept_errors(self, dy: Times) -> Times:
        """Return when rows of errors are there for PG, after EB: output errors `dy`, or steps of a
        recurrent layer.

        Where there is no PG, they are EB's own rows, if there is EB.
        """
        return (
            self._kept_errors if self.eb is not None and (self._recurs or self.pg is None) else dy
        )

    def gradient(self, dy: Times) -> None:
        """Serve each row of errors on PG; its activations have been in Act-RAM since FP.

        Without PG, a sample ends with EB, or with word of its errors; what the SFU learns then
        takes no time.
        """
        self.pg_end_ps = (
            dy[:, -1] if self.pg is None else self._serve(Phase.PG, self.pg, dy)[0][:, -1]
        )
        if self.ends_steps:
            self._gradients_ps = int(self.pg_end_ps[-1])

    @property
    def gradients_ps(self) -> int:
        """Time in ps at which all gradients so far are there; 0 where nothing is learnt."""
        return self._gradients_ps if self.pg is None else self.pg.free_ps

    def updated_ps(self, not_before_ps: int = 0) -> int:
        """Return the time in ps at which the update of its parameters ends."""
        return max(self.gradients_ps, not_before_ps) + self.update_ps


def _in_blocks(ready: Times, size: int) -> Times:
    """Return when the last row of each row's block of `size` is ready, and all before it; the last
    may be short.
    """
    rows = ready.shape[1]
    last = np.minimum(np.arange(rows) // size * size + size, rows) - 1
    return np.maximum.accumulate(ready, axis=1)[:, last]


Arrivals = Mapping[StreamKey, Times]
"""Arrival times of rows in ps, (samples, rows), by stream."""


class Versions(abc.ABC):
    """When each version of a device's weights is ready, in ps; in each epoch the newest one is 0.

    `bursts` are what the device sends of tied weights' gradients before an update.
    """

    def __init__(self, bursts: Bursts = MappingProxyType({})) -> None:
        self.bursts = bursts
        self._updated_ps = {0: 0}  # by version
        self._newest = 0

    @property
    def updated_ps(self) -> int:
        """Time in ps at which the newest weights are ready."""
        return self._updated_ps[self._newest]

    def ready_ps(self, version: int) -> int:
        """Return the time in ps at which a version of the weights is ready."""
        return self._updated_ps[version]

    def free(self, versions: Sequence[int]) -> None:
        """Forget versions of the weights."""
        for version in versions:
            del self._updated_ps[version]

    @abc.abstractmethod
    def update_ends_ps(self, stored_ps: Sequence[int] = (), exchanged_ps: int = 0) -> int:
        """Return the time in ps at which all parameters are updated.

        Args:
            stored_ps: for each block that the device stores, the time at which its gradients
                arrived.
            exchanged_ps: time at which replicas had exchanged their gradients.
        """

    def update(
        self,
        stored_ps: Sequence[int] = (),
        exchanged_ps: int = 0,
        *,
        keeps: bool = False,
        gathered_ps: int = 0,
    ) -> None:
        """Make the next version of the weights, ready once all are updated (`update_ends_ps`), and
        those of other replicas' shares have come at `gathered_ps`; `keeps` says whether the version
        before will be used again.
        """
        ready_ps = max(self.update_ends_ps(stored_ps, exchanged_ps), gathered_ps)
        if not keeps:
            self.free([self._newest])
        self._newest += 1
        self._updated_ps[self._newest] = ready_ps

    def _number_anew(self, updated_ps: int) -> None:
        self._updated_ps, self._newest = {0: updated_ps}, 0


class DeviceClock(Versions):
    """The clocks of a device: its slices' engines, the streams on which it sends, and its versions
    of the weights.

    Args:
        streams: what the device takes in.
        slices: the clocks of its slices.
        links: the streams on which it sends.
        interval_ps: time between two samples that enter the chain.
        stored_update_ps: for each block of parameters that it stores, the time of its update.
        bursts: what it sends of tied weights' gradients.
    """

    def __init__(
        self,
        streams: DeviceStreams,
        slices: Sequence[SliceClock],
        links: Mapping[StreamKey, FifoResource],
        interval_ps: int,
        stored_update_ps: Sequence[int],
        bursts: Bursts = MappingProxyType({}),
    ) -> None:
        super().__init__(bursts)
        self.streams, self.slices, self.links = streams, slices, dict(links)
        self._interval_ps, self._stored_update_ps = interval_ps, stored_update_ps
        self._next_entry_ps = 0
        self._outputs, self._output_errors = SpanStore(), SpanStore()

    @property
    def updates_ps(self) -> list[int]:
        """Times in ps that updates take once gradients are there: of each slice, then of each
        stored block.
        """
        return [*(part.update_ps for part in self.slices), *self._stored_update_ps]

    def begin_epoch(self) -> None:
        """Number versions anew: the newest one is 0."""
        self._number_anew(self.updated_ps)

    def resources(self) -> Iterator[FifoResource]:
        """Yield all engines, shares of the memory port, and links of the device."""
        for part in self.slices:
            for _, engine in part.engines():
                yield engine
            yield from part.ports.values()
        yield from self.links.values()
        yield from self.bursts.values()

    def observe(self, observer: Observer) -> None:
        """Call `observer` for everything that engines and links serve from now on."""
        for resource in self.resources():
            resource.observer = observer

    def forward(
        self, span: SampleSpan, arrived: Arrivals, not_before_ps: int
    ) -> dict[StreamKey, Times]:
        """Carry out F of a span of samples; return the arrival times of what is sent.

        `arrived` has the streams `forward` and `parameters`. The weights are ready at
        `not_before_ps`.
        """
        streams, sent = self.streams, dict[StreamKey, Times]()
        if streams.is_chain_start:
            layer = streams.slices[0].layer
            held = {layer.reads.number: self._enter(span.samples, layer.input[1], not_before_ps)}
        else:
            held = {key.number: arrived[key] for key in streams.arriving}
        for visit, clock, used in zip(streams.visits, self.slices, streams.parameters, strict=True):
            layer = visit.part.layer
            x, partial = held[layer.reads.number], None
            self._send(sent, visit.passed, held)
            if visit.partial is not None:
                partial = arrived[visit.partial]
            ready: Times | int = not_before_ps
            for number in used:
                ready = np.maximum(ready, arrived[StreamKey(DataPath.PARAMETERS, number)])
            rows = clock.forward(x, partial, ready)
            if layer.operation.recurs and visit.partial is not None:
                self._gather(DataPath.STATES, layer, rows)
            if visit.unfinished is None:
                held[clock.outputs] = rows
                clock.activate(held)
                held = {tensor.number: held[tensor.number] for tensor in layer.hands_on}
            else:
                sent[visit.unfinished] = self._over(visit.unfinished, rows)
        # Weights stored for others leave as FP of the sample starts, ahead of its maps.
        started = self.slices[0].fp_start_ps[:, None]
        stored = [StreamKey(DataPath.PARAMETERS, number) for number in streams.stored]
        self._send(sent, stored, dict.fromkeys(streams.stored, started))
        if streams.is_chain_end:
            self._outputs.put(span, held[streams.slices[-1].layer.hands_on[0].number])
        self._send(sent, streams.leaving, held)
        return sent

    def backward(
        self, span: SampleSpan, arrived: Arrivals, not_before_ps: int
    ) -> dict[StreamKey, Times]:
        """Carry out B of a span of samples, the last slice first; return the arrival times of what
        is sent.

        `arrived` has the streams `backward`. The times of output errors are kept for PG.
        """
        streams, sent = self.streams, dict[StreamKey, Times]()
        errors = {key.number: arrived[key] for key in streams.errors_arriving}
        if streams.is_chain_end:
            [outputs] = self._outputs.read(span)
            layer = streams.slices[-1].layer
            errors[layer.hands_on[0].number] = outputs[:, ::-1] if layer.last_first else outputs
        output_errors = []
        for visit, clock in zip(reversed(streams.visits), reversed(self.slices), strict=True):
            layer = visit.part.layer
            if visit.errors is None:
                clock.deactivate(errors)
                sent_errors = errors.pop(clock.outputs)
            else:
                sent_errors = arrived[visit.errors]
            if visit.returned is not None:
                sent[visit.returned] = self._over(visit.returned, sent_errors)
            dy = clock.output_errors(sent_errors)
            reads = layer.reads.number
            errors[reads] = clock.error(dy, errors.get(reads), not_before_ps)
            kept = clock.kept_errors(dy)
            output_errors.append(kept)
            if layer.operation.recurs and layer.has_eb:
                if visit.returned is not None:
                    self._gather(DataPath.INPUT_ERRORS, layer, kept)
                if visit.errors is not None:
                    self._gather(DataPath.STATE_ERRORS, layer, kept)
        self._send(sent, streams.errors_leaving, errors)
        self._output_errors.put(span, *reversed(output_errors))
        return sent

    def gradient(self, whole: SampleSpan) -> dict[StreamKey, Times]:
        """Carry out W of a micro-batch; return the arrival times of gradients of parameters that
        others store.
        """
        sent = dict[StreamKey, Times]()
        kept = self._output_errors.read(whole)
        for clock, dy, used in zip(self.slices, kept, self.streams.parameters, strict=True):
            clock.gradient(dy)
            gradients = [StreamKey(DataPath.PARAMETER_GRADIENTS, number) for number in used]
            self._send(sent, gradients, dict.fromkeys(used, clock.pg_end_ps[:, None]))
        return sent

    def gradients_ps(self, stored_ps: Sequence[int]) -> int:
        """Return the time in ps when all gradients of a mini-batch are here; those of stored blocks
        at `stored_ps`.
        """
        return max(*(part.gradients_ps for part in self.slices), *stored_ps, 0)

    def update_ends_ps(self, stored_ps: Sequence[int] = (), exchanged_ps: int = 0) -> int:
        """See `Versions`: all slices, and all stored blocks."""
        blocks = zip(stored_ps, self._stored_update_ps, strict=True)
        blocks_ps = (max(came_ps, exchanged_ps) + takes_ps for came_ps, takes_ps in blocks)
        return max(*(part.updated_ps(exchanged_ps) for part in self.slices), *blocks_ps, 0)

    def relay(self, key: StreamKey, times: Times) -> Times:
        """Pass on a stream between other devices; return its arrival times at the next one."""
        return self._over(key, times)

    def shrink(self, key: StreamKey, share: float) -> None:
        """Reduce further rows of a stream to this share of their bytes."""
        if key in self.links:
            self.links[key].shrink(share)

    def _enter(self, samples: int, rows: int, not_before_ps: int) -> Times:
        """Return when samples enter the chain: one an interval, and none before the one ahead has
        its weights.
        """
        entries = self._next_entry_ps + self._interval_ps * np.arange(samples)
        entries[1:] += max(0, not_before_ps - int(entries[0]) - self._interval_ps)
        self._next_entry_ps = max(int(entries[-1]) + self._interval_ps, not_before_ps)
        return np.repeat(entries[:, None], rows, axis=1)

    def _gather(self, path: DataPath, layer: Layer, times: Times) -> None:
        """Count what a cut recurrent layer's steps send; their rows' times have the gathering in
        them (`lockstep`).
        """
        self.links[StreamKey(path, layer.makes.number)].serve(times)

    def _send(
        self, sent: dict[StreamKey, Times], keys: Iterable[StreamKey], rows: Mapping[int, Times]
    ) -> None:
        for key in keys:
            sent[key] = self._over(key, rows[key.number])

    def _over(self, key: StreamKey, times: Times) -> Times:
        """Return when rows arrive; those whose route has no link for this device have arrived."""
        return self.links[key].serve(times) if key in self.links else times

    def state(self) -> dict[str, Any]:
        """Return the state that training changes; to be called between epochs, when no sample is in
        flight.
        """
        resources = {resource.name: resource.state() for resource in self.resources()}
        return {
            "resources": resources,
            "next_entry_ps": self._next_entry_ps,
            "updated_ps": self.updated_ps,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        for resource in self.resources():
            resource.restore(state["resources"][resource.name])
        self._next_entry_ps = state["next_entry_ps"]
        self._number_anew(state["updated_ps"])
