"""What crosses the chain once for each mini-batch, before the update: gradients of tied weights, and the norm of all.

It runs to the right as data path 5 and to the left as path 6, row by row, from device to device.

- *Tied weights*: an embedding and a head, the layer that makes logits, have the same (Press and Wolf, 2017). Both ends
  keep them. The embedding's gradients run to the right, the head's to the left, symbol by symbol, and each device adds
  the part of its slices. So both ends have the same sum, the embedding's gradient first, and make the same update.
- The *norm* of all gradients, by which they are clipped (Pascanu et al., 2013): partial sums of squares run to the
  right, each device adding its own, and the total to the left, as one row of a number in double precision.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...kernels.number import FP32
from ..network import Layer
from .slices import Mapping, Slice
from .traffic import DataPath, StreamKey


@dataclasses.dataclass(frozen=True)
class Crossing(abc.ABC):
    """It crosses the links between devices `first` and `last`; `number` is that of its streams on paths 5 and 6."""

    number: int
    first: int
    last: int

    @property
    @abc.abstractmethod
    def rows(self) -> int:
        """Rows, one after another."""

    @property
    @abc.abstractmethod
    def row_bytes(self) -> int:
        """Bytes of a row."""

    @property
    def total_bytes(self) -> int:
        """Bytes that cross each link each way, for a mini-batch."""
        return self.rows * self.row_bytes

    def key(self, *, forward: bool) -> StreamKey:
        """Return the key of the stream to the right, or of that to the left."""
        return StreamKey(DataPath.PARAMETERS if forward else DataPath.PARAMETER_GRADIENTS, self.number)

    def crosses(self, link: int) -> bool:
        """Return whether it crosses the link between devices `link` and `link + 1`."""
        return self.first <= link < self.last

    def stops_at(self, device: int) -> bool:
        """Return whether a device from `first` to `last` adds to it, or takes it, rather than hand it on."""
        return True


@dataclasses.dataclass(frozen=True)
class TiedWeights(Crossing):
    """An embedding on devices `first` … `embedding_end` - 1, and its head on `head_begin` … `last`."""

    head: Layer
    embedding_end: int
    head_begin: int

    @property
    def embedding(self) -> Layer:
        """The embedding."""
        assert self.head.tied is not None
        return self.head.tied

    @property
    def rows(self) -> int:
        """See `Crossing`: symbols."""
        return self.head.channels

    @property
    def features(self) -> int:
        """Values of a symbol."""
        return self.head.input[0]

    @property
    def row_bytes(self) -> int:
        """See `Crossing`: those of the gradients of a symbol."""
        return FP32.bytes_of(self.features)

    def has_embedding(self, device: int) -> bool:
        """Return whether a device holds a part of the embedding."""
        return self.first <= device < self.embedding_end

    def has_head(self, device: int) -> bool:
        """Return whether a device holds a part of the head."""
        return self.head_begin <= device <= self.last

    def stops_at(self, device: int) -> bool:
        """See `Crossing`: those with a part of the embedding, or of the head."""
        return self.has_embedding(device) or self.has_head(device)

    @property
    def waits(self) -> Iterator[tuple[int, int]]:
        """Pairs of devices, of which the first's update waits for gradients of the second.

        Sums go forward from the embedding, and back from the head, and each device takes what has come to it.
        """
        for device, other in itertools.permutations(range(self.first, self.last + 1), 2):
            comes = self.has_embedding(other) if other < device else self.has_head(other)
            if self.stops_at(device) and comes:
                yield device, other

    def part(self, slices: tuple[Slice, ...], *, of_head: bool) -> int:
        """Return the place of the slice of the head, or of the embedding, among a device's slices that hold it."""
        index = self.head.index if of_head else self.embedding.index
        return next(place for place, part in enumerate(slices) if part.layer.index == index)


@dataclasses.dataclass(frozen=True)
class NormSum(Crossing):
    """The sum of the squares of all gradients, over all devices."""

    @property
    def rows(self) -> int:
        """See `Crossing`: one number."""
        return 1

    @property
    def row_bytes(self) -> int:
        """See `Crossing`: those of double precision."""
        return 8


def tied_weights(mapping: Mapping, first_number: int) -> Iterator[TiedWeights]:
    """Yield all tied weights of a mapping that are trained; their streams have the numbers from `first_number` on."""

    def holders(layer: Layer) -> list[int]:
        held = enumerate(mapping.devices)
        return [device for device, slices in held for part in slices if part.layer.index == layer.index]

    yield from tied_between(mapping.network.heads, holders, first_number)


def tied_between(
    heads: Iterable[Layer], holders: Callable[[Layer], Sequence[int]], first_number: int
) -> Iterator[TiedWeights]:
    """Yield the tied weights of heads that are trained, given the devices that hold parts of a layer."""
    for number, head in enumerate((head for head in heads if not head.frozen), first_number):
        assert head.tied is not None
        embedding, own = holders(head.tied), holders(head)
        yield TiedWeights(number, embedding[0], own[-1], head, embedding[-1] + 1, own[0])
