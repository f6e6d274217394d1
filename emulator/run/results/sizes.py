"""Sizes of a run's compressed messages in every mini-batch: kept in training, given where the run is timed again."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ....comm.exchange import GivenBytes

EXCHANGE = -1
"""In place of a block: what a device exchanges with other replicas."""


class SentBy(NamedTuple):
    """A source of compressed messages: a device's exchange with other replicas, or a block of balanced parameters.

    It sends the same number of messages in every mini-batch.
    """

    replica: int
    device: int
    block: int = EXCHANGE


class OtherMessages(LookupError):
    """Sizes are given of other messages than those that a run sends."""


EpochSizes = Mapping[SentBy, NDArray[np.int64]]
"""Bytes of an epoch's messages before and after the codec (message, 2), by source, in order."""


class GivenSizes(Protocol):
    """An epoch's sizes for a run without numerics."""

    def bytes_of(self, source: SentBy) -> GivenBytes:
        """Return the function that gives the compressed bytes of the source's messages, one after another."""

    def shares_of(self, source: SentBy) -> Iterator[float]:
        """Return the shares of its messages' bytes that are left by the codec."""


@dataclasses.dataclass(frozen=True)
class RecordedSizes:
    """The sizes that a run had in an epoch."""

    sizes: EpochSizes

    def bytes_of(self, source: SentBy) -> GivenBytes:
        """See `GivenSizes`."""
        sizes = self._of(source)[:, 1].tolist()
        following = itertools.chain(sizes, _no_more(source, len(sizes)))
        return lambda _: next(following)

    def shares_of(self, source: SentBy) -> Iterator[float]:
        """See `GivenSizes`."""
        sizes = self._of(source).tolist()
        return itertools.chain((after / before for before, after in sizes), _no_more(source, len(sizes)))

    def _of(self, source: SentBy) -> NDArray[np.int64]:
        if source not in self.sizes:
            raise OtherMessages(f"there are none of {source}")
        return self.sizes[source]

    @property
    def ratio(self) -> float:
        """Bytes before over bytes after the codec, of all messages."""
        before, after = np.concatenate(list(self.sizes.values())).sum(axis=0).tolist()
        return before / after


def _no_more(source: SentBy, count: int) -> Iterator[Any]:
    raise OtherMessages(f"there are only {count} of {source}")
    yield


@dataclasses.dataclass(frozen=True)
class MeanRatio:
    """Sizes by an epoch's compression ratio alone."""

    ratio: float

    def bytes_of(self, source: SentBy) -> GivenBytes:
        """See `GivenSizes`."""
        return lambda value_bytes: math.ceil(value_bytes / self.ratio)

    def shares_of(self, source: SentBy) -> Iterator[float]:
        """See `GivenSizes`."""
        return itertools.repeat(1 / self.ratio)


def message_columns(first: EpochSizes, steps: int) -> dict[str, np.ndarray]:
    """Return `replica`, `device`, `block` and `value_bytes` of a mini-batch's messages; {} where none passed a codec.

    All mini-batches are alike in these; the first epoch has `steps` of them.
    """
    if not first:
        return {}
    count = [len(first[source]) // steps for source in sorted(first)]
    return {
        **{name: np.repeat([getattr(source, name) for source in sorted(first)], count) for name in SentBy._fields},
        "value_bytes": _by_step(first, steps)[0, :, 0],
    }


def compressed_bytes(epochs: Sequence[EpochSizes], steps: int) -> NDArray[np.uint32]:
    """Return the compressed bytes (mini-batch, message) of epochs of `steps` mini-batches each."""
    return np.concatenate([_by_step(epoch, steps)[:, :, 1].astype(np.uint32) for epoch in epochs])


def _by_step(epoch: EpochSizes, steps: int) -> NDArray[np.int64]:
    return np.concatenate([epoch[source].reshape(steps, -1, 2) for source in sorted(epoch)], axis=1)


def recorded_sizes(table: Mapping[str, np.ndarray], epochs: int) -> list[RecordedSizes]:
    """Return the sizes of each of a run's epochs from the columns of `messages/`."""
    sources = np.array([table[name] for name in SentBy._fields]).T
    places = {
        SentBy(*source): np.flatnonzero((sources == source).all(axis=1))
        for source in np.unique(sources, axis=0).tolist()
    }
    after = table["compressed_bytes"].astype(np.int64)
    both = np.stack([np.broadcast_to(table["value_bytes"], after.shape), after], axis=2)
    return [
        RecordedSizes({source: epoch[:, place].reshape(-1, 2) for source, place in places.items()})
        for epoch in both.reshape(epochs, -1, *both.shape[1:])
    ]
