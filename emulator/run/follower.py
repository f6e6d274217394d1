"""The part of `emuchain train` for ranks other than 0; separate, so that they import only what they need."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ...comm import Observer
from ...launch import Ranks
from ..data import Dataset, Images, Normalisation
from ..plan import PairPlan, Plan
from .checkpoint import Keeping, RunCheckpoints
from .train import train


@dataclasses.dataclass(frozen=True)
class SharedData:
    """A data set without the images that only rank 0 needs: test images and, with one chain, training images.

    Only a chain's first device reads images. The first chain's is on rank 0; those of other replicas may be elsewhere.
    """

    name: str
    train_images: Images | None
    train_labels: NDArray[np.int64]
    test_labels: NDArray[np.int64]
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    symbols: int = 0
    train_lengths: NDArray[np.int64] | None = None
    test_lengths: NDArray[np.int64] | None = None
    given: Normalisation | None = None

    @classmethod
    def of(cls, data: Dataset, replicas: int) -> SharedData:
        """Return the part of `data` that all ranks need to train `replicas` replicas."""
        images = data.train_images if replicas > 1 else None
        labels, lengths = (data.train_labels, data.test_labels), (data.train_lengths, data.test_lengths)
        shape = data.train_images.shape[1:]
        return cls(data.name, images, *labels, shape, data.classes, data.symbols, *lengths, data.given)

    def dataset(self) -> Dataset:
        """Return the data set; omitted images are all 0 and take no memory."""
        train, test = self.train_labels, self.test_labels
        images = self._images(len(train)) if self.train_images is None else self.train_images
        lengths = self.train_lengths, self.test_lengths
        return Dataset(
            self.name,
            images,
            train,
            self._images(len(test)),
            test,
            self.classes,
            "",
            self.symbols,
            *lengths,
            self.given,
        )

    def _images(self, count: int) -> NDArray[np.uint8]:
        return np.broadcast_to(np.uint8(0), (count, *self.shape))


def follow(
    plan: Plan | PairPlan,
    data: SharedData,
    gather_weights: bool,
    observer: Observer | None,
    keeping: Keeping,
    ranks: Ranks,
) -> None:
    """Train on this rank's part of the chain; then rank 0 gathers the observers, if there are any."""
    checkpoints = RunCheckpoints(plan.network, ranks, keeping)
    train(plan, data.dataset(), ranks, gather_weights=gather_weights, observer=observer, checkpoints=checkpoints)
    if observer is not None:
        ranks.gather(observer)
