"""The two ends of the chain: the source of images before the first device, the loss after the last one."""

from __future__ import annotations

import collections

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...kernels.layers import loss
from ..data import Normalisation
from ..schedule import SampleSpan
from .act_ram import ActRam
from .tally import Tally

Data = NDArray[np.float32]


def epoch_order(seed: int, epoch: int, samples: int) -> NDArray[np.int64]:
    """Return the order of the training samples in an epoch: a shuffle that depends only on seed and epoch."""
    stream = np.random.Generator(np.random.Philox(key=[seed, (1 << 63) | epoch]))
    return stream.permutation(samples)


class ImageSource:
    """Source of normalised images, from `images` (N, channels, rows, columns), in the order `order`."""

    def __init__(self, images: NDArray[np.uint8], normalisation: Normalisation, arena: Arena) -> None:
        self._images, self._normalisation, self._arena = images, normalisation, arena
        self.order: NDArray[np.int64] = np.arange(len(images))

    def images(self, span: SampleSpan) -> Data:
        """Return the images (samples, rows, columns, channels) of a span."""
        channels, *size = self._images.shape[1:]
        pixels = self._arena.take((span.samples, channels, *size), np.uint8)
        # `clip` lets NumPy write to `out` directly; no index needs clipping.
        np.take(self._images, self.order[span.slice], axis=0, out=pixels, mode="clip")
        maps = self._arena.take((span.samples, *size, channels))
        self._normalisation.apply_channels_last(pixels, maps)
        return maps


class SoftmaxHead:
    """Softmax with cross-entropy against the labels, in the order `order`.

    Errors are those of the loss's sum, not of its mean, since the update averages the sums in LGB.
    """

    def __init__(self, labels: NDArray[np.int64]) -> None:
        self._labels = labels
        self.order: NDArray[np.int64] = np.arange(len(labels))
        self._errors = ActRam(Arena())
        self._tallies: dict[int, Tally] = collections.defaultdict(Tally)

    def forward(self, span: SampleSpan, outputs: Data) -> None:
        """Compute losses, and keep the errors for `backward`."""
        self._errors.put(span, self._judge(span, outputs))

    def infer(self, span: SampleSpan, outputs: Data) -> None:
        """Compute losses in evaluation."""
        self._judge(span, outputs)

    def _judge(self, span: SampleSpan, outputs: Data) -> Data:
        labels = self._labels[self.order[span.slice]]
        logits = outputs.reshape(len(outputs), -1)
        losses, errors, correct = loss.softmax_cross_entropy(logits, labels)
        before = self._tallies[span.of.step]
        total = before.loss
        for value in losses.tolist():  # one by one, so that the sum does not depend on the micro-batches
            total += value
        counted = before.samples + len(labels), total, before.correct + int(correct.sum())
        self._tallies[span.of.step] = Tally(*counted)
        return errors.reshape(outputs.shape)

    def backward(self, span: SampleSpan) -> Data:
        """Return softmax minus one-hot, for each sample."""
        [errors] = self._errors.read(span)
        return errors

    def step_done(self, step: int) -> Tally:
        """Return the tally of a finished mini-batch, and delete it."""
        return self._tallies.pop(step)
