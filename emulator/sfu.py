"""The special function unit (SFU): bias, activation, normalisation, pooling and dropout, on complete outputs.

FPDeep, section 5.3. It stands with the last device of a layer, which alone holds complete outputs. Each operation of a
network's description has its unit here: `forward` gives the result and what the way back will need.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..kernels import bias, dropout, lrn, pool, relu
from .network import Dropout, Layer, Lrn, Pool, Relu, SfuStep
from .parameter import Parameter, Sgd

Data = NDArray[np.float32]
Samples = NDArray[np.int64]


class _Unit(Protocol):
    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, Any]:
        """The result and a state; `samples` are the samples' numbers in training, None in evaluation."""

    def backward(self, state: Any, dz: Data) -> Data:
        """Errors of x from those of the result."""


class _ReluUnit:
    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, Data]:
        y = relu.forward(x)
        return y, y

    def backward(self, state: Data, dz: Data) -> Data:
        return relu.error(state, dz)


class _LrnUnit:
    def __init__(self, lrn_: Lrn) -> None:
        self._lrn = lrn_

    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, tuple[Data, Data, Data]]:
        of = self._lrn
        y, scale = lrn.forward(x, size=of.size, alpha=of.alpha, beta=of.beta, k=of.k)
        return y, (x, y, scale)

    def backward(self, state: tuple[Data, Data, Data], dz: Data) -> Data:
        of, (x, y, scale) = self._lrn, state
        return lrn.error(x, y, scale, dz, size=of.size, alpha=of.alpha, beta=of.beta, k=of.k)


class _DropoutUnit:
    def __init__(self, rate: float, seed: int, layer: int) -> None:
        self._rate, self._seed, self._layer = rate, seed, layer

    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, Any]:
        if samples is None:
            return x, None
        shape = x.shape[0], x.shape[1], x.shape[2], x.shape[3]
        mask = dropout.mask(shape, rate=self._rate, seed=self._seed, layer=self._layer, samples=samples)
        return x * mask, mask

    def backward(self, state: Data, dz: Data) -> Data:
        return dz * state


class _MaxPoolUnit:
    def __init__(self, step: SfuStep, of: Pool) -> None:
        self._input, self._of = step.input, of

    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, Any]:
        return pool.max_forward(x, kernel=self._of.kernel, stride=self._of.step, pad=self._of.pad)

    def backward(self, state: Any, dz: Data) -> Data:
        of, shape = self._of, (len(dz), *self._input)
        return pool.max_error(dz, state, shape, kernel=of.kernel, stride=of.step, pad=of.pad)


class _AveragePoolUnit:
    def __init__(self, step: SfuStep, of: Pool) -> None:
        self._input, self._of = step.input, of

    def forward(self, x: Data, samples: Samples | None) -> tuple[Data, None]:
        return pool.average_forward(x, kernel=self._of.kernel, stride=self._of.step, pad=self._of.pad), None

    def backward(self, state: None, dz: Data) -> Data:
        of, shape = self._of, (len(dz), *self._input)
        return pool.average_error(dz, shape, kernel=of.kernel, stride=of.step, pad=of.pad)


def _unit(step: SfuStep, seed: int, layer: int) -> _Unit:
    operation = step.operation
    if isinstance(operation, Relu):
        return _ReluUnit()
    if isinstance(operation, Lrn):
        return _LrnUnit(operation)
    if isinstance(operation, Dropout):
        return _DropoutUnit(operation.rate, seed, layer)
    if operation.type == "max-pool":
        return _MaxPoolUnit(step, operation)
    if operation.type == "average-pool":
        return _AveragePoolUnit(step, operation)
    raise NotImplementedError(f"the SFU has no unit for {operation.type}")


class Sfu:
    """One layer's SFU and its bias."""

    def __init__(self, layer: Layer, seed: int) -> None:
        self._units = [_unit(step, seed, layer.index) for step in layer.sfu]
        self.bias = Parameter(np.zeros(layer.channels, np.float32)) if layer.bias else None
        self._states: dict[int, list[Any]] = {}
        self._output_errors: dict[int, Data] = {}

    def forward(self, micro_batch: int, y: Data, samples: Samples) -> Data:
        """Training: what the next layer receives, from complete outputs `y`, which are used up.

        `samples` (n,) are the samples' numbers since the start of training, on which dropout depends.
        """
        y, self._states[micro_batch] = self._apply(y, samples)
        return y

    def infer(self, y: Data) -> Data:
        """The same without dropout, keeping nothing."""
        return self._apply(y, None)[0]

    def _apply(self, y: Data, samples: Samples | None) -> tuple[Data, list[Any]]:
        if self.bias is not None:
            bias.add_bias(y, self.bias.value)
        states = []
        for unit in self._units:
            y, state = unit.forward(y, samples)
            states.append(state)
        return y, states

    def backward(self, micro_batch: int, dz: Data) -> Data:
        """Errors of the complete outputs, from the errors of what the next layer received."""
        for unit, state in zip(reversed(self._units), reversed(self._states.pop(micro_batch)), strict=True):
            dz = unit.backward(state, dz)
        self._output_errors[micro_batch] = dz
        return dz

    def gradient(self, micro_batch: int) -> None:
        """The bias's gradient, added to those of the samples before."""
        dy = self._output_errors.pop(micro_batch)
        if self.bias is not None:
            bias.add_bias_gradient(self.bias.gradient, dy)

    def update(self, samples: int, rule: Sgd) -> None:
        """A new bias from the gradients' mean over a mini-batch."""
        if self.bias is not None:
            self.bias.update(samples, rule)
