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
from typing import Any, NamedTuple

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
    `steps` is the number of all predictions, and `step_loss` the sum of their losses. `correct` is
    negative where predictions are numbers, of which none is right or wrong.
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
        """Mean loss of a sample."""
        return self.loss / self.samples if self.samples else float("nan")

    @property
    def accuracy(self) -> float:
        """Share of predictions that are right: of samples, or of time steps; NaN of numbers."""
        predictions = self.steps or self.samples
        return self.correct / predictions if predictions and self.correct >= 0 else float("nan")

    @property
    def shown(self) -> str:
        """A test's accuracy and loss as text."""
        accuracy, loss = self.known_accuracy, f"test loss {self.mean_loss:.4f}"
        return loss if accuracy is None else f"test accuracy {100 * accuracy:.2f} %, {loss}"

    @property
    def known_accuracy(self) -> float | None:
        """The accuracy; None where nothing was predicted, or numbers were."""
        return None if math.isnan(self.accuracy) else self.accuracy

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

    `entry` is the (channels, rows, columns) that the first layer takes: those of the images; or
    those of the images with zeros around, of which `corner` (rows, columns) come before the first
    pixel; or, where rows are time steps, (channels·columns, rows, 1), with the columns of each
    channel one after the other.
    """

    def __init__(
        self,
        images: Images,
        normalisation: Normalisation,
        arena: Arena,
        entry: Shape | None = None,
        corner: tuple[int, int] = (0, 0),
    ) -> None:
        self._images, self._normalisation, self._arena = images, normalisation, arena
        self._reading = ReadAhead(images) if isinstance(images, LazyImages) else None
        channels, *size = entry or images.shape[1:]
        self._entry, self._corner = (*size, channels), corner
        self.order: NDArray[np.int64] = np.arange(len(images))
        self.epoch: int | None = None

    def images(self, span: SampleSpan) -> Data:
        """Return the images (samples, rows, columns, channels) of a span."""
        channels, rows, columns = self._images.shape[1:]
        pixels = self._arena.take((span.samples, channels, rows, columns), self._images.dtype)
        if self._reading is not None:
            self._reading.take(self.order, self.epoch, span.slice, pixels)
        else:
            # `clip` lets NumPy write to `out` directly; no index needs clipping.
            np.take(
                np.asarray(self._images), self.order[span.slice], axis=0, out=pixels, mode="clip"
            )
        maps = self._arena.take((span.samples, *self._entry))
        by_channel = maps
        if self._entry[2] != channels:
            by_channel = maps.reshape(span.samples, rows, channels, columns).swapaxes(2, 3)
        elif self._entry != (rows, columns, channels):
            by_channel = _within(maps, (rows, columns), self._corner)
        self._normalisation.apply_channels_last(pixels, by_channel)
        return maps


def _within(maps: Data, size: tuple[int, ...], corner: tuple[int, int]) -> Data:
    """Return where images of this size (rows, columns) stand in maps (samples, rows, columns,
    channels), after filling these with zeros.
    """
    maps[...] = 0
    (rows, columns), (above, left) = size, corner
    return maps[:, above : above + rows, left : left + columns]


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
    network does; `entry` and `corner` are those of `ImageSource`.
    """

    def __init__(
        self, maps: Data, arena: Arena, entry: Shape, corner: tuple[int, int] = (0, 0)
    ) -> None:
        channels, rows, columns = entry
        self._arena = arena
        if maps.shape[1] != channels:
            self._maps = maps.transpose(0, 2, 1, 3).reshape(len(maps), rows, columns, channels)
            return
        own = maps.transpose(0, 2, 3, 1)
        self._maps = np.empty((len(maps), rows, columns, channels), maps.dtype)
        _within(self._maps, own.shape[1:3], corner)[...] = own

    def images(self, span: SampleSpan) -> Data:
        """See `ImageSource`."""
        maps = self._arena.take((span.samples, *self._maps.shape[1:]))
        maps[...] = self._maps[span.slice]
        return maps


