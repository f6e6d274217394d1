"""Weights of recurrent layers: their first values, their layouts, and the versions that kernels
take.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....kernels import Arena
from ....kernels.conv import Sums
from ....kernels.number import FloatGrid
from ....kernels.recurrent import (
    PG,
    Adder,
    GruSlice,
    LstmSlice,
    SummedGru,
    SummedLstm,
)
from ...mapping import Slice
from ...network import Layer, Recurrent
from ...network.operations.recurrent import Gru, Lstm
from ...number import Precision
from ..formats import MapFormats
from ..memories import TURNED, Arrays, Parameter
from ..rules import Rule
from ..sfu import Sfu
from ..weight_formats import RowFormats
from .numerics import Data

WeightArrays = Mapping[str, Data]
"""w (gates · units, inputs), r (gates · units, hidden), b_w and b_r (gates · units,), and p
(projection, units).
"""

_NAMES = {"w": "weight_ih_l0", "r": "weight_hh_l0", "b_w": "bias_ih_l0", "b_r": "bias_hh_l0"}
_PROJECTED, _ENDS = "weight_hr_l0", ("", "_reverse")
"""PyTorch's names, and what they end with in each direction."""

_PROJECTION = 1 << 30
"""Number of the first random stream of a projection's rows, which come after those of units."""


def kernel_of(part: Slice, formats: MapFormats | None = None) -> LstmSlice | GruSlice:
    """Return the kernels of a slice's units, with the sums of a run's formats."""
    layer, operation = part.layer, part.layer.operation
    units, adder = units_of(part), None if formats is None else adder_of(formats.precision)
    own = layer.input[0], operation_of(layer).units, units.start, units.stop
    if isinstance(operation, Lstm):
        outputs = operation.projection or 0
        if adder is None:
            return LstmSlice(*own, outputs)
        return SummedLstm(*own, outputs, adder=adder)
    assert isinstance(operation, Gru)
    is_linear = operation.reset == "after"
    if adder is None:
        return GruSlice(*own, is_linear)
    return SummedGru(*own, is_linear, adder=adder)


def adder_of(precision: Precision) -> Adder | None:
    """Return how products are added where that is not in fp32."""
    if precision.accumulate == "fp32":
        return None
    if precision.dot:
        return Adder(dot=precision.dot)
    sums = Sums[precision.accumulate.upper()]
    if sums is not Sums.INT32:
        return Adder(sums)

    def bits(kind: str) -> int:
        grid = precision.format(kind).grid
        assert isinstance(grid, FloatGrid)
        return grid.fraction_bits - grid.least_exponent

    activations, weights, errors = map(bits, ("activations", "weights", "errors"))
    return Adder(sums, bits=(activations + weights, errors + weights, activations + errors))


def first_weights(part: Slice, seed: int) -> list[WeightArrays]:
    """Return the first weights of a slice for each direction: uniform within ±1 / √units, biases
    too, as PyTorch's.

    Each unit has its own random stream, so that values do not depend on the device.
    """
    layer, operation = part.layer, operation_of(part.layer)
    limit, columns = 1 / math.sqrt(operation.units), operation.weight_columns(layer.input[0])

    def drawn(number: int, count: int) -> NDArray[np.float64]:
        stream = np.random.Generator(np.random.Philox(key=[seed, layer.stream << 32 | number]))
        return stream.uniform(-limit, limit, count)

    weights = []
    for direction in range(operation.directions):
        numbers = (direction * operation.units + unit for unit in units_of(part))
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
    operation, values = operation_of(part.layer), weights.reshape(-1)
    count = len(units_of(part))
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
    operation, named = operation_of(layer), {}
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
    operation, directions = operation_of(layer), []
    for end in _ENDS[: operation.directions]:
        arrays = {"p": named[_PROJECTED + end]} if operation.projection else {}
        for key, name in _NAMES.items():
            turned = named[name + end]
            by_gate = turned.reshape(operation.gates, operation.units, -1)
            arrays[key] = np.ascontiguousarray(by_gate.swapaxes(0, 1)).reshape(turned.shape)
        directions.append(arrays)
    return joined(_whole(layer), directions)


def _whole(layer: Layer) -> Slice:
    return Slice(layer, 0, operation_of(layer).pieces(layer.output))


def operation_of(layer: Layer) -> Recurrent:
    assert isinstance(layer.operation, Recurrent)
    return layer.operation


def units_of(part: Slice) -> range:
    whole = part.is_first and part.is_last
    return range(operation_of(part.layer).units) if whole else range(part.begin, part.end)


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


