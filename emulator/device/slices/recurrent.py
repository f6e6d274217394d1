"""Slices of LSTM and GRU layers: units of a layer over all time steps, forwards and backwards
(FARNN, section 3).

The sums over the inputs of all steps come first; then steps follow one another. A slice that is the
whole layer runs all of them in one call; others gather the states of all units between steps.
Errors go back from the last step.

A layer's weights are one array, unit after unit and gate after gate: those of the inputs, of the
hidden state, b_W and b_R; then those of the projection. A second direction follows the first.
Kernels take them packed, version by version.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ....kernels import Arena
from ....kernels.recurrent import GruSlice, LstmSlice, Packed, Tape
from ...mapping import Slice
from ...network import Layer, Recurrent, Training
from ...network.operations.recurrent import Gru, Lstm
from ...schedule import SampleSpan
from ..lanes import Gather
from ..memories import ActRam, Arrays, Parameter
from ..ports import Ports
from ..rules import Rule
from ..sfu import Sfu
from .numerics import Data, Lengths, SliceNumerics

WeightArrays = Mapping[str, Data]
"""w (gates · units, inputs), r (gates · units, hidden), b_w and b_r (gates · units,), and p
(projection, units).
"""

_NAMES = {"w": "weight_ih_l0", "r": "weight_hh_l0", "b_w": "bias_ih_l0", "b_r": "bias_hh_l0"}
_PROJECTED, _ENDS = "weight_hr_l0", ("", "_reverse")
"""PyTorch's names, and what they end with in each direction."""

_PROJECTION = 1 << 30
"""Number of the first random stream of a projection's rows, which come after those of units."""


def kernel_of(part: Slice) -> LstmSlice | GruSlice:
    """Return the kernels of a slice's units."""
    layer, operation = part.layer, part.layer.operation
    units = _units(part)
    if isinstance(operation, Lstm):
        return LstmSlice(
            layer.input[0], operation.units, units.start, units.stop, operation.projection or 0
        )
    assert isinstance(operation, Gru)
    return GruSlice(
        layer.input[0], operation.units, units.start, units.stop, operation.reset == "after"
    )


def first_weights(part: Slice, seed: int) -> list[WeightArrays]:
    """Return the first weights of a slice for each direction: uniform within ±1 / √units, biases
    too, as PyTorch's.

    Each unit has its own random stream, so that values do not depend on the device.
    """
    layer, operation = part.layer, _operation(part.layer)
    limit, columns = 1 / math.sqrt(operation.units), operation.weight_columns(layer.input[0])

    def drawn(number: int, count: int) -> NDArray[np.float64]:
        stream = np.random.Generator(np.random.Philox(key=[seed, layer.index << 32 | number]))
        return stream.uniform(-limit, limit, count)

    weights = []
    for direction in range(operation.directions):
        numbers = (direction * operation.units + unit for unit in _units(part))
        rows = np.stack([drawn(number, operation.gates * columns) for number in numbers]).astype(
            np.float32
        )
        projection = [
            drawn(_PROJECTION + direction * operation.hidden + row, operation.units)
            for row in range(operation.projection or 0)
        ]
        weights.append(_split(operation, rows, np.array(projection, np.float32)))
    return weights


def joined(part: Slice, directions: Sequence[WeightArrays]) -> Data:
    """Return a slice's weights, or their gradients, as one array of the layer's layout."""
    shape = part.layer.weight_shape
    rows = []
    for direction in directions:
        parts = [
            direction["w"],
            direction["r"],
            direction["b_w"][:, None],
            direction["b_r"][:, None],
        ]
        rows.append(np.concatenate(parts, axis=1).reshape(-1))
        if "p" in direction:
            rows.append(direction["p"].reshape(-1))
    return np.concatenate(rows).reshape(-1, *shape[1:])


def split(part: Slice, weights: Data) -> list[WeightArrays]:
    """Return the arrays of each direction from one array of the layer's layout."""
    operation, values = _operation(part.layer), weights.reshape(-1)
    count = len(_units(part))
    rows = count * operation.gates * operation.weight_columns(part.layer.input[0])
    parts = []
    for own in np.split(values, operation.directions):
        projection = own[rows:].reshape(-1, operation.units)
        parts.append(_split(operation, own[:rows].reshape(count, -1), projection))
    return parts


