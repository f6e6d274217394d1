"""Partition and mapping: FPDeep's sections 3.2, 3.4.1, 4.1 and 4.2, equations (5) and (7).

FPDeep's two phases of partition (section 3.2), run one after the other. The coarse phase gives
whole layers to boards (mapping/coarse.py). The fine phase keeps its cuts and moves each of them by
channels towards the middle of the work of the two boards beside it, until none moves. The
emulator's own partition cuts the row of channels in one phase and heeds links, too.
"""

from __future__ import annotations

import bisect
import dataclasses
import inspect
import itertools
import math
import time
from collections import Counter
from collections.abc import Sequence

from ...emulator.cluster import Cluster, Fpga
from ...emulator.mapping import (
    Cut,
    Slice,
    channel_works,
    coarse,
    cut_channels,
    imbalance,
    partition,
)
from ...emulator.studies import section
from ...emulator.timing import engine_loads
from ..claim import Measured
from .evidence import DEVICES, NETWORKS, cluster, mapping, network, operations, slices, timing

_MOST_SWEEPS = 10_000


class _Channels:
    """The work before each boundary between channels of a network's convolutions, in
    multiply-accumulates.
    """

    def __init__(self, name: str) -> None:
        mapped = mapping(name)
        self.boards = len(mapped.devices) - len(mapped.off_chip_devices)
        layers = [layer for layer in mapped.network.layers if layer.convolves]
        works = []
        for layer in layers:
            works.append(sum(work.macs for work in channel_works(layer)))
        counts = [cut_channels(layer) for layer in layers]
        self.first = [*itertools.accumulate(counts, initial=0)]
        """The boundary before each layer, and the last."""
        repeated = (macs for macs, count in zip(works, counts, strict=True) for _ in range(count))
        self.before = [*itertools.accumulate(repeated, initial=0)]

    def variance(self, cuts: Sequence[int]) -> float:
        """Return V of equation (5)."""
        return imbalance(
            [self.before[end] - self.before[begin] for begin, end in itertools.pairwise(cuts)]
        )

    def coarse(self) -> list[int]:
        """Return the boundaries between boards after the coarse phase, with both ends of the
        row.
        """
        work = [
            self.before[end] - self.before[begin] for begin, end in itertools.pairwise(self.first)
        ]
        cuts = [0]
        for group in coarse(
            work, [cluster().board(device).capacity for device in range(self.boards)]
        ):
            begin, end = self.first[group.layers.start], self.first[group.layers.stop]
            cuts += [
                begin + round((end - begin) * n / len(group.devices))
                for n in range(1, len(group.devices) + 1)
            ]
        return cuts

    def fine(self, cuts: Sequence[int]) -> list[int]:
        """Return the boundaries after the fine phase."""
        boundaries = list(cuts)
        for _ in range(_MOST_SWEEPS):
            previous = list(boundaries)
            for place in range(1, len(boundaries) - 1):
                boundaries[place] = self._middle(boundaries[place - 1], boundaries[place + 1])
            if boundaries == previous:
                break
        return boundaries

    def _middle(self, begin: int, end: int) -> int:
        """Return the boundary between two others at which the work between them is halved, or
        nearly.
        """
        middle = (self.before[begin] + self.before[end]) / 2
        after = bisect.bisect_left(self.before, middle, begin + 1, end - 1)
        return min(
            (max(begin + 1, after - 1), after),
            key=lambda boundary: abs(self.before[boundary] - middle),
        )


def number_of_phases() -> Measured:
    """Measure V after both phases over V after the coarse one."""
    ratios, said = [], []
    for name in NETWORKS:
        channels, balance = _Channels(name), mapping(name).balance
        assert balance is not None, "partition states it"
        cuts = channels.coarse()
        coarse_v, fine_v = channels.variance(cuts), channels.variance(channels.fine(cuts))
        ratios.append(fine_v / coarse_v)
        said.append(f"{name} {coarse_v:.3g} to {fine_v:.3g}, in one phase {balance.fine:.3g}")
    return Measured(
        ratios,
        f"V of equation (5) after both phases over V after the coarse one; {'; '.join(said)}",
    )


_LINK_GBPS = 10_000
"""For cuts by the work of engines alone."""


def equation_5() -> Measured:
    """Measure V from the devices' operations over the V that the partition states."""
    ratios = []
    for name in NETWORKS:
        mapped, counts = mapping(name), [*operations(mapping(name)).values()]
        assert mapped.balance is not None, "partition states it"
        ratios.append(
            sum((count - min(counts)) / min(counts) for count in counts) / mapped.balance.fine
        )
    return Measured(ratios, "AlexNet, VGG-16, VGG-19")


def two_phases() -> Measured:
    """Measure V after the coarse phase over V after the fine one."""
    balances = [mapped.balance for mapped in map(mapping, NETWORKS) if mapped.balance is not None]
    how = "; ".join(f"{balance.coarse:.3g} to {balance.fine:.3g}" for balance in balances)
    return Measured(
        [round(balance.coarse / balance.fine, 9) for balance in balances],
        f"V of equation (5): {how}",
    )


