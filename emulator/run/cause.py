"""What holds a chain's rate back, whatever its cut: the slowest load is that of one cut, and cuts follow from links.

- Narrow links keep the cut from boundaries at which engines would be less loaded. Then an engine may be the slowest of
  all, and only faster links bring more.
- Memory ports do so, too: a cut that heeds them gives some engines more work.

So cuts are compared that leave memory out. The time of a sample in the best of them, with the cluster's own links
(`Plan.bound_ps`) and with links that take no time, says what memory and links cost.
"""

from __future__ import annotations

import dataclasses
import functools
import math

from ..common import InputError
from ..mapping import Mapping, partition, partition_with_memory
from ..plan import ChainPlan, planned_on
from ..timing import ExchangeLoad, Timing, find_bottleneck, link_loads
from .steady_state import SteadyState, steady_state

_FREE_MBPS = MOST_MBPS = 10**9
"""Bandwidth of links that take no time: the most that a cluster may have."""
_HALF = 0.5
_MUCH, _SOME, _LITTLE = 1.5, 1.1, 1.05
"""Gains from which on a kind of resource counts as the cause: see `Cause.kind`."""


@dataclasses.dataclass(frozen=True)
class WiderLinks:
    """Links that keep no cut from being the best, and the steady rate that the chain has with them, cut anew."""

    gbps: float
    images_per_s: float


@dataclasses.dataclass(frozen=True)
class Cause:
    """What holds a chain's rate back.

    `kind` is one of:

    - "draining" and "exchange": most of the time goes by as updates drain the chain, or in exchanges of replicas;
    - "memory": with all data on chip the rate would be 1.5 times as high, or 1.05 times where links count, too;
    - "link": with links that take no time, and memory left out, another cut would be 1.1 times as fast;
    - "engine": else.

    `wider` is known where links are the cause.
    """

    kind: str
    wider: WiderLinks | None = None


def draining_share(plan: ChainPlan, state: SteadyState) -> float:
    """Return the share of the time in which updates keep samples from entering; 0 where the chain never drains."""
    return max(0.0, 1 - plan.timing.interval_ps / state.period_ps) if plan.config.schedule.drains else 0.0


def draining_limits(plan: ChainPlan, state: SteadyState) -> bool:
    """Return whether it is draining that limits: it takes most of the time, and not by an exchange of gradients."""
    return draining_share(plan, state) > _HALF and not isinstance(state.bottleneck.slowest, ExchangeLoad)


def is_waiting(busiest: float) -> bool:
    """Return whether waits limit boards that take actions as a whole, of which the busiest is so for this share."""
    return busiest < _HALF


def limiting_kind(plan: ChainPlan, state: SteadyState) -> str:
    """Return `Cause.kind`; that costs less than a tenth of a plan."""
    return _kind(plan, state, _Cuts(plan))


def cause_of(plan: ChainPlan, state: SteadyState) -> Cause:
    """Return what holds a chain's rate back, with what wider links bring if it is links: that costs another plan."""
    cuts = _Cuts(plan)
    kind = _kind(plan, state, cuts)
    return Cause(kind, cuts.wider_links() if kind == "link" and cuts.free is not None else None)


def _kind(plan: ChainPlan, state: SteadyState, cuts: _Cuts) -> str:
    if draining_limits(plan, state):
        return "draining"
    slowest = state.bottleneck.slowest
    if isinstance(slowest, ExchangeLoad):
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
            roofs = find_bottleneck(plan.timing)
            self._best_ps = max(roofs.engines_ps, roofs.links_ps)

    @functools.cached_property
    def free(self) -> Mapping | None:
        """The cut with links that take no time; None where there are none, or where cuts are not at all channels."""
        plan = self._plan
        given = plan.config.stages == "layers" or plan.config.cut is not None
        if plan.stage_count == 1 or given or plan.network.last_first:
            return None
        chain = plan.network, plan.cluster.with_bandwidth(_FREE_MBPS), plan.stage_count
        return partition(*chain) if plan.config.memory == "fpdeep" else partition_with_memory(*chain, None)

    @property
    def memory_gain(self) -> float:
        """How many times as fast the chain would be with all data on chip."""
        return self._plan.timing.interval_ps / self._best_ps

    @property
    def links_gain(self) -> float:
        """How many times as fast the best cut would be with links that take no time."""
        return 1.0 if self.free is None else self._best_ps / _server_ps(self.free)

    def wider_links(self) -> WiderLinks | None:
        """Return the bandwidth, to two digits, with which links carry that cut, and the rate of a plan with it."""
        assert self.free is not None
        plan, time_ps = self._plan, _server_ps(self.free)
        loads = link_loads(Timing.of(self.free, plan.cluster))
        links = (plan.cluster.link_at(min(load.sender, load.receiver)) for load in loads)
        needed = max(link.bandwidth_gbps * load.sample_ps / time_ps for link, load in zip(links, loads, strict=True))
        needed *= plan.chunks  # the stages of a device share its links
        unit = 10.0 ** (math.floor(math.log10(needed)) - 1)
        gbps = min(MOST_MBPS / 1000, math.ceil(needed / unit) * unit)
        try:
            other = planned_on(plan, plan.cluster.with_bandwidth(max(1, round(1000 * gbps) // plan.chunks)))
        except InputError:
            return None
        return WiderLinks(gbps, steady_state(other).images_per_s)


def _server_ps(mapping: Mapping) -> int:
    assert mapping.balance is not None
    return mapping.balance.server_ps
