"""1D against 2D (FPDeep, section 4.2, Figs. 9 and 10): VGG-16's CONV-3 to CONV-5 on boards with ten ports."""

from __future__ import annotations

import functools

from ....mapping import partition
from ... import section
from ...topology import Ports, Topology, chain_topology, direct_topology
from ..constants import kept
from ..measure import Measure, Measured
from .evidence import DEVICES, cluster, mapping, network

PORTS = Ports(10, 13.1)
"""Ten ports (FPDeep, section 4.2); 13.1 Gb/s is the maximum of a Virtex-7's GTH (Xilinx DS183)."""
DEVICES_OF_FIG_9 = 8
SIZES_OF_FIG_10 = tuple(range(2, 17))


@kept
def pair(devices: int) -> tuple[Topology, Topology]:
    """Return the 1D and the 2D topology."""
    found = partition(section(network("vgg16"), "conv3_1", "conv5_3"), cluster(), devices)
    return chain_topology(found, cluster(), PORTS), direct_topology(found, cluster(), PORTS)


def _bottleneck(dimensions: int) -> tuple[int, int]:
    """Return the degree of the bottleneck's device, and the ports of its links."""
    found = pair(DEVICES_OF_FIG_9)[dimensions - 1]
    assert found.bottleneck is not None, "there are links"
    return max(map(found.degree, found.bottleneck)), found.link_ports(*found.bottleneck)


def _degree(dimensions: int) -> Measured:
    return Measured(_bottleneck(dimensions)[0])


def _ports(dimensions: int) -> Measured:
    return Measured(_bottleneck(dimensions)[1])


def _advantage(devices: int) -> float:
    """Return the rate of 1D's worst link over that of 2D's."""
    one, two = pair(devices)
    return one.worst_link_images_per_s / two.worst_link_images_per_s


def _beyond_five() -> Measured:
    sizes = [devices for devices in SIZES_OF_FIG_10 if devices > 5]
    return Measured([_advantage(devices) for devices in sizes], f"1D over 2D with {sizes[0]} to {sizes[-1]} FPGAs")


def _growth() -> Measured:
    few, many = [[_advantage(n) for n in sizes] for sizes in (range(6, 9), range(14, 17))]
    return Measured((sum(many) / 3) / (sum(few) / 3), "1D over 2D: the mean with 14 to 16 FPGAs over that with 6 to 8")


def _at_four() -> Measured:
    found = ", ".join(f"{devices}: {_advantage(devices):.2f}" for devices in SIZES_OF_FIG_10)
    return Measured(1 / _advantage(4), f"2D over 1D; 1D over 2D with {found}")


def _chain() -> Measured:
    found = chain_topology(mapping("vgg16"), cluster(), PORTS)
    return Measured(max(map(found.degree, range(DEVICES))), "most links of any FPGA, VGG-16 on 15")


MEASURES: dict[str, Measure] = {
    "fpdeep-topology-1d": _chain,
    "fpdeep-fig9-2d-degree": functools.partial(_degree, 2),
    "fpdeep-fig9-2d-ports": functools.partial(_ports, 2),
    "fpdeep-fig9-1d-degree": functools.partial(_degree, 1),
    "fpdeep-fig9-1d-ports": functools.partial(_ports, 1),
    "fpdeep-fig10-1d-better": _beyond_five,
    "fpdeep-fig10-gap-grows": _growth,
    "fpdeep-fig10-2d-at-4": _at_four,
}
