"""The traffic between neighbours: the six data paths (FPDeep, section 5.1, Fig. 12).

Between two devices that share a layer, paths 1 and 2 run to the right and 3 and 4 to the left; where a layer ends on
one device and the next begins on the other, its activations take path 1 and its errors path 4. Tensors that bypass a
layer take path 1 too, "as extra channels" (section 3.2), and their errors path 4. So a path has a stream for each
tensor. Paths 5 and 6 carry balanced parameters and their gradients, with a stream for each block of them
(balancing.py).
"""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..cluster import Link
from ..network import Layer, Shape
from .slices import Cut, Mapping, Slice

Bytes = TypeVar("Bytes", int, NDArray[np.int64])

VALUE_BYTES = 4
"""Bytes of an activation, an error or a parameter: all are single-precision floats (FPDeep, Table 6)."""


class DataPath(enum.IntEnum):
    """The six data paths, numbered as in FPDeep's section 5.1."""

    ACTIVATIONS = 1
    PARTIAL_ACTIVATIONS = 2
    OUTPUT_ERRORS = 3
    INPUT_ERRORS = 4
    PARAMETERS = 5
    PARAMETER_GRADIENTS = 6

    @property
    def is_forward(self) -> bool:
        """Whether it runs to the right; 1, 2 and 5 serve FP, and 3, 4 and 6 the backward pass."""
        return self in (DataPath.ACTIVATIONS, DataPath.PARTIAL_ACTIVATIONS, DataPath.PARAMETERS)


class StreamKey(NamedTuple):
    """A stream: a data path and the number of a tensor, or of a block of balanced parameters.

    With `values`, it carries the values of balanced parameters, once for each update and in no virtual time.
    """

    path: DataPath
    number: int
    values: bool = False

    def __str__(self) -> str:
        return f"path {self.path.value} #{self.number}"


@dataclasses.dataclass(frozen=True)
class Stream:
    """One stream on one link: for each sample a map of (channels, rows, columns), sent row by row."""

    path: DataPath
    number: int
    channels: int
    rows: int
    columns: int

    @property
    def key(self) -> StreamKey:
        """The stream's data path and number."""
        return StreamKey(self.path, self.number)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of one sample, all channels."""
        return VALUE_BYTES * self.channels * self.columns

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return self.row_bytes * self.rows


def streams(mapping: Mapping, link: int) -> tuple[Stream, ...]:
    """Return the streams on the link between devices `link` and `link + 1`, both directions, without paths 5 and 6."""
    return streams_between(mapping.devices[link][-1].layer, mapping.devices[link + 1][0])


def streams_between(left: Layer, right: Slice) -> tuple[Stream, ...]:
    """Return the streams between a device that ends in layer `left` and one that begins with slice `right`."""
    layer = right.layer
    carried = {tensor.number: tensor.shape for tensor in layer.takes}
    partial: Shape | None = None
    if left.index == layer.index:
        _, rows, columns = layer.input
        begun = layer.channels if right.cut is Cut.ICP else right.begin
        partial = begun, layer.output[1], layer.output[2]
        if right.cut is Cut.ICP and not layer.reads_again:
            carried[layer.reads.number] = layer.input[0] - right.begin, rows, columns
    found = [Stream(DataPath.ACTIVATIONS, tensor, *shape) for tensor, shape in carried.items()]
    if partial is not None:
        found.append(Stream(DataPath.PARTIAL_ACTIVATIONS, layer.makes.number, *partial))
        found.append(Stream(DataPath.OUTPUT_ERRORS, layer.makes.number, *partial))
    errors = (tensor for tensor in layer.takes if not tensor.is_images)
    found += [Stream(DataPath.INPUT_ERRORS, tensor.number, *carried[tensor.number]) for tensor in errors]
    return tuple(found)


def path_row_ps(link: Link, stream: Stream, others: tuple[Stream, ...]) -> int:
    """Return the time in ps of a row on its stream, whose share of the link is its share of the direction's bytes."""
    return row_ps(link, _direction_bytes(others, stream.path.is_forward), stream.rows)


def sample_ps(link: Link, all_streams: tuple[Stream, ...]) -> int:
    """Return the time in ps of a sample on the slowest stream of a link, in both directions; 0 if it has none."""
    direction = [_direction_bytes(all_streams, forward) for forward in (False, True)]
    rows_ps = (stream.rows * row_ps(link, direction[stream.path.is_forward], stream.rows) for stream in all_streams)
    return max(rows_ps, default=0)


def row_ps(link: Link, direction_bytes: Bytes, rows: int) -> Bytes:
    """Return the time in ps of a row of a stream with `rows` rows, in a direction that carries `direction_bytes`.

    A stream's share of the bandwidth is its share of the bytes, so its map takes as long as all bytes of a sample.
    """
    return -(-8_000_000 * direction_bytes // (link.bandwidth_mbps * rows))


def _direction_bytes(all_streams: tuple[Stream, ...], forward: bool) -> int:
    return sum(stream.sample_bytes for stream in all_streams if stream.path.is_forward is forward)
