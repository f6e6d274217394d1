"""What a part of a stage needs on any board: multiply-accumulates, and bytes of weights, features and messages."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ..mapping import COPIES, VALUE_BYTES, Slice, Stream, activation_bytes, slice_memory, streams_between
from ..network import Layer, Network


class PartNeeds(NamedTuple):
    """A slice's needs; bytes of features are those of a sample, `buffer_bytes` feed the engines and stay on chip.

    `macs` are those of FP, and of PG; EB has `eb_macs`, 0 if there is none. A parameter takes `copies` arrays: itself,
    its gradient, and what an optimiser keeps beside them.
    """

    part: Slice
    macs: int
    eb_macs: int
    parameter_bytes: int
    feature_bytes: int
    buffer_bytes: int
    copies: int = COPIES

    @classmethod
    def of(cls, part: Slice, value_bytes: int = VALUE_BYTES, copies: int = COPIES) -> PartNeeds:
        """Return the needs of a slice, with values of `value_bytes`."""
        memory = slice_memory(part, 0, value_bytes=value_bytes)
        features = activation_bytes(part, value_bytes)
        return cls(part, part.macs, part.eb_macs, memory.lpram.bytes, features, memory.working.bytes, copies)


def boundary_bytes(network: Network, after_layer: int, value_bytes: int = VALUE_BYTES) -> int:
    """Return the bytes of a sample that cross a cut behind a layer: all maps that later layers need, shortcuts too.

    `after_layer` is the layer's index; behind the last layer these are the outputs of the network.
    """
    return value_bytes * sum(math.prod(tensor.shape) for tensor in network.layers[after_layer].hands_on)


def cut_bytes(left: Layer, right: Slice, value_bytes: int = VALUE_BYTES) -> int:
    """Return the bytes of a sample in the fuller direction between a stage that ends in `left` and one from `right` on.

    Between slices of one layer partial sums cross, too, and their errors back.
    """
    crossing = streams_between(left, right)
    return max(
        streams_bytes((each for each in crossing if each.path.is_forward is forward), value_bytes)
        for forward in (True, False)
    )


def streams_bytes(streams: Iterable[Stream], value_bytes: int = VALUE_BYTES) -> int:
    """Return the bytes of a sample of some streams, with values of `value_bytes`."""
    return sum(stream.sample_bytes for stream in streams) * value_bytes // VALUE_BYTES
