"""Scaling (FPDeep, section 6.3.3 and Fig. 15): two roofs, of the engines and of the links, and idle
stages.

A cluster of N devices scales linearly while its slowest load is an engine. A network's linear limit
is the last N before a link is slower than all engines for the first time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ...emulator.common import gbps
from ...emulator.plan import transceivers_used
from ...emulator.studies import chain_topology
from ...emulator.timing import LinkLoad, link_loads
from ...kernels.number import FP32
from ..claim import Measured
from .evidence import (
    DEVICES,
    LINK_GBPS,
    MANY,
    NETWORKS,
    SIZES,
    bottleneck,
    cluster,
    idle_percent,
    mapping,
    timing,
    unused_percent,
)
from .methods import PORTS

_MOST = 160
_TRANSCEIVER_GBPS = 28
"""FPDeep, section 6.3.3."""


def linear_limit(name: str, link_gbps: float = LINK_GBPS, most: int = _MOST) -> int:
    """Return the largest number of devices before the first that a link limits; `most` if there is
    none up to it.
    """
    for devices in range(2, most + 1):
        slowest = bottleneck(name, devices, link_gbps)
        if slowest.times_ps["links"] > slowest.times_ps["engines"]:
            return devices - 1
    return most


def roofs_meet(name: str) -> float:
    """Return the number of devices at which the rate with 15, scaled, is the rate that no more
    devices can raise.
    """
    return images_per_s(name, _MOST) / (images_per_s(name, DEVICES) / DEVICES)


def images_per_s(name: str, devices: int, link_gbps: float = LINK_GBPS) -> float:
    """Return the lower roof in images a second."""
    return 1e12 / bottleneck(name, devices, link_gbps).slowest.sample_ps


def limit(name: str) -> Measured:
    """Measure the number of devices up to which a network scales linearly."""
    limit = linear_limit(name)
    link = max(_links(name, limit + 1), key=lambda load: load.sample_ps)
    how = (
        f"then {link.name}, {FP32.values_in(link.sample_bytes)} values per sample; roofs meet at"
        f" {roofs_meet(name):.1f}"
    )
    return Measured(limit, how)


def _links(name: str, devices: int) -> list[LinkLoad]:
    return list(link_loads(timing(name, devices)))


def order() -> Measured:
    """Sort the networks by their linear limits, most first."""
    limits = {name: linear_limit(name) for name in NETWORKS}
    return Measured(
        sorted(limits, key=lambda name: -limits[name]), ", ".join(map(str, limits.values()))
    )


def slowest_of_many() -> Measured:
    """Return what limits each network on 100 FPGAs."""
    slowest = [bottleneck(name, 100).slowest for name in NETWORKS]
    return Measured(
        ["link" if isinstance(load, LinkLoad) else "engine" for load in slowest], "100 FPGAs"
    )


def demand_ratio() -> Measured:
    """Measure VGG-16's demand of bandwidth over VGG-19's."""
    ratios = []
    for devices in (DEVICES, 30, 50):
        demands = []
        for name in ("vgg16", "vgg19"):
            sample_ps = bottleneck(name, devices).slowest.sample_ps
            demands.append(
                max(gbps(link.sample_bytes, sample_ps) for link in _links(name, devices))
            )
        ratios.append(demands[0] / demands[1])
    return Measured(ratios, "VGG-16 over VGG-19 with 15, 30, 50 FPGAs")


def epochs() -> Measured:
    """Measure the rate for each FPGA, up to the limit, over that with 15."""
    rates = []
    for name in NETWORKS:
        below = [devices for devices in SIZES if DEVICES <= devices <= linear_limit(name)]
        rates += [
            images_per_s(name, n) / n / (images_per_s(name, DEVICES) / DEVICES) for n in below
        ]
    return Measured(
        [min(rates), max(rates)],
        f"epochs an hour for each FPGA over those with {DEVICES}: least, most",
    )


def most_idle() -> Measured:
    """Measure the most idle stages of each network on any number of devices."""

    def most_of(percent: Callable[[str, int], float]) -> list[float]:
        return [max(map(functools.partial(percent, name), SIZES)) for name in NETWORKS]

    most, unused = most_of(idle_percent), most_of(unused_percent)
    how = (
        f"of multipliers in engines; of all with {LINK_GBPS} Gb/s:"
        f" {', '.join(f'{share:.1f}' for share in unused)}"
    )
    return Measured(most, how)


def idle_of_many() -> Measured:
    """Measure the least and the most idle stages on many devices."""
    sizes, said, every = [devices for devices in SIZES if devices > MANY], [], []
    for name in NETWORKS:
        idle = [idle_percent(name, devices) for devices in sizes]
        unused = [unused_percent(name, devices) for devices in sizes]
        said.append(
            f"{name} {min(idle):.2f} to {max(idle):.2f} (of all {min(unused):.2f} to"
            f" {max(unused):.2f})"
        )
        every += idle
    return Measured([min(every), max(every)], "; ".join(said))


def idle_trend() -> Measured:
    """Measure idle stages on many FPGAs over those on few."""
    ratios = [_many_over_few(idle_percent, name) for name in NETWORKS]
    unused = [_many_over_few(unused_percent, name) for name in NETWORKS]
    how = f"mean above {MANY} FPGAs over mean up to {MANY}: AlexNet, VGG-16, VGG-19"
    return Measured(
        ratios, f"{how}; of all multipliers {', '.join(f'{ratio:.2f}' for ratio in unused)}"
    )


def _many_over_few(percent: Callable[[str, int], float], name: str) -> float:
    few = [percent(name, n) for n in SIZES if n <= MANY]
    many = [percent(name, n) for n in SIZES if n > MANY]
    return (sum(many) / len(many)) / (sum(few) / len(few))


def transceivers() -> Measured:
    """Count the transceivers of the FPGA with most links; each sends and receives."""
    transceivers = transceivers_used(LINK_GBPS, _TRANSCEIVER_GBPS)
    links = max(map(chain_topology(mapping("vgg16"), cluster(), PORTS).degree, range(DEVICES)))
    return Measured(
        links * transceivers, f"{transceivers} for each of {links} links, both directions"
    )
