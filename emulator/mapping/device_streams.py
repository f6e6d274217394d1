"""A device's walk over its slices: which rows come in, and which leave, on the way there and back.

Clocks, numerics, programs and RTL follow it, so they agree on what travels. A layer may begin on
the device before, or go on at the next one; backward, the same slices are visited from the last one
on.

    path 1   arriving        ->  slice -> ... -> slice  ->  leaving; or `passed` for the rest of the layer
         2   partial         ->                         ->  unfinished
         3   returned        <-                         <-  errors
         4   errors_leaving  <-  slice <- ... <- slice  <-  errors_arriving

Replicas exchange a device's gradients in one row: of its slices, and of the parameters that it
stores. Parameters that its slices use and other devices store count where they are stored.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..network import Layer, Tensor
from ..number import Precision
from .balancing import BalancedParameters, blocks_of, channel_values
from .slices import Mapping, Slice
from .traffic import Crossing, DataPath, StreamKey


def kept_channels(
    part: Slice, device: int, blocks: Sequence[BalancedParameters]
) -> NDArray[np.bool_]:
    """Return a mask of the slice's cut channels that the device stores itself."""
    kept = np.ones(part.channels, np.bool_)
    for _, block in blocks_of(blocks, part, device):
        kept[block.begin - part.begin : block.end - part.begin] = False
    return kept


def gradient_values(
    device: int, slices: Sequence[Slice], blocks: Sequence[BalancedParameters]
) -> int:
    """Return the number of gradients that a device exchanges with its counterparts in other
    replicas.
    """
    stored = sum(block.values for block in blocks if block.store_device == device)
    return stored + sum(_own_values(part, device, blocks) for part in slices)


def _own_values(part: Slice, device: int, blocks: Sequence[BalancedParameters]) -> int:
    """Return the number of a slice's gradients that its own device exchanges."""
    if part.layer.frozen:
        return 0
    weights = int(kept_channels(part, device, blocks).sum()) * channel_values(part)
    return weights + part.sfu_parameters


@dataclasses.dataclass(frozen=True)
class LargestNumbers(Crossing):
    """What the boards of a layer tell each other of their largest weights, and operands within the
    layer, once a mini-batch: an exponent of 8 bits each, in a header of the layer's partial
    activations, and of errors back.
    """

    layer: Layer

    @property
    def rows(self) -> int:
        """See `Crossing`: none of its own."""
        return 0

    @property
    def row_bytes(self) -> int:
        """See `Crossing`."""
        return 0


def largest_numbers(
    mapping: Mapping, precision: Precision, first_number: int
) -> Iterator[LargestNumbers]:
    """Yield those of all layers on several boards whose weights, or operands, have a scale; their
    streams have the numbers from `first_number` on.
    """
    number = first_number
    for device, slices in enumerate(mapping.devices):
        part = slices[-1]
        if part.is_last or not part.is_first:  # each layer once, where its first slice is
            continue
        layer, own = part.layer, precision.of(part.layer.formats)
        of_weights = layer.weights and not layer.frozen and own.scales_weights
        if of_weights or (layer.rounds_within and own.scales_maps):
            last = device
            while last + 1 < len(mapping.devices) and (
                mapping.devices[last + 1][0].layer.index == layer.index
            ):
                last += 1
            yield LargestNumbers(number, device, last, layer)
            number += 1


class Visit(NamedTuple):
    """A slice on the walk, and what it has from and for slices of its layer on the devices before
    and behind.
    """

    part: Slice
    partial: StreamKey | None = None
    returned: StreamKey | None = None
    unfinished: StreamKey | None = None
    errors: StreamKey | None = None
    passed: tuple[StreamKey, ...] = ()

    @classmethod
    def of(cls, part: Slice) -> Visit:
        """Return the visit of a slice."""
        makes = part.layer.makes.number
        sums, errors = (
            StreamKey(path, makes)
            for path in (DataPath.PARTIAL_ACTIVATIONS, DataPath.OUTPUT_ERRORS)
        )
        before = (None, None) if part.is_first else (sums, errors)
        behind = (
            () if part.is_last else (sums, errors, _keys(DataPath.ACTIVATIONS, part.layer.takes))
        )
        return cls(part, *before, *behind)


