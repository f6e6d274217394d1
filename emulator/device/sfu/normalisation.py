"""Normalisation and dropout.

A pipeline that works sample by sample never sees a whole mini-batch. So mean and variance of batch normalisation are
moving averages, to which each update adds the mini-batch that it ends; all samples of one version of the weights see
the same values, whatever is in flight. In the backward pass they are constants.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....kernels.layers.element_wise import add_bias_gradient
from ....kernels.layers.normalisation import dropout_mask, lrn_error, lrn_forward
from ...network import SfuStep
from ...network.operations.normalisation import BatchNorm, Dropout, Lrn
from ...schedule import SampleSpan
from ..memories import ActRam, Parameter, Versions
from ..rules import Rule
from .unit import Data, Site, State, Training, Unit


class BatchNormUnit(Unit):
    """(x - mean) / sqrt(variance + epsilon) * scale + shift, for each channel.

    Sums are accumulated sample by sample, so that they depend neither on the micro-batches nor on their order. A
    mini-batch's variance is estimated from its n values by the sum of squares over n - 1, as PyTorch's `running_var`.
    In a frozen layer the averages stay as they are.
    """

    operation = BatchNorm

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        assert isinstance(step.operation, BatchNorm)
        self._of, channels, self._rests = step.operation, step.output[0], site.frozen
        self._scale = Parameter(np.ones(channels, np.float32), site.arena)
        self._shift = Parameter(np.zeros(channels, np.float32), site.arena)
        self._mean = Versions(np.zeros(channels, np.float32), site.arena)
        self._variance = Versions(np.ones(channels, np.float32), site.arena)
        self._sums: dict[int, dict[int, NDArray[np.float64]]] = {}
        """By mini-batch and first sample, those of each sample of a span and of their squares, (n, 2, channels)."""
        self._seen: dict[int, int] = {}
        self._kept = ActRam(site.arena)

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """See `Unit`."""
        return {"scale": self._scale, "shift": self._shift}

    @property
    def averages(self) -> Mapping[str, Versions]:
        """See `Unit`."""
        return {"mean": self._mean, "variance": self._variance}

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        if training is not None and not self._rests:
            self._count(x, training.step, int(training.samples[0]))
        normal, y = self.arena.take(x.shape), self.arena.take(x.shape)
        np.subtract(x, self._mean[version], out=normal)
        normal *= self._slope(version)
        np.multiply(normal, self._scale[version], out=y)
        y += self._shift[version]
        return y, (normal,)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        dx = self.arena.take(dz.shape)
        np.multiply(dz, self._scale[version] * self._slope(version), out=dx)
        return (dx,)

    def keep(self, span: SampleSpan, state: State, dz: Data) -> None:
        """See `Unit`."""
        self._kept.put(span, *state, dz)

    def gradient(self, whole: SampleSpan) -> None:
        """See `Unit`."""
        normal, dz = self._kept.read(whole)
        add_bias_gradient(self._shift.gradient, dz, fresh=self._shift.begins_sum())
        normal *= dz
        add_bias_gradient(self._scale.gradient, normal, fresh=self._scale.begins_sum())

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """Make the next version of scale, shift and averages; the oldest mini-batch not yet averaged is added."""
        super().update(samples, rule, keeps=keeps)
        step = min(self._sums)
        sums, total = self._sums.pop(step), np.zeros((2, len(self._mean.newest)))
        for of_sample in itertools.chain.from_iterable(sums[begin] for begin in sorted(sums)):
            total += of_sample
        values = self._seen.pop(step)
        first, second = total / values
        variance = (second - first * first) * (values / (values - 1))
        for versions, now in ((self._mean, first), (self._variance, variance)):
            average = versions.advance(keeps=keeps)
            average += (self._of.momentum * (now - average)).astype(np.float32)

    def _slope(self, version: int) -> Data:
        return (1 / np.sqrt(self._variance[version] + np.float32(self._of.epsilon))).astype(np.float32)

    def _count(self, x: Data, step: int, begin: int) -> None:
        pixels = x.reshape(len(x), -1, x.shape[-1]).astype(np.float64)
        sums = [(sample.sum(axis=0), (sample * sample).sum(axis=0)) for sample in pixels]
        self._sums.setdefault(step, {})[begin] = np.array(sums)
        self._seen[step] = self._seen.get(step, 0) + pixels.shape[0] * pixels.shape[1]


class LrnUnit(Unit):
    """Local response normalisation across channels."""

    operation = Lrn

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        lrn = step.operation
        assert isinstance(lrn, Lrn)
        self._rule: dict[str, Any] = {"size": lrn.size, "alpha": lrn.alpha, "beta": lrn.beta, "k": lrn.k}

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        y, scale = self.arena.take(x.shape), self.arena.take(x.shape)
        lrn_forward(x, y, scale, **self._rule)
        return y, (x, y, scale)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        x, y, scale = state
        lrn_error(x, y, scale, dz, dz, **self._rule)
        return (dz,)


class DropoutUnit(Unit):
    """Dropout in training; in evaluation maps pass unchanged."""

    operation = Dropout
    overwrites = True

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        assert isinstance(step.operation, Dropout)
        self._rate, self._seed = step.operation.rate, site.seed
        self._layer = site.layer | site.place << 32  # a mask of its own for each of an SFU's

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        if training is None:
            return x, ()
        mask, y = self.arena.take(x.shape), self.arena.take(x.shape)
        dropout_mask(mask, rate=self._rate, seed=self._seed, layer=self._layer, samples=training.samples)
        np.multiply(x, mask, out=y)
        return y, (mask,)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        dz *= state[0]
        return (dz,)
