"""The special function unit (SFU): bias, activation, normalisation, pooling and dropout, on complete outputs.

FPDeep, section 5.3. It stands with the last device of a layer, which alone holds complete outputs. Each operation of a
network's description has its unit here: `forward` gives the result and what the way back will need.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..kernels import bias, dropout, lrn, pool, relu
from ..kernels.arena import Arena
from .act_ram import ActRam
from .layers import Dropout, Layer, Lrn, Pool, Relu, SfuStep
from .parameter import Parameter, Sgd
from .schedule import Portion

Data = NDArray[np.float32]
Samples = NDArray[np.int64]
State = tuple[NDArray[Any], ...]


class _Unit(Protocol):
    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, State]:
        """The result and a state, of arrays (samples, …).

        `samples` are the samples' numbers in training, None in evaluation. The unit before may keep x as its state.
        """

    def backward(self, state: State, dz: Data) -> Data:
        """Errors of x from those of the result, which are used up."""


class _ReluUnit:
    """In place: if an LRN before keeps these maps, then it multiplies them by errors, which fall to 0 where they do."""

    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, State]:
        relu.forward(x)
        return x, (x,)

    def backward(self, state: State, dz: Data) -> Data:
        relu.error(state[0], dz)
        return dz


class _RectifiedUnit(_ReluUnit):
    """A ReLU that comes first, and so was done with the bias, in place."""

    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, State]:
        return x, (x,)


class _LrnUnit:
    def __init__(self, lrn_: Lrn, arena: Arena) -> None:
        self._lrn, self._arena = lrn_, arena

    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, State]:
        of, y, scale = self._lrn, self._arena.take(x.shape), self._arena.take(x.shape)
        lrn.forward(x, y, scale, size=of.size, alpha=of.alpha, beta=of.beta, k=of.k)
        return y, (x, y, scale)

    def backward(self, state: State, dz: Data) -> Data:
        of = self._lrn
        x, y, scale = state
        lrn.error(x, y, scale, dz, dz, size=of.size, alpha=of.alpha, beta=of.beta, k=of.k)
        return dz


class _DropoutUnit:
    def __init__(self, rate: float, seed: int, layer: int, arena: Arena) -> None:
        self._rate, self._seed, self._layer, self._arena = rate, seed, layer, arena

    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, State]:
        if samples is None:
            return x, ()
        mask, y = self._arena.take(x.shape), self._arena.take(x.shape)
        dropout.mask(mask, rate=self._rate, seed=self._seed, layer=self._layer, samples=samples)
        np.multiply(x, mask, out=y)
        return y, (mask,)

    def backward(self, state: State, dz: Data) -> Data:
        dz *= state[0]
        return dz


class _PoolUnit:
    def __init__(self, step: SfuStep, of: Pool, arena: Arena) -> None:
        self._arena = arena
        self._window = {"kernel": of.kernel, "stride": of.step, "pad": of.pad}
        channels, *size = step.input
        self._input = (*size, channels)
        channels, *size = step.output
        self._output = (*size, channels)


class _MaxPoolUnit(_PoolUnit):
    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, State]:
        shape = (len(x), *self._output)
        y, places = self._arena.take(shape), self._arena.take(shape, np.uint8)
        pool.max_forward(x, y, places, **self._window)
        return y, (places,)

    def backward(self, state: State, dz: Data) -> Data:
        dx = self._arena.take((len(dz), *self._input))
        pool.max_error(dz, state[0], dx, **self._window)
        return dx


class _RectifiedMaxPoolUnit(_MaxPoolUnit):
    """The first ReLU and a max-pool behind it.

    Where a maximum is 0, so is all its window. So ReLU's way back goes over the maxima, before they are spread.
    """

    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, State]:
        y, places = super().forward(x, samples)
        return y, (y, *places)

    def backward(self, state: State, dz: Data) -> Data:
        y, *places = state
        relu.error(y, dz)
        return super().backward(tuple(places), dz)


class _AveragePoolUnit(_PoolUnit):
    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, State]:
        y = self._arena.take((len(x), *self._output))
        pool.average_forward(x, y, **self._window)
        return y, ()

    def backward(self, state: State, dz: Data) -> Data:
        dx = self._arena.take((len(dz), *self._input))
        pool.average_error(dz, dx, **self._window)
        return dx


def _unit(step: SfuStep, seed: int, layer: int, arena: Arena) -> _Unit:
    operation = step.operation
    if isinstance(operation, Relu):
        return _ReluUnit()
    if isinstance(operation, Lrn):
        return _LrnUnit(operation, arena)
    if isinstance(operation, Dropout):
        return _DropoutUnit(operation.rate, seed, layer, arena)
    if operation.type == "max-pool":
        return _MaxPoolUnit(step, operation, arena)
    if operation.type == "average-pool":
        return _AveragePoolUnit(step, operation, arena)
    raise NotImplementedError(f"the SFU has no unit for {operation.type}")


def _units_after_relu(steps: tuple[SfuStep, ...], seed: int, layer: int, arena: Arena) -> list[_Unit]:
    if steps and isinstance(steps[0].operation, Pool) and steps[0].operation.type == "max-pool":
        first: _Unit = _RectifiedMaxPoolUnit(steps[0], steps[0].operation, arena)
        return [first, *(_unit(step, seed, layer, arena) for step in steps[1:])]
    return [_RectifiedUnit(), *(_unit(step, seed, layer, arena) for step in steps)]


class Sfu:
    """One layer's SFU and its bias; its maps come from an arena."""

    def __init__(self, layer: Layer, seed: int, arena: Arena) -> None:
        self._rectifies = bool(layer.sfu) and isinstance(layer.sfu[0].operation, Relu)
        if self._rectifies:
            self._units = _units_after_relu(layer.sfu[1:], seed, layer.index, arena)
        else:
            self._units = [_unit(step, seed, layer.index, arena) for step in layer.sfu]
        self.bias = Parameter(np.zeros(layer.channels, np.float32)) if layer.bias else None
        self._states = [ActRam(arena) for _ in self._units]
        self._output_errors = ActRam(arena)

    def forward(self, portion: Portion, y: Data, samples: Samples) -> Data:
        """Training: what the next layer receives, from complete outputs `y`, which are used up.

        `samples` (n,) are the samples' numbers since the start of training, on which dropout depends.
        """
        y, states = self._apply(y, samples)
        for kept, state in zip(self._states, states, strict=True):
            kept.put(portion, *state)
        return y

    def infer(self, y: Data) -> Data:
        """The same without dropout, keeping nothing."""
        return self._apply(y, None)[0]

    def _apply(self, y: Data, samples: Samples | None) -> tuple[Data, list[State]]:
        if self.bias is not None and self._rectifies:
            relu.forward_with_bias(y, self.bias.value)
        elif self.bias is not None:
            bias.add_bias(y, self.bias.value)
        elif self._rectifies:
            relu.forward(y)
        states = []
        for unit in self._units:
            y, state = unit.forward(y, samples)
            states.append(state)
        return y, states

    def backward(self, portion: Portion, dz: Data) -> Data:
        """Errors of the complete outputs, from the errors of what the next layer received, which are used up."""
        for unit, kept in zip(reversed(self._units), reversed(self._states), strict=True):
            dz = unit.backward(tuple(kept.read(portion)), dz)
        if self.bias is not None:
            self._output_errors.put(portion, dz)
        return dz

    def gradient(self, whole: Portion) -> None:
        """The bias's gradient, added to those of the samples before."""
        if self.bias is not None:
            [dy] = self._output_errors.read(whole)
            bias.add_bias_gradient(self.bias.gradient, dy, fresh=self.bias.begins_sum())

    def update(self, samples: int, rule: Sgd) -> None:
        """A new bias from the gradients' mean over a mini-batch."""
        if self.bias is not None:
            self.bias.update(samples, rule)
