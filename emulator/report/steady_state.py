"""What a chain achieves in its steady state: rates, operations, idle engines, demand on links, and what limits it.

- A *period* is the time between two samples in the steady state. Under `fpdeep` it is what the slowest server takes for
  a sample; under `sync`, which drains the chain, a mini-batch's mean time over its samples.
- *Operations* are counted as FPDeep counts them: a multiply and an add for each multiply-accumulate, in FP, EB and PG
  alike, so 6 for each multiply-accumulate of forward propagation; also for the first layer, which has no EB here.
- *Idle* is what an engine could have done in a period and did not: 1 - multiply-accumulates / (multipliers x cycles).
  Devices weight their engines by multipliers.
- The *demand* on a link's direction is its bytes for a sample over the period.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from ..common.units import gbps, gops
from ..network.operator_graph import TRAINING_OPERATIONS_PER_MAC
from ..plan.plan import Plan, exchange_times
from ..run.simulate import simulate
from ..timing.bottleneck import (
    Bottleneck,
    EngineServer,
    ExchangeServer,
    LinkServer,
    engine_servers,
    find_bottleneck,
    link_servers,
)

_HOUR_PS = 3600 * 10**12
_FIRST_STEPS, _MEASURED_STEPS = 2, 4


@dataclasses.dataclass(frozen=True)
class Throughput:
    """Operations of some layers for each of the devices that hold any of them; power where the boards' is known."""

    devices: int
    operations_per_image: int
    gops_per_fpga: float
    gop_per_j: float | None


@dataclasses.dataclass(frozen=True)
class EngineUse:
    """An engine's work for a sample, and its idle share."""

    server: EngineServer
    idle_share: float

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a sample: as many as in FP, whatever the phase."""
        return self.server.part.macs


@dataclasses.dataclass(frozen=True)
class DeviceUse:
    """A device's engines, its operations a second over all its layers, and its idle share."""

    device: int
    engines: tuple[EngineUse, ...]
    gops: float
    idle_share: float
    holds_convolutions: bool


@dataclasses.dataclass(frozen=True)
class LinkUse:
    """The bandwidth that a direction of a link needs."""

    server: LinkServer
    demand_gbps: float


@dataclasses.dataclass(frozen=True)
class Report:
    """The steady state of a plan.

    `convolutions` and `all_layers` say what each FPGA does of these; the first is None in a network without. The mean
    idle share is over the devices that hold convolutions, or over all if there are none.
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

    @property
    def images_per_s(self) -> float:
        """The steady rate, of all replicas."""
        return self.replicas * 1e12 / self.period_ps

    @property
    def fill_samples(self) -> float:
        """How many samples enter while the pipeline fills."""
        return self.fill_ps / self.period_ps

    @property
    def highest_demand_gbps(self) -> float:
        """Of all directions of all links; 0 where there are none."""
        return max((link.demand_gbps for link in self.links), default=0.0)

    def epoch_hours(self, images: int) -> float:
        """Hours for so many images, at the steady rate."""
        return images * self.period_ps / (self.replicas * _HOUR_PS)


def make_report(plan: Plan) -> Report:
    """Work out the steady state."""
    exchanges = _exchange_servers(plan)
    period_ps = steady_period_ps(plan, exchanges)
    uses: dict[int, list[EngineUse]] = {device: [] for device in range(plan.devices)}
    for server in engine_servers(plan.timing):
        cycles = period_ps / plan.cluster.board(server.device).period_ps
        idle = 1 - server.part.macs / (server.engines.multipliers * cycles)
        uses[server.device].append(EngineUse(server, idle))
    devices = tuple(_device(plan, device, tuple(engines), period_ps) for device, engines in uses.items())
    holders = [device.device for device in devices if device.holds_convolutions]
    busy = [device for device in devices if device.holds_convolutions or not holders]
    links = tuple(LinkUse(server, gbps(server.sample_bytes, period_ps)) for server in link_servers(plan.timing))
    return Report(
        period_ps,
        _throughput(plan, holders, _macs(plan, convolutions_only=True), period_ps) if holders else None,
        _throughput(plan, range(plan.devices), _macs(plan, convolutions_only=False), period_ps),
        devices,
        links,
        sum(device.idle_share for device in busy) / len(busy),
        plan.steady.fill_ps,
        find_bottleneck(plan.timing, exchanges),
        plan.data_parallel.replicas,
    )


def _exchange_servers(plan: Plan) -> tuple[ExchangeServer, ...]:
    """A mini-batch's exchange, over its samples."""
    times = exchange_times(plan.timing, plan.data_parallel)
    return tuple(ExchangeServer(device, -(-takes_ps // plan.batch)) for device, takes_ps in enumerate(times))


def steady_period_ps(plan: Plan, exchanges: Sequence[ExchangeServer] = ()) -> float:
    """The time between two samples in the steady state, in one replica."""
    if plan.config.schedule == "fpdeep":
        return max(plan.timing.interval_ps, max((server.sample_ps for server in exchanges), default=0))
    # The first mini-batches meet an empty chain; later ones take the same time, or two times by turns.
    epochs = _FIRST_STEPS + _MEASURED_STEPS
    steps = dataclasses.replace(plan, config=plan.config.model_copy(update={"epochs": epochs}))
    ends_ps = simulate(steps, plan.config.batch).epoch_ends_ps
    return (ends_ps[-1] - ends_ps[_FIRST_STEPS - 1]) / (_MEASURED_STEPS * plan.batch)


def _device(plan: Plan, device: int, engines: tuple[EngineUse, ...], period_ps: float) -> DeviceUse:
    slices = plan.mapping.devices[device]
    cycles = period_ps / plan.cluster.board(device).period_ps
    multipliers = sum(use.server.engines.multipliers for use in engines)
    idle = 1 - sum(use.macs for use in engines) / (multipliers * cycles)
    rate = gops(TRAINING_OPERATIONS_PER_MAC * sum(part.macs for part in slices), period_ps)
    return DeviceUse(device, engines, rate, idle, any(not part.layer.is_fc for part in slices))


def _macs(plan: Plan, *, convolutions_only: bool) -> int:
    return sum(layer.macs for layer in plan.network.layers if not (convolutions_only and layer.is_fc))


def _throughput(plan: Plan, devices: Iterable[int], macs: int, period_ps: float) -> Throughput:
    boards = [plan.cluster.board(device) for device in devices]
    operations = TRAINING_OPERATIONS_PER_MAC * macs
    rate = gops(operations, period_ps)
    powers = [board.power_w for board in boards if board.power_w is not None]
    gop_per_j = rate / sum(powers) if len(powers) == len(boards) else None
    return Throughput(len(boards), operations, rate / len(boards), gop_per_j)
