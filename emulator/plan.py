"""From a configuration to all that follows from it: network, cluster, mapping, timing, schedule."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from .boards import Cluster
from .errors import InputError
from .layers import Network
from .mapping import Mapping, partition
from .schedule import Schedule, dry_run, fpdeep, sync
from .steady import Steady, find_steady
from .timing import Timing

if TYPE_CHECKING:
    from .config import Config

_DRY_RUN_STEPS = 6


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
    from .network import load_network

    network = load_network(config.network)
    cluster = load_cluster(config.cluster, cluster_changes)
    mapping = partition(network, cluster, config.devices or ranks)
    timing = Timing.of(mapping, cluster)
    plan = Plan(config, network, cluster, mapping, timing, find_steady(timing, config.batch))
    tail = (config.samples or 0) % config.batch
    dry_run(plan.schedule(_DRY_RUN_STEPS * config.batch + tail))
    return plan


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
