"""A rate to reach: the point of a sweep with the fewest boards, replicas included, that reaches it, and its links."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ...config import settings_config
from ...plan import make_plan
from ...run import SteadyState, steady_state
from .space import Point

BANDWIDTH = "link.bandwidth_gbps"
DEVICES, REPLICAS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64), (1, 2, 4, 8)
"""What is swept for a target if no numbers of boards are given."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A rate to reach, in samples per second, and the row of the point that was chosen; None if none reaches it.

    Of points with as few boards, that with the narrowest links is chosen, then that with the highest rate. The busiest
    of its links carries `demand_gbps` of `link_gbps`; both are None without links, and where actions are timed as a
    whole.
    """

    samples_per_s: float
    row: Mapping[str, Any] | None
    demand_gbps: float | None = None
    link_gbps: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it with the names of JSON."""
        return {**dataclasses.asdict(self), "reached": self.row is not None}


def reaches(row: Mapping[str, Any], samples_per_s: float) -> bool:
    """Return whether a row's point has this rate, with a place for all its data."""
    return row["error"] is None and bool(row["fits"]) and row["images_per_s"] >= samples_per_s


def find_target(samples_per_s: float, points: Sequence[Point], rows: Sequence[Mapping[str, Any]]) -> Target:
    """Return which of some points, each with its row, reaches a rate with the fewest boards."""
    reaching = [place for place, row in enumerate(rows) if reaches(row, samples_per_s)]
    if not reaching:
        return Target(samples_per_s, None)

    def cost(place: int) -> tuple[int, float, float]:
        row = rows[place]
        return row["boards"], row.get(BANDWIDTH, 0), -row["images_per_s"]

    best = min(reaching, key=cost)
    return Target(samples_per_s, rows[best], *_link_of(points[best]))


def _link_of(point: Point) -> tuple[float | None, float | None]:
    """Return what the busiest of a chain's links carries in the steady state, and its bandwidth, in Gb/s."""
    config = settings_config(point.settings)
    if config.schedule.offload is not None:
        return None, None
    plan = make_plan(config, 1, network=point.network, cluster=point.cluster, timing_only=True)
    if not plan.times_rows:
        return None, None
    state: SteadyState = steady_state(plan)
    if not state.links:
        return None, None
    busiest = max(state.links, key=lambda link: link.demand_gbps / link.bandwidth_gbps)
    return busiest.demand_gbps, busiest.bandwidth_gbps
