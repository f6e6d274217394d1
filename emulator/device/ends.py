"""The two ends of the chain: the source of images before the first device, the loss after the last
one, with its sums over samples.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...kernels.layers import loss, vocabulary_loss
from ..data import Images, LazyImages, Normalisation, ReadAhead
from ..network import Shape
from ..schedule import SampleSpan
from .memories import ActRam


@dataclasses.dataclass(frozen=True)
class Tally:
    """Sum of losses, and number of correct predictions, over `samples` samples.

    Where a sample has a prediction for each time step, its loss is the mean over its steps; then
    `steps` is the number of all predictions, and `step_loss` the sum of their losses.
    """

    samples: int = 0
    loss: float = 0.0
    correct: int = 0
    steps: int = 0
    step_loss: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.samples + other.samples,
            self.loss + other.loss,
            self.correct + other.correct,
            self.steps + other.steps,
            self.step_loss + other.step_loss,
        )

    @property
    def mean_loss(self) -> float:
        """Mean cross-entropy of a sample."""
        return self.loss / self.samples if self.samples else float("nan")

    @property
    def accuracy(self) -> float:
        """Share of predictions that are right: of samples, or of time steps."""
        predictions = self.steps or self.samples
        return self.correct / predictions if predictions else float("nan")

    @property
    def bits_per_step(self) -> float:
        """Mean cross-entropy of a time step in bits; NaN where samples have one prediction each."""
        return self.step_loss / self.steps / math.log(2) if self.steps else float("nan")


Data = NDArray[np.float32]


def epoch_order(seed: int, epoch: int, samples: int) -> NDArray[np.int64]:
    """Return the order of the training samples in an epoch: a shuffle that depends only on seed and
    epoch.
    """
    key = np.array(
        [seed, (1 << 63) | epoch], np.uint64
    )  # of a list of such numbers NumPy makes floats
    stream = np.random.Generator(np.random.Philox(key=key))
    return stream.permutation(samples)


class ImageSource:
    """Source of normalised images, from `images` (N, channels, rows, columns), in the order
    `order`.

    Images that are read when they are needed are read ahead in the background, and augmented as in
    the epoch `epoch`.

    `entry` is the (channels, rows, columns) that the first layer takes: those of the images, or,
    where rows are time steps, (channels·columns, rows, 1), with the columns of each channel one
    after the other.
    """

    def __init__(
        self, images: Images, normalisation: Normalisation, arena: Arena, entry: Shape | None = None
    ) -> None:
        self._images, self._normalisation, self._arena = images, normalisation, arena
        self._reading = ReadAhead(images) if isinstance(images, LazyImages) else None
        channels, *size = entry or images.shape[1:]
        self._entry = (*size, channels)
        self.order: NDArray[np.int64] = np.arange(len(images))
        self.epoch: int | None = None

    def images(self, span: SampleSpan) -> Data:
        """Return the images (samples, rows, columns, channels) of a span."""
        channels, rows, columns = self._images.shape[1:]
        pixels = self._arena.take((span.samples, channels, rows, columns), np.uint8)
        if self._reading is not None:
            self._reading.take(self.order, self.epoch, span.slice, pixels)
        else:
            # `clip` lets NumPy write to `out` directly; no index needs clipping.
            np.take(
                np.asarray(self._images), self.order[span.slice], axis=0, out=pixels, mode="clip"
            )
        maps = self._arena.take((span.samples, *self._entry))
        by_channel = maps
        if self._entry != (rows, columns, channels):
            by_channel = maps.reshape(span.samples, rows, channels, columns).swapaxes(2, 3)
        self._normalisation.apply_channels_last(pixels, by_channel)
        return maps


class TextSource(ImageSource):
    """Source of symbols: their numbers, for an embedding, or maps with a channel for each, 1 in
    that of the symbol.

    `symbols` (N, 1, steps, 1) are the numbers, `entry` the (channels, steps, 1) that the first
    layer takes.
    """

    def __init__(
        self, symbols: NDArray[np.int32], arena: Arena, entry: Shape, *, one_hot: bool = True
    ) -> None:
        self._symbols, self._arena, self._one_hot = symbols, arena, one_hot
        self._channels, self._steps, _ = entry
        self.order = np.arange(len(symbols))

    def images(self, span: SampleSpan) -> Data:
        """Return the maps (samples, steps, 1, channels) of a span; of numbers there is one
        channel.
        """
        symbols = self._symbols[self.order[span.slice], 0]
        maps = self._arena.take(
            (span.samples, self._steps, 1, self._channels if self._one_hot else 1)
        )
        if not self._one_hot:
            maps[:, :, 0] = symbols
            return maps
        # Memory from the arena has the numbers of whoever had it before.
        maps[...] = 0
        np.put_along_axis(maps[:, :, 0], symbols, 1, axis=2)
        return maps


class MapSource(ImageSource):
    """Source of maps as the first layer takes them, from `maps` (N, channels, rows, columns) as the
    network does.
    """

    def __init__(self, maps: Data, arena: Arena, entry: Shape) -> None:
        by_row = (
            maps.transpose(0, 2, 1, 3) if maps.shape[1:] != entry else maps.transpose(0, 2, 3, 1)
        )
        channels, rows, columns = entry
        self._maps, self._arena = by_row.reshape(len(maps), rows, columns, channels), arena

    def images(self, span: SampleSpan) -> Data:
        """See `ImageSource`."""
        maps = self._arena.take((span.samples, *self._maps.shape[1:]))
        maps[...] = self._maps[span.slice]
        return maps


class Labels:
    """Labels of samples in the order `order`: (N,), or (N, steps) for each time step; -1 is
    none.
    """

    def __init__(self, labels: NDArray[np.int64]) -> None:
        self._labels = labels
        self.order: NDArray[np.int64] = np.arange(len(labels))

    def targets(self, span: SampleSpan) -> NDArray[np.int64]:
        """Return the labels (samples, steps) of a span, one step where a sample has one result."""
        labels = self._labels[self.order[span.slice]]
        return labels.reshape(len(labels), -1)


class _Count(NamedTuple):
    """What is counted of a span from a `first` sample on, and the losses of its samples."""

    first: int
    tally: Tally
    losses: Sequence[float]
    step_losses: Sequence[float]


class SoftmaxHead(Labels):
    """Softmax with cross-entropy against the labels.

    With `smoothing`, that share of each label is spread over all classes. Steps whose label is -1
    do not count. The loss of a sample is the mean over its other steps. Errors are those of the sum
    over samples, not of their mean, since the update averages the sums in LGB.
    """

    def __init__(self, labels: NDArray[np.int64], smoothing: float = 0.0) -> None:
        super().__init__(labels)
        self._smoothing = smoothing
        self._errors = ActRam(Arena())
        self._counts: dict[int, list[_Count]] = collections.defaultdict(list)

    def forward(self, span: SampleSpan, outputs: Data) -> None:
        """Compute losses, and keep the errors for `backward`."""
        self._errors.put(span, self._judge(span, outputs))

    def infer(self, span: SampleSpan, outputs: Data) -> None:
        """Compute losses in evaluation."""
        self._judge(span, outputs)

    def _judge(self, span: SampleSpan, outputs: Data) -> Data:
        labels = self._labels[self.order[span.slice]]
        if labels.ndim == 1:
            losses, errors, correct = loss.softmax_cross_entropy(
                outputs.reshape(len(outputs), -1), labels, self._smoothing
            )
            self._count(span, Tally(len(labels), correct=int(correct.sum())), losses.tolist())
            return errors.reshape(outputs.shape)
        logits, counts = outputs.reshape(*labels.shape, -1), labels >= 0
        steps = counts.sum(axis=1)
        losses, errors, correct = loss.softmax_cross_entropy(
            logits[counts], labels[counts], self._smoothing
        )
        # A sample's loss is the mean over its steps, and so is the gradient of that loss.
        errors /= np.repeat(steps, steps).astype(np.float32)[:, None]
        # Steps without a label have no error.
        maps = np.zeros(logits.shape, np.float32)
        maps[counts] = errors
        self._count_steps(span, steps, losses, correct)
        return maps.reshape(outputs.shape)

    def _count_steps(
        self, span: SampleSpan, steps: NDArray[np.int64], losses: Data, correct: NDArray[np.bool_]
    ) -> None:
        """Add to the tally, given the losses of the `steps` of each sample that count, one sample
        after another.
        """
        sums = np.bincount(
            np.repeat(np.arange(len(steps)), steps), losses, len(steps)
        )  # one step after another
        tally = Tally(len(steps), correct=int(correct.sum()), steps=int(steps.sum()))
        self._count(span, tally, (sums / steps).tolist(), sums.tolist())

    def _count(
        self, span: SampleSpan, tally: Tally, losses: list[float], step_losses: Sequence[float] = ()
    ) -> None:
        """Keep what is counted of a span, with the losses of its samples."""
        self._counts[span.micro_batch.step].append(_Count(span.first, tally, losses, step_losses))

    def backward(self, span: SampleSpan) -> Data:
        """Return softmax minus one-hot, for each sample; of its steps, over their number."""
        [errors] = self._errors.read(span)
        return errors

    def step_done(self, step: int) -> Tally:
        """Return the tally of a finished mini-batch, and delete it; one of nothing where others
        have its outputs.

        Losses are added one by one, sample by sample, so that their sums depend neither on the
        micro-batches nor on their order.
        """
        total = Tally()
        for count in sorted(self._counts.pop(step, []), key=lambda count: count.first):
            loss = functools.reduce(operator.add, count.losses, total.loss)
            step_loss = functools.reduce(operator.add, count.step_losses, total.step_loss)
            total = dataclasses.replace(total + count.tally, loss=loss, step_loss=step_loss)
        return total


class LogitsHead(SoftmaxHead):
    """Keeps what the network makes of `samples` samples, before softmax, and judges nothing."""

    def __init__(self, samples: int, values: int) -> None:
        super().__init__(np.zeros(samples, np.int64))
        self.logits = np.empty((samples, values), np.float32)
        """By sample its outputs, of all its steps."""

    def infer(self, span: SampleSpan, outputs: Data) -> None:
        """See `SoftmaxHead`."""
        self.logits[span.slice] = outputs.reshape(len(outputs), -1)


class VocabularyHead(SoftmaxHead):
    """The same, where slices compute their parts of the loss: it takes the state of each row, and
    returns its sums.
    """

    def _judge(self, span: SampleSpan, outputs: Data) -> Data:
        targets = self.targets(span)
        counts = targets >= 0
        states = outputs.reshape(*targets.shape, -1)
        losses, correct = vocabulary_loss.judged(states[counts])
        if self._labels.ndim == 1:
            self._count(span, Tally(len(targets), correct=int(correct.sum())), losses.tolist())
        else:
            self._count_steps(span, counts.sum(axis=1), losses, correct)
        return np.ascontiguousarray(outputs[..., : vocabulary_loss.SUMS])
