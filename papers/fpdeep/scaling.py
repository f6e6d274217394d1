"""Scaling (FPDeep, section 6.3.3 and Fig. 15): two roofs, of the engines and of the links, and idle stages.

A cluster of N devices scales linearly while its slowest load is an engine. A network's linear limit is the last N
before a link is slower than all engines for the first time.
"""

from __future__ import annotations

from collections.abc import Callable

from ...emulator.common import gbps
from ...emulator.plan import transceivers_used
from ...emulator.studies import chain_topology
from ...emulator.timing import LinkLoad, link_loads
from ...kernels.number import FP32
from ..claim import Measure, Measured
from .evidence import (
    DEVICES,
    LINK_GBPS,
    MANY,
    NETWORKS,
    SIZES,
    WIDE_LINK_GBPS,
    bottleneck,
    cluster,
    idle_percent,
    mapping,
    report,
    timing,
    unused_percent,
)
from .methods import PORTS

_MOST = 160
_TRANSCEIVER_GBPS = 28
"""FPDeep, section 6.3.3."""


def linear_limit(name: str, link_gbps: float = LINK_GBPS, most: int = _MOST) -> int:
    """Return the largest number of devices before the first that a link limits; `most` if there is none up to it."""
    for devices in range(2, most + 1):
        slowest = bottleneck(name, devices, link_gbps)
        if slowest.links_ps > slowest.engines_ps:
            return devices - 1
    return most


def roofs_meet(name: str) -> float:
    """Return the number of devices at which the rate with 15, scaled, is the rate that no more devices can raise."""
    return images_per_s(name, _MOST) / (images_per_s(name, DEVICES) / DEVICES)


def images_per_s(name: str, devices: int, link_gbps: float = LINK_GBPS) -> float:
    """Return the lower roof in images a second."""
    return 1e12 / bottleneck(name, devices, link_gbps).slowest.sample_ps


def _limit(name: str) -> Measured:
    limit = linear_limit(name)
    link = max(_links(name, limit + 1), key=lambda load: load.sample_ps)
    how = (
        f"then {link.name}, {FP32.values_in(link.sample_bytes)} values per sample; roofs meet at {roofs_meet(name):.1f}"
    )
    return Measured(limit, how)


def _links(name: str, devices: int) -> list[LinkLoad]:
    return list(link_loads(timing(name, devices)))


def _wide_limits() -> Measured:
    return Measured([linear_limit(name, WIDE_LINK_GBPS) for name in NETWORKS], "AlexNet, VGG-16, VGG-19")


def _order() -> Measured:
    limits = {name: linear_limit(name) for name in NETWORKS}
    return Measured(sorted(limits, key=lambda name: -limits[name]), ", ".join(map(str, limits.values())))


def _slowest_of_many() -> Measured:
    slowest = [bottleneck(name, 100).slowest for name in NETWORKS]
    return Measured(["link" if isinstance(load, LinkLoad) else "engine" for load in slowest], "100 FPGAs")


def _highest_demand() -> Measured:
    demands = [report(name).highest_demand_gbps for name in NETWORKS]
    return Measured(max(demands), ", ".join(f"{name} {gbps:.1f}" for name, gbps in zip(NETWORKS, demands, strict=True)))


def _demand_ratio() -> Measured:
    ratios = []
    for devices in (DEVICES, 30, 50):
        demands = [
            max(gbps(link.sample_bytes, bottleneck(name, devices).slowest.sample_ps) for link in _links(name, devices))
            for name in ("vgg16", "vgg19")
        ]
        ratios.append(demands[0] / demands[1])
    return Measured(ratios, "VGG-16 over VGG-19 with 15, 30, 50 FPGAs")


def _epochs() -> Measured:
    """Measure the rate for each FPGA, up to the limit, over that with 15."""
    rates = []
    for name in NETWORKS:
        below = [devices for devices in SIZES if DEVICES <= devices <= linear_limit(name)]
        rates += [images_per_s(name, n) / n / (images_per_s(name, DEVICES) / DEVICES) for n in below]
    return Measured([min(rates), max(rates)], f"epochs an hour for each FPGA over those with {DEVICES}: least, most")


def _most_idle() -> Measured:
    """Measure the most idle stages of each network on any number of devices."""
    most, unused = (
        [max(percent(name, devices) for devices in SIZES) for name in NETWORKS]
        for percent in (idle_percent, unused_percent)
    )
    how = f"of multipliers in engines; of all with {LINK_GBPS} Gb/s: {', '.join(f'{share:.1f}' for share in unused)}"
    return Measured(most, how)


def _idle_of_many() -> Measured:
    """Measure the least and the most idle stages on many devices."""
    sizes, said, every = [devices for devices in SIZES if devices > MANY], [], []
    for name in NETWORKS:
        idle = [idle_percent(name, devices) for devices in sizes]
        unused = [unused_percent(name, devices) for devices in sizes]
        said.append(f"{name} {min(idle):.2f} to {max(idle):.2f} (of all {min(unused):.2f} to {max(unused):.2f})")
        every += idle
    return Measured([min(every), max(every)], "; ".join(said))


def _idle_trend() -> Measured:
    ratios, unused = (
        [_many_over_few(percent, name) for name in NETWORKS] for percent in (idle_percent, unused_percent)
    )
    how = f"mean above {MANY} FPGAs over mean up to {MANY}: AlexNet, VGG-16, VGG-19"
    return Measured(ratios, f"{how}; of all multipliers {', '.join(f'{ratio:.2f}' for ratio in unused)}")


def _many_over_few(percent: Callable[[str, int], float], name: str) -> float:
    few, many = ([percent(name, n) for n in SIZES if (n > MANY) is is_many] for is_many in (False, True))
    return (sum(many) / len(many)) / (sum(few) / len(few))


def _transceivers() -> Measured:
    """Count the transceivers of the FPGA with most links; each sends and receives."""
    transceivers = transceivers_used(LINK_GBPS, _TRANSCEIVER_GBPS)
    links = max(map(chain_topology(mapping("vgg16"), cluster(), PORTS).degree, range(DEVICES)))
    return Measured(links * transceivers, f"{transceivers} for each of {links} links, both directions")


FUNCTIONS = {"linear_limit": _limit}
MEASURES: dict[str, Measure] = {
    "fpdeep-abs-linear-100": _wide_limits,
    "fpdeep-linear-order": _order,
    "fpdeep-bottleneck-is-link": _slowest_of_many,
    "fpdeep-peak-link-15": _highest_demand,
    "fpdeep-bw-vgg16-vgg19": _demand_ratio,
    "fpdeep-epochs-linear": _epochs,
    "fpdeep-idle-under-5": _most_idle,
    "fpdeep-idle-over-30": _idle_of_many,
    "fpdeep-idle-trend": _idle_trend,
    "fpdeep-trx-count": _transceivers,
}
