"""Performance of a chain in its steady state: rates, operations, idle engines, demand on links, and
what limits it.

- A *period* is the time between two samples in the steady state. Where the pipeline never drains
  (`fpdeep`) it is the time of a sample on the slowest engine, link or exchange; where it does
  (`sync`), a mini-batch's mean time over its samples.
- *Operations* are counted as FPDeep counts them: a multiply and an add for each multiply-accumulate
  of FP, EB and PG, so of a convolution 6 for each multiply-accumulate of forward propagation; also
  for the first layer, which has no EB here.
- *Idle* is the unused share of an engine's capacity in a period: 1 - multiply-accumulates /
  (multipliers x cycles). A device's share weights its engines by multipliers.
- The *demand* on a link's direction, or on a memory port, is its bytes for a sample over the
  period.
- *Energy* is the boards' power for a period, and that of the bits that move over their memory ports
  where it is known.

What holds a chain's rate back is asked whatever its cut, since the slowest load is that of one cut,
and cuts follow from links (`cause_of`):

- Narrow links keep the cut from boundaries at which engines would be less loaded. Then an engine
  may be the slowest of all, and only faster links bring more.
- Memory ports do so, too: a cut that heeds them gives some engines more work.

So cuts are compared that leave memory out. The time of a sample in the best of them, with the
cluster's own links (`Plan.bound_ps`) and with links that take no time, says what memory and links
cost.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..common import Figures, InputError, format_time_ps, gops, html_table, typed
from ..mapping import Mapping, partition, partition_with_memory
from ..network import Layer
from ..plan import ChainPlan, Plan, exchange_loads, planned_on
from ..timing import (
    Bottleneck,
    EngineLoad,
    Hop,
    LinkLoad,
    Load,
    Timing,
    engine_loads,
    find_bottleneck,
    hop_name,
    link_loads,
    memory_loads,
)
from .results import Usage
from .simulate import simulate

_HOUR_PS = 3600 * 10**12
_FIRST_STEPS, _MEASURED_STEPS = 2, 4
_ACTION_STEPS = 2, 6
"""Mini-batches of two runs, whose difference is the time of those in the middle."""


@dataclasses.dataclass(frozen=True)
class Throughput:
    """Operations of some layers per device that holds any of them, and per joule where the boards'
    power is known.
    """

    devices: int
    operations_per_image: int
    gops_per_fpga: float
    gop_per_j: float | None


@dataclasses.dataclass(frozen=True)
class DeviceUse:
    """A device's engines, its operations per second over all its layers, and its idle share."""

    device: int
    engines: tuple[EngineLoad, ...]
    gops: float
    idle_share: float
    holds_convolutions: bool

    def to_dict(self, period_ps: float) -> dict[str, Any]:
        """Return it as JSON's values, with each engine's idle share of a period."""
        engines = [
            {
                "slice": str(load.part),
                "phase": load.phase.value,
                "multipliers": load.engine.multipliers,
                "macs": load.macs,
                "sample_ps": load.sample_ps,
                "idle_share": 1 - load.share(period_ps),
            }
            for load in self.engines
        ]
        return {
            "device": self.device,
            "gops": self.gops,
            "idle_share": self.idle_share,
            "holds_convolutions": self.holds_convolutions,
            "engines": engines,
        }


