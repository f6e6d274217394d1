"""The special function unit (SFU): bias, activation, normalisation, pooling, dropout and joins, on complete outputs.

FPDeep, section 5.3. It stands with the last device of a layer, which alone holds complete outputs. Its operations read
those, one another's results, and what passes by: "aggregation ... gather and bypass" (section 5.1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels.arena import Arena
from ...kernels.layers import bias, relu
from ..network.layers import Add, BatchNorm, Concat, Dropout, Layer, Lrn, Pool, Relu, SfuOperation, SfuStep
from ..schedule.action import Portion
from .act_ram import ActRam
from .batch_norm import BatchNormUnit
from .parameter import Parameter, Sgd
from .sfu_units import (
    AddUnit,
    AveragePoolUnit,
    ConcatUnit,
    Data,
    DropoutUnit,
    LrnUnit,
    MaxPoolUnit,
    RectifiedMaxPoolUnit,
    RectifiedUnit,
    ReluUnit,
    Samples,
    State,
    Training,
    Unit,
)


class _Place(NamedTuple):
    """A unit, the numbers of the tensors that it reads and makes, and whether it must spare what it reads."""

    reads: tuple[int, ...]
    makes: int
    unit: Unit
    spares: bool


class Sfu:
    """One layer's SFU and its bias; its maps come from an arena."""

    def __init__(self, layer: Layer, seed: int, arena: Arena) -> None:
        self._arena = arena
        self._makes = layer.makes.number
        self._shared = _shared(layer)
        self._rectifies = self._first_does(layer.sfu, Relu, self._makes)
        self._places: list[_Place] = []
        steps = layer.sfu
        if self._rectifies:
            rectified, steps = steps[0].makes.number, steps[1:]
            unit: Unit = RectifiedUnit()
            if self._first_does(steps, Pool, rectified) and _is_max(steps[0].operation):
                unit = RectifiedMaxPoolUnit(steps[0], arena)
                rectified, steps = steps[0].makes.number, steps[1:]
            self._places.append(_Place((self._makes,), rectified, unit, False))
        for step in steps:
            reads = tuple(tensor.number for tensor in step.reads)
            spares = isinstance(step.operation, (Relu, Dropout)) and reads[0] in self._shared
            self._places.append(_Place(reads, step.makes.number, _unit(step, seed, layer.index, arena), spares))
        self.bias = Parameter(np.zeros(layer.channels, np.float32)) if layer.bias else None
        self._norms = [place.unit for place in self._places if isinstance(place.unit, BatchNormUnit)]
        self._states = [ActRam(arena) for _ in self._places]
        self._output_errors = ActRam(arena)

    def _first_does(self, steps: tuple[SfuStep, ...], kind: type[Relu] | type[Pool], tensor: int) -> bool:
        """Whether the first of the steps is such an operation on a tensor that nobody else needs."""
        if not steps or tensor in self._shared or not isinstance(steps[0].operation, kind):
            return False
        return steps[0].reads[0].number == tensor

    def forward(self, portion: Portion, held: dict[int, Data], samples: Samples) -> None:
        """Training: add what the SFU makes to the tensors at hand, among them the complete outputs, which are used up.

        `samples` (n,) are the samples' numbers since the start of training, on which dropout depends.
        """
        training = Training(portion.of.step, samples)
        for kept, state in zip(self._states, self._apply(held, training), strict=True):
            kept.put(portion, *state)

    def infer(self, held: dict[int, Data]) -> None:
        """The same without dropout, keeping nothing."""
        self._apply(held, None)

    def _apply(self, held: dict[int, Data], training: Training | None) -> list[State]:
        y = held[self._makes]
        if self.bias is not None and self._rectifies:
            relu.forward_with_bias(y, self.bias.value)
        elif self.bias is not None:
            bias.add_bias(y, self.bias.value)
        elif self._rectifies:
            relu.forward(y)
        states = []
        for place in self._places:
            xs = [held[tensor] for tensor in place.reads]
            if place.spares:
                xs = [self._copied(xs[0])]
            held[place.makes], state = place.unit.forward(xs, training)
            states.append(state)
        return states

    def backward(self, portion: Portion, errors: dict[int, Data]) -> None:
        """From the errors of what the SFU made those of what it read; they are used up, and added where they meet."""
        for place, kept in zip(reversed(self._places), reversed(self._states), strict=True):
            dz, state = errors.pop(place.makes), tuple(kept.read(portion))
            found = place.unit.backward(state, dz)
            if isinstance(place.unit, BatchNormUnit):
                place.unit.keep(portion, state, dz)
            for tensor, error in zip(place.reads, found, strict=True):
                if tensor in errors:
                    errors[tensor] += error
                else:
                    errors[tensor] = error if len(found) == 1 else self._copied(error)
        if self.bias is not None:
            self._output_errors.put(portion, errors[self._makes])

    def _copied(self, maps: Data) -> Data:
        copy = self._arena.take(maps.shape)
        copy[...] = maps
        return copy

    def gradient(self, whole: Portion) -> None:
        """The gradients of its parameters, added to those of the samples before."""
        if self.bias is not None:
            [dy] = self._output_errors.read(whole)
            bias.add_bias_gradient(self.bias.gradient, dy, fresh=self.bias.begins_sum())
        for norm in self._norms:
            norm.gradient(whole)

    def update(self, samples: int, rule: Sgd) -> None:
        """New parameters from the gradients' mean over a mini-batch."""
        if self.bias is not None:
            self.bias.update(samples, rule)
        for norm in self._norms:
            norm.update(samples, rule)

    def learnt(self) -> list[Parameter]:
        """The bias, and scale and shift of each normalisation."""
        biases = [] if self.bias is None else [self.bias]
        return biases + [of for norm in self._norms for of in (norm.scale, norm.shift)]

    def parameters(self) -> dict[str, Data]:
        """By name, for people: the bias, and what normalisations hold; the second one's names end in 2, and so on."""
        found = {} if self.bias is None else {"bias": self.bias.value}
        for number, norm in enumerate(self._norms, 1):
            end = str(number) if number > 1 else ""
            held = {"scale": norm.scale.value, "shift": norm.shift.value, "mean": norm.mean, "variance": norm.variance}
            found.update({name + end: array for name, array in held.items()})
        return found


def _shared(layer: Layer) -> set[int]:
    """The tensors that more than one operation needs, here or further on."""
    uses = [tensor.number for step in layer.sfu for tensor in step.reads]
    uses += [tensor.number for tensor in layer.hands_on]
    return {tensor for tensor in uses if uses.count(tensor) > 1}


def _is_max(operation: SfuOperation) -> bool:
    return operation.type == "max-pool"


def _unit(step: SfuStep, seed: int, layer: int, arena: Arena) -> Unit:
    operation = step.operation
    if isinstance(operation, Relu):
        return ReluUnit()
    if isinstance(operation, Lrn):
        return LrnUnit(operation, arena)
    if isinstance(operation, Dropout):
        return DropoutUnit(operation.rate, seed, layer, arena)
    if isinstance(operation, BatchNorm):
        return BatchNormUnit(operation, step.output[0], arena)
    if isinstance(operation, Add):
        return AddUnit(step, arena)
    if isinstance(operation, Concat):
        return ConcatUnit(step, arena)
    return MaxPoolUnit(step, arena) if _is_max(operation) else AveragePoolUnit(step, arena)
