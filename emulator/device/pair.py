"""A GPU and an FPGA that share recurrent layers (FARNN), or a GPU alone: what each computes, and
what they exchange.

The GPU has all layers. The FPGA runs the time steps of recurrent ones, and keeps their gates from
FP until EB. Weights come once a mini-batch for FP, and anew for EB; values come and go with each
micro-batch. For one direction of a layer:

        GPU                                            FPGA
    F   sums over inputs         -- SUMS ----------->  steps, whose tape stays here until B
                                 <- OUTPUTS ---------
    B   errors of outputs        -- OUTPUT_ERRORS -->  steps backwards over the tape
        gradients, input errors  <- DELTAS, ... -----

With `inputs_too`, INPUTS go in place of SUMS, and INPUT_ERRORS come back.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...comm import Mailbox, Message
from ...kernels import Arena
from ...kernels.attention import Scale
from ...kernels.number import FloatGrid
from ...kernels.recurrent import EB, GruSlice, LstmSlice, Packed, Tape
from ..mapping import Slice
from ..network import Layer, Recurrent, Training
from ..schedule import Action, Kind, MicroBatch, SampleSpan, with_versions
from ..timing.pair import Content, PairKey, Part, Phase, streams_of, work_of
from .device import Epoch
from .device_numerics import DeviceNumerics
from .ends import Tally
from .formats import MapFormats
from .memories import ActRam
from .ports import Maps, Outlet
from .scales import needed_exponent
from .sideband import begin_scales
from .slices import (
    TAPE,
    RecurrentSlice,
    RoundedSteps,
    all_backward,
    all_forward,
    kernel_of,
    states_before,
)

Data = NDArray[np.float32]
"""Values (samples, steps, values); of weights, (1, 1, weights). Once sent, they belong to the
receiver.
"""


class PairPorts:
    """The ends of a device's streams, by their keys; `sent_bytes` have left through each of
    them, `row_bytes` for each time step of a sample, or for weights; otherwise fp32's.
    """

    def __init__(
        self,
        inlets: Mapping[PairKey, Mailbox],
        outlets: Mapping[PairKey, Outlet],
        row_bytes: Mapping[PairKey, int] | None = None,
    ) -> None:
        self.sent_bytes: collections.Counter[PairKey] = collections.Counter()
        self._inlets, self._outlets, self._row_bytes = inlets, outlets, row_bytes or {}

    def send(self, key: PairKey, first: int, values: Data, header: int = 0) -> None:
        """Send values of samples from `first` on; of weights, `first` is the mini-batch's number.
        A `header` goes with them.
        """
        size = values.shape[2] * values.itemsize
        self.sent_bytes[key] += len(values) * values.shape[1] * self._row_bytes.get(key, size)
        no_times = np.zeros((len(values), 1), np.int64)  # the pair's timeline has them
        self._outlets[key].put(Message(first, no_times, values[:, None], header))

    async def receive(self, key: PairKey, first: int) -> Data:
        """Return the next values, which begin with sample `first`, or are those of mini-batch
        `first`.
        """
        return (await self.receive_all(key, first))[0]

    async def receive_all(self, key: PairKey, first: int) -> tuple[Data, int]:
        """Return the next values, and the header that came with them."""
        message: Message = await self._inlets[key].get()
        if message.first != first or message.data is None:
            raise RuntimeError(f"{key}: {message.first} came, {first} was expected")
        return message.data[:, 0], message.scale

    def take_sent_bytes(self) -> collections.Counter[PairKey]:
        """Return the bytes that have left since the last call."""
        sent, self.sent_bytes = self.sent_bytes, collections.Counter()
        return sent


_BYTE, _ZERO = 8, 128
"""Bits of an exponent in a header, and what stands for the exponent 0."""

Kernel = LstmSlice | GruSlice

_WEIGHTS = {
    Content.INPUT_WEIGHTS: ("w",),
    Content.WEIGHTS: ("r", "p", "b_w", "b_r"),
    Content.TURNED_WEIGHTS: ("r", "p"),
    Content.TURNED_INPUT_WEIGHTS: ("w",),
}
"""Arrays one behind the other, as far as the layer has them. For BW they are in the same order:
kernels turn them.
"""


def joined_weights(content: Content, arrays: Mapping[str, Data]) -> Data:
    """Return the weights of a message (1, 1, weights), from a direction's arrays by name."""
    return np.concatenate([arrays[name].ravel() for name in _WEIGHTS[content] if name in arrays])[
        None, None
    ]