@dataclasses.dataclass(frozen=True)
class SteadyState(Figures):
    """The steady state of a plan.

    `convolutions` and `all_layers` are the throughput of these layers; the first is None in a
    network without convolutions. The mean idle share is over the devices that hold convolutions, or
    over all if there are none. `memory` has the devices with data off chip; `missing_bytes` of
    on-chip memory are missing, and times ignore them. `joules_per_image` is None if the boards'
    power is not known. `noun` is what a sample is called: "image" or "sample".
    """

    _figures = (
        "period_ps images_per_s convolutions all_layers mean_idle_share highest_demand_gbps"
        " joules_per_image fits fill_ps fill_samples"
    )

    period_ps: float
    convolutions: Throughput | None
    all_layers: Throughput
    devices: tuple[DeviceUse, ...]
    links: tuple[LinkLoad, ...]
    mean_idle_share: float
    fill_ps: int
    bottleneck: Bottleneck
    replicas: int
    memory: tuple[Load, ...] = ()
    missing_bytes: int = 0
    joules_per_image: float | None = None
    noun: str = "image"

    @property
    def fits(self) -> bool:
        """Whether all data have a place, so that times ignore no memory."""
        return not self.missing_bytes

    @property
    def images_per_s(self) -> float:
        """The steady rate, of all replicas."""
        return self.replicas * 1e12 / self.period_ps

    @property
    def fill_samples(self) -> float:
        """Number of samples that enter while the pipeline fills."""
        return self.fill_ps / self.period_ps

    @property
    def link_places(self) -> list[int]:
        """For each direction the place of its link: that between devices d and d + 1 is d, others
        come behind.
        """
        pairs = [tuple(sorted(link.hop)) for link in self.links]
        places = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
        return [places[pair] for pair in pairs]

    @property
    def highest_demand_gbps(self) -> float:
        """Highest demand of all directions of all links; 0 without links."""
        return max((link.demand(self.period_ps) for link in self.links), default=0.0)

    def epoch_ps(self, images: int) -> int:
        """Return the time in ps of an epoch of `images` images at the steady rate."""
        return round(images * self.period_ps / self.replicas)

    def epoch_hours(self, images: int) -> float:
        """Return the hours of an epoch of `images` images at the steady rate."""
        return images * self.period_ps / (self.replicas * _HOUR_PS)

    def to_dict(self) -> dict[str, Any]:
        """Return the bottleneck, what engines, links and memory carry, and figures under the names of
        the attributes, as JSON's values; `emuchain simulate --json` has them under `steady`.

        Rates of the bottleneck's kinds are those of this cut.
        """
        bottleneck, period_ps = self.bottleneck, self.period_ps
        slowest = {
            "slowest": {"name": bottleneck.slowest.name, "sample_ps": bottleneck.slowest.sample_ps},
            "behind": {"name": bottleneck.behind.name, "sample_ps": bottleneck.behind.sample_ps},
            "ties": bottleneck.ties,
            "images_per_s_without_slowest": self._rate_if_any(bottleneck.behind.sample_ps),
        }
        for kinds, time_ps in bottleneck.times_ps.items():
            slowest[f"images_per_s_{kinds}_alone"] = self._rate_if_any(time_ps)
        links = [
            {
                "sender": link.device,
                "receiver": link.receiver,
                "sample_bytes": link.sample_bytes,
                "demand_gbps": link.demand(period_ps),
            }
            for link in self.links
        ]
        memory = [
            {
                "device": port.device,
                "sample_bytes": port.sample_bytes,
                "sample_ps": port.sample_ps,
                "demand_gbytes_per_s": port.demand(period_ps),
            }
            for port in self.memory
        ]
        devices = [device.to_dict(period_ps) for device in self.devices]
        said = {**super().to_dict(), "bottleneck": slowest}
        return {**said, "devices": devices, "links": links, "memory": memory}

    def _rate_if_any(self, sample_ps: int) -> float | None:
        return self.replicas * 1e12 / sample_ps if sample_ps else None

    def __repr__(self) -> str:
        return (
            f"<SteadyState: {self.images_per_s:.1f} {self.noun}s/s, limited by"
            f" {self.bottleneck.slowest.name}>"
        )

    def _repr_html_(self) -> str:
        bottleneck = self.bottleneck
        rows = [
            ["rate", f"{self.images_per_s:.1f} {self.noun}s/s"],
            [
                "limited by",
                f"{bottleneck.slowest.name}, {format_time_ps(bottleneck.slowest.sample_ps)}/sample",
            ],
            ["next", f"{bottleneck.behind.name}, {format_time_ps(bottleneck.behind.sample_ps)}"],
            ["engines idle", f"{100 * self.mean_idle_share:.1f} %, the mean over devices"],
            ["GOPS for each FPGA", f"{self.all_layers.gops_per_fpga:.1f}"],
            ["highest demand on a link", f"{self.highest_demand_gbps:.2f} Gb/s"],
            ["pipeline full after", format_time_ps(self.fill_ps)],
        ]
        return html_table("Steady state", rows)


