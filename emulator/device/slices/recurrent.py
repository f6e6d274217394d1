"""Slices of LSTM and GRU layers: units of a layer over all time steps, forwards and backwards
(FARNN, section 3).

The sums over the inputs of all steps come first; then steps follow one another. A slice that is the
whole layer runs all of them in one call; others gather the states of all units between steps.
Errors go back from the last step.

A layer's weights are one array, unit after unit and gate after gate: those of the inputs, of the
hidden state, b_W and b_R; then those of the projection. A second direction follows the first.
Kernels take them packed, version by version.

In a run's formats, states are rounded as activations are made, and errors of gates' sums as errors,
before anything is multiplied by them (`kernels.recurrent.Operands`). States are then what the layer
hands on. Gates, cells and biases stay in fp32. Where maps have scales by mini-batches before, each
kind of operand has one, of all units and both directions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ....kernels import Arena
from ....kernels.attention import Scale
from ....kernels.number import BlockGrid
from ....kernels.recurrent import (
    EB,
    LINES,
    Again,
    GruSlice,
    LstmSlice,
    Operands,
    Tape,
)
from ...mapping import Slice
from ...network import Training
from ...schedule import SampleSpan
from ..formats import MapFormats
from ..lanes import Gather
from ..memories import ActRam, Arrays, Parameter
from ..ports import Ports
from ..rules import Rule
from ..scales import name_of_scale
from .numerics import Data, Lengths, SliceNumerics
from .recurrent_weights import (
    DirectionWeights,
    first_weights,
    joined,
    kernel_of,
    operation_of,
    row_formats,
    split,
    units_of,
)

Numbers = NDArray[np.int64]
"""Of samples, since the start of training."""

_PLAIN = Operands()

Kernel = LstmSlice | GruSlice

TAPE = ("gates", "inner", "c_before", "h_before", "cells")
"""What EB needs of a tape."""


def forward_steps(
    kernel: Kernel,
    packed: Any,
    tape: Tape,
    h: Data,
    c: Data,
    steps: tuple[int, int],
    operands: Operands = _PLAIN,
) -> Data:
    """Run FP of some steps from the state h and c; return the own units' h."""
    if isinstance(kernel, LstmSlice):
        return kernel.forward(packed, tape, h, c, steps, operands)
    return kernel.forward(packed, tape, h, steps, operands)


def backward_steps(
    kernel: Kernel,
    packed: Any,
    tape: Tape,
    dy: Data,
    of_state: tuple[Data, Data, Data],
    steps: tuple[int, int],
    start: Data | None,
    operands: Operands = _PLAIN,
) -> Data:
    """Run EB of some steps; `of_state` are errors of h and c, and what is carried past R."""
    dh, dc, carry = of_state
    if start is not None:
        start = np.ascontiguousarray(start)
    if isinstance(kernel, LstmSlice):
        return kernel.backward(packed, tape, dy, dh, dc, carry, steps, start, operands)
    return kernel.backward(packed, tape, dy, dh, carry, steps, start, operands)


def all_forward(kernel: Kernel, packed: Any, tape: Tape, operands: Operands = _PLAIN) -> Data:
    """Run FP of all steps of a whole layer from the state 0; return the outputs (samples, steps,
    state).
    """
    h, c = (np.zeros((tape.samples, size), np.float32) for size in (kernel.width, kernel.units))
    forward_steps(kernel, packed, tape, h, c, (0, tape.steps), operands)
    return tape.y


def all_backward(
    kernel: Kernel, packed: Any, tape: Tape, dy: Data, operands: Operands = _PLAIN
) -> None:
    """Run EB of all steps of a whole layer into its tape, from errors of its outputs (samples,
    steps, state).
    """
    of_state, steps = state_errors(kernel, tape, dy), (0, tape.steps)
    backward_steps(kernel, packed, tape, dy, of_state, steps, None, operands)


def state_errors(kernel: Kernel, tape: Tape, dy: Data) -> tuple[Data, Data, Data]:
    """Return the errors of h and c behind the last step, and what is carried past R: all 0."""
    dh, carry = (np.zeros((tape.samples, dy.shape[2]), np.float32) for _ in range(2))
    return dh, np.zeros((tape.samples, kernel.units), np.float32), carry


