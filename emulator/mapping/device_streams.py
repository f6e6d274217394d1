"""The streams that each action of a device takes in, the two ends of the chain, and the gradients that are exchanged.

Clocks, numerics and the device's program all use them, so they agree on what travels.

Replicas exchange a device's gradients in one row: of its slices, and of the parameters that it stores. Parameters that
its slices use and other devices store count where they are stored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..network import Tensor
from .balancing import BalancedParameters, blocks_of, channel_values
from .slices import Mapping, Slice
from .traffic import DataPath, StreamKey


def kept_channels(part: Slice, device: int, blocks: Sequence[BalancedParameters]) -> NDArray[np.bool_]:
    """Return a mask of the slice's cut channels that the device stores itself."""
    kept = np.ones(part.channels, np.bool_)
    for _, block in blocks_of(blocks, part, device):
        kept[block.begin - part.begin : block.end - part.begin] = False
    return kept


def gradient_values(device: int, slices: Sequence[Slice], blocks: Sequence[BalancedParameters]) -> int:
    """Return the number of gradients that a device exchanges with its counterparts in other replicas."""
    count = sum(block.values for block in blocks if block.store_device == device)
    for part in slices:
        if part.layer.frozen:
            continue
        weights = int(kept_channels(part, device, blocks).sum()) * channel_values(part)
        count += weights + part.sfu_parameters
    return count


@dataclasses.dataclass(frozen=True)
class DeviceStreams:
    """The streams that a device takes in, by action.

    `forward`: activations and partial sums (paths 1 and 2). `backward`: errors (paths 3 and 4). `parameters`: for each
    slice the numbers of the blocks that it uses and others store; `stored` are those that it stores for others, and
    `passing` those that it passes on (paths 5 and 6). `gradient_values` is the number of gradients that it exchanges
    with its counterparts in other replicas, if there are any.
    """

    device: int
    slices: tuple[Slice, ...]
    is_chain_start: bool
    is_chain_end: bool
    forward: tuple[StreamKey, ...]
    backward: tuple[StreamKey, ...]
    parameters: tuple[tuple[int, ...], ...]
    stored: tuple[int, ...]
    passing: tuple[int, ...]
    gradient_values: int

    @property
    def has_loss(self) -> bool:
        """Whether it computes the loss, or a part of it."""
        return self.is_chain_end or self.slices[-1].layer.vocabulary_parallel

    @classmethod
    def of(cls, mapping: Mapping, device: int, blocks: Sequence[BalancedParameters]) -> DeviceStreams:
        """Return the streams of a device."""
        slices = mapping.devices[device]
        first, last = slices[0], slices[-1]
        starts, ends = device == 0, device + 1 == len(mapping.devices)
        forward = [] if starts else _keys(DataPath.ACTIVATIONS, first.layer.takes)
        if not first.is_first:
            forward += _keys(DataPath.PARTIAL_ACTIVATIONS, [first.layer.makes])
        backward: list[StreamKey] = []
        if not last.is_last:
            backward = _keys(DataPath.OUTPUT_ERRORS, [last.layer.makes])
            backward += _keys(DataPath.INPUT_ERRORS, with_errors(last.layer.takes))
        elif not ends:
            backward = _keys(DataPath.INPUT_ERRORS, with_errors(last.layer.hands_on))
        return cls(
            device,
            slices,
            starts,
            ends,
            tuple(forward),
            tuple(backward),
            tuple(tuple(number for number, _ in blocks_of(blocks, part, device)) for part in slices),
            tuple(n for n, block in enumerate(blocks) if block.store_device == device),
            tuple(n for n, block in enumerate(blocks) if block.store_device < device < block.user_device),
            gradient_values(device, slices, blocks),
        )


def with_errors(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the tensors whose errors are sent: all but images; of fixed ones they are empty."""
    return [tensor for tensor in tensors if not tensor.is_images]


def _keys(path: DataPath, tensors: Iterable[Tensor]) -> list[StreamKey]:
    return [StreamKey(path, tensor.number) for tensor in tensors]