@typed
def steady_state(plan: Plan) -> SteadyState:
    """Return the steady state of a plan.

    Raises:
        InputError: the plan's boards take actions as a whole, and have no such state.
    """
    plan.needs_rows("a steady state")
    assert isinstance(plan, ChainPlan)
    exchanges = exchange_loads(plan)
    period_ps = steady_period_ps(plan, exchanges)
    engines: list[list[EngineLoad]] = [[] for _ in range(plan.stage_count)]
    for load in engine_loads(plan.timing):
        engines[load.device].append(load)
    devices = tuple(
        _device(plan, device, tuple(held), period_ps) for device, held in enumerate(engines)
    )
    holders = [device.device for device in devices if device.holds_convolutions]
    busy = [device for device in devices if device.holds_convolutions or not holders]
    layers = plan.network.layers
    convolutions = [layer for layer in layers if layer.convolves]
    return SteadyState(
        period_ps,
        _throughput(plan, holders, convolutions, period_ps) if holders else None,
        _throughput(plan, range(plan.stage_count), layers, period_ps),
        devices,
        link_loads(plan.timing),
        sum(device.idle_share for device in busy) / len(busy),
        plan.steady.fill_ps,
        find_bottleneck(plan.timing, exchanges),
        plan.data_parallel.replicas,
        memory_loads(plan.timing),
        plan.missing_bytes,
        _joules(plan, range(plan.devices), period_ps),
        plan.network.sample_noun,
    )


def _joules(plan: ChainPlan, devices: Iterable[int], period_ps: float) -> float | None:
    """Return the energy of an image in J: of the boards, and of what moves over their memory ports;
    None if unknown.
    """
    total = 0.0
    for device in devices:
        board, moved = plan.cluster.board(device), plan.timing.port_bytes(device)
        if board.power_w is None:
            return None
        total += board.power_w * period_ps * 1e-12 + 8e-12 * moved * (
            board.off_chip_pj_per_bit or 0
        )
    return total


def steady_period_ps(plan: ChainPlan, exchanges: Sequence[Load] = ()) -> float:
    """Return the time between two samples in the steady state, in one replica."""
    if not plan.config.schedule.drains:
        return max(plan.timing.interval_ps, max((load.sample_ps for load in exchanges), default=0))
    # The first mini-batches enter an empty chain; later ones take the same time, or alternate
    # between two times.
    steps = plan.while_all_live.with_epochs(_FIRST_STEPS + _MEASURED_STEPS)
    ends_ps = simulate(steps, plan.config.batch).epoch_ends_ps
    return (ends_ps[-1] - ends_ps[_FIRST_STEPS - 1]) / (_MEASURED_STEPS * plan.batch)


def steady_actions(plan: ChainPlan) -> tuple[float, Usage]:
    """Return the steady rate of boards that take actions as a whole, of all replicas, and what was
    busy meanwhile.

    It is that of the mini-batches between two runs' ends, as few of which as are steady.
    """
    plan = plan.while_all_live.with_epochs(1)
    few, more = (simulate(plan, steps * plan.config.batch) for steps in _ACTION_STEPS)
    images = plan.config.batch * (_ACTION_STEPS[1] - _ACTION_STEPS[0])
    return images * 1e12 / (more.virtual_time_ps - few.virtual_time_ps), more.usage


