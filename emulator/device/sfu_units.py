"""What a special function unit is built of: one unit for each operation of a network's description.

`forward` gives the result and what the way back will need; `backward` the errors of what was read. Batch
normalisation, which learns, has a file of its own (batch_norm.py).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...kernels.arena import Arena
from ...kernels.layers import dropout, lrn, pool, relu
from ..network.layers import Lrn, Pool, SfuStep

Data = NDArray[np.float32]
Samples = NDArray[np.int64]
State = tuple[NDArray[Any], ...]


@dataclasses.dataclass(frozen=True)
class Training:
    """Samples in training: their mini-batch's number in the epoch, and theirs since the start of training."""

    step: int
    samples: Samples


class Unit(Protocol):
    """One operation."""

    def forward(self, xs: Sequence[Data], training: Training | None) -> tuple[Data, State]:
        """The result and a state, of arrays (samples, …); the unit before may keep x as its state.

        `training` is None in evaluation, and then nothing is learnt and nothing is random.
        """

    def backward(self, state: State, dz: Data) -> Sequence[Data]:
        """Errors of all that was read from those of the result, which are used up."""


class ReluUnit:
    """In place: if an LRN before keeps these maps, then it multiplies them by errors, which fall to 0 where they do."""

    def forward(self, xs: Sequence[Data], training: Training | None) -> tuple[Data, State]:
        [x] = xs
        relu.forward(x)
        return x, (x,)

    def backward(self, state: State, dz: Data) -> Sequence[Data]:
        relu.error(state[0], dz)
        return (dz,)


class RectifiedUnit(ReluUnit):
    """A ReLU that comes first, and so was done with the bias, in place."""

    def forward(self, xs: Sequence[Data], training: Training | None) -> tuple[Data, State]:
        [x] = xs
        return x, (x,)


class LrnUnit:
    """Local response normalisation."""

    def __init__(self, lrn_: Lrn, arena: Arena) -> None:
        self._lrn, self._arena = lrn_, arena

    def forward(self, xs: Sequence[Data], training: Training | None) -> tuple[Data, State]:
        [x] = xs
        of, y, scale = self._lrn, self._arena.take(x.shape), self._arena.take(x.shape)
        lrn.forward(x, y, scale, size=of.size, alpha=of.alpha, beta=of.beta, k=of.k)
        return y, (x, y, scale)

    def backward(self, state: State, dz: Data) -> Sequence[Data]:
        of = self._lrn
        x, y, scale = state
        lrn.error(x, y, scale, dz, dz, size=of.size, alpha=of.alpha, beta=of.beta, k=of.k)
        return (dz,)


class DropoutUnit:
    """Dropout in training; in evaluation nothing happens."""

    def __init__(self, rate: float, seed: int, layer: int, arena: Arena) -> None:
        self._rate, self._seed, self._layer, self._arena = rate, seed, layer, arena

    def forward(self, xs: Sequence[Data], training: Training | None) -> tuple[Data, State]:
        [x] = xs
        if training is None:
            return x, ()
        mask, y = self._arena.take(x.shape), self._arena.take(x.shape)
        dropout.mask(mask, rate=self._rate, seed=self._seed, layer=self._layer, samples=training.samples)
        np.multiply(x, mask, out=y)
        return y, (mask,)

    def backward(self, state: State, dz: Data) -> Sequence[Data]:
        dz *= state[0]
        return (dz,)


class PoolUnit:
    """What pooling units share."""

    def __init__(self, step: SfuStep, arena: Arena) -> None:
        of = step.operation
        assert isinstance(of, Pool)
        self._arena = arena
        self._window = {"kernel": of.kernel, "stride": of.step, "pad": of.pad}
        channels, *size = step.input
        self._input = (*size, channels)
        channels, *size = step.output
        self._output = (*size, channels)


class MaxPoolUnit(PoolUnit):
    """The maximum of each window, and its place for the way back."""

    def forward(self, xs: Sequence[Data], training: Training | None) -> tuple[Data, State]:
        [x] = xs
        shape = (len(x), *self._output)
        y, places = self._arena.take(shape), self._arena.take(shape, np.uint8)
        pool.max_forward(x, y, places, **self._window)
        return y, (places,)

    def backward(self, state: State, dz: Data) -> Sequence[Data]:
        dx = self._arena.take((len(dz), *self._input))
        pool.max_error(dz, state[0], dx, **self._window)
        return (dx,)


class RectifiedMaxPoolUnit(MaxPoolUnit):
    """The first ReLU and a max-pool behind it.

    Where a maximum is 0, so is all its window. So ReLU's way back goes over the maxima, before they are spread.
    """

    def forward(self, xs: Sequence[Data], training: Training | None) -> tuple[Data, State]:
        y, places = super().forward(xs, training)
        return y, (y, *places)

    def backward(self, state: State, dz: Data) -> Sequence[Data]:
        y, *places = state
        relu.error(y, dz)
        return super().backward(tuple(places), dz)


class AveragePoolUnit(PoolUnit):
    """The average of each window."""

    def forward(self, xs: Sequence[Data], training: Training | None) -> tuple[Data, State]:
        [x] = xs
        y = self._arena.take((len(x), *self._output))
        pool.average_forward(x, y, **self._window)
        return y, ()

    def backward(self, state: State, dz: Data) -> Sequence[Data]:
        dx = self._arena.take((len(dz), *self._input))
        pool.average_error(dz, dx, **self._window)
        return (dx,)


class AddUnit:
    """The sum, from the first to the last."""

    def __init__(self, step: SfuStep, arena: Arena) -> None:
        self._terms, self._arena = len(step.reads), arena

    def forward(self, xs: Sequence[Data], training: Training | None) -> tuple[Data, State]:
        y = self._arena.take(xs[0].shape)
        np.add(xs[0], xs[1], out=y)
        for x in xs[2:]:
            y += x
        return y, ()

    def backward(self, state: State, dz: Data) -> Sequence[Data]:
        return [dz] * self._terms


class ConcatUnit:
    """Channels after channels."""

    def __init__(self, step: SfuStep, arena: Arena) -> None:
        self._arena = arena
        ends = list(itertools.accumulate((tensor.shape[0] for tensor in step.reads), initial=0))
        self._spans = [slice(*ends) for ends in itertools.pairwise(ends)]

    def forward(self, xs: Sequence[Data], training: Training | None) -> tuple[Data, State]:
        y = self._arena.take((*xs[0].shape[:3], self._spans[-1].stop))
        for span, x in zip(self._spans, xs, strict=True):
            y[..., span] = x
        return y, ()

    def backward(self, state: State, dz: Data) -> Sequence[Data]:
        return [dz[..., span] for span in self._spans]
