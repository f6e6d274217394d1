"""Scaling (FPDeep, section 6.3.3 and Fig. 15): two roofs, of the engines and of the links, and idle stages.

A cluster of N devices scales linearly while its slowest load is an engine. A network's linear limit is the last N
before a link is slower than all engines for the first time.
"""

from __future__ import annotations

import itertools
from functools import partial

from ....common import gbps
from ....plan import transceivers_used
from ....timing import LinkLoad, link_loads
from ..measure import Measure, Measured
from .evidence import DEVICES, LINK_GBPS, NETWORKS, SIZES, WIDE_LINK_GBPS, bottleneck, idle_percent, report, timing

_MANY = 30
_MOST = 160
_TRANSCEIVER_GBPS = 28
"""FPDeep, section 6.3.3."""


def linear_limit(name: str, link_gbps: float = LINK_GBPS) -> int:
    """Return the largest number of devices before the first that a link limits."""
    for devices in range(2, _MOST + 1):
        found = bottleneck(name, devices, link_gbps)
        if found.links_ps > found.engines_ps:
            return devices - 1
    return _MOST


def images_per_s(name: str, devices: int, link_gbps: float = LINK_GBPS) -> float:
    """Return the lower roof in images a second."""
    return 1e12 / bottleneck(name, devices, link_gbps).slowest.sample_ps


def _limit(name: str) -> Measured:
    limit = linear_limit(name)
    link = max(_links(name, limit + 1), key=lambda load: load.sample_ps)
    return Measured(limit, f"then {link.name}, {link.sample_bytes // 4} values a sample")


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
    found = []
    for devices in (DEVICES, 30, 50):
        demands = [
            max(gbps(link.sample_bytes, bottleneck(name, devices).slowest.sample_ps) for link in _links(name, devices))
            for name in ("vgg16", "vgg19")
        ]
        found.append(demands[0] / demands[1])
    return Measured(found, "VGG-16 over VGG-19 with 15, 30, 50 FPGAs")


def _epochs() -> Measured:
    """Measure the rate for each FPGA, up to the limit, over that with 15."""
    found = []
    for name in NETWORKS:
        below = [devices for devices in SIZES if DEVICES <= devices <= linear_limit(name)]
        found += [images_per_s(name, n) / n / (images_per_s(name, DEVICES) / DEVICES) for n in below]
    return Measured([min(found), max(found)], f"epochs an hour for each FPGA over those with {DEVICES}: least, most")


def _most_idle() -> Measured:
    found = {(name, devices): idle_percent(name, devices) for name in NETWORKS for devices in SIZES}
    worst = max(found, key=lambda each: found[each])
    return Measured(found[worst], f"{worst[0]} on {worst[1]}")


def _idle_of_many() -> Measured:
    found = {name: [idle_percent(name, devices) for devices in SIZES if devices > _MANY] for name in NETWORKS}
    ranges = "; ".join(f"{name} {min(idle):.2f} to {max(idle):.2f}" for name, idle in found.items())
    every = list(itertools.chain(*found.values()))
    return Measured([min(every), max(every)], ranges)


def _idle_trend() -> Measured:
    found = []
    for name in NETWORKS:
        few = [idle_percent(name, devices) for devices in SIZES if devices <= _MANY]
        many = [idle_percent(name, devices) for devices in SIZES if devices > _MANY]
        found.append((sum(many) / len(many)) / (sum(few) / len(few)))
    return Measured(found, f"mean above {_MANY} FPGAs over mean up to {_MANY}: AlexNet, VGG-16, VGG-19")


def _transceivers() -> Measured:
    return Measured(transceivers_used(LINK_GBPS, _TRANSCEIVER_GBPS), "for a link, both directions")


MEASURES: dict[str, Measure] = {
    **{f"fpdeep-linear-limit-{name}": partial(_limit, name) for name in NETWORKS},
    "fpdeep-intro-linear-83-six-trx": partial(_limit, "alexnet"),
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