def steady_rate(plan: ChainPlan) -> float:
    """Return the rate of a plan, of all replicas, once mini-batch follows on mini-batch: that of
    every answer.
    """
    return steady_state(plan).images_per_s if plan.times_rows else steady_actions(plan)[0]


def _device(
    plan: ChainPlan, device: int, engines: tuple[EngineLoad, ...], period_ps: float
) -> DeviceUse:
    slices = plan.mapping.devices[device]
    cycles = period_ps / plan.cluster.board(device).period_ps
    multipliers = sum(load.engine.multipliers for load in engines)
    idle = 1 - sum(load.macs for load in engines) / (multipliers * cycles)
    rate = gops(sum(part.operations for part in slices), period_ps)
    return DeviceUse(device, engines, rate, idle, any(part.layer.convolves for part in slices))


def _throughput(
    plan: ChainPlan, devices: Sequence[int], layers: Sequence[Layer], period_ps: float
) -> Throughput:
    operations = sum(layer.operations for layer in layers)
    rate = gops(operations, period_ps)
    joules = _joules(plan, devices, period_ps)
    gop_per_j = operations * 1e-9 / joules if joules is not None else None
    return Throughput(len(devices), operations, rate / len(devices), gop_per_j)


_FREE_MBPS = MOST_MBPS = 10**9
"""Bandwidth of links that take no time: the most that a cluster may have."""
_HALF = 0.5
_MUCH, _SOME, _LITTLE = 1.5, 1.1, 1.05
"""Gains from which on a kind of resource counts as the cause: see `Cause.kind`."""


@dataclasses.dataclass(frozen=True)
class WiderLinks:
    """Links that keep no cut from being the best, and the steady rate that the chain has with them,
    cut anew.
    """

    gbps: float
    images_per_s: float


@dataclasses.dataclass(frozen=True)
class Cause:
    """What holds a chain's rate back.

    `kind` is one of:

    - "draining" and "exchange": most of the time goes by as updates drain the chain, or in
      exchanges of replicas;
    - "memory": with all data on chip the rate would be 1.5 times as high, or 1.05 times where links
      count, too;
    - "link": with links that take no time, and memory left out, another cut would be 1.1 times as
      fast;
    - "engine": else.

    `wider` is known where links are the cause.
    """

    kind: str
    wider: WiderLinks | None = None


def draining_share(plan: ChainPlan, state: SteadyState) -> float:
    """Return the share of the time in which updates keep samples from entering; 0 where the chain
    never drains.
    """
    return (
        max(0.0, 1 - plan.timing.interval_ps / state.period_ps)
        if plan.config.schedule.drains
        else 0.0
    )


def draining_limits(plan: ChainPlan, state: SteadyState) -> bool:
    """Return whether it is draining that limits: it takes most of the time, and not by an exchange
    of gradients.
    """
    return draining_share(plan, state) > _HALF and state.bottleneck.slowest.kind != "exchange"


class BusyShare(NamedTuple):
    """The share of the time in which a device, or a direction of a link, is busy; a link's `device`
    sends.
    """

    share: float
    name: str
    kind: str
    device: int


def busy_shares(plan: ChainPlan, usage: Usage) -> list[BusyShare]:
    """Return what is busy of boards that take actions as a whole, the busiest first, and devices
    before links.

    Stages of a device take turns on its multipliers, which each action has all of, and share its
    links.
    """
    devices, links = [0.0] * plan.devices, dict[Hop, float]()
    for stage in usage.devices:
        devices[plan.fold.device(stage.device)] += sum(stage.busy.values())
    for link in usage.links:
        hop = plan.fold.device(link.sender), plan.fold.device(link.receiver)
        if hop[0] != hop[1]:
            links[hop] = links.get(hop, 0.0) + link.utilisation
    shares = [
        BusyShare(share, f"device {device}", "engine", device)
        for device, share in enumerate(devices)
    ]
    shares += [BusyShare(share, hop_name(hop), "link", hop[0]) for hop, share in links.items()]
    return sorted(shares, key=lambda busy: -busy.share)


