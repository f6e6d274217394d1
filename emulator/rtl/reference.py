"""What training in the emulator makes of one mini-batch: the weights before and after it, and what enters it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...comm import SingleProcess
from ...kernels import Arena
from ..data import Dataset
from ..device import ImageSource, epoch_order
from ..plan import Plan
from ..run import Trainer
from ..schedule import MicroBatch
from .chain import MiniBatch

Weights = Mapping[str, Mapping[str, NDArray[np.float32]]]
"""Weights (oc, ic, kh, kw) and bias (oc,) of each layer, by its name."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """A mini-batch that was trained, with all layers' weights before and after."""

    batch: MiniBatch
    before: Weights
    after: Weights

    @classmethod
    def of(cls, plan: Plan, data: Dataset) -> Reference:
        """Train the first mini-batch of a plan on a data set of as many samples.

        Raises:
            InputError: the loss is not finite, or the data do not suit the plan.
        """
        trainer = Trainer.of(plan, data, SingleProcess())
        before = _copied(trainer.weights())
        for leg in trainer.legs:
            trainer.train(0, leg)
        order = epoch_order(plan.config.seed, 0, data.n_train)
        source = ImageSource(data.train_images, data.normalisation(), Arena(), plan.network.entry)
        source.order, source.epoch = order, 0
        images = source.images(MicroBatch(0, 0, 0, data.n_train).whole).copy()
        batch = MiniBatch(images, data.train_labels[order], plan.config.label_smoothing)
        return cls(batch, before, _copied(trainer.weights()))


def drawn_images(plan: Plan) -> Dataset:
    """Return a mini-batch of drawn images and labels, for a network of any shape; they depend on the seed alone."""
    stream = np.random.Generator(np.random.Philox(key=[plan.config.seed, 1 << 62]))
    classes, samples = plan.network.layers[-1].channels, plan.config.batch
    images = stream.integers(0, 256, (samples, *plan.network.input), dtype=np.uint8)
    labels = stream.integers(0, classes, samples)
    return Dataset("drawn", images, labels, images[:0], labels[:0], tuple(map(str, range(classes))))


def _copied(weights: Weights) -> Weights:
    return {layer: {name: array.copy() for name, array in arrays.items()} for layer, arrays in weights.items()}
