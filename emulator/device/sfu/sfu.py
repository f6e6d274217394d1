"""The special function unit (SFU): bias, activation, normalisation, pooling, dropout and joins, on complete outputs.

FPDeep, section 5.3. It belongs to the last device of a layer, the only one with complete outputs. Its units read those,
one another's results, and tensors that pass through: "aggregation ... gather and bypass" (section 5.1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....kernels import Arena
from ....kernels.layers.activations import rectified_error, rectify, relu
from ....kernels.layers.element_wise import add_bias, add_bias_gradient, rectify_with_bias
from ...network import Layer, SfuOperation, SfuStep, Tensor
from ...network.operations.activations import Relu
from ...network.operations.pool import MaxPool
from ...schedule import SampleSpan
from ..memories import ActRam, Parameter, Versions, copied
from ..rules import Rule
from .shapes import MaxPoolUnit
from .unit import ActivationUnit, Data, Site, State, Training, Unit, units


class _Place(NamedTuple):
    """A unit, the numbers of the tensors that it reads and makes, and whether it must not overwrite its input.

    Errors go only to what `needs` them; none come where the result is `fixed`.
    """

    reads: tuple[int, ...]
    makes: int
    unit: Unit
    spares: bool
    fixed: bool
    needs: frozenset[int]

    @classmethod
    def of(cls, reads: Sequence[Tensor], makes: Tensor, unit: Unit, spares: bool) -> _Place:
        """Return the place of a unit between tensors."""
        needs = frozenset(tensor.number for tensor in reads if not tensor.fixed)
        return cls(tuple(tensor.number for tensor in reads), makes.number, unit, spares, makes.fixed, needs)


class Sfu:
    """One layer's SFU and its bias, for `channels` complete outputs, by default all; its maps come from an arena."""

    def __init__(self, layer: Layer, seed: int, arena: Arena, channels: int | None = None) -> None:
        self._arena = arena
        self._makes, self._rests, self._is_fixed = layer.makes.number, layer.frozen, layer.makes.fixed
        outputs = layer.channels if channels is None else channels
        self.bias = Parameter(np.zeros(outputs, np.float32), arena) if layer.bias else None
        site, shared, steps = Site(layer.index, seed, arena), _shared(layer), layer.sfu
        site = dataclasses.replace(site, frozen=layer.frozen)
        self._places: list[_Place] = []
        fusion = fuse(steps, self._makes, shared, site)
        self._rectifies = fusion is not None
        if fusion is not None:
            makes = steps[fusion.steps - 1].makes
            self._places.append(_Place.of([layer.makes], makes, fusion.unit, False))
            steps = steps[fusion.steps :]
        for step in steps:
            kind = units()[type(step.operation)]
            number = sum(isinstance(place.unit, kind) for place in self._places)
            unit = kind(step, dataclasses.replace(site, place=number))
            spares = unit.overwrites and step.reads[0].number in shared
            self._places.append(_Place.of(step.reads, step.makes, unit, spares))
        self._states = [ActRam(arena) for _ in self._places]
        self._output_errors = ActRam(arena)

    def forward(self, span: SampleSpan, held: dict[int, Data], version: int, training: Training) -> None:
        """Add the results to the tensors in `held`, in training; the complete outputs among them are consumed.

        `version` is that of the weights.
        """
        self._complete(held, version)
        for place, kept in zip(self._places, self._states, strict=True):
            held[place.makes], state = place.unit.forward(self._inputs(place, held), version, training)
            if not place.fixed:
                kept.put(span, *state)

    def infer(self, held: dict[int, Data], version: int, lengths: NDArray[np.int64] | None = None) -> None:
        """Do the same in evaluation and keep nothing; `lengths` (n,) are the samples' time steps where they differ."""
        self._complete(held, version)
        for place in self._places:
            held[place.makes] = place.unit.infer(self._inputs(place, held), version, lengths)

    def _complete(self, held: Mapping[int, Data], version: int) -> None:
        """Add the bias to the complete outputs, and rectify them if a ReLU runs with it."""
        y = held[self._makes]
        if self.bias is not None and self._rectifies:
            rectify_with_bias(y, self.bias[version])
        elif self.bias is not None:
            add_bias(y, self.bias[version])
        elif self._rectifies:
            rectify(y)

    def _inputs(self, place: _Place, held: Mapping[int, Data]) -> list[Data]:
        xs = [held[tensor] for tensor in place.reads]
        return [copied(xs[0], self._arena)] if place.spares else xs

    def backward(
        self,
        span: SampleSpan,
        errors: dict[int, Data],
        version: int,
        rounded: Callable[[Data], Data] = lambda errors: errors,
    ) -> None:
        """Replace the errors of the SFU's results by those of its inputs; errors of the same tensor are added.

        Those of the complete outputs are `rounded`.
        """
        for place, kept in zip(reversed(self._places), reversed(self._states), strict=True):
            if place.fixed:
                continue
            dz, state = errors.pop(place.makes), tuple(kept.read(span))
            input_errors = place.unit.backward(state, dz, version)
            if not self._rests:
                place.unit.keep(span, state, dz)
            for tensor, error in zip(place.reads, input_errors, strict=True):
                if tensor not in place.needs:
                    continue
                if tensor in errors:
                    errors[tensor] += error
                else:
                    errors[tensor] = error if len(input_errors) == 1 else copied(error, self._arena)
        if self._is_fixed:
            return
        errors[self._makes] = rounded(errors[self._makes])
        if self.bias is not None and not self._rests:
            self._output_errors.put(span, errors[self._makes])

    def gradient(self, whole: SampleSpan) -> None:
        """Add the gradients of its parameters over a micro-batch to the sums."""
        if self._rests:
            return
        if self.bias is not None:
            [dy] = self._output_errors.read(whole)
            add_bias_gradient(self.bias.gradient, dy, fresh=self.bias.begins_sum())
        for place in self._places:
            if not place.fixed:
                place.unit.gradient(whole)

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """Make the next version of its parameters from the mean of the gradients over `samples`."""
        if self.bias is not None:
            self.bias.update(samples, rule, keeps=keeps)
        for unit in self._units:
            unit.update(samples, rule, keeps=keeps)

    def repeat(self, *, keeps: bool) -> None:
        """Make the next version of its parameters and averages without an update."""
        for learnt in self.held.values():
            learnt.repeat(keeps=keeps)

    @property
    def _units(self) -> Sequence[Unit]:
        return [place.unit for place in self._places]

    @property
    def parameters(self) -> list[Parameter]:
        """The bias, then the units' parameters, in order."""
        biases = [] if self.bias is None else [self.bias]
        return biases + [learnt for unit in self._units for learnt in unit.parameters.values()]

    @property
    def held(self) -> Mapping[str, Parameter | Versions]:
        """Its parameters and moving averages by name; names of a second such unit end in 2, and so on."""
        entries: dict[str, Parameter | Versions] = {} if self.bias is None else {"bias": self.bias}
        number = 0
        for unit in self._units:
            number += bool(unit.held)
            end = str(number) if number > 1 else ""
            entries.update({name + end: learnt for name, learnt in unit.held.items()})
        return entries

    def free(self, versions: Sequence[int]) -> None:
        """Drop versions after their last use."""
        if self.bias is not None:
            self.bias.free(versions)
        for unit in self._units:
            unit.free(versions)

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        if self.bias is not None:
            self.bias.begin_epoch()
        for unit in self._units:
            unit.begin_epoch()