def is_waiting(busiest: float) -> bool:
    """Return whether waits limit boards that take actions as a whole, of which the busiest is so
    for this share.
    """
    return busiest < _HALF


def limiting_kind(plan: ChainPlan, state: SteadyState) -> str:
    """Return `Cause.kind`; that costs less than a tenth of a plan."""
    return _kind(plan, state, _Cuts(plan))


def cause_of(plan: ChainPlan, state: SteadyState) -> Cause:
    """Return what holds a chain's rate back, with what wider links bring if it is links: that costs
    another plan.
    """
    cuts = _Cuts(plan)
    kind = _kind(plan, state, cuts)
    return Cause(kind, cuts.wider_links() if kind == "link" and cuts.free is not None else None)


def _kind(plan: ChainPlan, state: SteadyState, cuts: _Cuts) -> str:
    if draining_limits(plan, state):
        return "draining"
    slowest = state.bottleneck.slowest
    if slowest.kind == "exchange":
        return slowest.kind
    by_memory, by_links = cuts.memory_gain, cuts.links_gain
    if by_memory >= _MUCH or (by_memory > _LITTLE and by_links >= _SOME):
        return "memory"
    if cuts.free is None:
        return slowest.kind
    return "link" if by_links >= _SOME else "engine"


class _Cuts:
    """The best cuts of a plan's network on its boards, with memory left out."""

    def __init__(self, plan: ChainPlan) -> None:
        self._plan = plan
        self._best_ps = plan.bound_ps or plan.timing.interval_ps
        if not plan.cluster.is_chain:  # whose best cut is not known: the plan's, without memory
            times_ps = find_bottleneck(plan.timing).times_ps
            self._best_ps = max(times_ps["engines"], times_ps["links"])

    @functools.cached_property
    def free(self) -> Mapping | None:
        """The cut with links that take no time; None where there are none, or where cuts are not at
        all channels.
        """
        plan = self._plan
        given = plan.config.stages == "layers" or plan.config.cut is not None
        if plan.stage_count == 1 or given or plan.network.last_first:
            return None
        chain = plan.network, plan.cluster.with_bandwidth(_FREE_MBPS), plan.stage_count
        return (
            partition(*chain)
            if plan.config.memory == "fpdeep"
            else partition_with_memory(*chain, None)
        )

    @property
    def memory_gain(self) -> float:
        """How many times as fast the chain would be with all data on chip."""
        return self._plan.timing.interval_ps / self._best_ps

    @property
    def links_gain(self) -> float:
        """How many times as fast the best cut would be with links that take no time."""
        return 1.0 if self.free is None else self._best_ps / _server_ps(self.free)

    def wider_links(self) -> WiderLinks | None:
        """Return the bandwidth, to two digits, with which links carry that cut, and the rate of a
        plan with it.
        """
        assert self.free is not None
        plan, time_ps = self._plan, _server_ps(self.free)
        loads = link_loads(Timing.of(self.free, plan.cluster))
        links = (plan.cluster.link_at(min(load.hop)) for load in loads)
        needed = max(
            link.bandwidth_gbps * load.sample_ps / time_ps
            for link, load in zip(links, loads, strict=True)
        )
        needed *= plan.chunks  # the stages of a device share its links
        unit = 10.0 ** (math.floor(math.log10(needed)) - 1)
        gbps = min(MOST_MBPS / 1000, math.ceil(needed / unit) * unit)
        try:
            other = planned_on(
                plan, plan.cluster.with_bandwidth(max(1, round(1000 * gbps) // plan.chunks))
            )
        except InputError:
            return None
        return WiderLinks(gbps, steady_state(other).images_per_s)


def _server_ps(mapping: Mapping) -> int:
    assert mapping.balance is not None
    return mapping.balance.server_ps
