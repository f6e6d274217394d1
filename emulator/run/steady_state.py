"""Performance of a chain in its steady state: rates, operations, idle engines, demand on links, and what limits it.

- A *period* is the time between two samples in the steady state. Where the pipeline never drains (`fpdeep`) it is the
  time of a sample on the slowest engine, link or exchange; where it does (`sync`), a mini-batch's mean time over its
  samples.
- *Operations* are counted as FPDeep counts them: a multiply and an add for each multiply-accumulate of FP, EB and PG,
  so of a convolution 6 for each multiply-accumulate of forward propagation; also for the first layer, which has no EB
  here.
- *Idle* is the unused share of an engine's capacity in a period: 1 - multiply-accumulates / (multipliers x cycles).
  A device's share weights its engines by multipliers.
- The *demand* on a link's direction, or on a memory port, is its bytes for a sample over the period.
- *Energy* is the boards' power for a period, and that of the bits that move over their memory ports where it is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from ..common import format_time_ps, gbps, gops, html_table, typed
from ..network import Layer
from ..plan import ChainPlan, Plan, exchange_loads
from ..timing import (
    Bottleneck,
    EngineLoad,
    ExchangeLoad,
    LinkLoad,
    MemoryLoad,
    engine_loads,
    find_bottleneck,
    link_loads,
    memory_loads,
)
from .simulate import simulate
from .usage import Usage

_HOUR_PS = 3600 * 10**12
_FIRST_STEPS, _MEASURED_STEPS = 2, 4
_ACTION_STEPS = 2, 6
"""Mini-batches of two runs, whose difference is the time of those in the middle."""


@dataclasses.dataclass(frozen=True)
class Throughput:
    """Operations of some layers per device that holds any of them, and per joule where the boards' power is known."""

    devices: int
    operations_per_image: int
    gops_per_fpga: float
    gop_per_j: float | None


@dataclasses.dataclass(frozen=True)
class EngineUse:
    """An engine's work for a sample, and its idle share."""

    load: EngineLoad
    idle_share: float


@dataclasses.dataclass(frozen=True)
class DeviceUse:
    """A device's engines, its operations per second over all its layers, and its idle share."""

    device: int
    engines: tuple[EngineUse, ...]
    gops: float
    idle_share: float
    holds_convolutions: bool


@dataclasses.dataclass(frozen=True)
class LinkUse:
    """The bandwidth that a direction of a link needs, and that it has."""

    load: LinkLoad
    demand_gbps: float
    bandwidth_gbps: float


@dataclasses.dataclass(frozen=True)
class MemoryUse:
    """The bandwidth that a device's memory port needs, and that it has."""

    load: MemoryLoad
    demand_gbytes_per_s: float
    bandwidth_gbytes_per_s: float


