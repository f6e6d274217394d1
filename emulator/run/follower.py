"""What the other ranks do in `emuchain train`: kept apart, so that they import no more than they need."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ...comm.ranks import Ranks
from ..data.dataset import Dataset
from ..plan.plan import Plan
from .train import train


@dataclasses.dataclass(frozen=True)
class Gist:
    """A data set without images that rank 0 alone needs: those for testing, and with one chain those for training.

    Only a chain's first device reads images. The first chain's is rank 0's, other replicas' are where they are.
    """

    name: str
    train_images: NDArray[np.uint8] | None
    train_labels: NDArray[np.int64]
    test_labels: NDArray[np.int64]
    shape: tuple[int, int, int]
    classes: tuple[str, ...]

    @classmethod
    def of(cls, data: Dataset, replicas: int) -> Gist:
        """What all ranks need, where so many replicas train."""
        images = data.train_images if replicas > 1 else None
        return cls(data.name, images, data.train_labels, data.test_labels, data.shape, data.classes)

    def dataset(self) -> Dataset:
        """The data set; images that are left out are all 0, and take no memory."""
        train, test = self.train_labels, self.test_labels
        images = self._images(len(train)) if self.train_images is None else self.train_images
        return Dataset(self.name, images, train, self._images(len(test)), test, self.classes)

    def _images(self, count: int) -> NDArray[np.uint8]:
        return np.broadcast_to(np.uint8(0), (count, *self.shape))


def take(plan: Plan, gist: Gist, ranks: Ranks) -> None:
    """Train on this rank's part of the chain."""
    train(plan, gist.dataset(), ranks, lambda _: None, lambda *_: None, gather_weights=plan.config.out is not None)