def _shared(layer: Layer) -> set[int]:
    """Return the tensors that more than one operation needs, here or in later layers."""
    uses = [tensor.number for step in layer.sfu for tensor in step.reads]
    uses += [tensor.number for tensor in layer.hands_on]
    return {tensor for tensor in uses if uses.count(tensor) > 1}


class Fusion(NamedTuple):
    """A unit for the first `steps` steps of an SFU, where a ReLU runs with the bias; it makes tensor `makes`."""

    unit: Unit
    steps: int
    makes: int


def fuse(steps: Sequence[SfuStep], outputs: int, shared: Collection[int], site: Site) -> Fusion | None:
    """Return the fusion of the first steps, if there is one.

    Args:
        steps: steps of the layer's SFU.
        outputs: the number of the layer's complete outputs.
        shared: numbers of the tensors that more than one operation needs.
        site: where the unit works.
    """
    if not _is_first(steps, Relu, outputs, shared):
        return None
    rectified = steps[0].makes.number
    if _is_first(steps[1:], MaxPool, rectified, shared):
        return Fusion(_RectifiedMaxPoolUnit(steps[1], site), 2, steps[1].makes.number)
    return Fusion(_RectifiedUnit(steps[0], site), 1, rectified)


def _is_first(steps: Sequence[SfuStep], kind: type[SfuOperation], tensor: int, shared: Collection[int]) -> bool:
    """Return whether the first step is an operation of type `kind` on `tensor`, which no other one needs."""
    if not steps or tensor in shared or not isinstance(steps[0].operation, kind):
        return False
    return steps[0].reads[0].number == tensor


class _RectifiedUnit(ActivationUnit):
    """A ReLU that already ran with the bias, in place."""

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        [x] = xs
        return x, relu.kept(x, self.arena.take)

    def infer(self, xs: Sequence[Data], version: int, lengths: NDArray[np.int64] | None) -> Data:
        [x] = xs
        return x


class _RectifiedMaxPoolUnit(MaxPoolUnit):
    """A ReLU that already ran with the bias, and a max-pool.

    Where a maximum is 0, so is its whole window. So ReLU's backward pass runs on the maxima, before they are spread.
    """

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        y, places = super().forward(xs, version, training)
        return y, (y, *places)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        y, *places = state
        rectified_error(y, dz)
        return super().backward(tuple(places), dz, version)
