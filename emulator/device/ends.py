"""The two ends of the chain: the source of samples before the first device, the loss after the last one."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...kernels.arena import Arena
from ...kernels.layers import loss
from ..data.dataset import Normalisation
from ..schedule.action import Portion
from .act_ram import ActRam

Data = NDArray[np.float32]
Maps = Any  # Data, or None where there is timing alone


def epoch_order(seed: int, epoch: int, samples: int) -> NDArray[np.int64]:
    """The order of the training samples in an epoch: a shuffle that depends on seed and epoch alone."""
    stream = np.random.Generator(np.random.Philox(key=[seed, (1 << 63) | epoch]))
    return stream.permutation(samples)


class Source(Protocol):
    """Gives the images of a portion of a micro-batch, in the order that was set."""

    order: NDArray[np.int64]

    def images(self, portion: Portion) -> Maps:
        """(samples, rows, columns, channels)"""


class ImageSource:
    """Normalised images, from images (N, channels, rows, columns)."""

    def __init__(self, images: NDArray[np.uint8], normalisation: Normalisation, arena: Arena) -> None:
        self._images, self._normalisation, self._arena = images, normalisation, arena
        self.order: NDArray[np.int64] = np.arange(len(images))

    def images(self, portion: Portion) -> Data:
        """The images of a micro-batch."""
        channels, *size = self._images.shape[1:]
        pixels = self._arena.take((portion.samples, channels, *size), np.uint8)
        # `clip` lets NumPy write to `out` at once; there is nothing to clip.
        np.take(self._images, self.order[portion.slice], axis=0, out=pixels, mode="clip")
        maps = self._arena.take((portion.samples, *size, channels))
        self._normalisation.apply_channels_last(pixels, maps)
        return maps


class NoImages:
    """For timing alone, and for devices that are not the first."""

    def __init__(self) -> None:
        self.order: NDArray[np.int64] = np.arange(0)

    def images(self, portion: Portion) -> None:
        """None."""


@dataclasses.dataclass(frozen=True)
class Tally:
    """Loss and hits over some samples."""

    samples: int = 0
    loss: float = 0.0
    correct: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.samples + other.samples, self.loss + other.loss, self.correct + other.correct)

    @property
    def mean_loss(self) -> float:
        """The mean cross-entropy."""
        return self.loss / self.samples if self.samples else float("nan")

    @property
    def accuracy(self) -> float:
        """The share of samples whose class was the likeliest."""
        return self.correct / self.samples if self.samples else float("nan")


class Head(Protocol):
    """Turns the outputs of the last layer into its errors, by the labels in the order that was set."""

    order: NDArray[np.int64]

    def forward(self, portion: Portion, outputs: Maps) -> None:
        """Take the outputs of a micro-batch in training."""

    def infer(self, portion: Portion, outputs: Maps) -> None:
        """Take the outputs of a micro-batch in evaluation."""

    def backward(self, portion: Portion) -> Maps:
        """The errors of those outputs."""

    def step_done(self, step: int) -> Tally:
        """Loss and hits of a mini-batch that is through."""


class SoftmaxHead:
    """Softmax with cross-entropy; errors are the sum's and not the mean's, for LGB averages at the update."""

    def __init__(self, labels: NDArray[np.int64]) -> None:
        self._labels = labels
        self.order: NDArray[np.int64] = np.arange(len(labels))
        self._errors = ActRam(Arena())
        self._tallies: dict[int, Tally] = collections.defaultdict(Tally)

    def forward(self, portion: Portion, outputs: Data) -> None:
        """Compute losses, and keep the errors for `backward`."""
        self._errors.put(portion, self._judge(portion, outputs))

    def infer(self, portion: Portion, outputs: Data) -> None:
        """Compute losses."""
        self._judge(portion, outputs)

    def _judge(self, portion: Portion, outputs: Data) -> Data:
        labels = self._labels[self.order[portion.slice]]
        logits = outputs.reshape(len(outputs), -1)
        losses, errors, correct = loss.softmax_cross_entropy(logits, labels)
        before = self._tallies[portion.of.step]
        total = before.loss
        for value in losses.tolist():  # one by one, so that the sum does not depend on the micro-batches
            total += value
        counted = before.samples + len(labels), total, before.correct + int(correct.sum())
        self._tallies[portion.of.step] = Tally(*counted)
        return errors.reshape(outputs.shape)

    def backward(self, portion: Portion) -> Data:
        """Softmax minus one-hot, for each sample."""
        [errors] = self._errors.read(portion)
        return errors

    def step_done(self, step: int) -> Tally:
        """Loss and hits of a mini-batch that is through."""
        return self._tallies.pop(step)


class NoHead:
    """For timing alone, and for devices that are not the last."""

    def __init__(self) -> None:
        self.order: NDArray[np.int64] = np.arange(0)

    def forward(self, portion: Portion, outputs: None) -> None:
        """Nothing."""

    def infer(self, portion: Portion, outputs: None) -> None:
        """Nothing."""

    def backward(self, portion: Portion) -> None:
        """Nothing."""

    def step_done(self, step: int) -> Tally:
        """Nothing was counted."""
        return Tally()
