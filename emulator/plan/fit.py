"""Whether everything fits: what a timing needs of on-chip and off-chip memory on each device, against its board's."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..cluster import BANK_BYTES
from ..mapping import OffChip, WeightBanks, blocks_of, slice_needs, stored_bytes
from ..timing import Timing


def on_chip_banks(timing: Timing, device: int, in_flight: int) -> int:
    """Return the banks of all that is on chip on a device with `in_flight` samples in flight."""
    copies = timing.cluster.parameter_copies
    total = sum(
        WeightBanks.of(block.part, copies).of_channels(block.part.channels)
        for block in timing.blocks
        if block.store_device == device
    )
    for part, off in timing.slices_off_chip(device):
        balanced = sum(block.part.channels for _, block in blocks_of(timing.blocks, part, device))
        total += slice_needs(part, in_flight, copies).banks_with(OffChip(off.channels + balanced, off.activations))
    return total


def off_chip_bytes(timing: Timing, device: int, in_flight: int) -> int:
    """Return the bytes of a device's off-chip data: weights, their gradients, and activations of samples in flight."""
    copies = timing.cluster.parameter_copies
    return sum(stored_bytes(part, off, in_flight, copies=copies) for part, off in timing.slices_off_chip(device))


def missing_bytes(timing: Timing, in_flight: Sequence[int]) -> tuple[int, ...]:
    """Return for each device the bytes that are missing, on chip in whole banks, and that times ignore."""
    missing = []
    for device, count in enumerate(in_flight):
        board = timing.cluster.board(device)
        on_chip = BANK_BYTES * (on_chip_banks(timing, device, count) - timing.cluster.banks_for_buffers(board))
        off_chip = off_chip_bytes(timing, device, count) - (board.off_chip_memory_bytes or math.inf)
        missing.append(max(0, on_chip) + int(max(0, off_chip)))
    return tuple(missing)
