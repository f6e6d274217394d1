"""Evidence for measures, calculated once: the paper's networks on its cluster.

All measures use one set of constants: the cluster `vc709` and its board (boards/vc709.toml) as the
paper counts it (`vc709`), and the settings below.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ...emulator.cluster import Cluster
from ...emulator.config import Config
from ...emulator.mapping import (
    Mapping,
    Slice,
    channel_works,
    idle_share,
    partition,
    partition_with_memory,
)
from ...emulator.network import Network, load_network
from ...emulator.network.operations.conv import Conv
from ...emulator.plan import ChainPlan, Layout, lay_out_on_chip, make_plan
from ...emulator.run import SteadyState, Throughput, steady_state
from ...emulator.studies import Comparison, Workload, compare_methods
from ...emulator.timing import Bottleneck, Timing, find_bottleneck
from ..claim import choice, constant
from ..constants import COUNTED, chosen, cluster_of, in_use, kept

DSP_SHARE = constant("fpdeep", "board.dsp_share")
DSP_MHZ = constant("fpdeep", "board.clock_mhz")
CONV2 = choice("fpdeep", "alexnet.conv2")
FC_BOARD = choice("fpdeep", "mapping.fc_board")
NETWORKS = ("alexnet", "vgg16", "vgg19")
"""The paper's names of its networks."""
ZOO = {"alexnet": "alexnet-darknet", "alexnet-krizhevsky": "alexnet"}
"""The network of the zoo for a name, if it has another name there. FPDeep trained with Darknet
(section 6.4), whose AlexNet pools with padding; Krizhevsky's is shown beside it."""
DEVICES = 15
"""FPDeep, section 6.3.1."""
LINK_GBPS, WIDE_LINK_GBPS = 150, 250
"""FPDeep, section 6.3.3 and abstract."""
FREE_GBPS = 1_000_000
"""Of links that no cut has to spare."""
MANY = 30
"""FPDeep, section 6.3.3: idle stages are stable with more."""
SIZES = tuple(range(5, 86, 5))
"""FPDeep, section 6.3.3: "clusters of sizes 5 to 85"."""
IMAGES = 1_281_167
"""ImageNet's training images (ILSVRC 2012)."""
COMPARED_BATCH, COMPARED_DEVICES = 128, tuple(range(2, 17))
"""FPDeep, section 3.3: batch 128; all methods can use up to 16 devices."""
BALANCED = ("vgg16-cifar", 24)
"""A network and a number of devices on which parameters fit only when balanced."""


@kept
def network(name: str, devices: int = DEVICES) -> Network:
    """Return a network of the paper, or another of the zoo, as it is cut on this many FPGAs."""
    loaded = load_network(ZOO.get(name, name))
    by_outputs = name == "alexnet" and devices > MANY and chosen(CONV2) == "by-outputs"
    return _cut_by_outputs(loaded, "conv2") if by_outputs else loaded


def _cut_by_outputs(whole: Network, name: str) -> Network:
    """Return a network of which a convolution is cut by its output channels."""
    layers = [
        dataclasses.replace(layer, operation=dataclasses.replace(layer.operation, cut="OCP"))
        if layer.name == name and isinstance(layer.operation, Conv)
        else layer
        for layer in whole.layers
    ]
    return dataclasses.replace(whole, layers=tuple(layers))


def counted() -> dict[str, object]:
    """Return the changes by which boards count as the paper does."""
    return {**COUNTED, DSP_SHARE.key: in_use(DSP_SHARE), DSP_MHZ.key: in_use(DSP_MHZ)}


def vc709(**more: object) -> Cluster:
    """Return the cluster of VC709 boards as the paper counts them, with `more` changes, whose names
    have `__` in place of the dot.
    """
    return cluster_of("vc709", counted(), **more)


@kept
def cluster(link_gbps: float = LINK_GBPS) -> Cluster:
    """Return the cluster of VC709 boards with links of this bandwidth."""
    return vc709(link__bandwidth_gbps=link_gbps)


