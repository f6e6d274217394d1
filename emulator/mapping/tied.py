"""Tied weights: an embedding and a head, the layer that makes logits, that have the same (Press and Wolf, 2017).

Both ends keep them. Once for each mini-batch they exchange gradients, symbol by symbol: the embedding's run to the
right as data path 5, the head's to the left as path 6, from device to device, and each adds the part of its slices. So
both ends have the same sum, the embedding's gradient first, and make the same update.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ...kernels.number import FP32
from ..network import Layer
from .slices import Mapping, Slice
from .traffic import DataPath, StreamKey


@dataclasses.dataclass(frozen=True)
class TiedWeights:
    """An embedding on devices `first` … `embedding_end` - 1, and its head on `head_begin` … `last`.

    `number` is that of its streams among those of paths 5 and 6.
    """

    head: Layer
    number: int
    first: int
    embedding_end: int
    head_begin: int
    last: int

    @property
    def embedding(self) -> Layer:
        """The embedding."""
        assert self.head.tied is not None
        return self.head.tied

    @property
    def symbols(self) -> int:
        """Rows of the table."""
        return self.head.channels

    @property
    def rows(self) -> int:
        """Rows that are exchanged one after another: symbols."""
        return self.symbols

    @property
    def features(self) -> int:
        """Values of a symbol."""
        return self.head.input[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of the gradients of a symbol."""
        return FP32.bytes_of(self.features)

    @property
    def total_bytes(self) -> int:
        """Bytes that cross each link each way, for a mini-batch."""
        return self.symbols * self.row_bytes

    def key(self, *, forward: bool) -> StreamKey:
        """Return the key of the stream of the embedding's gradients, or of the head's."""
        return StreamKey(DataPath.PARAMETERS if forward else DataPath.PARAMETER_GRADIENTS, self.number)

    def has_embedding(self, device: int) -> bool:
        """Return whether a device holds a part of the embedding."""
        return self.first <= device < self.embedding_end

    def has_head(self, device: int) -> bool:
        """Return whether a device holds a part of the head."""
        return self.head_begin <= device <= self.last

    def crosses(self, link: int) -> bool:
        """Return whether gradients cross the link between devices `link` and `link + 1`."""
        return self.first <= link < self.last

    def part(self, slices: tuple[Slice, ...], *, of_head: bool) -> int:
        """Return the place of the slice of the head, or of the embedding, among a device's slices that hold it."""
        index = self.head.index if of_head else self.embedding.index
        return next(place for place, part in enumerate(slices) if part.layer.index == index)


def tied_weights(mapping: Mapping, first_number: int) -> Iterator[TiedWeights]:
    """Yield all tied weights of a mapping; their streams have the numbers from `first_number` on."""
    for number, head in enumerate(mapping.network.heads, first_number):
        assert head.tied is not None
        embedding, own = (
            [device for device, slices in enumerate(mapping.devices) for part in slices if part.layer.index == index]
            for index in (head.tied.index, head.index)
        )
        yield TiedWeights(head, number, embedding[0], embedding[-1] + 1, own[0], own[-1])
