"""One mini-batch in the emulator, for RTL to be compared with."""

from __future__ import annotations

from ...kernels import Arena
from ...launch import SingleProcess
from ..data import Dataset
from ..device import ImageSource, epoch_order
from ..plan import ChainPlan
from ..rtl import MiniBatch, Reference
from ..run import ChainTrainer, Weights
from ..schedule import MicroBatch


def trained_mini_batch(plan: ChainPlan, data: Dataset) -> Reference:
    """Train the first mini-batch of a plan on a data set of as many samples.

    Raises:
        InputError: the loss is not finite, or the data do not suit the plan.
    """
    trainer = ChainTrainer.of(plan, data, SingleProcess())
    before = _copied(trainer.weights())
    for leg in trainer.legs:
        trainer.train(0, leg)
    order = epoch_order(plan.config.seed, 0, data.n_train)
    source = ImageSource(data.train_images, data.normalisation(), Arena(), plan.network.entry)
    source.order, source.epoch = order, 0
    images = source.images(MicroBatch(0, 0, 0, data.n_train).whole).copy()
    batch = MiniBatch(images, data.train_labels[order], plan.config.label_smoothing)
    return Reference(batch, before, _copied(trainer.weights()))


def _copied(weights: Weights) -> Weights:
    return {layer: {name: array.copy() for name, array in arrays.items()} for layer, arrays in weights.items()}