@dataclasses.dataclass(frozen=True)
class SteadyState:
    """The steady state of a plan.

    `convolutions` and `all_layers` are the throughput of these layers; the first is None in a network without
    convolutions. The mean idle share is over the devices that hold convolutions, or over all if there are none.
    `memory` has the devices with data off chip; `missing_bytes` of on-chip memory are missing, and times ignore them.
    `joules_per_image` is None if the boards' power is not known. `noun` is what a sample is called: "image" or
    "sample".
    """

    period_ps: float
    convolutions: Throughput | None
    all_layers: Throughput
    devices: tuple[DeviceUse, ...]
    links: tuple[LinkUse, ...]
    mean_idle_share: float
    fill_ps: int
    bottleneck: Bottleneck
    replicas: int
    memory: tuple[MemoryUse, ...] = ()
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
        """For each direction the place of its link: that between devices d and d + 1 is d, others come behind."""
        pairs = [tuple(sorted((link.load.sender, link.load.receiver))) for link in self.links]
        places = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
        return [places[pair] for pair in pairs]

    @property
    def highest_demand_gbps(self) -> float:
        """Highest demand of all directions of all links; 0 without links."""
        return max((link.demand_gbps for link in self.links), default=0.0)

    def epoch_ps(self, images: int) -> int:
        """Return the time in ps of an epoch of `images` images at the steady rate."""
        return round(images * self.period_ps / self.replicas)

    def epoch_hours(self, images: int) -> float:
        """Return the hours of an epoch of `images` images at the steady rate."""
        return images * self.period_ps / (self.replicas * _HOUR_PS)

    def __repr__(self) -> str:
        return f"<SteadyState: {self.images_per_s:.1f} {self.noun}s/s, limited by {self.bottleneck.slowest.name}>"

    def _repr_html_(self) -> str:
        bottleneck = self.bottleneck
        rows = [
            ["rate", f"{self.images_per_s:.1f} {self.noun}s/s"],
            ["limited by", f"{bottleneck.slowest.name}, {format_time_ps(bottleneck.slowest.sample_ps)}/sample"],
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
    uses: dict[int, list[EngineUse]] = {device: [] for device in range(plan.stage_count)}
    for load in engine_loads(plan.timing):
        cycles = period_ps / plan.cluster.board(load.device).period_ps
        idle = 1 - load.macs / (load.engine.multipliers * cycles)
        uses[load.device].append(EngineUse(load, idle))
    devices = tuple(_device(plan, device, tuple(engines), period_ps) for device, engines in uses.items())
    holders = [device.device for device in devices if device.holds_convolutions]
    busy = [device for device in devices if device.holds_convolutions or not holders]
    links = tuple(
        LinkUse(
            load,
            gbps(load.sample_bytes, period_ps),
            load.part * plan.cluster.link_at(min(load.sender, load.receiver)).bandwidth_gbps,
        )
        for load in link_loads(plan.timing)
    )
    memory = tuple(
        MemoryUse(
            load,
            1000 * load.sample_bytes / period_ps,
            plan.cluster.board(load.device).off_chip_mbytes_per_s / 1000,
        )
        for load in memory_loads(plan.timing)
    )
    layers = plan.network.layers
    convolutions = [layer for layer in layers if layer.convolves]
    return SteadyState(
        period_ps,
        _throughput(plan, holders, convolutions, period_ps) if holders else None,
        _throughput(plan, range(plan.stage_count), layers, period_ps),
        devices,
        links,
        sum(device.idle_share for device in busy) / len(busy),
        plan.steady.fill_ps,
        find_bottleneck(plan.timing, exchanges),
        plan.data_parallel.replicas,
        memory,
        plan.missing_bytes,
        _joules(plan, range(plan.devices), period_ps),
        plan.network.sample_noun,
    )


def _joules(plan: ChainPlan, devices: Iterable[int], period_ps: float) -> float | None:
    """Return the energy of an image in J: of the boards, and of what moves over their memory ports; None if unknown."""
    total = 0.0
    for device in devices:
        board, moved = plan.cluster.board(device), plan.timing.port_bytes(device)
        if board.power_w is None:
            return None
        total += board.power_w * period_ps * 1e-12 + 8e-12 * moved * (board.off_chip_pj_per_bit or 0)
    return total


def steady_period_ps(plan: ChainPlan, exchanges: Sequence[ExchangeLoad] = ()) -> float:
    """Return the time between two samples in the steady state, in one replica."""
    if not plan.config.schedule.drains:
        return max(plan.timing.interval_ps, max((load.sample_ps for load in exchanges), default=0))
    # The first mini-batches enter an empty chain; later ones take the same time, or alternate between two times.
    steps = plan.while_all_live.with_epochs(_FIRST_STEPS + _MEASURED_STEPS)
    ends_ps = simulate(steps, plan.config.batch).epoch_ends_ps
    return (ends_ps[-1] - ends_ps[_FIRST_STEPS - 1]) / (_MEASURED_STEPS * plan.batch)


def steady_actions(plan: ChainPlan) -> tuple[float, Usage]:
    """Return the steady rate of boards that take actions as a whole, of all replicas, and what was busy meanwhile.

    It is that of the mini-batches between two runs' ends, as few of which as are steady.
    """
    plan = plan.while_all_live.with_epochs(1)
    few, more = (simulate(plan, steps * plan.config.batch) for steps in _ACTION_STEPS)
    images = plan.config.batch * (_ACTION_STEPS[1] - _ACTION_STEPS[0])
    return images * 1e12 / (more.virtual_time_ps - few.virtual_time_ps), more.usage


def steady_rate(plan: ChainPlan) -> float:
    """Return the rate of a plan, of all replicas, once mini-batch follows on mini-batch: that of every answer."""
    return steady_state(plan).images_per_s if plan.times_rows else steady_actions(plan)[0]


def _device(plan: ChainPlan, device: int, engines: tuple[EngineUse, ...], period_ps: float) -> DeviceUse:
    slices = plan.mapping.devices[device]
    cycles = period_ps / plan.cluster.board(device).period_ps
    multipliers = sum(use.load.engine.multipliers for use in engines)
    idle = 1 - sum(use.load.macs for use in engines) / (multipliers * cycles)
    rate = gops(sum(part.operations for part in slices), period_ps)
    return DeviceUse(device, engines, rate, idle, any(part.layer.convolves for part in slices))


def _throughput(plan: ChainPlan, devices: Sequence[int], layers: Sequence[Layer], period_ps: float) -> Throughput:
    operations = sum(layer.operations for layer in layers)
    rate = gops(operations, period_ps)
    joules = _joules(plan, devices, period_ps)
    gop_per_j = operations * 1e-9 / joules if joules is not None else None
    return Throughput(len(devices), operations, rate / len(devices), gop_per_j)