def split_weights(content: Content, kernel: Kernel, message: Data) -> dict[str, Data]:
    """Return the arrays that a message of weights holds."""
    shapes = _shapes(kernel)
    names = [name for name in _WEIGHTS[content] if name in shapes]
    ends = np.cumsum([math.prod(shapes[name]) for name in names])
    parts = np.split(message.reshape(-1), ends[:-1])
    return {name: part.reshape(shapes[name]) for name, part in zip(names, parts, strict=True)}


def _shapes(kernel: Kernel) -> dict[str, tuple[int, ...]]:
    rows = kernel.channels
    shapes: dict[str, tuple[int, ...]] = {"w": (rows, kernel.inputs), "r": (rows, kernel.width)}
    shapes |= {"b_w": (rows,), "b_r": (rows,)}
    return {**shapes, "p": (kernel.width, kernel.units)} if _projects(kernel) else shapes


def _projects(kernel: Kernel) -> bool:
    return isinstance(kernel, LstmSlice) and kernel.outputs > 0


def sent_for_gradients(layer: Layer) -> list[Content]:
    """Return what the FPGA sends of the steps of EB."""
    streams = streams_of(work_of(layer), 0, inputs_too=False)
    back = [
        stream for stream in streams if stream.phase is Phase.BACKWARD and stream.part is Part.STEPS
    ]
    return [stream.content for stream in back if not stream.to_fpga]


def of_tape(content: Content, kernel: Kernel, tape: Tape) -> Data:
    """Return what a message for gradients holds (samples, steps, values), from a tape after EB."""
    if content is Content.RESET:
        return _last_gate(kernel, tape.delta_r) if _is_linear(kernel) else tape.inner
    arrays = {
        Content.DELTAS: tape.delta,
        Content.CELLS: tape.cells,
        Content.PROJECTED_ERRORS: tape.of_outputs,
    }
    return arrays[content]


def tape_arrays(kernel: Kernel, got: Mapping[Content, Data], before: Data) -> dict[str, Data]:
    """Return the arrays of a tape that gradients need, by name, from messages and the states before
    each step.
    """
    nothing, delta = before[:, :, :0], got[Content.DELTAS]
    arrays = {"inner": nothing, "h_before": before, "cells": nothing, "delta": delta}
    if _projects(kernel):
        arrays |= {"cells": got[Content.CELLS], "of_outputs": got[Content.PROJECTED_ERRORS]}
    if _is_linear(kernel):
        arrays["delta_r"] = delta.copy()
        _last_gate(kernel, arrays["delta_r"])[...] = got[Content.RESET]
    elif isinstance(kernel, GruSlice):
        arrays["inner"] = got[Content.RESET]
    return arrays


def _is_linear(kernel: Kernel) -> bool:
    return isinstance(kernel, GruSlice) and kernel.linear_before_reset


def _last_gate(kernel: Kernel, channels: Data) -> Data:
    """Return a view of the values of each unit's last gate: n of a GRU."""
    return channels[:, :, kernel.gates - 1 :: kernel.gates]


Lengths = NDArray[np.int64]
Numbers = NDArray[np.int64]
"""Of samples, since the start of training."""


