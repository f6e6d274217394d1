"""Batch normalisation in a pipeline that works on one sample after another, and so never sees a mini-batch at once.

Mean and variance are moving averages, which each update takes on from the mini-batch that it ends; so all its samples
see the same ones, whatever is in flight. On the way back they are constants.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...kernels.arena import Arena
from ...kernels.layers import bias
from ..network.layers import BatchNorm
from ..schedule.action import Portion
from .act_ram import ActRam
from .parameter import Parameter, Sgd
from .sfu_units import Data, State, Training


class BatchNormUnit:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift, for each channel.

    Mean and variance are moving averages over mini-batches, which each update takes on; on the way back they are
    constants. Sums go sample by sample, so that micro-batches do not matter.
    """

    def __init__(self, of: BatchNorm, channels: int, arena: Arena) -> None:
        self._of, self._arena = of, arena
        self.scale, self.shift = Parameter(np.ones(channels, np.float32)), Parameter(np.zeros(channels, np.float32))
        self.mean, self.variance = np.zeros(channels, np.float32), np.ones(channels, np.float32)
        self._sums: dict[int, NDArray[np.float64]] = {}
        self._seen: dict[int, int] = {}
        self._kept = ActRam(arena)

    def forward(self, xs: Sequence[Data], training: Training | None) -> tuple[Data, State]:
        [x] = xs
        if training is not None:
            self._count(x, training.step)
        normal, y = self._arena.take(x.shape), self._arena.take(x.shape)
        np.subtract(x, self.mean, out=normal)
        normal *= self._slope()
        np.multiply(normal, self.scale.value, out=y)
        y += self.shift.value
        return y, (normal,)

    def backward(self, state: State, dz: Data) -> Sequence[Data]:
        dx = self._arena.take(dz.shape)
        np.multiply(dz, self.scale.value * self._slope(), out=dx)
        return (dx,)

    def keep(self, portion: Portion, state: State, dz: Data) -> None:
        """Keep what the gradients need."""
        self._kept.put(portion, *state, dz)

    def gradient(self, whole: Portion) -> None:
        """Gradients of scale and shift, added to those of the samples before."""
        normal, dz = self._kept.read(whole)
        bias.add_bias_gradient(self.shift.gradient, dz, fresh=self.shift.begins_sum())
        normal *= dz
        bias.add_bias_gradient(self.scale.gradient, normal, fresh=self.scale.begins_sum())

    def update(self, samples: int, rule: Sgd) -> None:
        """New scale, shift, mean and variance from the oldest mini-batch that is not yet in them."""
        self.scale.update(samples, rule)
        self.shift.update(samples, rule)
        step = min(self._sums)
        first, second = self._sums.pop(step) / self._seen.pop(step)
        momentum = self._of.momentum
        for average, now in ((self.mean, first), (self.variance, second - first * first)):
            average += (momentum * (now - average)).astype(np.float32)

    def _slope(self) -> Data:
        return (1 / np.sqrt(self.variance + np.float32(self._of.epsilon))).astype(np.float32)

    def _count(self, x: Data, step: int) -> None:
        sums = self._sums.setdefault(step, np.zeros((2, x.shape[-1])))
        for sample in x.reshape(len(x), -1, x.shape[-1]).astype(np.float64):
            sums += sample.sum(axis=0), (sample * sample).sum(axis=0)
            self._seen[step] = self._seen.get(step, 0) + len(sample)