def named_weights(layer: Layer, weights: Data) -> dict[str, Data]:
    """Return a whole layer's weights by PyTorch's names, in its layout: gate after gate, and in
    each all units.
    """
    operation, named = _operation(layer), {}
    for end, arrays in zip(_ENDS, split(_whole(layer), weights), strict=False):
        for key, name in _NAMES.items():
            # (units, gates) here, (gates, units) with PyTorch.
            by_unit = arrays[key].reshape(operation.units, operation.gates, -1)
            turned = np.ascontiguousarray(by_unit.swapaxes(0, 1)).reshape(arrays[key].shape)
            named[name + end] = turned
        if "p" in arrays:
            named[_PROJECTED + end] = arrays["p"]
    return named


def joined_weights(layer: Layer, named: WeightArrays) -> Data:
    """Return a whole layer's weights as one array of its layout: the inverse of `named_weights`."""
    operation, directions = _operation(layer), []
    for end in _ENDS[: operation.directions]:
        arrays = {"p": named[_PROJECTED + end]} if operation.projection else {}
        for key, name in _NAMES.items():
            turned = named[name + end]
            by_gate = turned.reshape(operation.gates, operation.units, -1)
            arrays[key] = np.ascontiguousarray(by_gate.swapaxes(0, 1)).reshape(turned.shape)
        directions.append(arrays)
    return joined(_whole(layer), directions)


def _whole(layer: Layer) -> Slice:
    return Slice(layer, 0, _operation(layer).pieces(layer.output))


def _operation(layer: Layer) -> Recurrent:
    assert isinstance(layer.operation, Recurrent)
    return layer.operation


def _units(part: Slice) -> range:
    whole = part.is_first and part.is_last
    return range(_operation(part.layer).units) if whole else range(part.begin, part.end)


def _split(operation: Recurrent, rows: Data, projection: Data) -> WeightArrays:
    """Return the arrays of rows of units (units, gates · columns) and of the projection."""
    rows = rows.reshape(len(rows) * operation.gates, -1)
    inputs = rows.shape[1] - operation.hidden - 2
    parts = np.split(
        rows, [inputs, inputs + operation.hidden, inputs + operation.hidden + 1], axis=1
    )
    w, r, b_w, b_r = (np.ascontiguousarray(array) for array in parts)
    arrays = {"w": w, "r": r, "b_w": b_w.reshape(-1), "b_r": b_r.reshape(-1)}
    return {**arrays, "p": np.ascontiguousarray(projection)} if len(projection) else arrays


@dataclasses.dataclass
class DirectionWeights:
    """The weights of one direction of a slice: parameters by name, and their versions packed for
    kernels.
    """

    kernel: LstmSlice | GruSlice
    parameters: dict[str, Parameter]
    packed: dict[int, Packed] = dataclasses.field(default_factory=dict)
    newest: int = 0

    @classmethod
    def of(
        cls, kernel: LstmSlice | GruSlice, arrays: WeightArrays, arena: Arena
    ) -> DirectionWeights:
        """Return the weights with these first values, in memory from an arena."""
        weights = cls(kernel, {name: Parameter(value, arena) for name, value in arrays.items()})
        weights.pack()
        return weights

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters.values())

    def pack(self) -> None:
        """Pack the newest version."""
        v = self.values()
        self.packed[self.newest] = self.kernel.pack(v["w"], v["r"], v["b_w"], v["b_r"], v.get("p"))

    def values(self) -> WeightArrays:
        """Return the newest arrays."""
        return {name: parameter.newest for name, parameter in self.parameters.items()}

    def state(self) -> dict[str, Mapping[str, Data]]:
        """Return the training state of each parameter by its name, copied."""
        return {name: parameter.state() for name, parameter in self.parameters.items()}

    def restore(self, state: Mapping[str, Arrays]) -> None:
        """Restore arrays by kind, such as the value, and by name."""
        for name, parameter in self.parameters.items():
            parameter.restore({kind: arrays[name] for kind, arrays in state.items()})
        self.pack()

    def gradients(self) -> WeightArrays:
        """Return the sums of gradients."""
        return {name: parameter.gradient for name, parameter in self.parameters.items()}

    def begins_sums(self) -> bool:
        """Return whether the next gradients are the first since the update."""
        first, *_ = [parameter.begins_sum() for parameter in self]
        return first

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """Make the next version."""
        for parameter in self:
            parameter.update(samples, rule, keeps=keeps)
        if not keeps:
            del self.packed[self.newest]
        self.newest += 1
        self.pack()

    def repeat(self, *, keeps: bool) -> None:
        """Make the next version without an update."""
        for parameter in self:
            parameter.repeat(keeps=keeps)
        packed = self.packed[self.newest]
        if not keeps:
            del self.packed[self.newest]
        self.newest += 1
        self.packed[self.newest] = packed

    def free(self, versions: Sequence[int]) -> None:
        """Drop versions after their last use."""
        for parameter in self:
            parameter.free(versions)
        for version in versions:
            del self.packed[version]

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        for parameter in self:
            parameter.begin_epoch()
        self.packed, self.newest = {0: self.packed[self.newest]}, 0