class FpgaDirection(RoundedSteps):
    """One direction of a recurrent layer on the FPGA; with `inputs_too`, products of inputs are
    computed here.
    """

    def __init__(
        self,
        part: Slice,
        direction: int,
        ports: PairPorts,
        arena: Arena,
        formats: MapFormats | None = None,
        *,
        inputs_too: bool,
    ) -> None:
        self.part, self.direction, self._formats = part, direction, formats
        self._kernel = kernel_of(part, formats)
        self._ports, self._inputs_too = ports, inputs_too
        self._tapes = ActRam(arena)
        self._held: dict[str, Data] = {}
        self._packed: dict[Content, tuple[int, Packed]] = {}
        self._delta: Data | None = None

    async def forward(self, span: SampleSpan, lengths: Lengths | None, numbers: Numbers) -> None:
        """Run FP of a span, whose samples have `numbers`, and send its outputs."""
        packed = await self._weights(span, Content.INPUT_WEIGHTS, Content.WEIGHTS)
        if self._inputs_too:
            sums = self._kernel.input_products(
                packed, np.ascontiguousarray(await self._receive(Content.INPUTS, span))
            )
        else:
            sums = await self._receive(Content.SUMS, span)
        tape = self._kernel.tape(sums, lengths=lengths, reverse=self.direction == 1)
        scales = self._scales("activations", numbers)
        operands = self._forward_operands(self.direction, numbers, tape.samples, lengths, scales)
        outputs = all_forward(self._kernel, packed, tape, operands)
        self._note("activations", numbers, scales)
        given = np.full(tape.samples, tape.steps, np.int64) if lengths is None else lengths
        self._tapes.put(span, given, numbers, *(getattr(tape, name) for name in TAPE))
        self._send(Content.OUTPUTS, span, outputs, self._header_of(scales))

    def _header_of(self, scales: tuple[Scale | None, Scale | None]) -> int:
        """Return what operands of FP need, a byte each, for the GPU, which tests under the same
        scales; 0: nothing.
        """
        header = 0
        for scale in scales:
            needed = None
            if scale is not None:
                needed = needed_exponent(float(scale.largest[0]), _largest_of(self._formats))
            header = header << _BYTE | (0 if needed is None else needed + _ZERO)
        return header

    async def backward(self, span: SampleSpan) -> None:
        """Run EB of a span, and send what gradients and errors of inputs need."""
        packed = await self._weights(span, Content.TURNED_WEIGHTS)
        lengths, numbers, *arrays = self._tapes.read(span)
        tape = Tape.restored(
            dict(zip(TAPE, arrays, strict=True)), lengths, reverse=self.direction == 1
        )
        errors = await self._receive(Content.OUTPUT_ERRORS, span)
        scales = self._scales("errors", numbers)
        operands = self._backward_operands(self.direction, numbers, tape.samples, lengths, scales)
        all_backward(self._kernel, packed, tape, np.ascontiguousarray(errors), operands)
        self._note("errors", numbers, scales)
        for content in sent_for_gradients(self.part.layer):
            self._send(content, span, of_tape(content, self._kernel, tape))
        self._delta = tape.delta

    async def input_errors(self, span: SampleSpan, start: Data | None) -> Data:
        """Send the errors of the inputs so far, with those of later directions, which are `start`;
        return them.
        """
        packed, delta = await self._weights(span, Content.TURNED_INPUT_WEIGHTS), self._delta
        assert delta is not None
        layer = self.part.layer
        if start is None and layer.reads_again and layer.needs_errors:
            start = np.ascontiguousarray(await self._receive(Content.OTHER_INPUT_ERRORS, span))
        errors = self._kernel.input_errors(packed, delta, start)
        self._delta = None
        self._send(Content.INPUT_ERRORS, span, errors.copy())  # the next direction adds to them
        return errors

    def begin_epoch(self) -> None:
        """Get ready for an epoch, in which mini-batches are numbered anew."""
        self._packed.clear()
        self._held.clear()

    async def _weights(self, span: SampleSpan, *contents: Content) -> Packed:
        """Return weights for a span, received once for all micro-batches of its mini-batch."""
        step, last = span.micro_batch.step, contents[-1]
        if last not in self._packed or self._packed[last][0] != step:
            for content in contents:
                if content is not Content.INPUT_WEIGHTS or self._inputs_too:
                    message = await self._ports.receive(self._key(content), step)
                    self._held |= split_weights(content, self._kernel, message)
            self._packed[last] = step, self._pack()
        return self._packed[last][1]

    def _pack(self) -> Packed:
        """Pack the weights that are here."""
        kernel, held = self._kernel, self._held
        return kernel.pack(held.get("w"), held["r"], held["b_w"], held["b_r"], held.get("p"))

    def _key(self, content: Content) -> PairKey:
        return PairKey(self.part.layer.index, self.direction, content)

    def _send(self, content: Content, span: SampleSpan, values: Data, header: int = 0) -> None:
        self._ports.send(self._key(content), span.first, values, header)

    async def _receive(self, content: Content, span: SampleSpan) -> Data:
        return await self._ports.receive(self._key(content), span.first)


