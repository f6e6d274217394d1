"""The virtual time of one device: the arrival times of what it sends, as a function of those of what it takes in.

A row starts when its engine is free and every input row that it needs has arrived; it leaves when it is done and its
partial row has arrived. Samples go through an engine in order. Each action of a schedule is one function here. Whether
numbers are also computed makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ...comm import FifoResource, Observer, Times
from ..mapping import DataPath, DeviceStreams, StreamKey, with_errors
from ..network import Layer
from ..schedule import SampleSpan, SpanStore
from .crossing import Bursts
from .slice_clock import SliceClock

Arrivals = Mapping[StreamKey, Times]
"""Arrival times of rows in ps, (samples, rows), by stream."""


class Versions:
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

    def _make_version(self, ready_ps: int, *, keeps: bool) -> None:
        if not keeps:
            self.free([self._newest])
        self._newest += 1
        self._updated_ps[self._newest] = ready_ps

    def _number_anew(self, updated_ps: int) -> None:
        self._updated_ps, self._newest = {0: updated_ps}, 0


class DeviceClock(Versions):
    """The clocks of a device: its slices' engines, the streams on which it sends, and its versions of the weights.

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
        """Times in ps that updates take once gradients are there: of each slice, then of each stored block."""
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

    def forward(self, span: SampleSpan, arrived: Arrivals, not_before_ps: int) -> dict[StreamKey, Times]:
        """Carry out F of a span of samples; return the arrival times of what is sent.

        `arrived` has the streams `forward` and `parameters`. The weights are ready at `not_before_ps`.
        """
        streams, sent = self.streams, dict[StreamKey, Times]()
        if streams.is_chain_start:
            layer = streams.slices[0].layer
            held = {layer.reads.number: self._enter(span.samples, layer.input[1], not_before_ps)}
        else:
            held = {key.number: arrived[key] for key in streams.forward if key.path is DataPath.ACTIVATIONS}
        for part, clock, used in zip(streams.slices, self.slices, streams.parameters, strict=True):
            layer = part.layer
            x, partial = held[layer.reads.number], None
            if not part.is_last:
                self._send(sent, DataPath.ACTIVATIONS, {t.number: held[t.number] for t in layer.takes})
            if not part.is_first:
                partial = arrived[StreamKey(DataPath.PARTIAL_ACTIVATIONS, layer.makes.number)]
            ready: Times | int = not_before_ps
            for number in used:
                ready = np.maximum(ready, arrived[StreamKey(DataPath.PARAMETERS, number)])
            rows = clock.forward(x, partial, ready)
            if layer.operation.recurs and not part.is_first:
                self._gather(DataPath.STATES, layer, rows)
            if part.is_last:
                held[clock.outputs] = rows
                clock.activate(held)
                held = {tensor.number: held[tensor.number] for tensor in layer.hands_on}
            else:
                self._send(sent, DataPath.PARTIAL_ACTIVATIONS, {layer.makes.number: rows})
        started = self.slices[0].fp_start_ps[:, None]
        self._send(sent, DataPath.PARAMETERS, dict.fromkeys(streams.stored, started))
        if streams.is_chain_end:
            self._outputs.put(span, held[streams.slices[-1].layer.hands_on[0].number])
        elif streams.slices[-1].is_last:
            self._send(sent, DataPath.ACTIVATIONS, held)
        return sent

    def backward(self, span: SampleSpan, arrived: Arrivals, not_before_ps: int) -> dict[StreamKey, Times]:
        """Carry out B of a span of samples, the last slice first; return the arrival times of what is sent.

        `arrived` has the streams `backward`. The times of output errors are kept for PG.
        """
        streams, sent = self.streams, dict[StreamKey, Times]()
        errors = {key.number: arrived[key] for key in streams.backward if key.path is DataPath.INPUT_ERRORS}
        if streams.is_chain_end:
            [outputs] = self._outputs.read(span)
            layer = streams.slices[-1].layer
            errors[layer.hands_on[0].number] = outputs[:, ::-1] if layer.last_first else outputs
        output_errors = []
        for part, clock in zip(reversed(streams.slices), reversed(self.slices), strict=True):
            layer = part.layer
            if part.is_last:
                clock.deactivate(errors)
                sent_errors = errors.pop(clock.outputs)
            else:
                sent_errors = arrived[StreamKey(DataPath.OUTPUT_ERRORS, layer.makes.number)]
            if not part.is_first:
                self._send(sent, DataPath.OUTPUT_ERRORS, {layer.makes.number: sent_errors})
            dy = clock.output_errors(sent_errors)
            reads = layer.reads.number
            errors[reads] = clock.error(dy, errors.get(reads), not_before_ps)
            kept = clock.kept_errors(dy)
            output_errors.append(kept)
            if layer.operation.recurs and layer.has_eb:
                if not part.is_first:
                    self._gather(DataPath.INPUT_ERRORS, layer, kept)
                if not part.is_last:
                    self._gather(DataPath.STATE_ERRORS, layer, kept)
        if not streams.is_chain_start:
            tensors = with_errors(streams.slices[0].layer.takes)
            self._send(sent, DataPath.INPUT_ERRORS, {t.number: errors[t.number] for t in tensors})
        self._output_errors.put(span, *reversed(output_errors))
        return sent

    def gradient(self, whole: SampleSpan) -> dict[StreamKey, Times]:
        """Carry out W of a micro-batch; return the arrival times of gradients of parameters that others store."""
        sent = dict[StreamKey, Times]()
        kept = self._output_errors.read(whole)
        for clock, dy, used in zip(self.slices, kept, self.streams.parameters, strict=True):
            clock.gradient(dy)
            self._send(sent, DataPath.PARAMETER_GRADIENTS, dict.fromkeys(used, clock.pg_end_ps[:, None]))
        return sent

    def gradients_ps(self, stored_ps: Sequence[int]) -> int:
        """Return the time in ps when all gradients of a mini-batch are here; those of stored blocks at `stored_ps`."""
        return max(*(part.gradients_ps for part in self.slices), *stored_ps, 0)

    def update(self, stored_ps: Sequence[int] = (), exchanged_ps: int = 0, *, keeps: bool = False) -> None:
        """Make the next version of the weights, ready once all slices and all stored parameters are updated.

        Args:
            stored_ps: for each block that the device stores, the time at which its gradients arrived.
            exchanged_ps: time at which replicas had exchanged their gradients.
            keeps: whether the version before will be used again.
        """
        blocks = zip(stored_ps, self._stored_update_ps, strict=True)
        blocks_ps = (max(came_ps, exchanged_ps) + takes_ps for came_ps, takes_ps in blocks)
        ready_ps = max(*(part.updated_ps(exchanged_ps) for part in self.slices), *blocks_ps, 0)
        self._make_version(ready_ps, keeps=keeps)

    def relay(self, key: StreamKey, times: Times) -> Times:
        """Pass on a stream between other devices; return its arrival times at the next one."""
        return self._over(key, times)

    def shrink(self, key: StreamKey, share: float) -> None:
        """Reduce further rows of a stream to this share of their bytes."""
        if key in self.links:
            self.links[key].shrink(share)

    def _enter(self, samples: int, rows: int, not_before_ps: int) -> Times:
        """Return when samples enter the chain: one an interval, and none before the one ahead has its weights."""
        entries = self._next_entry_ps + self._interval_ps * np.arange(samples)
        entries[1:] += max(0, not_before_ps - int(entries[0]) - self._interval_ps)
        self._next_entry_ps = max(int(entries[-1]) + self._interval_ps, not_before_ps)
        return np.repeat(entries[:, None], rows, axis=1)

    def _gather(self, path: DataPath, layer: Layer, times: Times) -> None:
        """Count what a cut recurrent layer's steps send; their rows' times have the gathering in them (`lockstep`)."""
        self.links[StreamKey(path, layer.makes.number)].serve(times)

    def _send(self, sent: dict[StreamKey, Times], path: DataPath, rows: Mapping[int, Times]) -> None:
        for number, times in rows.items():
            key = StreamKey(path, number)
            sent[key] = self._over(key, times)

    def _over(self, key: StreamKey, times: Times) -> Times:
        """Return when rows arrive; those whose route has no link for this device have arrived."""
        return self.links[key].serve(times) if key in self.links else times

    def state(self) -> dict[str, Any]:
        """Return the state that training changes; to be called between epochs, when no sample is in flight."""
        resources = {resource.name: resource.state() for resource in self.resources()}
        return {"resources": resources, "next_entry_ps": self._next_entry_ps, "updated_ps": self.updated_ps}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        for resource in self.resources():
            resource.restore(state["resources"][resource.name])
        self._next_entry_ps = state["next_entry_ps"]
        self._number_anew(state["updated_ps"])
