"""What a rank hosts of a run: a chain or a pair, the data at its two ends, and what carries its messages.

Images or texts enter at the start, and labels at the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...comm import Format, Mailbox, Pump, Receiver, Sender, drain
from ...comm.exchange import GradientFormat
from ...kernels import Arena
from ..data import Dataset, Images
from ..device import DeviceNumerics, ImageSource, SoftmaxHead, TextSource, VocabularyHead
from ..network import Network
from ..schedule import MicroBatch


@dataclasses.dataclass
class Carriers:
    """The pumps and receivers of a rank's messages: MPI reads and writes their buffers until they are closed."""

    pumps: list[Pump] = dataclasses.field(default_factory=list)
    receivers: list[Receiver] = dataclasses.field(default_factory=list)

    def connect(
        self,
        comm: Any,
        rank: int,
        ends: tuple[int, int],
        tag: int,
        form: Format | GradientFormat,
        most: int,
        mailbox: Mailbox,
        arena: Arena,
    ) -> Sender | Mailbox | None:
        """Return where the sender puts a stream's messages, if it is on this rank; they arrive in the mailbox.

        `ends` are the ranks of sender and receiver; a message has at most `most` samples or bytes.
        """
        from_rank, to_rank = ends
        if from_rank == to_rank:
            return mailbox if rank == to_rank else None
        if rank == to_rank:
            inlet = Receiver(comm, from_rank, tag, form, most, mailbox, arena)
            self.receivers.append(inlet)
            self.pumps.append(inlet)
        if rank != from_rank:
            return None
        outlet = Sender(comm, to_rank, tag, form, arena)
        self.pumps.append(outlet)
        return outlet

    def drain(self) -> bool:
        """Take what has arrived, for a run that has failed; return whether all that was sent from here has left."""
        return drain(self.pumps)

    def close(self) -> None:
        """Cancel the receives that are still posted."""
        for receiver in self.receivers:
            receiver.close()


class Hosted(Protocol):
    """This rank's part of a chain, or of a pair."""

    arena: Arena

    @property
    def numerics(self) -> list[DeviceNumerics]:
        """What holds the parameters of devices on this rank."""

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

    def evaluate(self, batches: Sequence[MicroBatch]) -> list[Coroutine[Any, Any, None]]:
        """Return the programs of a test."""


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
    def of(cls, chain: Hosted, data: Dataset, network: Network, smoothing: float = 0.0) -> Ends:
        """Return the ends of a chain for a data set's images and labels.

        Training labels are smoothed; losses of tests are those of the labels themselves.
        """
        normalisation = data.normalisation() if chain.starts_here and not data.symbols else None

        def source(images: Images) -> ImageSource | None:
            if normalisation is not None:
                return ImageSource(images, normalisation, chain.arena, network.entry)
            if not chain.starts_here:
                return None
            return TextSource(np.asarray(images), chain.arena, network.entry, one_hot=not network.takes_symbols)

        def head(labels: NDArray[np.int64], smoothing: float = 0.0) -> SoftmaxHead | None:
            if not chain.ends_here:
                return None
            is_parallel = network.layers[-1].vocabulary_parallel
            return VocabularyHead(labels) if is_parallel else SoftmaxHead(labels, smoothing)

        train, test = source(data.train_images), source(data.test_images)
        heads = head(data.train_labels, smoothing), head(data.test_labels)
        return cls(train, test, *heads, data.train_lengths, data.test_lengths)

    def attach_training(self, chain: Hosted, order: NDArray[np.int64], epoch: int = 0) -> None:
        """Attach the ends for training, with the images in this order, augmented as in this epoch."""
        if self.train_source is not None:
            self.train_source.epoch = epoch
        for end in (self.train_source, self.train_head):
            if end is not None:
                end.order = order
        lengths = None if self.train_lengths is None else self.train_lengths[order]
        chain.attach(self.train_source, self.train_head, lengths)