def states_before(y: Data, lengths: NDArray[np.int64] | None, *, reverse: bool) -> Data:
    """Return the state before each step, from the outputs of all (samples, steps, state); 0 where
    no step is.
    """
    before = np.zeros_like(y)
    if reverse:
        before[:, :-1] = y[:, 1:]
    else:
        before[:, 1:] = y[:, :-1]
    if lengths is not None:
        before[np.arange(y.shape[1]) >= lengths[:, None]] = 0
    return before


_KEPT = ("inner", "h_before", "cells", "delta")
"""What EB needs of a tape, and what PG needs; of some layers PG needs `delta_r` or `of_outputs`,
too.
"""


_PLACES = {"activations": ("outputs", "inner"), "errors": ("gates", "inner")}
"""Where operands of a kind are within a layer, in the names of their scales: states are what it
hands on.
"""


class RoundedSteps:
    """How operands of a layer's steps are rounded, on the device that runs them."""

    part: Slice
    _kernel: Kernel
    _formats: MapFormats | None

    def _scales(
        self, kind: Literal["activations", "errors"], numbers: Numbers | None
    ) -> tuple[Scale | None, Scale | None]:
        """Return the scales of operands of a kind in the mini-batch, of both directions: of states,
        or errors of gates' sums, and of what a projection or a reset multiplies, or its errors.
        """
        if self._formats is None:
            return None, None
        tensor, shared = (
            self.part.layer.makes.number,
            not (self.part.is_first and self.part.is_last),
        )
        of_steps, inner = (
            self._formats.scale(kind, tensor, place, numbers, shared=shared)
            for place in _PLACES[kind]
        )
        return of_steps, inner

    def _note(
        self, kind: str, numbers: Numbers | None, scales: tuple[Scale | None, Scale | None]
    ) -> None:
        """Note the largest operands of a kind of all steps."""
        for place, scale in zip(_PLACES[kind], scales, strict=True):
            if self._formats is not None:
                self._formats.note(kind, self.part.layer.makes.number, place, numbers, scale)

    @property
    def operand_scales(self) -> list[str]:
        """See `SliceNumerics`."""
        tensor = self.part.layer.makes.number
        return [
            name_of_scale(kind, place, tensor)
            for kind, places in _PLACES.items()
            for place in places
        ]

    def _forward_operands(
        self,
        direction: int,
        numbers: Numbers | None,
        samples: int,
        lengths: Lengths | None,
        scales: tuple[Scale | None, Scale | None],
    ) -> Operands:
        """Return how states of a direction are rounded, and what a projection or a reset
        multiplies, of samples with these numbers, under scales of both.
        """
        if self._formats is None:
            return _PLAIN
        operation, tensor = operation_of(self.part.layer), self.part.layer.makes.number
        units, steps = units_of(self.part), self._live_steps(samples, lengths)
        made = steps * (operation.projection or len(units))
        inner = None
        if operation.projection or not self._is_linear:
            place, values = direction + operation.directions, steps * len(units)
            given = tensor, 0, numbers, values, place, scales[1]
            inner = self._formats.operand("activations", *given)
        own = tensor, units.start, numbers, made, direction, scales[0]
        return Operands(states=self._formats.operand("activations", *own), inner=inner)

    def _backward_operands(
        self,
        direction: int,
        numbers: Numbers,
        samples: int,
        lengths: Lengths,
        scales: tuple[Scale | None, Scale | None],
    ) -> Operands:
        """Return how errors of gates' sums of a direction are rounded, and those that a projection
        multiplies, under scales of both.
        """
        if self._formats is None:
            return _PLAIN
        operation, tensor = operation_of(self.part.layer), self.part.layer.makes.number
        units, steps = units_of(self.part), self._live_steps(samples, lengths)
        # A GRU that is linear before reset has errors of its new gate for W, and others for R.
        sums = operation.gates + (isinstance(self._kernel, GruSlice) and self._is_linear)
        inner = None
        if operation.projection:
            place, values = direction + operation.directions, steps * operation.projection
            given = tensor, 0, numbers, values, place, scales[1]
            inner = self._formats.operand("errors", *given)
        made = steps * sums * len(units)
        own = tensor, units.start, numbers, made, direction, scales[0]
        return Operands(errors=self._formats.operand("errors", *own), inner_errors=inner)

    def _live_steps(self, samples: int, lengths: Lengths | None) -> int:
        """Return the steps of some samples up to the ends of their sequences."""
        return samples * self.part.layer.input[1] if lengths is None else int(np.sum(lengths))

    @property
    def _is_linear(self) -> bool:
        return not isinstance(self._kernel, GruSlice) or self._kernel.linear_before_reset


