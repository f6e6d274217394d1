"""Whether everything fits: what a timing needs of on-chip and off-chip memory on each device, against its board's."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..cluster import BANK_BYTES
from ..mapping import COPIES, OffChip, WeightBanks, activation_bytes, blocks_of, channel_bytes, slice_needs
from ..timing import Timing


def on_chip_banks(timing: Timing, device: int, in_flight: int) -> int:
    """Return the banks of all that is on chip on a device with `in_flight` samples in flight."""
    slices = timing.mapping.devices[device]
    off_chip = timing.off_chip[device] if timing.off_chip else (OffChip(),) * len(slices)
    total = sum(
        WeightBanks.of(block.part).of_channels(block.part.channels)
        for block in timing.blocks
        if block.store_device == device
    )
    for part, off in zip(slices, off_chip, strict=True):
        balanced = sum(block.part.channels for _, block in blocks_of(timing.blocks, part, device))
        total += slice_needs(part, in_flight).banks_with(OffChip(off.channels + balanced, off.activations))
    return total


def off_chip_bytes(timing: Timing, device: int, in_flight: int) -> int:
    """Return the bytes of a device's off-chip data: weights, their gradients, and activations of samples in flight."""
    if not timing.off_chip:
        return 0
    held = zip(timing.mapping.devices[device], timing.off_chip[device], strict=True)
    return sum(
        COPIES * off.channels * channel_bytes(part) + off.activations * in_flight * activation_bytes(part)
        for part, off in held
    )


def missing_bytes(timing: Timing, in_flight: Sequence[int]) -> tuple[int, ...]:
    """Return for each device the bytes that are missing, on chip in whole banks, and that times ignore."""
    missing = []
    for device, count in enumerate(in_flight):
        board = timing.cluster.board(device)
        on_chip = BANK_BYTES * (on_chip_banks(timing, device, count) - int(board.banks / timing.cluster.beta))
        off_chip = off_chip_bytes(timing, device, count) - (board.off_chip_memory_bytes or math.inf)
        missing.append(max(0, on_chip) + int(max(0, off_chip)))
    return tuple(missing)