Sizes = tuple[int, ...]


def array_shapes(layer: Layer) -> dict[str, Sizes]:
    """Return the shapes of a layer's arrays, by the names that results files have."""
    others = {name: learnt.newest.shape for name, learnt in Sfu(layer, 0, Arena()).held.items()}
    if not layer.operation.recurs:
        return {**({"weight": layer.weight_shape} if layer.has_weights else {}), **others}
    weights = named_weights(layer, np.empty(layer.weight_shape, np.float32))
    return {**{name: array.shape for name, array in weights.items()}, **others}


Kernel = LstmSlice | GruSlice

TAPE = ("gates", "inner", "c_before", "h_before", "cells")
"""What EB needs of a tape."""


def forward_steps(
    kernel: Kernel, packed: Packed, tape: Tape, h: Data, c: Data, steps: tuple[int, int]
) -> Data:
    """Run FP of some steps from the state h and c; return the own units' h."""
    if isinstance(kernel, LstmSlice):
        return kernel.forward(packed, tape, h, c, steps)
    return kernel.forward(packed, tape, h, steps)


def backward_steps(
    kernel: Kernel,
    packed: Packed,
    tape: Tape,
    dy: Data,
    of_state: tuple[Data, Data, Data],
    steps: tuple[int, int],
    start: Data | None,
) -> Data:
    """Run EB of some steps; `of_state` are errors of h and c, and what is carried past R."""
    dh, dc, carry = of_state
    if start is not None:
        start = np.ascontiguousarray(start)
    if isinstance(kernel, LstmSlice):
        return kernel.backward(packed, tape, dy, dh, dc, carry, steps, start)
    return kernel.backward(packed, tape, dy, dh, carry, steps, start)


def all_forward(kernel: Kernel, packed: Packed, tape: Tape) -> Data:
    """Run FP of all steps of a whole layer from the state 0; return the outputs (samples, steps,
    state).
    """
    h, c = (np.zeros((tape.samples, size), np.float32) for size in (kernel.width, kernel.units))
    forward_steps(kernel, packed, tape, h, c, (0, tape.steps))
    return tape.y


def all_backward(kernel: Kernel, packed: Packed, tape: Tape, dy: Data) -> None:
    """Run EB of all steps of a whole layer into its tape, from errors of its outputs (samples,
    steps, state).
    """
    backward_steps(kernel, packed, tape, dy, state_errors(kernel, tape, dy), (0, tape.steps), None)


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