@kept
def mapping(name: str, devices: int = DEVICES, link_gbps: float = LINK_GBPS) -> Mapping:
    """Return the partition of a network, which heeds links."""
    if devices > DEVICES and chosen(FC_BOARD) == "shared":
        return partition_with_memory(
            network(name, devices), cluster(link_gbps), devices, memory=None
        )
    return partition(network(name, devices), cluster(link_gbps), devices)


def operations(mapped: Mapping) -> dict[int, int]:
    """Return the multiply-accumulates of FP, EB and PG of each device that holds convolutions."""
    macs = {}
    for device, held in enumerate(mapped.devices):
        if device not in mapped.off_chip_devices:
            macs[device] = sum(part.macs * len(channel_works(part.layer)) for part in held)
    return macs


def slices(name: str, devices: int = DEVICES) -> list[tuple[int, Slice]]:
    """Return all slices of convolutions with their devices, in the order of the chain."""
    held = enumerate(mapping(name, devices).devices)
    return [(device, part) for device, parts in held for part in parts if part.layer.convolves]


@kept
def timing(name: str, devices: int = DEVICES, link_gbps: float = LINK_GBPS) -> Timing:
    """Return the timing without balanced parameters."""
    return Timing.of(mapping(name, devices, link_gbps), cluster(link_gbps))


@kept
def bottleneck(name: str, devices: int, link_gbps: float = LINK_GBPS) -> Bottleneck:
    """Return the slowest engine and the slowest link."""
    return find_bottleneck(timing(name, devices, link_gbps))


@kept
def idle_percent(name: str, devices: int, link_gbps: float = FREE_GBPS) -> float:
    """Return the idle time of multipliers that engines took, in percent: the mean over devices with
    convolutions.

    Section 6.3.3 gives the reason for it: multipliers of an engine come in multiples of K * K. So
    neither what engines leave of a board is counted, nor what a cut costs that spares a link.
    """
    return 100 * idle_share(mapping(name, devices, link_gbps), cluster(link_gbps))


@kept
def unused_percent(name: str, devices: int) -> float:
    """Return the idle time of all multipliers that engines may take, in percent, with the paper's
    links.

    No engine is built faster than the slowest one, so that a device with little work leaves
    multipliers unused.
    """
    slowest_ps = bottleneck(name, devices).times_ps["engines"]
    idle = [
        1
        - macs
        * cluster().board(device).period_ps
        / (cluster().board(device).multipliers * slowest_ps)
        for device, macs in operations(mapping(name, devices)).items()
    ]
    return 100 * sum(idle) / len(idle)


@kept
def plan(
    name: str,
    devices: int = DEVICES,
    batch: int = 64,
    schedule: str = "fpdeep",
    latency_ns: float | None = None,
) -> ChainPlan:
    """Return the plan, as `emuchain simulate` makes it."""
    settings: dict[str, Any] = {
        "network": ZOO.get(name, name),
        "devices": devices,
        "batch": batch,
        "schedule": schedule,
        "memory": "fpdeep",
    }
    own = vc709(**({} if latency_ns is None else {"link__latency_ns": latency_ns}))
    return make_plan(Config(**settings), 1, network=network(name, devices), cluster=own)


@kept
def report(name: str, devices: int = DEVICES) -> SteadyState:
    """Return the steady state, as `emuchain simulate` reports it."""
    return steady_state(plan(name, devices))


def convolutions(name: str) -> Throughput:
    """Return the throughput of the convolutions, on those of 15 devices that hold any."""
    throughput = report(name).convolutions
    assert throughput is not None, "all networks here have convolutions"
    return throughput


@kept
def layout(name: str, devices: int = DEVICES) -> Layout:
    """Return the layout, as `emuchain plan` makes it."""
    planned = plan(name, devices)
    return lay_out_on_chip(planned.timing, planned.steady.in_flight)


@kept
def comparison() -> Comparison:
    """Return the comparison of the four methods, as `emuchain study compare vgg16` makes it."""
    return compare_methods(Workload(network("vgg16"), cluster(), COMPARED_BATCH), COMPARED_DEVICES)