class RecurrentSlice(RoundedSteps, SliceNumerics):
    """What a device computes for some units of a recurrent layer, or for all."""

    def __init__(
        self,
        part: Slice,
        seed: int,
        arena: Arena,
        formats: MapFormats | None = None,
        inputs: MapFormats | None = None,
    ) -> None:
        super().__init__(part, seed, arena)
        kernel = kernel_of(part, formats)
        self._kernel, self._formats = kernel, formats
        self._inputs_in = formats if formats is None or inputs is None else formats.reading(inputs)
        self._directions = [
            DirectionWeights.of(kernel, arrays, arena, row_formats(part, place, formats))
            for place, arrays in enumerate(first_weights(part, seed))
        ]
        self._gather: Gather | None = None
        self._inputs, self._lengths = ActRam(arena), ActRam(arena)
        self._deltas: list[Data] = []
        self._tapes = [ActRam(arena) for _ in self._directions]
        self._kept = [ActRam(arena) for _ in self._directions]

    def attach(self, ports: Ports) -> None:
        """See `SliceNumerics`."""
        if not (self.part.is_first and self.part.is_last):
            self._gather = Gather(self.part, ports)

    async def forward(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, training: Training
    ) -> Data:
        """See `SliceNumerics`."""
        lengths, numbers = training.lengths, training.samples
        if self.part.layer.makes.fixed:
            rows = np.ascontiguousarray(x[:, :, 0])
            return (await self._steps(span, rows, version, lengths, numbers))[1]
        rows = self._keep(span, x, lengths, numbers)
        tapes, y = await self._steps(span, rows, version, lengths, numbers)
        for tape, store in zip(tapes, self._tapes, strict=True):
            store.put(span, *(getattr(tape, name) for name in TAPE))
        return y

    @property
    def makes_rounded(self) -> bool:
        """See `SliceNumerics`: blocks of two directions may not be those of the whole map,
        whose rows are tensors.
        """
        if self._formats is None:
            return False
        operation, grid = operation_of(self.part.layer), self._formats.precision.activations.grid
        if operation.directions == 1 or not isinstance(grid, BlockGrid):
            return True
        return grid.scale is None and operation.hidden % grid.size == 0

    def _keep(self, span: SampleSpan, x: Data, lengths: Lengths | None, numbers: Numbers) -> Data:
        """Keep the inputs (samples, steps, 1, values), and the lengths and numbers of samples, for
        EB and PG; return the inputs.
        """
        samples, steps, _, inputs = x.shape
        keeps = self.part.layer.has_pg
        rows = (
            self._inputs.room(span, (steps, inputs))
            if keeps
            else self._arena.take((samples, steps, inputs))
        )
        rows[...] = x[:, :, 0]
        own = np.full(samples, steps, np.int64) if lengths is None else lengths
        self._lengths.put(span, own, numbers)
        return rows

    async def infer(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, lengths: Lengths | None
    ) -> Data:
        """See `SliceNumerics`."""
        _, y = await self._steps(span, np.ascontiguousarray(x[:, :, 0]), version, lengths, None)
        return y

    async def _steps(
        self,
        span: SampleSpan,
        x: Data,
        version: int,
        lengths: Lengths | None,
        numbers: Numbers | None,
    ) -> tuple[list[Tape], Data]:
        """Run FP of all directions over inputs (samples, steps, values), of samples with these
        numbers in training; return their tapes, and all outputs.
        """
        tapes, outputs, kernel = [], [], self._kernel
        scales = self._scales("activations", numbers)
        for place, weights in enumerate(self._directions):
            packed = weights.packed[version]
            tape = kernel.tape(
                kernel.input_products(packed, x), lengths=lengths, reverse=place == 1
            )
            tapes.append(tape)
            operands = self._forward_operands(place, numbers, len(x), lengths, scales)
            if self._gather is None:
                outputs.append(all_forward(kernel, packed, tape, operands)[:, :, None])
            else:
                outputs.append(await self._shared_steps(span, packed, tape, lengths, operands))
        self._note("activations", numbers, scales)
        return tapes, outputs[0] if len(outputs) == 1 else np.concatenate(outputs, axis=3)

    async def _shared_steps(
        self,
        span: SampleSpan,
        packed: Any,
        tape: Tape,
        lengths: Lengths | None,
        operands: Operands,
    ) -> Data:
        """Run FP of a layer that several devices share; return the outputs of all its units."""
        assert self._gather is not None
        kernel, samples = self._kernel, tape.samples
        h, c = (np.zeros((samples, size), np.float32) for size in (kernel.width, kernel.units))
        y = self._arena.take((samples, tape.steps, 1, kernel.width))
        for step in range(tape.steps):
            own = forward_steps(kernel, packed, tape, h, c, (step, step + 1), operands)
            h = await self._gather.states(span, own)
            y[:, step, 0] = h if lengths is None else np.where((lengths > step)[:, None], h, 0)
        return y

    def forget(self, index: int) -> None:
        """See `SliceNumerics`."""
        super().forget(index)
        for store in self._tapes:
            store.discard(index)

    def beyond(self, x: Data) -> Data:
        """See `SliceNumerics`."""
        return x

    async def recur(self, span: SampleSpan, dy: Data, version: int) -> None:
        """See `SliceNumerics`; keeps what PG needs."""
        lengths, numbers = self._lengths.read(span)
        own = np.split(dy[:, :, 0, self._first :], len(self._directions), axis=2)
        scales = self._scales("errors", numbers)
        for place, (store, kept) in enumerate(zip(self._tapes, self._kept, strict=True)):
            tape = Tape.restored(
                dict(zip(TAPE, store.read(span), strict=True)), lengths, reverse=place == 1
            )
            operands = self._backward_operands(place, numbers, tape.samples, lengths, scales)
            errors = np.ascontiguousarray(own[place])
            await self._errors(span, place, tape, errors, version, operands)
            if self.part.layer.has_pg:
                kept.put(
                    span, lengths, numbers, *(getattr(tape, name) for name in self._kept_names)
                )
            self._deltas.append(tape.delta)
        self._note("errors", numbers, scales)

    async def error(
        self, span: SampleSpan, dy: Data, partial: Data | None, version: int
    ) -> Data | None:
        """See `SliceNumerics`."""
        deltas, self._deltas = self._deltas, []
        if not self.part.layer.needs_errors:
            return None
        dx = None if partial is None else partial[:, :, 0]
        for weights, delta in zip(reversed(self._directions), reversed(deltas), strict=True):
            start = None if dx is None else np.ascontiguousarray(dx)
            dx = self._kernel.input_errors(weights.packed[version], delta, start)
        assert dx is not None
        return (self._kernel.whole(EB, dx) if self.part.is_first else dx)[:, :, None]

    @property
    def _first(self) -> int:
        """The first of the slice's channels among the layer's."""
        return 0 if self.part.is_first else self.part.begin

    async def _errors(
        self,
        span: SampleSpan,
        place: int,
        tape: Tape,
        dy: Data,
        version: int,
        operands: Operands,
    ) -> None:
        """Run EB of a direction, from the last step to the first, into its tape."""
        kernel, packed = self._kernel, self._directions[place].packed[version]
        if self._gather is None:
            all_backward(kernel, packed, tape, dy, operands)
            return
        of_state = state_errors(kernel, tape, dy)
        for step in reversed(range(tape.steps)):
            start = await self._gather.error_sums(span)
            steps = step, step + 1
            sums = backward_steps(kernel, packed, tape, dy, of_state, steps, start, operands)
            if self.part.is_first:
                sums = kernel.whole(EB, sums)
            of_state = await self._gather.errors(span, sums), *of_state[1:]

    @property
    def _kept_names(self) -> tuple[str, ...]:
        kernel = self._kernel
        if isinstance(kernel, LstmSlice):
            return (*_KEPT, "of_outputs") if kernel.outputs else _KEPT
        return (*_KEPT, "delta_r") if kernel.linear_before_reset else _KEPT

    def gradient(self, whole: SampleSpan) -> None:
        """See `SliceNumerics`."""
        if not self.part.layer.has_pg:
            return
        [x] = self._inputs.read(whole)
        for place, (weights, store) in enumerate(zip(self._directions, self._kept, strict=True)):
            lengths, samples, *arrays = store.read(whole)
            tape = Tape.restored(
                dict(zip(self._kept_names, arrays, strict=True)), lengths, reverse=place == 1
            )
            fresh = weights.begins_sums()
            g, again = weights.gradients(), self._again(place, samples)
            totals = g["w"], g["r"], g["b_w"], g["b_r"], g.get("p")
            self._kernel.gradients(tape, x, *totals, fresh=fresh, again=again)
            weights.gradients_are_whole = False
        super().gradient(whole)

    def _again(self, direction: int, samples: Numbers) -> Again | None:
        """Return how a direction's operands of PG are rounded once more, in blocks of steps; each
        direction has lines of its own, but for those of the inputs.
        """
        formats = self._inputs_in
        if self._formats is None or formats is None or not self._formats.precision.dot:
            return None
        operation, tensor = operation_of(self.part.layer), self.part.layer.makes.number
        inputs, steps = self.part.layer.input[:2]
        projected = operation.projection or 0

        def rounded(kind: str, first: int, lines: Data) -> Data:
            assert self._formats is not None
            own = self._formats
            if kind == "errors":
                first += direction * (LINES * operation.units + projected)
                return own.in_pixels("errors", lines, tensor, first * steps, samples)
            if first < inputs:
                own = formats
            else:
                first += direction * (operation.hidden + operation.units)
            return own.in_pixels("activations", lines, tensor, first * steps, samples)

        return rounded

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """See `SliceNumerics`."""
        for weights in self._directions:
            weights.update(samples, rule, keeps=keeps)
        super().update(samples, rule, keeps=keeps)

    def repeat(self, *, keeps: bool) -> None:
        """See `SliceNumerics`."""
        super().repeat(keeps=keeps)
        for weights in self._directions:
            weights.repeat(keeps=keeps)

    def gradients(self, scale: float, number: int | None) -> list[Data]:
        """See `SliceNumerics`; a recurrent layer's weights are all where they are used."""
        means = [weights.mean_gradients(scale, number) for weights in self._directions]
        own = joined(self.part, means).reshape(-1)
        return [own, *(other.gradient * np.float32(scale) for other in self._others)]

    def take_gradients(self, row: Data) -> Data:
        """See `SliceNumerics`."""
        size = self.part.channels * math.prod(self.part.layer.weight_shape[1:])
        for weights, arrays in zip(self._directions, split(self.part, row[:size]), strict=True):
            for name, parameter in weights.parameters.items():
                parameter.gradient[...] = arrays[name]
        return self._take_others(row[size:])

    @property
    def _learnt_weights(self) -> list[Parameter]:
        return [parameter for weights in self._directions for parameter in weights]

    def balanced_gradient(self, begin: int, end: int) -> Data:
        """See `SliceNumerics`; a recurrent layer's weights are not balanced, since every step needs
        them all.
        """
        raise NotImplementedError(
            f"{self.part}: weights of recurrent layers are not stored on other devices"
        )

    def take_balanced(self, begin: int, end: int, weights: Data) -> None:
        """See `balanced_gradient`."""
        raise NotImplementedError(
            f"{self.part}: weights of recurrent layers are not stored on other devices"
        )

    def weights(self) -> Data:
        """See `SliceNumerics`."""
        return joined(self.part, [weights.values() for weights in self._directions])

    def put_weights(self, weights: Data) -> None:
        """See `SliceNumerics`."""
        for direction, arrays in zip(self._directions, split(self.part, weights), strict=True):
            for name, value in direction.values().items():
                value[...] = arrays[name]
            direction.pack(arrays)

    def free(self, versions: Sequence[int]) -> None:
        """See `SliceNumerics`."""
        super().free(versions)
        for weights in self._directions:
            weights.free(versions)

    def begin_epoch(self) -> None:
        """See `SliceNumerics`."""
        super().begin_epoch()
        for weights in self._directions:
            weights.begin_epoch()

    def _weights_state(self) -> Arrays:
        held = [weights.state() for weights in self._directions]

        def of_kind(kind: str) -> Data:
            directions = []
            for states in held:
                # Biases are their own master copy.
                own = {name: kinds.get(kind, kinds["value"]) for name, kinds in states.items()}
                directions.append(own)
            return joined(self.part, directions)

        return {kind: of_kind(kind) for kind in held[0]["w"]}

    def _restore_weights(self, state: Arrays) -> None:
        by_kind = {kind: split(self.part, array) for kind, array in state.items()}
        for place, weights in enumerate(self._directions):
            weights.restore({kind: directions[place] for kind, directions in by_kind.items()})
