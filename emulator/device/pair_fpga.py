"""The FPGA of a pair: it runs the time steps of recurrent layers, and keeps their gates from FP until EB (FARNN).

Weights come once a mini-batch for FP, and anew for EB; values come and go with each micro-batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...kernels.recurrent import Packed, Tape
from ..mapping import Slice
from ..network import Layer, Recurrent
from ..schedule import Action, Kind, MicroBatch, SampleSpan
from ..timing.pair import Content, PairKey
from .memories import ActRam
from .pair_ports import Data, PairPorts, of_tape, sent_for_gradients, split_weights
from .recurrent_slice import TAPE, all_backward, all_forward
from .recurrent_weights import kernel_of

Lengths = NDArray[np.int64]


class FpgaDirection:
    """One direction of a recurrent layer on the FPGA; with `inputs_too`, products of inputs are computed here."""

    def __init__(self, part: Slice, direction: int, ports: PairPorts, arena: Arena, *, inputs_too: bool) -> None:
        self.part, self.direction = part, direction
        self._kernel = kernel_of(part)
        self._ports, self._inputs_too = ports, inputs_too
        self._tapes = ActRam(arena)
        self._held: dict[str, Data] = {}
        self._packed: dict[Content, tuple[int, Packed]] = {}
        self._delta: Data | None = None

    async def forward(self, span: SampleSpan, lengths: Lengths | None) -> None:
        """Run FP of a span, and send its outputs."""
        packed = await self._weights(span, Content.INPUT_WEIGHTS, Content.WEIGHTS)
        if self._inputs_too:
            sums = self._kernel.input_products(packed, np.ascontiguousarray(await self._receive(Content.INPUTS, span)))
        else:
            sums = await self._receive(Content.SUMS, span)
        tape = self._kernel.tape(sums, lengths=lengths, reverse=self.direction == 1)
        outputs = all_forward(self._kernel, packed, tape)
        given = np.full(tape.samples, tape.steps, np.int64) if lengths is None else lengths
        self._tapes.put(span, given, *(getattr(tape, name) for name in TAPE))
        self._send(Content.OUTPUTS, span, outputs)

    async def backward(self, span: SampleSpan) -> None:
        """Run EB of a span, and send what gradients and errors of inputs need."""
        packed = await self._weights(span, Content.TURNED_WEIGHTS)
        lengths, *arrays = self._tapes.read(span)
        tape = Tape.restored(dict(zip(TAPE, arrays, strict=True)), lengths, reverse=self.direction == 1)
        errors = await self._receive(Content.OUTPUT_ERRORS, span)
        all_backward(self._kernel, packed, tape, np.ascontiguousarray(errors))
        for content in sent_for_gradients(self.part.layer):
            self._send(content, span, of_tape(content, self._kernel, tape))
        self._delta = tape.delta

    async def input_errors(self, span: SampleSpan, start: Data | None) -> Data:
        """Send the errors of the inputs so far, with those of later directions, which are `start`; return them."""
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

    def _send(self, content: Content, span: SampleSpan, values: Data) -> None:
        self._ports.send(self._key(content), span.first, values)

    async def _receive(self, content: Content, span: SampleSpan) -> Data:
        return await self._ports.receive(self._key(content), span.first)


class PairFpga:
    """The FPGA's recurrent layers, in the order of the network.

    `lengths` are the time steps of each sample by its place in the epoch, where they differ.
    """

    def __init__(self, layers: Sequence[Slice], ports: PairPorts, arena: Arena, *, inputs_too: bool) -> None:
        self.lengths: Lengths | None = None
        self.ports = ports
        self._inputs_too = inputs_too
        self._layers = [
            [
                FpgaDirection(part, direction, ports, arena, inputs_too=inputs_too)
                for direction in range(_directions(part.layer))
            ]
            for part in layers
        ]

    async def train(self, program: Iterable[Action], micro_batches: Sequence[MicroBatch]) -> None:
        """Carry out F and B of an epoch's actions."""
        for direction in itertools.chain.from_iterable(self._layers):
            direction.begin_epoch()
        for action in program:
            if action.kind is Kind.FORWARD:
                await self._forward(micro_batches[action.index].span_of(action))
            elif action.kind is Kind.BACKWARD:
                await self._backward(micro_batches[action.index].span_of(action))

    async def _forward(self, span: SampleSpan) -> None:
        lengths = None if self.lengths is None else self.lengths[span.slice]
        for direction in itertools.chain.from_iterable(self._layers):
            await direction.forward(span, lengths)

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
