"""The four methods side by side (FPDeep, Fig. 5), and their ranks (Table 5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

from ...common import InputError
from .methods import Method
from .outcome import Outcome
from .workload import Workload


@dataclasses.dataclass(frozen=True)
class Metric:
    """One column of Table 5: a figure of an outcome, whether more of it is better, and how it is displayed."""

    key: str
    more_is_better: bool
    name: str
    unit: str
    unit_size: float
    scale: Literal["linear", "log"]

    def of(self, outcome: Outcome) -> float:
        """Return the figure."""
        return float(getattr(outcome, self.key))

    def shown(self, outcome: Outcome) -> float:
        """Return the figure in the metric's unit."""
        return self.of(outcome) / self.unit_size


METRICS = (
    Metric("flop_utilisation", True, "FLOP utilisation", "%", 0.01, "linear"),
    Metric("total_storage_bytes", False, "storage", "GB", 1e9, "log"),
    Metric("footprint_bytes", False, "communication footprint", "GB", 1e9, "log"),
    Metric("bandwidth_gbps", False, "communication bandwidth", "Gb/s", 1, "log"),
)
"""Storage is compared by its total, since "the total Storage Requirement determines whether all necessary data can be
stored in on-chip memory" (section 3.3)."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The outcome of each method on each number of devices that it can use."""

    workload: Workload
    outcomes: Mapping[Method, Mapping[int, Outcome]]

    @property
    def common_devices(self) -> tuple[int, ...]:
        """The numbers of devices, beyond one, that all methods can use."""
        counts = [set(found) for found in self.outcomes.values()]
        return tuple(sorted(count for count in set.intersection(*counts) if count > 1))

    @property
    def most_devices(self) -> dict[Method, int]:
        """The largest number of devices that each method can use."""
        return {method: method.most_devices(self.workload) for method in Method}

    def ranks(self, devices: Sequence[int]) -> dict[str, dict[Method, int]]:
        """Return ranks from 1 (worst) to 4 by metric key and `most_devices`; metrics are averaged over `devices`."""
        found = {"most_devices": rank(self.most_devices, more_is_better=True)}
        for metric in METRICS:
            sums = {
                method: sum(metric.of(outcomes[count]) for count in devices)
                for method, outcomes in self.outcomes.items()
            }
            found[metric.key] = rank(sums, metric.more_is_better)
        return found


def rank(values: Mapping[Method, float], more_is_better: bool) -> dict[Method, int]:
    """Return ranks: 1 plus the number of methods that are worse; equal values share a rank."""
    sign = 1 if more_is_better else -1
    return {method: 1 + sum(sign * other < sign * mine for other in values.values()) for method, mine in values.items()}


def compare(workload: Workload, devices: Sequence[int]) -> Comparison:
    """Run each method on every number of devices that it can use.

    Raises:
        InputError: no method can use the largest number of devices, or a board has too few multipliers.
    """
    most = max(method.most_devices(workload) for method in Method)
    if devices and max(devices) > most:
        raise InputError(
            f"`devices` = {max(devices)}: must be 1 to {most}: no method divides {workload.network.name}"
            f" with batch {workload.batch} among more devices"
        )
    outcomes = {
        method: {count: method.run(workload, count) for count in devices if count <= method.most_devices(workload)}
        for method in Method
    }
    return Comparison(workload, outcomes)
