"""The four methods side by side, in figures and as a picture (FPDeep, Fig. 5), and their ranks (Table 5)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Literal

from ..common import InputError
from ..view import log_ticks, nested_widths, new_figure, save_figure
from .methods import Method
from .workload import Outcome, Workload

_STYLES = ("o-", "s--", "^:", "D-")


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
        counts = [set(outcomes) for outcomes in self.outcomes.values()]
        return tuple(sorted(count for count in set.intersection(*counts) if count > 1))

    @property
    def most_devices(self) -> dict[Method, int]:
        """The largest number of devices that each method can use."""
        return {method: method.most_devices(self.workload) for method in Method}

    def ranks(self, devices: Sequence[int]) -> dict[str, dict[Method, int]]:
        """Return ranks from 1 (worst) to 4 by metric key and `most_devices`; metrics are averaged over `devices`."""
        ranks = {"most_devices": rank(self.most_devices, more_is_better=True)}
        for metric in METRICS:
            sums = {
                method: sum(metric.of(outcomes[count]) for count in devices)
                for method, outcomes in self.outcomes.items()
            }
            ranks[metric.key] = rank(sums, metric.more_is_better)
        return ranks


def rank(values: Mapping[Method, float], more_is_better: bool) -> dict[Method, int]:
    """Return ranks: 1 plus the number of methods that are worse; equal values share a rank."""
    sign = 1 if more_is_better else -1
    return {method: 1 + sum(sign * other < sign * mine for other in values.values()) for method, mine in values.items()}


def compare_methods(workload: Workload, devices: Sequence[int]) -> Comparison:
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


def draw_comparison(comparison: Comparison, path: str | os.PathLike[str], flag: str = "--plot") -> None:
    """Draw Fig. 5: a panel for each metric, over the number of devices.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(9, 6.4, flag)
    devices = {count for outcomes in comparison.outcomes.values() for count in outcomes}
    for axes, metric in zip(figure.subplots(2, 2).flat, METRICS, strict=True):
        styles = zip(_STYLES, nested_widths(len(_STYLES)), strict=True)
        for (method, outcomes), (style, width) in zip(comparison.outcomes.items(), styles, strict=True):
            values = [metric.shown(outcome) for outcome in outcomes.values()]
            axes.plot(list(outcomes), values, style, label=method.value, linewidth=width, markersize=3 + width)
        axes.set(xlabel="devices", ylabel=f"{metric.name} / {metric.unit}", xscale="log", yscale=metric.scale)
        axes.set_xticks([1 << power for power in range(max(devices).bit_length())])
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.minorticks_off()
        if metric.scale == "log":
            log_ticks(axes.yaxis)
    figure.axes[0].legend()
    workload = comparison.workload
    figure.suptitle(f"{workload.network.name} on {workload.cluster.name}, batch {workload.batch}")
    save_figure(figure, path, flag)
