"""What fits on boards, and what it takes there: memory, logic, and placement on chip as FPDeep has it (section 3.4.2).

Placement on chip leaves out the time of off-chip memory. Of LUTs, FFs, block RAM and DSPs, a share alpha of the engines
is built from DSPs and the rest from LUTs and FFs; a share beta of the buffers is built from block RAM and the rest from
LUTs. The paper names the functions f1 to f7 of equations (6) to (12) but does not define them. Here f1 is
`mapping.slice_memory`; the board defines those of engines (`Board.engine_resources`: for FPGAs f5 and the engines' part
of f2 and f3); the others are below.

A large cluster aims at speed: with alpha < 1, multipliers built from LUTs are added to the DSPs
(`cluster.lut_multipliers`), and the engines share all of them so that the slowest is as fast as possible, which is
equation (7). A small cluster must first hold the network: equation (12), where parameters move to devices with room
(`mapping.balance`).
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence

from ..cluster import BANK_BYTES, Cluster, Resources
from ..common import InputError
from ..mapping import (
    LUT_RAM_BITS,
    Balancing,
    Buffer,
    Mapping,
    OffChip,
    Slice,
    WeightBanks,
    balance,
    balance_evenly,
    blocks_of,
    parameter_memory,
    partition_with_memory,
    slice_memory,
    slice_needs,
    storage_of,
    stored_bytes,
)
from ..network import Network
from ..number import Storage
from ..timing import Timing
from .steady import find_steady


def on_chip_banks(timing: Timing, device: int, in_flight: int) -> int:
    """Return the banks of all that is on chip on a device with `in_flight` samples in flight."""
    storage = timing.cluster.storage
    total = sum(
        WeightBanks.of(block.part, storage).of_channels(block.part.channels)
        for block in timing.blocks
        if block.store_device == device
    )
    for part, off in timing.slices_off_chip(device):
        balanced = sum(block.part.channels for _, block in blocks_of(timing.blocks, part, device))
        total += slice_needs(part, in_flight, storage).banks_with(OffChip(off.channels + balanced, off.activations))
    return total


def off_chip_bytes(timing: Timing, device: int, in_flight: int) -> int:
    """Return the bytes of a device's off-chip data: weights, their gradients, and activations of samples in flight."""
    storage = timing.cluster.storage
    return sum(stored_bytes(part, off, in_flight, storage) for part, off in timing.slices_off_chip(device))


def missing_bytes(timing: Timing, in_flight: Sequence[int]) -> tuple[int, ...]:
    """Return for each device the bytes that are missing, on chip in whole banks, and that times ignore."""
    missing = []
    for device, count in enumerate(in_flight):
        board = timing.cluster.board(device)
        on_chip = BANK_BYTES * (on_chip_banks(timing, device, count) - timing.cluster.banks_for_buffers(board))
        off_chip = off_chip_bytes(timing, device, count) - (board.off_chip_memory_bytes or math.inf)
        missing.append(max(0, on_chip) + int(max(0, off_chip)))
    return tuple(missing)


def buffer_resources(buffers: Buffer, beta: float = 1.0) -> Resources:
    """Return the resources of buffers: f4, equation (10), 18-kbit banks; and their part of f2, equation (8), LUTs.

    LUTs hold shallow memories, and buffers that are not in block RAM. Buffers use no FFs.
    """
    lut = buffers.lut + math.ceil(lut_bytes(buffers, beta) * 8 / LUT_RAM_BITS)
    return Resources(lut=lut, bram_banks=math.ceil(beta * buffers.banks))


def bram_bytes(buffers: Buffer, beta: float = 1.0) -> int:
    """Return f6, equation (12): plain bytes in block RAM."""
    return math.ceil(beta * buffers.bytes)


def lut_bytes(buffers: Buffer, beta: float = 1.0) -> int:
    """Return f7, equation (12): plain bytes that beta places in LUTs."""
    return buffers.bytes - bram_bytes(buffers, beta)


def transceivers_used(link_gbps: float, transceiver_gbps: float) -> int:
    """Return the number of transceivers for a link to one neighbour; each sends and receives (Table 3: Trans_max)."""
    return math.ceil(link_gbps / transceiver_gbps)


MOST_DEVICES = 1024
"""Largest number of devices that `smallest_cluster` tries."""

_STEADY_BATCH = 16


def place_on_chip(
    mapping: Mapping, cluster: Cluster, in_flight: Sequence[int], storage: Storage | None = None
) -> tuple[list[list[Slice]], Balancing]:
    """Return the slices of each device whose parameters are on chip, and where their channels are stored, by bytes.

    The formats of what is stored are the cluster's, unless there are others.

    Fully connected slices that would not fit on their board even alone have their parameters off chip (FPDeep, sections
    6.3.1 and 7); those of convolutions never are.
    """
    on_chip, rooms, capacities = [], [], []
    storage = storage or cluster.storage
    for device, slices in enumerate(mapping.devices):
        room = int(cluster.board(device).on_chip_memory_bytes / cluster.beta)
        capacities.append(room)
        held = [(part, slice_memory(part, in_flight[device], None, storage)) for part in slices]
        if sum(memory.total.bytes for part, memory in held if part.layer.operation.may_be_off_chip) > room:
            on_chip.append([part for part in slices if not part.layer.operation.may_be_off_chip])
        else:
            on_chip.append(list(slices))
        weights = [parameter_memory(part, part.channels, storage.weights).bytes for part in slices]
        for (part, memory), size in zip(held, weights, strict=True):
            bias = memory.lpram.bytes - size if part in on_chip[-1] else 0
            room -= memory.working.bytes + storage_of(part, storage).bias_arrays * bias
        rooms.append(room)
    if cluster.aim == "storage":
        return on_chip, balance_evenly(on_chip, rooms, capacities, storage)
    return on_chip, balance(on_chip, rooms, storage)


def smallest_cluster(network: Network, cluster: Cluster, above: int, most: int = MOST_DEVICES) -> int | None:
    """Return the fewest devices, more than `above` and at most `most`, that hold all on chip where it is used, or None.

    Tries counts an eighth apart until one fits, then bisects the gap below it. With unlucky cuts a larger cluster may
    fit worse than a smaller one, so the search may miss a smaller count that fits.
    """

    def is_on_chip(timing: Timing, in_flight: Sequence[int]) -> bool:
        return not any(missing_bytes(timing, in_flight))

    def fits(devices: int) -> bool:
        try:
            timing = Timing.of(partition_with_memory(network, cluster, devices, None, balanced=False), cluster)
        except InputError:
            return False
        # Finding the samples in flight takes long, and is useless where not even one fits.
        return is_on_chip(timing, [1] * devices) and is_on_chip(timing, find_steady(timing, _STEADY_BATCH).in_flight)

    counts = [above]
    while counts[-1] < most:
        counts.append(min(most, counts[-1] + max(1, counts[-1] // 8)))
    for low, high in itertools.pairwise(counts):
        if fits(high):
            between = range(low + 1, high)
            return (*between, high)[bisect.bisect_left(between, True, key=fits)]
    return None
