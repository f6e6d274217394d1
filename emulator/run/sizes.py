"""Sizes of a run's compressed messages in every mini-batch: kept in training, given where the run is timed again."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...comm.exchange import GivenBytes

EXCHANGE = -1
"""In place of a block: what a device exchanges with other replicas."""


class SentBy(NamedTuple):
    """A source of compressed messages: a device's exchange with other replicas, or a block of balanced parameters.

    It sends the same number of messages in every mini-batch.
    """

    replica: int
    device: int
    block: int = EXCHANGE


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
        following = iter(self.sizes[source][:, 1].tolist())
        return lambda _: next(following)

    def shares_of(self, source: SentBy) -> Iterator[float]:
        """See `GivenSizes`."""
        return (after / before for before, after in self.sizes[source].tolist())

    @property
    def ratio(self) -> float:
        """Bytes before over bytes after the codec, of all messages."""
        before, after = np.concatenate(list(self.sizes.values())).sum(axis=0).tolist()
        return before / after


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


def size_table(history: Sequence[EpochSizes], steps: int) -> dict[str, np.ndarray]:
    """Return the columns of a run's messages; {} where none passed a codec.

    Each epoch has `steps` mini-batches, which are alike in all but the compressed bytes: `replica`, `device`, `block`
    and `value_bytes` (message); `compressed_bytes` (mini-batch of the run, message).
    """
    if not history or not history[0]:
        return {}
    sources = sorted(history[0])
    by_step = [np.concatenate([epoch[of].reshape(steps, -1, 2) for of in sources], axis=1) for epoch in history]
    count = [len(history[0][of]) // steps for of in sources]
    return {
        **{name: np.repeat([getattr(of, name) for of in sources], count) for name in SentBy._fields},
        "value_bytes": by_step[0][0, :, 0],
        "compressed_bytes": np.concatenate(by_step)[:, :, 1].astype(np.uint32),
    }


def recorded_sizes(table: Mapping[str, np.ndarray], epochs: int) -> list[RecordedSizes]:
    """Return the sizes of each of a run's epochs from the columns of `size_table`."""
    sources = np.array([table[name] for name in SentBy._fields]).T
    places = {SentBy(*of): np.flatnonzero((sources == of).all(axis=1)) for of in np.unique(sources, axis=0).tolist()}
    after = table["compressed_bytes"].astype(np.int64)
    both = np.stack([np.broadcast_to(table["value_bytes"], after.shape), after], axis=2)
    return [
        RecordedSizes({of: epoch[:, place].reshape(-1, 2) for of, place in places.items()})
        for epoch in both.reshape(epochs, -1, *both.shape[1:])
    ]