class RecurrentSlice(SliceNumerics):
    """What a device computes for some units of a recurrent layer, or for all."""

    def __init__(self, part: Slice, seed: int, arena: Arena) -> None:
        super().__init__(part, seed, arena)
        kernel = kernel_of(part)
        self._kernel = kernel
        self._directions = [
            DirectionWeights.of(kernel, arrays, arena) for arrays in first_weights(part, seed)
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
        if self.part.layer.makes.fixed:
            return await self.infer(span, x, partial, version, training.lengths)
        rows = self._keep(span, x, training.lengths)
        tapes, y = await self._steps(span, rows, version, training.lengths)
        for tape, store in zip(tapes, self._tapes, strict=True):
            store.put(span, *(getattr(tape, name) for name in TAPE))
        return y

    def _keep(self, span: SampleSpan, x: Data, lengths: Lengths | None) -> Data:
        """Keep the inputs (samples, steps, 1, values) and the lengths of samples for EB and PG;
        return the inputs.
        """
        samples, steps, _, inputs = x.shape
        keeps = self.part.layer.has_pg
        rows = (
            self._inputs.room(span, (steps, inputs))
            if keeps
            else self._arena.take((samples, steps, inputs))
        )
        rows[...] = x[:, :, 0]
        self._lengths.put(span, np.full(samples, steps, np.int64) if lengths is None else lengths)
        return rows

    async def infer(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, lengths: Lengths | None
    ) -> Data:
        """See `SliceNumerics`."""
        _, y = await self._steps(span, np.ascontiguousarray(x[:, :, 0]), version, lengths)
        return y

    async def _steps(
        self, span: SampleSpan, x: Data, version: int, lengths: Lengths | None
    ) -> tuple[list[Tape], Data]:
        """Run FP of all directions over inputs (samples, steps, values); return their tapes, and
        all outputs.
        """
        tapes, outputs, kernel = [], [], self._kernel
        for place, weights in enumerate(self._directions):
            packed = weights.packed[version]
            tape = kernel.tape(
                kernel.input_products(packed, x), lengths=lengths, reverse=place == 1
            )
            tapes.append(tape)
            if self._gather is None:
                outputs.append(all_forward(kernel, packed, tape)[:, :, None])
            else:
                outputs.append(await self._shared_steps(span, packed, tape, lengths))
        return tapes, outputs[0] if len(outputs) == 1 else np.concatenate(outputs, axis=3)

    async def _shared_steps(
        self, span: SampleSpan, packed: Packed, tape: Tape, lengths: Lengths | None
    ) -> Data:
        """Run FP of a layer that several devices share; return the outputs of all its units."""
        assert self._gather is not None
        kernel, samples = self._kernel, tape.samples
        h, c = (np.zeros((samples, size), np.float32) for size in (kernel.width, kernel.units))
        y = self._arena.take((samples, tape.steps, 1, kernel.width))
        for step in range(tape.steps):
            own = forward_steps(kernel, packed, tape, h, c, (step, step + 1))
            h = await self._gather.states(span, own)
            y[:, step, 0] = h if lengths is None else np.where((lengths > step)[:, None], h, 0)
        return y

    def beyond(self, x: Data) -> Data:
        """See `SliceNumerics`."""
        return x

    async def recur(self, span: SampleSpan, dy: Data, version: int) -> None:
        """See `SliceNumerics`; keeps what PG needs."""
        [lengths] = self._lengths.read(span)
        own = np.split(dy[:, :, 0, self._first :], len(self._directions), axis=2)
        for place, (store, kept) in enumerate(zip(self._tapes, self._kept, strict=True)):
            tape = Tape.restored(
                dict(zip(TAPE, store.read(span), strict=True)), lengths, reverse=place == 1
            )
            await self._errors(span, place, tape, np.ascontiguousarray(own[place]), version)
            if self.part.layer.has_pg:
                kept.put(span, lengths, *(getattr(tape, name) for name in self._kept_names))
            self._deltas.append(tape.delta)

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
        return dx[:, :, None]

    @property
    def _first(self) -> int:
        """The first of the slice's channels among the layer's."""
        return 0 if self.part.is_first else self.part.begin

    async def _errors(
        self, span: SampleSpan, place: int, tape: Tape, dy: Data, version: int
    ) -> None:
        """Run EB of a direction, from the last step to the first, into its tape."""
        kernel, packed = self._kernel, self._directions[place].packed[version]
        if self._gather is None:
            all_backward(kernel, packed, tape, dy)
            return
        of_state = state_errors(kernel, tape, dy)
        for step in reversed(range(tape.steps)):
            start = await self._gather.error_sums(span)
            sums = backward_steps(kernel, packed, tape, dy, of_state, (step, step + 1), start)
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
            lengths, *arrays = store.read(whole)
            tape = Tape.restored(
                dict(zip(self._kept_names, arrays, strict=True)), lengths, reverse=place == 1
            )
            fresh = weights.begins_sums()
            g = weights.gradients()
            self._kernel.gradients(
                tape, x, g["w"], g["r"], g["b_w"], g["b_r"], g.get("p"), fresh=fresh
            )
        super().gradient(whole)

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
        own = joined(self.part, [weights.gradients() for weights in self._directions])
        sums = [own.reshape(-1), *(other.gradient for other in self._others)]
        return [part * np.float32(scale) for part in sums]

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
            direction.pack()

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
                directions.append({name: kinds[kind] for name, kinds in states.items()})
            return joined(self.part, directions)

        return {kind: of_kind(kind) for kind in held[0]["w"]}

    def _restore_weights(self, state: Arrays) -> None:
        by_kind = {kind: split(self.part, array) for kind, array in state.items()}
        for place, weights in enumerate(self._directions):
            weights.restore({kind: directions[place] for kind, directions in by_kind.items()})
