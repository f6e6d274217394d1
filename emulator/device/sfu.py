"""The special function unit (SFU): bias, activation, normalisation, pooling, dropout and joins, on
complete outputs.

FPDeep, section 5.3. It belongs to the last device of a layer, the only one with complete outputs.
Its units read those, one another's results, and tensors that pass through: "aggregation ... gather
and bypass" (section 5.1).

A unit is arithmetic on arrays (`network/unit.py`); its parameters, and what it needs again, are
here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...kernels.layers.activations import rectified_error, rectify, relu
from ...kernels.layers.element_wise import add_bias, add_bias_gradient, rectify_with_bias
from ..network import ActivationUnit, Layer, SfuStep, Site, Tensor, Training, Unit
from ..network.operations.activations import Relu
from ..network.operations.pool import MaxPool, MaxPoolUnit
from ..schedule import SampleSpan
from .memories import ActRam, Parameter, Versions, copied
from .rules import Rule

Data = NDArray[np.float32]
State = tuple[NDArray[Any], ...]
Inputs = Sequence[Data]
Made = tuple[Data, State]
Lengths = NDArray[np.int64]
Weights = Mapping[str, Data]


class _Place:
    """A unit between tensors that it `reads` and one that it `makes`, with its parameters by
    version.

    It must not overwrite its input where that is `shared`. Errors go only to what `needs` them;
    none come where the result is `fixed`.
    """

    def __init__(
        self,
        reads: Sequence[Tensor],
        makes: Tensor,
        unit: Unit,
        arena: Arena,
        shared: Collection[int] = (),
    ) -> None:
        self.reads = tuple(tensor.number for tensor in reads)
        self.makes, self.fixed = makes.number, makes.fixed
        self.needs = frozenset(tensor.number for tensor in reads if not tensor.fixed)
        self.unit, self.spares = unit, unit.overwrites and self.reads[0] in shared
        self.parameters = {name: Parameter(first, arena) for name, first in unit.learns.items()}
        self.averages = {name: Versions(first, arena) for name, first in unit.averages.items()}
        self.states, self.kept = ActRam(arena), ActRam(arena)

    @property
    def held(self) -> Mapping[str, Parameter | Versions]:
        """Parameters and moving averages by name."""
        return {**self.parameters, **self.averages}

    def weights(self, version: int) -> Weights:
        """Return a version of all that it holds."""
        return {name: learnt[version] for name, learnt in self.held.items()}

    def gradient(self, whole: SampleSpan) -> None:
        """Add the gradients of its parameters over a micro-batch to the sums."""
        # A list: each must note that its sum has begun, and `all` of a generator might stop early.
        begins = [learnt.begins_sum() for learnt in self.parameters.values()]
        sums = {name: learnt.gradient for name, learnt in self.parameters.items()}
        self.unit.gradient(tuple(self.kept.read(whole)), sums, fresh=all(begins))

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """Make the next version from the mean of the gradients over `samples`."""
        for learnt in self.parameters.values():
            learnt.update(samples, rule, keeps=keeps)
        if self.averages:
            own = self.averages.items()
            self.unit.average({name: average.advance(keeps=keeps) for name, average in own})


class Sfu:
    """One layer's SFU and its bias, for `channels` complete outputs, by default all; its maps come
    from an arena.
    """

    def __init__(self, layer: Layer, seed: int, arena: Arena, channels: int | None = None) -> None:
        self._arena = arena
        self._makes, self._rests, self._is_fixed = (
            layer.makes.number,
            layer.frozen,
            layer.makes.fixed,
        )
        outputs = layer.channels if channels is None else channels
        self.bias = Parameter(np.zeros(outputs, np.float32), arena) if layer.bias else None
        site = Site(layer.stream, seed, arena, layer.frozen)
        shared, steps = _shared(layer), layer.sfu
        self._places: list[_Place] = []
        rectified = _rectified(steps, self._makes, shared, site)
        self._rectifies = rectified is not None
        if rectified is not None:
            unit, count = rectified
            self._places.append(_Place([layer.makes], steps[count - 1].makes, unit, arena))
            steps = steps[count:]
        for number, step in enumerate(steps):
            alike = sum(type(before.operation) is type(step.operation) for before in steps[:number])
            unit = step.operation.unit(step, dataclasses.replace(site, place=alike))
            self._places.append(_Place(step.reads, step.makes, unit, arena, shared))
        self._output_errors = ActRam(arena)

    def forward(
        self, span: SampleSpan, held: dict[int, Data], version: int, training: Training
    ) -> None:
        """Add the results to the tensors in `held`, in training; the complete outputs among them
        are consumed.

        `version` is that of the weights.
        """
        self._complete(held, version)
        for place in self._places:
            xs = self._inputs(place, held)
            held[place.makes], state = place.unit.forward(xs, place.weights(version), training)
            if not place.fixed:
                place.states.put(span, *state)

    @property
    def stores(self) -> list[ActRam]:
        """What forward passes keep, by micro-batch."""
        return [place.states for place in self._places]

    def infer(
        self, held: dict[int, Data], version: int, lengths: NDArray[np.int64] | None = None
    ) -> None:
        """Do the same in evaluation and keep nothing; `lengths` (n,) are the samples' time steps
        where they differ.
        """
        self._complete(held, version)
        for place in self._places:
            xs = self._inputs(place, held)
            held[place.makes] = place.unit.infer(xs, place.weights(version), lengths)

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
        """Replace the errors of the SFU's results by those of its inputs; errors of the same tensor
        are added.

        Those of the complete outputs are `rounded`.
        """
        for place in reversed(self._places):
            if place.fixed:
                continue
            dz, state = errors.pop(place.makes), tuple(place.states.read(span))
            input_errors = place.unit.backward(state, dz, place.weights(version))
            if place.parameters and not self._rests:
                place.kept.put(span, *place.unit.kept(state, dz))
            for tensor, error in zip(place.reads, input_errors, strict=True):
                if tensor not in place.needs:
                    continue
                if tensor in errors:
                    errors[tensor] += error
                else:
                    # A sum gives all its inputs one array; other errors are added to each.
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
            if place.parameters and not place.fixed:
                place.gradient(whole)

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """Make the next version of its parameters from the mean of the gradients over `samples`."""
        if self.bias is not None:
            self.bias.update(samples, rule, keeps=keeps)
        for place in self._places:
            place.update(samples, rule, keeps=keeps)

    def repeat(self, *, keeps: bool) -> None:
        """Make the next version of its parameters and averages without an update."""
        for learnt in self.held.values():
            learnt.repeat(keeps=keeps)

    @property
    def parameters(self) -> list[Parameter]:
        """The bias, then the units' parameters, in order."""
        biases = [] if self.bias is None else [self.bias]
        return biases + [learnt for place in self._places for learnt in place.parameters.values()]

    @property
    def held(self) -> Mapping[str, Parameter | Versions]:
        """Its parameters and moving averages by name; names of a second such unit end in 2, and so
        on.
        """
        entries: dict[str, Parameter | Versions] = {} if self.bias is None else {"bias": self.bias}
        number = 0
        for place in self._places:
            number += bool(place.held)
            end = str(number) if number > 1 else ""
            entries.update({name + end: learnt for name, learnt in place.held.items()})
        return entries

    def free(self, versions: Sequence[int]) -> None:
        """Drop versions after their last use."""
        for learnt in self.held.values():
            learnt.free(versions)

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        for learnt in self.held.values():
            learnt.begin_epoch()