def _largest_of(formats: MapFormats | None) -> float:
    """Return the largest number of the format of activations, which has a scale."""
    grid = None if formats is None else formats.precision.activations.grid
    assert isinstance(grid, FloatGrid)
    return grid.largest


class PairFpga:
    """The FPGA's recurrent layers, in the order of the network.

    `lengths` are the time steps of each sample by its place in the epoch, where they differ.
    """

    def __init__(
        self,
        layers: Sequence[Slice],
        ports: PairPorts,
        arena: Arena,
        formats: MapFormats | None = None,
        *,
        inputs_too: bool,
    ) -> None:
        self.lengths: Lengths | None = None
        self.ports, self.formats = ports, formats
        self._inputs_too = inputs_too
        self._layers = []
        for part in layers:
            own = None if formats is None else formats.of(part.layer.formats)
            directions = [
                FpgaDirection(part, direction, ports, arena, own, inputs_too=inputs_too)
                for direction in range(_directions(part.layer))
            ]
            self._layers.append(directions)

    async def train(
        self, program: Iterable[Action], micro_batches: Sequence[MicroBatch], numbers: Numbers
    ) -> None:
        """Carry out F and B of an epoch's actions, whose samples have numbers since the start of
        training.
        """
        for direction in itertools.chain.from_iterable(self._layers):
            direction.begin_epoch()
        for action in program:
            if action.kind is Kind.FORWARD:
                span = micro_batches[action.index].span_of(action)
                await self._forward(span, numbers[span.slice])
            elif action.kind is Kind.BACKWARD:
                await self._backward(micro_batches[action.index].span_of(action))

    async def _forward(self, span: SampleSpan, numbers: Numbers) -> None:
        lengths = None if self.lengths is None else self.lengths[span.slice]
        for direction in itertools.chain.from_iterable(self._layers):
            await direction.forward(span, lengths, numbers)

    async def _backward(self, span: SampleSpan) -> None:
        for layer in reversed(self._layers):
            for direction in layer:
                await direction.backward(span)
            errors: Data | None = None
            for direction in reversed(layer) if self._inputs_too else ():
                errors = await direction.input_errors(span, errors)


def _directions(layer: Layer) -> int:
    assert isinstance(layer.operation, Recurrent)
    return layer.operation.directions


OnUpdate = Callable[[int, Tally], None]
"""Callback with (step, tally)."""


async def train_on_gpu(
    numerics: DeviceNumerics, program: Iterable[Action], epoch: Epoch, on_update: OnUpdate
) -> None:
    """Carry out an epoch's actions; `on_update` is called after each update."""
    assert numerics.head is not None and epoch.rule_of is not None
    numerics.begin_epoch()
    begin_scales(numerics.slices)
    for action, keeps, frees in with_versions(program):
        if action.kind is Kind.UPDATE:
            step = action.index - 1
            numerics.update(epoch.step_samples[step], epoch.rule_of(step), keeps=keeps)
            on_update(step, numerics.head.step_done(step))
        else:
            span = epoch.micro_batches[action.index].span_of(action)
            if action.kind is Kind.FORWARD:
                await numerics.forward(
                    span, Maps(), action.version or 0, epoch.sample_numbers[span.slice]
                )
            elif action.kind is Kind.BACKWARD:
                numbers = epoch.sample_numbers[span.slice]
                await numerics.backward(span, Maps(), action.version or 0, numbers)
            else:
                numerics.gradient(span)
        if frees:
            numerics.free(frees)


