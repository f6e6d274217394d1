"""Placement on chip as FPDeep has it, without the time of off-chip memory; the fewest devices that hold everything."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

from ..cluster import Cluster
from ..common import InputError
from ..mapping import (
    VALUE_BYTES,
    Balancing,
    Mapping,
    Slice,
    balance,
    balance_evenly,
    parameter_memory,
    partition_with_memory,
    slice_memory,
)
from ..network import Network
from ..timing import Timing
from .fit import missing_bytes
from .steady import find_steady

MOST_DEVICES = 1024
"""Largest number of devices that `smallest_cluster` tries."""

_STEADY_BATCH = 16


def place_on_chip(
    mapping: Mapping, cluster: Cluster, in_flight: Sequence[int], value_bytes: int = VALUE_BYTES
) -> tuple[list[list[Slice]], Balancing]:
    """Return the slices of each device whose parameters are on chip, and where their channels are stored, by bytes.

    Fully connected slices that would not fit on their board even alone have their parameters off chip (FPDeep, sections
    6.3.1 and 7); those of convolutions never are.
    """
    on_chip, rooms, capacities, copies = [], [], [], cluster.parameter_copies
    for device, slices in enumerate(mapping.devices):
        room = int(cluster.board(device).on_chip_memory_bytes / cluster.beta)
        capacities.append(room)
        held = [(part, slice_memory(part, in_flight[device], None, value_bytes, copies)) for part in slices]
        if sum(memory.total.bytes for part, memory in held if part.layer.operation.may_be_off_chip) > room:
            on_chip.append([part for part in slices if not part.layer.operation.may_be_off_chip])
        else:
            on_chip.append(list(slices))
        weights = [parameter_memory(part, part.channels, value_bytes).bytes for part in slices]
        for (part, memory), size in zip(held, weights, strict=True):
            bias = memory.lpram.bytes - size if part in on_chip[-1] else 0
            room -= memory.working.bytes + copies * bias
        rooms.append(room)
    if cluster.aim == "storage":
        return on_chip, balance_evenly(on_chip, rooms, capacities, value_bytes, copies)
    return on_chip, balance(on_chip, rooms, value_bytes, copies)


def smallest_cluster(network: Network, cluster: Cluster, above: int, most: int = MOST_DEVICES) -> int | None:
    """Return the fewest devices, more than `above` and at most `most`, that hold all on chip where it is used, or None.

    Tries counts an eighth apart until one fits, then bisects the gap below it. With unlucky cuts a larger cluster may
    fit worse than a smaller one, so the search may miss a smaller count that fits.
    """

    def is_on_chip(timing: Timing, in_flight: Sequence[int]) -> bool:
        return not any(missing_bytes(timing, in_flight))

    def fits(devices: int) -> bool:
        try:
            timing = Timing.of(partition_with_memory(network, cluster, devices, None), cluster)
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