class Labels:
    """Labels of samples in the order `order`: (N,), or (N, steps) for each time step; -1 is
    none. Or numbers, (N, values); NaN is none.

    With `weights`, of each class, or a mean over all targets of a mini-batch (`by_targets`),
    `shares` has a factor for each place of the order: samples of a mini-batch over the sum of its
    targets' weights.
    """

    def __init__(
        self,
        labels: NDArray[Any],
        *,
        by_targets: bool = False,
        weights: Sequence[float] = (),
    ) -> None:
        self._labels = labels
        self._weights = np.array(weights, np.float64)
        self._sums = self._sums_of_weights() if by_targets or weights else None
        self.shares: NDArray[np.float64] | None = None
        self.order: NDArray[np.int64] = np.arange(len(labels))

    def _sums_of_weights(self) -> NDArray[np.float64]:
        """Return the sum of the weights of each sample's targets, (N,)."""
        return self._weights_of(self._labels.reshape(len(self._labels), -1)).sum(axis=1)

    def _weights_of(self, targets: NDArray[Any]) -> NDArray[np.float64]:
        """Return the weight of each target, 0 where there is none."""
        counts = ~np.isnan(targets) if targets.dtype.kind == "f" else targets >= 0
        if not len(self._weights):
            return counts.astype(np.float64)
        return np.where(counts, self._weights[np.maximum(targets, 0)], 0.0)

    def take_order(
        self, order: NDArray[np.int64], batch: int, places: NDArray[np.int64] | range | slice
    ) -> None:
        """Take the samples at `places` of an epoch's order, which falls into mini-batches of
        `batch`.
        """
        self.order = order[places]
        if self._sums is None:
            return
        sums, begins = self._sums[order], np.arange(0, len(order), batch)
        # One sample after another, whatever replica has it.
        totals, sizes = np.add.reduceat(sums, begins), np.diff([*begins, len(order)])
        shares = np.divide(sizes, totals, out=np.zeros(len(sizes)), where=totals > 0)
        self.shares = np.repeat(shares, sizes)[places]

    def targets(self, span: SampleSpan) -> NDArray[Any]:
        """Return the labels (samples, steps) of a span, one step where a sample has one result."""
        labels = self._labels[self.order[span.slice]]
        return labels.reshape(len(labels), -1)

    def scales(self, span: SampleSpan) -> NDArray[np.float64]:
        """Return the factor of each target's loss, and of its error, (samples, steps)."""
        assert self.shares is not None
        return self._weights_of(self.targets(span)) * self.shares[span.slice, None]

    def divisors(self, span: SampleSpan) -> NDArray[np.float32]:
        """Return what divides the error of each target, (samples, steps)."""
        targets = self.targets(span)
        if self.shares is None:
            steps = np.maximum((targets >= 0).sum(axis=1, keepdims=True), 1)
            return np.broadcast_to(steps.astype(np.float32), targets.shape)
        with np.errstate(divide="ignore"):
            return (1 / self.scales(span)).astype(np.float32)


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

    def __init__(self, labels: NDArray[Any], smoothing: float = 0.0, **of_labels: Any) -> None:
        super().__init__(labels, **of_labels)
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
        if self._sums is not None:
            return self._judge_targets(span, outputs)
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

    def _judge_targets(self, span: SampleSpan, outputs: Data) -> Data:
        """Judge with a weight for each target."""
        targets, scales = self.targets(span), self.scales(span)
        losses, errors, correct = self._compare(outputs.reshape(len(targets), -1), targets)
        counts = scales > 0
        means = np.where(counts, losses * scales, 0).sum(axis=1)
        right = -len(targets) if correct is None else int(correct[counts].sum())
        tally = Tally(len(targets), correct=right, steps=self._steps(counts))
        self._count(span, tally, means.tolist(), self._step_losses(losses, counts))
        by_target = errors.reshape(*targets.shape, -1) * scales[..., None].astype(np.float32)
        return np.ascontiguousarray(by_target.reshape(outputs.shape))

    def _compare(
        self, outputs: Data, targets: NDArray[Any]
    ) -> tuple[Data, Data, NDArray[np.bool_] | None]:
        """Return losses (samples, targets), errors as outputs (samples, values), and what is right.

        Of a target that is none, the loss and the error are 0.
        """
        logits, counts = outputs.reshape(*targets.shape, -1), targets >= 0
        losses, correct = np.zeros(targets.shape, np.float32), np.zeros(targets.shape, bool)
        errors = np.zeros(logits.shape, np.float32)
        losses[counts], errors[counts], correct[counts] = loss.softmax_cross_entropy(
            logits[counts], targets[counts], self._smoothing
        )
        return losses, errors, correct

    def _steps(self, counts: NDArray[np.bool_]) -> int:
        """Return the number of predictions among targets."""
        return int(counts.sum())

    def _step_losses(self, losses: Data, counts: NDArray[np.bool_]) -> list[float]:
        """Return the sum of each sample's losses in nats, without weights."""
        sums: list[float] = np.where(counts, losses, 0).sum(axis=1, dtype=np.float64).tolist()
        return sums

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
        self._count(span, tally, (sums / np.maximum(steps, 1)).tolist(), sums.tolist())

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


class MseHead(SoftmaxHead):
    """Mean of squared errors, over all numbers of a mini-batch, as PyTorch's MSELoss."""

    def _compare(
        self, outputs: Data, targets: NDArray[Any]
    ) -> tuple[Data, Data, NDArray[np.bool_] | None]:
        """See `SoftmaxHead`."""
        return *loss.squared_error(outputs, targets), None

    def _steps(self, counts: NDArray[np.bool_]) -> int:
        """See `SoftmaxHead`."""
        return 0

    def _step_losses(self, losses: Data, counts: NDArray[np.bool_]) -> list[float]:
        """See `SoftmaxHead`."""
        return []


class BceHead(SoftmaxHead):
    """Binary cross-entropy of logits, or of `probabilities`, over all labels of a mini-batch.

    `weights` are those of labels of yes, by class: PyTorch's `pos_weight`.
    """

    def __init__(
        self,
        labels: NDArray[Any],
        *,
        probabilities: bool,
        weights: Sequence[float] = (),
        **of_labels: Any,
    ) -> None:
        super().__init__(labels, **of_labels)
        self._probabilities = probabilities
        self._positive = np.array(weights) if weights else None

    def _compare(
        self, outputs: Data, targets: NDArray[Any]
    ) -> tuple[Data, Data, NDArray[np.bool_] | None]:
        """See `SoftmaxHead`."""
        middle = 0.5 if self._probabilities else 0.0
        compared = loss.binary_cross_entropy(
            outputs, targets, probabilities=self._probabilities, weights=self._positive
        )
        return *compared, (outputs > middle) == (targets > 0.5)


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
        if self._sums is not None:
            every = np.zeros(targets.shape, np.float32)
            every[counts] = losses
            means = (every * self.scales(span)).sum(axis=1)
            tally = Tally(len(targets), correct=int(correct.sum()), steps=int(counts.sum()))
            self._count(span, tally, means.tolist(), self._step_losses(every, counts))
        elif self._labels.ndim == 1:
            self._count(span, Tally(len(targets), correct=int(correct.sum())), losses.tolist())
        else:
            self._count_steps(span, counts.sum(axis=1), losses, correct)
        return np.ascontiguousarray(outputs[..., : vocabulary_loss.SUMS])
