"""The data at the two ends of a chain or pair: images or texts at its start, labels at its end."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ..data import Dataset, Images
from ..device import ImageSource, SoftmaxHead, TextSource
from ..network import Shape


class HasEnds(Protocol):
    """A chain, or a pair: this rank's part of it."""

    arena: Arena

    @property
    def starts_here(self) -> bool:
        """Whether images enter on this rank."""

    @property
    def ends_here(self) -> bool:
        """Whether losses are computed on this rank."""

    def attach(
        self, source: ImageSource | None, head: SoftmaxHead | None, lengths: NDArray[np.int64] | None = None
    ) -> None:
        """Take the ends, and the time steps of each sample by its place in the epoch, where they differ."""


@dataclasses.dataclass(frozen=True)
class Ends:
    """Image sources and heads, for training and evaluation, where the ends are on this rank."""

    train_source: ImageSource | None
    test_source: ImageSource | None
    train_head: SoftmaxHead | None
    test_head: SoftmaxHead | None
    train_lengths: NDArray[np.int64] | None = None
    test_lengths: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, chain: HasEnds, data: Dataset, entry: Shape, smoothing: float = 0.0) -> Ends:
        """Return the ends of a chain for a data set's images and labels; the first layer takes the shape `entry`.

        Training labels are smoothed; losses of tests are those of the labels themselves.
        """
        normalisation = data.normalisation() if chain.starts_here and not data.symbols else None

        def source(images: Images) -> ImageSource | None:
            if normalisation is not None:
                return ImageSource(images, normalisation, chain.arena, entry)
            return TextSource(np.asarray(images), chain.arena, entry) if chain.starts_here else None

        def head(labels: NDArray[np.int64], smoothing: float = 0.0) -> SoftmaxHead | None:
            return SoftmaxHead(labels, smoothing) if chain.ends_here else None

        train, test = source(data.train_images), source(data.test_images)
        heads = head(data.train_labels, smoothing), head(data.test_labels)
        return cls(train, test, *heads, data.train_lengths, data.test_lengths)

    def attach_training(self, chain: HasEnds, order: NDArray[np.int64], epoch: int = 0) -> None:
        """Attach the ends for training, with the images in this order, augmented as in this epoch."""
        if self.train_source is not None:
            self.train_source.epoch = epoch
        for end in (self.train_source, self.train_head):
            if end is not None:
                end.order = order
        lengths = None if self.train_lengths is None else self.train_lengths[order]
        chain.attach(self.train_source, self.train_head, lengths)
