"""Partition and mapping: FPDeep's sections 3.2, 3.4.1, 4.1 and 4.2, equations (5) and (7)."""

from __future__ import annotations

import dataclasses
import inspect
import math
import time
from functools import partial

from ....cluster import Cluster, Fpga
from ....mapping import Cut, Slice, partition
from ....timing import engine_loads
from ... import section
from ..measure import Measure, Measured
from .evidence import DEVICES, NETWORKS, cluster, mapping, network, operations, slices, timing

_LINK_GBPS = 10_000
"""For cuts by the work of engines alone."""


def _equation_5() -> Measured:
    """Measure V from the devices' operations over the V that the partition states."""
    ratios = []
    for name in NETWORKS:
        found, counts = mapping(name), [*operations(mapping(name)).values()]
        assert found.balance is not None, "partition states it"
        ratios.append(sum((count - min(counts)) / min(counts) for count in counts) / found.balance.fine)
    return Measured(ratios, "AlexNet, VGG-16, VGG-19")


def _two_phases() -> Measured:
    """Measure V after the coarse phase over V after the fine one."""
    balances = [found.balance for found in map(mapping, NETWORKS) if found.balance is not None]
    how = "; ".join(f"{each.coarse:.3g} to {each.fine:.3g}" for each in balances)
    return Measured([round(each.coarse / each.fine, 9) for each in balances], f"V of equation (5): {how}")


def _equation_7() -> Measured:
    """Measure the interval over the slowest engine's cycles: its multiply-accumulates over its multipliers."""
    ratios = []
    for name in NETWORKS:
        slowest_ps = max(
            load.part.macs / load.engine.multipliers * cluster().board(load.device).period_ps
            for load in engine_loads(timing(name))
        )
        ratios.append(timing(name).interval_ps / slowest_ps)
    return Measured(ratios, "above 1 by rows whose cycles are rounded up")


def _mean_work() -> Measured:
    counts = operations(mapping("vgg16")).values()
    mean = sum(counts) / len(counts)
    return Measured([min(counts) / mean, max(counts) / mean], f"VGG-16: least and most of {len(counts)} FPGAs")


def _proportional() -> Measured:
    """Measure the mean work of large boards over that of boards with half the multipliers."""
    large = cluster().board(0)
    assert isinstance(large, Fpga), "the paper's is one"
    small = dataclasses.replace(large, dsp=large.dsp // 2)
    mixed = Cluster("mixed", (*[large] * 7, *[small] * 8), cluster().link)
    counts = [*operations(partition(network("vgg16"), mixed, DEVICES)).values()]
    return Measured(
        (sum(counts[:7]) / 7) / (sum(counts[7:]) / len(counts[7:])), "VGG-16, 7 boards and 8 of half the DSPs"
    )


def _cost() -> Measured:
    """Measure the power of the number of devices with which the time of a partition grows."""
    seconds = []
    for devices in (32, 512):
        begin = time.process_time()
        partition(network("vgg19"), cluster(), devices)
        seconds.append(time.process_time() - begin)
    return Measured(round(math.log(seconds[1] / seconds[0], 16), 1), "VGG-19 on 32 and 512 FPGAs, processor time")


def _inputs() -> Measured:
    return Measured(list(inspect.signature(partition).parameters), "arguments of partition()")


def _held_otherwise() -> Measured:
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


def _shared() -> Measured:
    found = slices("vgg16")
    devices = max(sum(part.layer == layer for _, part in found) for layer in network("vgg16").layers)
    layers = max(sum(held == device for held, _ in found) for device in range(DEVICES))
    return Measured([devices, layers], "most FPGAs of a layer, most layers on an FPGA: VGG-16 on 15")


def _one_layer(name: str, layer: str) -> list[Slice]:
    found = partition(section(network(name), layer, layer), cluster(_LINK_GBPS), 4)
    return [part for held in found.devices for part in held]


def _shares(layer: str) -> Measured:
    """Measure the channels of a layer on each of four devices."""
    parts = _one_layer("vgg16", layer)
    return Measured([part.end - part.begin for part in parts], f"{layer} of VGG-16, {parts[0].cut.value}")


def _duplicated() -> Measured:
    """Measure the copies of each input map under OCP on four devices over those under ICP."""
    icp, ocp = _one_layer("vgg16", "conv3_2"), _one_layer("vgg16", "conv1_1")
    assert icp[0].cut is Cut.ICP and ocp[0].cut is Cut.OCP, "as section 4.1 has it"
    copies = [sum(len(part.in_channels) for part in parts) / parts[0].layer.input[0] for parts in (ocp, icp)]
    return Measured(copies[0] / copies[1], f"{copies[0]:.0f} copies against {copies[1]:.0f} on four FPGAs")


def _when_ocp() -> Measured:
    """Measure the most input channels of a layer cut by output channels."""
    found = {f"{name} {part.layer.name}": part for name in NETWORKS for _, part in slices(name) if part.cut is Cut.OCP}
    return Measured(max(part.layer.input[0] for part in found.values()), ", ".join(found))


def _first_of_alexnet() -> Measured:
    layer = network("alexnet").layers[0]
    cut = next(part.cut for _, part in slices("alexnet") if part.layer == layer)
    return Measured([cut.value, layer.input[0], layer.channels])


MEASURES: dict[str, Measure] = {
    "fpdeep-eq5-variance": _equation_5,
    "fpdeep-coarse-vs-fine-variance": _two_phases,
    "fpdeep-eq7-throughput": _equation_7,
    "fpdeep-balance-wbar": _mean_work,
    "fpdeep-alloc-proportional": _proportional,
    "fpdeep-partition-poly": _cost,
    "fpdeep-inputs-two": _inputs,
    "fpdeep-no-reconfig": _held_otherwise,
    "fpdeep-shared-mapping": _shared,
    "fpdeep-icp-share": partial(_shares, "conv3_2"),
    "fpdeep-ocp-share": partial(_shares, "conv1_1"),
    "fpdeep-icp-memory-less": _duplicated,
    "fpdeep-ocp-when": _when_ocp,
    "fpdeep-alexnet-l1-ocp": _first_of_alexnet,
}
