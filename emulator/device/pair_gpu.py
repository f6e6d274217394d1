"""The GPU of a pair, or a GPU alone: all layers, with the steps of recurrent ones on the FPGA, if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ...kernels import Arena
from ..mapping import Slice
from ..schedule import Action, Kind, MicroBatch, SampleSpan, with_versions
from ..timing.pair import Content, PairKey
from .device import Epoch
from .device_numerics import DeviceNumerics
from .memories import ActRam
from .pair_ports import PairPorts, joined_weights, sent_for_gradients, tape_arrays
from .recurrent_slice import RecurrentSlice, states_before
from .sfu import Training
from .slice_numerics import Data
from .tally import Tally

OnUpdate = Callable[[int, Tally], None]
"""Callback with (step, tally)."""


async def train_on_gpu(numerics: DeviceNumerics, program: Iterable[Action], epoch: Epoch, on_update: OnUpdate) -> None:
    """Carry out an epoch's actions; `on_update` is called after each update."""
    assert numerics.head is not None and epoch.rule_of is not None
    numerics.begin_epoch()
    for action, keeps, frees in with_versions(program):
        if action.kind is Kind.UPDATE:
            step = action.index - 1
            numerics.update(epoch.step_samples[step], epoch.rule_of(step), keeps=keeps)
            on_update(step, numerics.head.step_done(step))
        else:
            span = epoch.micro_batches[action.index].span_of(action)
            if action.kind is Kind.FORWARD:
                await numerics.forward(span, {}, action.version or 0, epoch.sample_numbers[span.slice])
            elif action.kind is Kind.BACKWARD:
                await numerics.backward(span, {}, action.version or 0)
            else:
                numerics.gradient(span)
        if frees:
            numerics.free(frees)


async def evaluate_on_gpu(numerics: DeviceNumerics, micro_batches: Sequence[MicroBatch]) -> None:
    """Run forward propagation only, outside virtual time, with the newest weights; the GPU does all of it."""
    for micro_batch in micro_batches:
        await numerics.infer(micro_batch.whole, {})


class OffloadedSlice(RecurrentSlice):
    """What the GPU computes for a recurrent layer; with `inputs_too`, products and errors of inputs are the FPGA's."""

    def __init__(self, part: Slice, seed: int, arena: Arena, ports: PairPorts, *, inputs_too: bool) -> None:
        super().__init__(part, seed, arena)
        self._pair_ports, self._inputs_too = ports, inputs_too
        self._sent: dict[PairKey, int] = {}
        self._before = [ActRam(arena) for _ in self._directions]

    async def forward(self, span: SampleSpan, x: Data, partial: Data | None, version: int, training: Training) -> Data:
        """See `SliceNumerics`."""
        rows = self._keep(span, x, training.lengths)
        for place, weights in enumerate(self._directions):
            if self._inputs_too:
                self._give(Content.INPUT_WEIGHTS, place, span, version)
                self._send(Content.INPUTS, place, span, rows)
            self._give(Content.WEIGHTS, place, span, version)
            if not self._inputs_too:
                sums = self._kernel.input_products(weights.packed[version], rows)
                self._send(Content.SUMS, place, span, sums)
        outputs = []
        for place, store in enumerate(self._before):
            y = await self._receive(Content.OUTPUTS, place, span)
            store.put(span, states_before(y, training.lengths, reverse=place == 1))
            outputs.append(y)
        return (outputs[0] if len(outputs) == 1 else np.concatenate(outputs, axis=2))[:, :, None]

    async def recur(self, span: SampleSpan, dy: Data, version: int) -> None:
        """See `SliceNumerics`; keeps what PG needs."""
        [lengths] = self._lengths.read(span)
        for place, own in enumerate(np.split(dy[:, :, 0], len(self._directions), axis=2)):
            self._give(Content.TURNED_WEIGHTS, place, span, version)
            self._send(Content.OUTPUT_ERRORS, place, span, own)
        for place, (store, kept) in enumerate(zip(self._before, self._kept, strict=True)):
            contents = sent_for_gradients(self.part.layer)
            got = {content: await self._receive(content, place, span) for content in contents}
            [before] = store.read(span)
            arrays = tape_arrays(self._kernel, got, before)
            kept.put(span, lengths, *(arrays[name] for name in self._kept_names))
            self._deltas.append(arrays["delta"])

    async def error(self, span: SampleSpan, dy: Data, partial: Data | None, version: int) -> Data | None:
        """See `SliceNumerics`."""
        if not self._inputs_too:
            return await super().error(span, dy, partial, version)
        self._deltas.clear()
        dx: Data | None = None
        for place in reversed(range(len(self._directions))):
            self._give(Content.TURNED_INPUT_WEIGHTS, place, span, version)
            if partial is not None and dx is None:
                self._send(Content.OTHER_INPUT_ERRORS, place, span, partial[:, :, 0])
            dx = await self._receive(Content.INPUT_ERRORS, place, span)
        return dx[:, :, None] if dx is not None and self.part.layer.needs_errors else None

    def begin_epoch(self) -> None:
        """See `SliceNumerics`; mini-batches are numbered anew, too."""
        super().begin_epoch()
        self._sent.clear()

    def _give(self, content: Content, place: int, span: SampleSpan, version: int) -> None:
        """Send weights of a direction, unless the FPGA has them for this mini-batch."""
        key, step = PairKey(self.part.layer.index, place, content), span.micro_batch.step
        if self._sent.get(key) == step:
            return
        self._sent[key] = step
        arrays = {name: versions[version] for name, versions in self._directions[place].parameters.items()}
        self._pair_ports.send(key, step, joined_weights(content, arrays))

    def _send(self, content: Content, place: int, span: SampleSpan, values: Data) -> None:
        self._pair_ports.send(PairKey(self.part.layer.index, place, content), span.first, values)

    async def _receive(self, content: Content, place: int, span: SampleSpan) -> Data:
        return await self._pair_ports.receive(PairKey(self.part.layer.index, place, content), span.first)
