"""What measures look at, worked out once: the paper's networks on its cluster.

One set of constants serves all: the cluster `vc709` and its board (boardlist/vc709.toml), and the settings below.
"""

from __future__ import annotations

import functools
from typing import Any

from ....cluster.board import Cluster
from ....cluster.load import load_cluster
from ....config.config import Config
from ....mapping.engines import idle_share
from ....mapping.partition import partition
from ....mapping.slices import Mapping, Slice
from ....network.layers import Network
from ....network.load import load_network
from ....plan.layout import Layout, lay_out
from ....plan.plan import Plan, make_plan
from ....report.steady_state import Report, Throughput, make_report
from ....timing.bottleneck import Bottleneck, find_bottleneck
from ....timing.timing import Timing
from ...parallelism.comparison import Comparison, compare
from ...parallelism.workload import Workload

NETWORKS = ("alexnet", "vgg16", "vgg19")
"""By the paper's names."""
ZOO = {"alexnet": "alexnet-darknet", "alexnet-krizhevsky": "alexnet"}
"""Which network of the zoo a name stands for, where not the one of that name. FPDeep trained with Darknet (section
6.4), whose AlexNet pools with padding; Krizhevsky's is shown beside it."""
DEVICES = 15
"""FPDeep, section 6.3.1."""
LINK_GBPS, WIDE_LINK_GBPS = 150, 250
"""FPDeep, section 6.3.3 and abstract."""
SIZES = tuple(range(5, 86, 5))
"""FPDeep, section 6.3.3: "clusters of sizes 5 to 85"."""
IMAGES = 1_281_167
"""ImageNet's training images (ILSVRC 2012)."""
COMPARED_BATCH, COMPARED_DEVICES = 128, tuple(range(2, 17))
"""FPDeep, section 3.3: batch 128; all methods can use up to 16 devices."""
BALANCED = ("vgg16-cifar", 24)
"""A network and devices on which parameters have to be balanced, and then fit."""


@functools.cache
def network(name: str) -> Network:
    """One of the paper's, or another of the zoo."""
    return load_network(ZOO.get(name, name))


@functools.cache
def cluster(link_gbps: float = LINK_GBPS) -> Cluster:
    """VC709 boards."""
    return load_cluster("vc709", {"link.bandwidth_gbps": link_gbps})


@functools.cache
def mapping(name: str, devices: int = DEVICES) -> Mapping:
    """Links have no say in it."""
    return partition(network(name), cluster(), devices)


def slices(name: str, devices: int = DEVICES) -> list[tuple[int, Slice]]:
    """All slices of convolutions with their devices, in the order of the chain."""
    held = enumerate(mapping(name, devices).devices)
    return [(device, part) for device, parts in held for part in parts if not part.layer.is_fc]


@functools.cache
def timing(name: str, devices: int = DEVICES, link_gbps: float = LINK_GBPS) -> Timing:
    """Without balanced parameters."""
    return Timing.of(mapping(name, devices), cluster(link_gbps))


@functools.cache
def bottleneck(name: str, devices: int, link_gbps: float = LINK_GBPS) -> Bottleneck:
    """The slowest engine and the slowest link."""
    return find_bottleneck(timing(name, devices, link_gbps))


@functools.cache
def idle_percent(name: str, devices: int) -> float:
    """Idle stages, the mean over the devices that hold convolutions."""
    return 100 * idle_share(mapping(name, devices), cluster())


@functools.cache
def plan(
    name: str, devices: int = DEVICES, batch: int = 64, schedule: str = "fpdeep", latency_ns: float = 1000
) -> Plan:
    """As `emuchain simulate` plans."""
    settings: dict[str, Any] = {
        "network": ZOO.get(name, name),
        "devices": devices,
        "batch": batch,
        "schedule": schedule,
    }
    return make_plan(Config(**settings), 1, {"link.latency_ns": latency_ns})


@functools.cache
def report(name: str, devices: int = DEVICES) -> Report:
    """As `emuchain simulate` reports."""
    return make_report(plan(name, devices))


def convolutions(name: str) -> Throughput:
    """Of the convolutions on the devices that hold any, of 15."""
    found = report(name).convolutions
    assert found is not None, "all networks here have convolutions"
    return found


@functools.cache
def layout(name: str, devices: int = DEVICES) -> Layout:
    """As `emuchain plan` lays out."""
    planned = plan(name, devices)
    return lay_out(planned.timing, planned.steady.in_flight)


@functools.cache
def comparison() -> Comparison:
    """The four methods, as `emuchain compare vgg16`."""
    return compare(Workload(network("vgg16"), cluster(), COMPARED_BATCH), COMPARED_DEVICES)