def row_formats(part: Slice, direction: int, formats: MapFormats | None) -> dict[str, RowFormats]:
    """Return the formats of the weights of a slice in a direction, by their names; biases have
    none.
    """
    if formats is None:
        return {}
    layer, operation, units = part.layer, operation_of(part.layer), units_of(part)
    inputs = layer.input[0]
    columns = operation.weight_columns(inputs)
    rows = operation.gates * operation.units
    begin = direction * (rows * columns + (operation.projection or 0) * operation.units)
    first, own = begin + operation.gates * units.start * columns, operation.gates * len(units)
    places = {
        "w": ((own, inputs), first, columns, operation.gates),
        "r": ((own, operation.hidden), first + inputs, columns, operation.gates),
    }
    if operation.projection:
        shape = operation.projection, operation.units
        places["p"] = shape, begin + rows * columns, operation.units, 1
    return {
        name: RowFormats(formats, layer.stream, f"{name}{direction}", *at)
        for name, at in places.items()
    }


@dataclasses.dataclass
class DirectionWeights:
    """The weights of one direction of a slice: parameters by name, and their versions packed for
    kernels.
    """

    kernel: LstmSlice | GruSlice
    parameters: dict[str, Parameter]
    packed: dict[int, Any] = dataclasses.field(default_factory=dict)
    """By version, as the kernel packs them."""
    newest: int = 0
    number: int = 0
    """Of the last update."""
    turned: dict[str, Data] = dataclasses.field(default_factory=dict)
    """What EB multiplies by where it has weights of its own, by name."""
    gradients_are_whole: bool = True

    @classmethod
    def of(
        cls,
        kernel: LstmSlice | GruSlice,
        arrays: WeightArrays,
        arena: Arena,
        formats: Mapping[str, RowFormats],
    ) -> DirectionWeights:
        """Return the weights with these first values, in memory from an arena; arrays without
        `formats` are in fp32.
        """
        parameters = {
            name: Parameter(value, arena, formats.get(name)) for name, value in arrays.items()
        }
        weights = cls(kernel, parameters)
        weights.pack(arrays)
        return weights

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters.values())

    def pack(self, trained: WeightArrays | None = None) -> None:
        """Pack the newest version; EB's own weights are rounded from those that are `trained`, by
        default those of the parameters, by the words of the last update.
        """
        self.turned = {}
        for name, parameter in self.parameters.items():
            formats = parameter.formats
            if isinstance(formats, RowFormats) and formats.maps.precision.turns:
                whole = parameter.trained if trained is None else trained[name]
                self.turned[name] = formats.turned(whole, self.number)
        self._pack()

    def _pack(self) -> None:
        v = self.values()
        arrays = v["w"], v["r"], v["b_w"], v["b_r"], v.get("p")
        self.packed[self.newest] = self.kernel.pack(*arrays, turned=self.turned)

    def values(self) -> WeightArrays:
        """Return the newest arrays."""
        return {name: parameter.newest for name, parameter in self.parameters.items()}

    def state(self) -> dict[str, Mapping[str, Data]]:
        """Return the training state of each parameter by its name, copied."""
        held = {name: parameter.state() for name, parameter in self.parameters.items()}
        by_chance = (
            parameter.formats.maps.precision.turns_by_chance
            for parameter in self
            if parameter.formats is not None
        )
        if not any(by_chance):
            return held
        # They could not be rounded again: the words are those of the last update.
        return {
            name: {**kinds, TURNED: self.turned.get(name, kinds["value"]).copy()}
            for name, kinds in held.items()
        }

    def restore(self, state: Mapping[str, Arrays]) -> None:
        """Restore arrays by kind, such as the value, and by name."""
        for name, parameter in self.parameters.items():
            kinds = {kind: arrays[name] for kind, arrays in state.items() if kind != TURNED}
            parameter.restore(kinds)
        self.pack()
        if TURNED in state:
            self.turned = {name: state[TURNED][name].copy() for name in self.turned}
            self._pack()

    def finish_gradients(self) -> None:
        """Make sums of gradients whole, once PG has added all of a mini-batch."""
        if self.gradients_are_whole:
            return
        self.gradients_are_whole = True
        for name in self.parameters.keys() & {"w", "r", "p"}:
            self.kernel.whole(PG, self.parameters[name].gradient)

    def gradients(self) -> WeightArrays:
        """Return the sums of gradients."""
        return {name: parameter.gradient for name, parameter in self.parameters.items()}

    def mean_gradients(self, scale: float, number: int | None) -> WeightArrays:
        """Return the sums of gradients times `scale`, in the format of gradients of update
        `number`, if there is one.
        """
        self.finish_gradients()
        means = {}
        for name, parameter in self.parameters.items():
            means[name] = parameter.gradient * np.float32(scale)
            if parameter.formats is not None and number is not None:
                parameter.formats.round("gradients", means[name], number)
        return means

    def begins_sums(self) -> bool:
        """Return whether the next gradients are the first since the update."""
        first, *_ = [parameter.begins_sum() for parameter in self]
        return first

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """Make the next version."""
        self.finish_gradients()
        self.number = rule.number
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