def _shared(layer: Layer) -> set[int]:
    """Return the tensors that more than one operation needs, here or in later layers."""
    uses = [tensor.number for step in layer.sfu for tensor in step.reads]
    uses += [tensor.number for tensor in layer.hands_on]
    return {tensor for tensor in uses if uses.count(tensor) > 1}


def _rectified(
    steps: Sequence[SfuStep], outputs: int, shared: Collection[int], site: Site
) -> tuple[Unit, int] | None:
    """Return the unit of a layer's first steps, and their number, where a ReLU runs with the bias.

    It takes the complete `outputs`; no other operation may need these, nor what goes on to a pool.
    """
    if not steps or not isinstance(steps[0].operation, Relu) or outputs in shared:
        return None
    if steps[0].reads[0].number != outputs:
        return None
    made = steps[0].makes.number
    if len(steps) > 1 and made not in shared and steps[1].reads[0].number == made:
        pool = steps[1].operation
        if isinstance(pool, MaxPool):
            return _RectifiedMaxPoolUnit(pool, steps[1], site), 2
    return _RectifiedUnit(Relu.type, (), site), 1


class _RectifiedUnit(ActivationUnit):
    """A ReLU that already ran with the bias, in place."""

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        [x] = xs
        return x, relu.kept(x, self.arena.take)

    def infer(self, xs: Inputs, weights: Weights, lengths: Lengths | None) -> Data:
        [x] = xs
        return x


class _RectifiedMaxPoolUnit(MaxPoolUnit):
    """A ReLU that already ran with the bias, and a max-pool.

    Where a maximum is 0, so is its whole window. So ReLU's backward pass runs on the maxima, before
    they are spread.
    """

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        y, places = super().forward(xs, weights, training)
        return y, (y, *places)

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        y, *places = state
        rectified_error(y, dz)
        return super().backward(tuple(places), dz, weights)
