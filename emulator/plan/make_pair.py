"""Makes the plan of a configuration whose schedule is one of a GPU, alone or with an FPGA."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ..cluster import Cluster, load_cluster
from ..common import InputError
from ..config import STATES, check_updates
from ..data import Reading
from ..network import Network
from ..pair import check_gpu_memory, pair_of, workload_of
from .data import network_of
from .faults import faults_of
from .pair import PairPlan

if TYPE_CHECKING:
    from ..config import Config

_OF_CHAINS = (
    *("replicas", "groups", "chunks", "warm_up", "engines", "transport", "compress", "precision"),
    *("stages", "balancing", "memory", "throttle"),
)
"""Keys that have no part in a pair."""


def make_pair_plan(
    config: Config,
    cluster_changes: dict[str, object] | None = None,
    *,
    network: Network | None = None,
    cluster: Cluster | None = None,
) -> PairPlan:
    """Derive the plan of a run under a schedule of pairs; see `make_plan`.

    Raises:
        InputError: a value does not suit a pair.
    """
    kind = config.schedule
    assert kind.offload is not None
    defaults = type(config).model_validate({})
    for key in _OF_CHAINS:
        if getattr(config, key) != getattr(defaults, key):
            raise InputError(f"`{key}` has no effect with `schedule` = {kind.name!r}; leave it out")
    check_updates(config)
    cluster = cluster or load_cluster(config.cluster, cluster_changes, blame="--what-if")
    if faults_of(config, cluster):
        source = config.faults or config.cluster
        raise InputError(f"{source}: `faults` are of a chain's boards, and `schedule` = {kind.name!r} has no chain")
    states = len(STATES[config.optimizer])
    pair = dataclasses.replace(pair_of(cluster, kind, config.devices), states=states)
    network = network_of(network or config.network, config.time_steps, config.data, Reading.of(config))
    workload = workload_of(network, config.batch).padded(config.padding)
    check_gpu_memory(workload, pair)
    plan = PairPlan(config, network, cluster, pair, workload)
    _ = plan.times, plan.needs  # all that can be wrong is found here
    return plan
