"""What the other ranks do in `emuchain train`: kept apart, so that they import no more than they need."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ...comm.ranks import Ranks
from ..data.dataset import Dataset
from ..plan import Plan
from ..train import train


@dataclasses.dataclass(frozen=True)
class Gist:
    """A data set without its images, which only the chain's first device reads; and that is rank 0's."""

    name: str
    train_labels: NDArray[np.int64]
    test_labels: NDArray[np.int64]
    shape: tuple[int, int, int]
    classes: tuple[str, ...]

    @classmethod
    def of(cls, data: Dataset) -> Gist:
        """All but the images."""
        return cls(data.name, data.train_labels, data.test_labels, data.shape, data.classes)

    def dataset(self) -> Dataset:
        """The data set, its images all 0; they take no memory."""
        train, test = self.train_labels, self.test_labels
        return Dataset(self.name, self._images(len(train)), train, self._images(len(test)), test, self.classes)

    def _images(self, count: int) -> NDArray[np.uint8]:
        return np.broadcast_to(np.uint8(0), (count, *self.shape))


def take(plan: Plan, gist: Gist, ranks: Ranks) -> None:
    """Train on this rank's part of the chain."""
    train(plan, gist.dataset(), ranks, lambda _: None, lambda *_: None, gather_weights=plan.config.out is not None)
