"""The special function unit (SFU): bias, activation, normalisation, pooling and dropout, on complete outputs.

FPDeep, section 5.3. It stands with the last device of a layer, which alone holds complete outputs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..kernels import bias, dropout, lrn, pool, relu
from .network import Dropout, Layer, Lrn, Pool, Relu, SfuStep
from .parameter import Parameter, Sgd

Data = NDArray[np.float32]
State = tuple[NDArray, ...]


class Sfu:
    """One layer's SFU and its bias."""

    def __init__(self, layer: Layer, seed: int) -> None:
        self._layer = layer
        self._seed = seed
        self.bias = Parameter(np.zeros(layer.channels, np.float32)) if layer.bias else None
        self._states: dict[int, list[State]] = {}
        self._output_errors: dict[int, Data] = {}

    def forward(self, micro_batch: int, y: Data, samples: NDArray[np.int64]) -> Data:
        """Training: what the next layer receives, from complete outputs `y`, which are used up.

        `samples` (n,) are the samples' numbers since the start of training, on which dropout depends.
        """
        self._add_bias(y)
        states = self._states[micro_batch] = []
        for step in self._layer.sfu:
            y, state = self._step(step, y, samples)
            states.append(state)
        return y

    def infer(self, y: Data) -> Data:
        """The same without dropout, keeping nothing."""
        self._add_bias(y)
        for step in self._layer.sfu:
            if not isinstance(step.operation, Dropout):
                y, _ = self._step(step, y, np.zeros(len(y), np.int64))
        return y

    def _add_bias(self, y: Data) -> None:
        if self.bias is not None:
            bias.add_bias(y, self.bias.value)

    def _step(self, step: SfuStep, x: Data, samples: NDArray[np.int64]) -> tuple[Data, State]:
        operation = step.operation
        if isinstance(operation, Relu):
            y = relu.forward(x)
            return y, (y,)
        if isinstance(operation, Lrn):
            y, scale = lrn.forward(x, size=operation.size, alpha=operation.alpha, beta=operation.beta, k=operation.k)
            return y, (x, y, scale)
        if isinstance(operation, Dropout):
            mask = dropout.mask(
                x.shape, rate=operation.rate, seed=self._seed, layer=self._layer.index, samples=samples
            )
            return x * mask, (mask,)
        if operation.type == "max-pool":
            y, argmax = pool.max_forward(x, kernel=operation.kernel, stride=operation.step, pad=operation.pad)
            return y, (argmax,)
        return pool.average_forward(x, kernel=operation.kernel, stride=operation.step, pad=operation.pad), ()

    def backward(self, micro_batch: int, dz: Data) -> Data:
        """Errors of the complete outputs, from the errors of what the next layer received."""
        for step, state in zip(reversed(self._layer.sfu), reversed(self._states.pop(micro_batch)), strict=True):
            dz = self._step_back(step, state, dz)
        self._output_errors[micro_batch] = dz
        return dz

    def _step_back(self, step: SfuStep, state: State, dz: Data) -> Data:
        operation = step.operation
        if isinstance(operation, Relu):
            return relu.error(*state, dz)
        if isinstance(operation, Lrn):
            setting = {"size": operation.size, "alpha": operation.alpha, "beta": operation.beta, "k": operation.k}
            return lrn.error(*state, dz, **setting)
        if isinstance(operation, Dropout):
            return dz * state[0]
        assert isinstance(operation, Pool)
        x_shape = (len(dz), *step.input)
        window = {"kernel": operation.kernel, "stride": operation.step, "pad": operation.pad}
        if operation.type == "max-pool":
            return pool.max_error(dz, *state, x_shape, **window)
        return pool.average_error(dz, x_shape, **window)

    def gradient(self, micro_batch: int) -> None:
        """The bias's gradient, added to those of the samples before."""
        dy = self._output_errors.pop(micro_batch)
        if self.bias is not None:
            bias.add_bias_gradient(self.bias.gradient, dy)

    def update(self, samples: int, rule: Sgd) -> None:
        """A new bias from the gradients' mean over a mini-batch."""
        if self.bias is not None:
            self.bias.update(samples, rule)
