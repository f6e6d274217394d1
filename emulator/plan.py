"""From a configuration to all that follows from it: network, cluster, mapping, timing, schedule."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from .boards import Cluster
from .errors import InputError
from .mapping import Mapping, partition
from .network.layers import Network
from .placement import place
from .schedule import Schedule, dry_run, fpdeep, sync
from .steady import Steady, find_steady
from .timing import Timing

if TYPE_CHECKING:
    from .config import Config

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

    @property
    def devices(self) -> int:
        """The number of emulated FPGAs."""
        return len(self.mapping.devices)

    def schedule(self, samples: int, micro_batch: int | None = None) -> Schedule:
        """The schedule of an epoch of so many samples."""
        batch = self.config.batch
        size = micro_batch or self.config.micro_batch
        if self.config.schedule == "fpdeep":
            return fpdeep(list(self.steady.lags), samples, batch, size)
        return sync(self.devices, samples, batch, size)


def make_plan(config: Config, ranks: int, cluster_changes: dict[str, object] | None = None) -> Plan:
    """Work everything out and dry-run the schedule; the cluster's keys may have other values than its file says.

    Raises:
        InputError: something does not fit.
    """
    from .cluster import load_cluster
    from .network.load import load_network

    network = load_network(config.network)
    cluster = load_cluster(config.cluster, cluster_changes)
    mapping = partition(network, cluster, config.devices or ranks)
    timing = Timing.of(mapping, cluster)
    steady = find_steady(timing, config.batch)
    if config.balancing == "auto":
        timing, steady = _balanced(timing, steady, config.batch)
    plan = Plan(config, network, cluster, mapping, timing, steady)
    tail = (config.samples or 0) % config.batch
    loans = {(loan.user_device, loan.store_device) for loan in timing.loans}
    dry_run(plan.schedule(_DRY_RUN_STEPS * config.batch + tail), loans)
    return plan


def _balanced(timing: Timing, steady: Steady, batch: int) -> tuple[Timing, Steady]:
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
        found = loaned, find_steady(loaned, batch)
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


def _size(shape: tuple[int, int, int]) -> str:
    return "x".join(map(str, shape))