def equation_7() -> Measured:
    """Measure the interval over the slowest engine's cycles: its multiply-accumulates over its
    multipliers.
    """
    ratios = []
    for name in NETWORKS:
        slowest_ps = max(
            load.part.macs / load.engine.multipliers * cluster().board(load.device).period_ps
            for load in engine_loads(timing(name))
        )
        ratios.append(timing(name).interval_ps / slowest_ps)
    return Measured(ratios, "above 1 by rows whose cycles are rounded up")


def mean_work() -> Measured:
    """Measure the least and the most work of an FPGA over the mean."""
    counts = operations(mapping("vgg16")).values()
    mean = sum(counts) / len(counts)
    return Measured(
        [min(counts) / mean, max(counts) / mean], f"VGG-16: least and most of {len(counts)} FPGAs"
    )


def proportional() -> Measured:
    """Measure the mean work of large boards over that of boards with half the multipliers."""
    large = cluster().board(0)
    assert isinstance(large, Fpga), "the paper's is one"
    small = dataclasses.replace(large, dsp=large.dsp // 2)
    mixed = Cluster("mixed", (*[large] * 7, *[small] * 8), cluster().link)
    counts = [*operations(partition(network("vgg16"), mixed, DEVICES)).values()]
    return Measured(
        (sum(counts[:7]) / 7) / (sum(counts[7:]) / len(counts[7:])),
        "VGG-16, 7 boards and 8 of half the DSPs",
    )


def cost() -> Measured:
    """Measure the power of the number of devices with which the time of a partition grows."""
    seconds = []
    for devices in (32, 512):
        begin = time.process_time()
        partition(network("vgg19"), cluster(), devices)
        seconds.append(time.process_time() - begin)
    return Measured(
        round(math.log(seconds[1] / seconds[0], 16), 1),
        "VGG-19 on 32 and 512 FPGAs, processor time",
    )


def inputs() -> Measured:
    """Return what a partition takes."""
    return Measured(list(inspect.signature(partition).parameters), "arguments of partition()")


def held_otherwise() -> Measured:
    """Count the channels of layers that are not held by exactly one device."""
    wrong = count = 0
    for name in NETWORKS:
        held: dict[tuple[int, int], int] = {}
        for parts in mapping(name).devices:
            for part in parts:
                for channel in range(part.begin, part.end):
                    held[part.layer.index, channel] = held.get((part.layer.index, channel), 0) + 1
        count += len(held)
        wrong += sum(number != 1 for number in held.values())
    return Measured(wrong, f"channels not held by exactly one FPGA, of {count}")


def shared() -> Measured:
    """Measure the most FPGAs of a layer, and the most layers of an FPGA."""
    held_slices = slices("vgg16")
    devices = Counter(part.layer.name for _, part in held_slices)
    layers = Counter(device for device, _ in held_slices)
    return Measured(
        [max(devices.values()), max(layers.values())],
        "most FPGAs of a layer, most layers on an FPGA: VGG-16 on 15",
    )


def _one_layer(name: str, layer: str) -> list[Slice]:
    mapped = partition(section(network(name), layer, layer), cluster(_LINK_GBPS), 4)
    return [part for held in mapped.devices for part in held]


def layer_shares(layer: str) -> Measured:
    """Measure the channels of a layer on each of four devices."""
    parts = _one_layer("vgg16", layer)
    return Measured(
        [part.end - part.begin for part in parts], f"{layer} of VGG-16, {parts[0].cut.value}"
    )


def duplicated() -> Measured:
    """Measure the copies of each input map under OCP on four devices over those under ICP."""
    icp, ocp = _one_layer("vgg16", "conv3_2"), _one_layer("vgg16", "conv1_1")
    assert icp[0].cut is Cut.ICP and ocp[0].cut is Cut.OCP, "as section 4.1 has it"

    def copies(parts: Sequence[Slice]) -> float:
        return sum(len(part.in_channels) for part in parts) / parts[0].layer.input[0]

    return Measured(
        copies(ocp) / copies(icp),
        f"{copies(ocp):.0f} copies against {copies(icp):.0f} on four FPGAs",
    )


def when_ocp() -> Measured:
    """Measure the most input channels of a layer cut by output channels."""
    cut_by_outputs = {
        f"{name} {part.layer.name}": part
        for name in NETWORKS
        for _, part in slices(name)
        if part.cut is Cut.OCP
    }
    return Measured(
        max(part.layer.input[0] for part in cut_by_outputs.values()), ", ".join(cut_by_outputs)
    )


def first_of_alexnet() -> Measured:
    """Return how AlexNet's first layer is cut, and its channels."""
    layer = network("alexnet").layers[0]
    cut = next(part.cut for _, part in slices("alexnet") if part.layer == layer)
    return Measured([cut.value, layer.input[0], layer.channels])