@dataclasses.dataclass(frozen=True)
class DeviceStreams:
    """The walk over a device's slices, and the streams that it takes in, by action.

    `forward`: activations and partial sums (paths 1 and 2). `backward`: errors (paths 3 and 4).
    `parameters`: for each slice the numbers of the blocks that it uses and others store; `stored`
    are those that it stores for others, and `passing` those that it passes on (paths 5 and 6).
    `gradient_values` is the number of gradients that it exchanges with its counterparts in other
    replicas, if there are any.
    """

    device: int
    slices: tuple[Slice, ...]
    is_chain_start: bool
    is_chain_end: bool
    parameters: tuple[tuple[int, ...], ...]
    stored: tuple[int, ...]
    passing: tuple[int, ...]
    gradient_values: int

    @functools.cached_property
    def layer_values(self) -> tuple[int, ...]:
        """For each slice the number of its gradients, where no other device stores any."""
        return tuple(_own_values(part, self.device, ()) for part in self.slices)

    def exchanged_rows(self, *, by_layer: bool) -> list[int]:
        """Return how many values there are in each row that replicas exchange: in one of all, or in
        one of each layer that has any.
        """
        return [*filter(None, self.layer_values)] if by_layer else [self.gradient_values]

    @functools.cached_property
    def visits(self) -> tuple[Visit, ...]:
        """The walk over the slices, forward."""
        return tuple(map(Visit.of, self.slices))

    @functools.cached_property
    def arriving(self) -> tuple[StreamKey, ...]:
        """Maps from the device before."""
        return (
            () if self.is_chain_start else _keys(DataPath.ACTIVATIONS, self.slices[0].layer.takes)
        )

    @functools.cached_property
    def leaving(self) -> tuple[StreamKey, ...]:
        """Maps to the next device, where the last layer ends here."""
        last = self.slices[-1]
        ends = self.is_chain_end or not last.is_last
        return () if ends else _keys(DataPath.ACTIVATIONS, last.layer.hands_on)

    @functools.cached_property
    def errors_arriving(self) -> tuple[StreamKey, ...]:
        """Errors of what the next device takes: of all but images; those of fixed maps are
        empty.
        """
        return _errors_of(self.leaving or self.visits[-1].passed)

    @functools.cached_property
    def errors_leaving(self) -> tuple[StreamKey, ...]:
        """Errors of the maps that arrive."""
        return _errors_of(self.arriving)

    @functools.cached_property
    def forward(self) -> tuple[StreamKey, ...]:
        """All that F takes in."""
        partial = self.visits[0].partial
        return self.arriving if partial is None else (*self.arriving, partial)

    @functools.cached_property
    def backward(self) -> tuple[StreamKey, ...]:
        """All that B takes in."""
        errors = self.visits[-1].errors
        return self.errors_arriving if errors is None else (errors, *self.errors_arriving)

    @property
    def has_loss(self) -> bool:
        """Whether it computes the loss, or a part of it."""
        return self.is_chain_end or self.slices[-1].layer.vocabulary_parallel

    @classmethod
    def of(
        cls, mapping: Mapping, device: int, blocks: Sequence[BalancedParameters]
    ) -> DeviceStreams:
        """Return the streams of a device."""
        slices = mapping.devices[device]
        stored = tuple(n for n, block in enumerate(blocks) if block.store_device == device)
        passing = tuple(
            n for n, block in enumerate(blocks) if block.store_device < device < block.user_device
        )
        used = []
        for part in slices:
            used.append(tuple(number for number, _ in blocks_of(blocks, part, device)))
        return cls(
            device,
            slices,
            device == 0,
            device + 1 == len(mapping.devices),
            tuple(used),
            stored,
            passing,
            gradient_values(device, slices, blocks),
        )


def _errors_of(maps: Iterable[StreamKey]) -> tuple[StreamKey, ...]:
    """Return the streams of errors of maps on path 1; images, number 0, have none."""
    return tuple(StreamKey(DataPath.INPUT_ERRORS, key.number) for key in maps if key.number)


def _keys(path: DataPath, tensors: Iterable[Tensor]) -> tuple[StreamKey, ...]:
    return tuple(StreamKey(path, tensor.number) for tensor in tensors)