async def evaluate_on_gpu(numerics: DeviceNumerics, micro_batches: Sequence[MicroBatch]) -> None:
    """Run forward propagation only, outside virtual time, with the newest weights; the GPU does all
    of it.
    """
    for micro_batch in micro_batches:
        await numerics.infer(micro_batch.whole, Maps())


class OffloadedSlice(RecurrentSlice):
    """What the GPU computes for a recurrent layer; with `inputs_too`, products and errors of inputs
    are the FPGA's.
    """

    def __init__(
        self,
        part: Slice,
        seed: int,
        arena: Arena,
        ports: PairPorts,
        formats: MapFormats | None = None,
        inputs: MapFormats | None = None,
        *,
        inputs_too: bool,
    ) -> None:
        super().__init__(part, seed, arena, formats, inputs)
        self._pair_ports, self._inputs_too = ports, inputs_too
        self._sent: dict[PairKey, int] = {}
        self._before = [ActRam(arena) for _ in self._directions]

    async def forward(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, training: Training
    ) -> Data:
        """See `SliceNumerics`."""
        rows = self._keep(span, x, training.lengths, training.samples)
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
            key = PairKey(self.part.layer.index, place, Content.OUTPUTS)
            y, header = await self._pair_ports.receive_all(key, span.first)
            self._hear(header, training.samples)
            store.put(span, states_before(y, training.lengths, reverse=place == 1))
            outputs.append(y)
        return (outputs[0] if len(outputs) == 1 else np.concatenate(outputs, axis=2))[:, :, None]

    def _hear(self, header: int, numbers: Numbers) -> None:
        """Note what operands of FP on the FPGA need."""
        scales = self._scales("activations", numbers)
        for scale, place in zip(reversed(scales), range(len(scales)), strict=True):
            needed = header >> _BYTE * place & (1 << _BYTE) - 1
            if needed and scale is not None:
                scale.largest[0] = _largest_of(self._formats) * 2.0 ** (needed - _ZERO)
        self._note("activations", numbers, scales)

    async def recur(self, span: SampleSpan, dy: Data, version: int) -> None:
        """See `SliceNumerics`; keeps what PG needs."""
        lengths, numbers = self._lengths.read(span)
        for place, own in enumerate(np.split(dy[:, :, 0], len(self._directions), axis=2)):
            self._give(Content.TURNED_WEIGHTS, place, span, version)
            self._send(Content.OUTPUT_ERRORS, place, span, own)
        for place, (store, kept) in enumerate(zip(self._before, self._kept, strict=True)):
            contents = sent_for_gradients(self.part.layer)
            got = {content: await self._receive(content, place, span) for content in contents}
            [before] = store.read(span)
            arrays = tape_arrays(self._kernel, got, before)
            kept.put(span, lengths, numbers, *(arrays[name] for name in self._kept_names))
            self._deltas.append(arrays["delta"])

    async def error(
        self, span: SampleSpan, dy: Data, partial: Data | None, version: int
    ) -> Data | None:
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
        if dx is None or not self.part.layer.needs_errors:
            return None
        return self._kernel.whole(EB, dx)[:, :, None]

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
        arrays = {
            name: versions[version] for name, versions in self._directions[place].parameters.items()
        }
        if content in (Content.TURNED_WEIGHTS, Content.TURNED_INPUT_WEIGHTS):
            arrays |= self._directions[place].turned  # mini-batches follow one another
        self._pair_ports.send(key, step, joined_weights(content, arrays))

    def _send(self, content: Content, place: int, span: SampleSpan, values: Data) -> None:
        self._pair_ports.send(PairKey(self.part.layer.index, place, content), span.first, values)

    async def _receive(self, content: Content, place: int, span: SampleSpan) -> Data:
        return await self._pair_ports.receive(
            PairKey(self.part.layer.index, place, content), span.first
        )
