"""From a configuration to all that follows from it: network, cluster, mapping, timing, schedule."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ...comm.exchange.groups import DataParallel
from ...comm.exchange.timed import exchange_ps
from ...kernels.codec.codec import NoCodec
from ..cluster.board import Cluster
from ..common.errors import InputError
from ..device.gradients import GradientRow
from ..mapping.partition import partition
from ..mapping.slices import Mapping
from ..network.layers import Network
from ..schedule.action import Schedule
from ..schedule.dry_run import dry_run
from ..schedule.pipeline import fpdeep, sync
from ..timing.timing import Timing
from .placement import place
from .replication import share_out
from .steady import Steady, find_steady

if TYPE_CHECKING:
    from ..config.config import Config

_DRY_RUN_STEPS = 6
_MOST_TURNS = 4


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run will do; pure data, the same on every rank."""

    config: Config
    network: Network
    cluster: Cluster
    mapping: Mapping
    timing: Timing
    steady: Steady
    data_parallel: DataParallel = dataclasses.field(default_factory=DataParallel)

    @property
    def devices(self) -> int:
        """The number of emulated FPGAs in a chain; each replica is one."""
        return len(self.mapping.devices)

    @property
    def nodes(self) -> int:
        """The number of emulated FPGAs in all replicas."""
        return self.devices * self.data_parallel.replicas

    @property
    def batch(self) -> int:
        """A replica's samples in a mini-batch."""
        return self.config.batch // self.data_parallel.replicas

    @property
    def loans(self) -> set[tuple[int, int]]:
        """Which devices use parameters that others store: (user, store)."""
        return {(loan.user_device, loan.store_device) for loan in self.timing.loans}

    def schedule(self, samples: int, micro_batch: int | None = None) -> Schedule:
        """A replica's schedule of an epoch, of which it has so many samples."""
        batch = self.batch
        size = micro_batch or self.config.micro_batch
        if self.config.schedule == "fpdeep":
            return fpdeep(list(self.steady.lags), samples, batch, size, self.loans)
        return sync(self.devices, samples, batch, size)


def make_plan(config: Config, ranks: int, cluster_changes: dict[str, object] | None = None) -> Plan:
    """Work everything out and dry-run the schedule; the cluster's keys may have other values than its file says.

    Raises:
        InputError: something does not fit.
    """
    from ..cluster.load import load_cluster
    from ..network.load import load_network

    network = load_network(config.network)
    cluster = load_cluster(config.cluster, cluster_changes)
    data_parallel, devices = share_out(config, ranks)
    mapping = partition(network, cluster, devices)
    timing = Timing.of(mapping, cluster)
    batch = config.batch // data_parallel.replicas
    steady = _steady(timing, batch, data_parallel)
    if config.balancing == "auto":
        timing, steady = _balanced(timing, steady, batch, data_parallel)
    plan = Plan(config, network, cluster, mapping, timing, steady, data_parallel)
    tail = (config.samples or 0) % config.batch // data_parallel.replicas
    dry_run(plan.schedule(_DRY_RUN_STEPS * batch + tail), plan.loans)
    return plan


def exchange_times(timing: Timing, data_parallel: DataParallel) -> list[int]:
    """What each device's exchange with other replicas takes for a mini-batch, in ps; none without others."""
    if data_parallel.replicas == 1:
        return []
    rows = (GradientRow(number, part, timing.loans) for number, part in enumerate(timing.mapping.devices))
    return [exchange_ps(data_parallel, timing.cluster.network, row.count) for row in rows]


def _steady(timing: Timing, batch: int, data_parallel: DataParallel) -> Steady:
    """The steady pipeline, where updates wait for gradients of other replicas, if there are any.

    What a codec will make of gradients is not known yet, so the lags are those without. Where the exchange is slower
    than the chain, they are found at its rate. Samples then enter in bursts, at most as close as in a chain alone.
    """
    alone = find_steady(timing, batch)
    waits = exchange_times(timing, dataclasses.replace(data_parallel, codec=NoCodec()))
    if not waits:
        return alone
    interval_ps = max(timing.interval_ps, -(-max(waits) // batch))
    steady = find_steady(dataclasses.replace(timing, interval_ps=interval_ps), batch, waits)
    in_flight = tuple(map(max, steady.in_flight, alone.in_flight))
    return dataclasses.replace(steady, in_flight=in_flight)


def _balanced(timing: Timing, steady: Steady, batch: int, data_parallel: DataParallel) -> tuple[Timing, Steady]:
    """With parameters on other devices, where they do not fit on their own, and if all of them find a place.

    Loans change times, and times the samples in flight, and these the memory that is left; so this may take turns.
    """
    found = timing, steady
    for _ in range(_MOST_TURNS):
        _, balancing = place(timing.mapping, timing.cluster, found[1].in_flight)
        if not balancing.fits:
            return timing, steady
        if balancing.loans == found[0].loans:
            break
        loaned = Timing.of(timing.mapping, timing.cluster, balancing.loans)
        found = loaned, _steady(loaned, batch, data_parallel)
    return found


def check_data(plan: Plan, shape: tuple[int, int, int], classes: int, source: str) -> None:
    """Whether a network takes such images and tells so many classes apart.

    Raises:
        InputError: it does not.
    """
    network = plan.network
    if shape != network.input:
        raise InputError(
            f"`data` = {source!r}: images are {_size(shape)}, but network {network.name} takes {_size(network.input)}"
        )
    if classes != network.classes:
        raise InputError(
            f"`data` = {source!r}: has {classes} classes, but network {network.name} has {network.classes} outputs"
        )


def fleet_line(plan: Plan) -> str:
    """The devices of a plan, and how replicas exchange, for people."""
    of = plan.data_parallel
    devices, codec = f"{plan.devices} x {plan.cluster.boards[0].name}", ""
    if not isinstance(of.codec, NoCodec):
        nothing = of.replicas == 1 and not plan.timing.loans
        codec = f", {of.codec} has nothing to compress" if nothing else f", gradients by {of.codec}"
    if of.replicas == 1:
        return devices + codec
    groups = f" in {of.groups} groups" if of.groups > 1 else ""
    return f"{of.replicas} replicas{groups} of {devices}, exchange by {of.exchange}{codec}"


def _size(shape: tuple[int, int, int]) -> str:
    return "x".join(map(str, shape))
