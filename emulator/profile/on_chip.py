"""What a stage needs on any board, and which of its data lie on chip, where layers of a micro-batch come in turn.

Weights, gradients and features of a layer are each on chip or off chip as a whole. Off chip they cost bytes of every
micro-batch: weights are read for FP and for EB, PG reads and writes gradients, FP writes features that PG reads. A
phase of a layer takes as long as its multiply-accumulates or its bytes, whichever is longer.

Where not everything fits, all begin off chip. Then that comes on chip which saves the most time for a byte of its room;
where nothing saves time, that which saves the most bytes on the memory port. Of equals, the earlier layer comes first,
and weights before gradients before features. What has no room any more stays off chip.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...kernels.number import FP32, Lines, NumberFormat
from ..mapping import COPIES, Slice, Stream, activation_bytes, slice_memory, streams_between
from ..network import Layer, Network
from ..number import Storage


class PartNeeds(NamedTuple):
    """A slice's needs; bytes of features are those of a sample, `buffer_bytes` feed the engines and stay on chip.

    `macs` are those of FP; EB has `eb_macs` and PG `pg_macs`, 0 if there is none. A parameter takes `copies` arrays:
    itself, its gradient, and what an optimiser keeps beside them; a frozen one takes itself alone.
    """

    part: Slice
    macs: int
    eb_macs: int
    pg_macs: int
    parameter_bytes: int
    feature_bytes: int
    buffer_bytes: int
    copies: int = COPIES

    @classmethod
    def of(cls, part: Slice, number: NumberFormat = FP32, copies: int = COPIES) -> PartNeeds:
        """Return the needs of a slice, with values of a format."""
        storage = Storage.all_in(number)
        memory, features = slice_memory(part, 0, storage=storage), activation_bytes(part, storage)
        copies = 1 if part.layer.frozen else copies
        return cls(
            part, part.macs, part.eb_macs, part.pg_macs, memory.lpram.bytes, features, memory.working.bytes, copies
        )


def boundary_bytes(network: Network, after_layer: int, number: NumberFormat = FP32) -> int:
    """Return the bytes of a sample that cross a cut behind a layer: all maps that later layers need, shortcuts too.

    `after_layer` is the layer's index; behind the last layer these are the outputs of the network.
    """
    shapes = (tensor.shape for tensor in network.layers[after_layer].hands_on)
    return sum(Lines(channels, rows * columns).bytes_in(number) for channels, rows, columns in shapes)


def cut_bytes(left: Layer, right: Slice, number: NumberFormat = FP32) -> int:
    """Return the bytes of a sample in the fuller direction between a stage that ends in `left` and one from `right` on.

    Between slices of one layer partial sums cross, too, and their errors back.
    """
    crossing = streams_between(left, right)
    return max(
        streams_bytes((stream for stream in crossing if stream.path.is_forward is forward), number)
        for forward in (True, False)
    )


def streams_bytes(streams: Iterable[Stream], number: NumberFormat = FP32) -> int:
    """Return the bytes of a sample of some streams, with values of a format."""
    return sum(stream.lines_of_sample.bytes_in(number) for stream in streams)


class Data(enum.Flag):
    """Data of a layer that may be off chip."""

    NONE = 0
    WEIGHTS = enum.auto()
    GRADIENTS = enum.auto()
    FEATURES = enum.auto()


ALL = (Data.WEIGHTS, Data.GRADIENTS, Data.FEATURES)


class Phases(NamedTuple):
    """FP, EB and PG of a layer, in ps or bytes."""

    fp: int
    eb: int
    pg: int


class DataBytes(NamedTuple):
    """Bytes of weights, gradients and features, in the order of `ALL`."""

    weights: int
    gradients: int
    features: int


class LayerData(NamedTuple):
    """A layer's work and data for a micro-batch.

    `work_ps` is the time of the multiply-accumulates; a layer without EB has none there. `rooms` are the bytes that
    weights, gradients and features take, `sizes` the bytes of each that a phase goes through.
    """

    work_ps: Phases
    rooms: DataBytes
    sizes: DataBytes

    def room(self, data: Data) -> int:
        """Return the bytes that some of the data take."""
        return sum(room for kind, room in zip(ALL, self.rooms, strict=True) if kind & data)

    def moved(self, off_chip: Data) -> Phases:
        """Return the bytes that each phase moves over the memory port."""
        weights, gradients, features = (
            size if kind & off_chip else 0 for kind, size in zip(ALL, self.sizes, strict=True)
        )
        return Phases(weights + features, weights if self.work_ps.eb else 0, 2 * gradients + features)

    def times_ps(self, off_chip: Data, mbytes_per_s: int) -> Phases:
        """Return the time of each phase in ps; where anything is off chip, the memory port has a bandwidth."""
        if not off_chip:
            return self.work_ps
        moved = self.moved(off_chip)
        return Phases(*map(max, self.work_ps, (port_ps(count, mbytes_per_s) for count in moved)))


def port_ps(count: int, mbytes_per_s: int) -> int:
    """Return the time in ps of a number of bytes on a memory port."""
    return -(-count * 1_000_000 // mbytes_per_s)


def choose_off_chip(
    layers: Sequence[LayerData], room_bytes: int, mbytes_per_s: int, never_on_chip: Data = Data.NONE
) -> list[Data]:
    """Return what of each layer is off chip, by the rule above, if `room_bytes` do not take all."""
    off_chip = [Data.WEIGHTS | Data.GRADIENTS | Data.FEATURES for _ in layers]
    heap = [
        _Gain.of(place, layer, off_chip[place], data, mbytes_per_s)
        for place, layer in enumerate(layers)
        for data in ALL
        if not data & never_on_chip and layer.room(data)
    ]
    heapq.heapify(heap)
    while heap:
        best = heapq.heappop(heap)
        layer, now = layers[best.place], off_chip[best.place]
        room = layer.room(Data(best.data))
        if room > room_bytes:
            continue
        if best.off_chip != now.value:
            heapq.heappush(heap, _Gain.of(best.place, layer, now, Data(best.data), mbytes_per_s))
            continue
        room_bytes -= room
        off_chip[best.place] = now & ~Data(best.data)
    return off_chip


class _Gain(NamedTuple):
    """What it gains to bring some data on chip; the smallest comes first.

    The gains are below zero, in ps and bytes for a byte of room; `off_chip` is what of the layer was off chip then.
    """

    time: float
    moved: float
    place: int
    data: int
    off_chip: int

    @classmethod
    def of(cls, place: int, layer: LayerData, off_chip: Data, data: Data, mbytes_per_s: int) -> _Gain:
        after, room = off_chip & ~data, layer.room(data)
        time = sum(layer.times_ps(after, mbytes_per_s)) - sum(layer.times_ps(off_chip, mbytes_per_s))
        moved = sum(layer.moved(after)) - sum(layer.moved(off_chip))
        return cls(time / room, moved / room, place, data.value, off_chip.value)
