"""The four ways to train (`methods.py`) side by side: their figures and picture (FPDeep, Fig. 5),
their ranks (Table 5), and how sure they are.

Ranges are those of FLOP utilisation, and in what share of draws one method wins. Cuts are fixed.
The chains' rates (layer and hybrid parallelism) follow the roofs of their mappings; iterations of
data and model parallelism, which are sums of work and messages, follow each constant by its slope.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Literal

from ..cluster import BANDWIDTH, CLOCK, LATENCY, ConstantRange, Factors, varied
from ..common import InputError
from ..mapping import partition
from ..run import Draws, RankedRanges, by_slopes, ranked_ranges
from ..timing import Floats, Roofs, Timing, load_parts
from ..view import log_ticks, nested_widths, new_figure, save_figure
from .methods import Method, Outcome, Workload, whole_layers

_STYLES = ("o-", "s--", "^:", "D-")


@dataclasses.dataclass(frozen=True)
class Metric:
    """One column of Table 5: a figure of an outcome, whether more of it is better, and how it is
    displayed.
    """

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
"""Storage is compared by its total, since "the total Storage Requirement determines whether all
necessary data can be stored in on-chip memory" (section 3.3)."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The outcome of each method on each number of devices that it can use."""

    workload: Workload
    outcomes: dict[Method, dict[int, Outcome]]

    @property
    def common_devices(self) -> tuple[int, ...]:
        """The numbers of devices, beyond one, that all methods can use."""
        counts = [set(outcomes) for outcomes in self.outcomes.values()]
        return tuple(sorted(count for count in set.intersection(*counts) if count > 1))

    @property
    def compared_devices(self) -> int:
        """The most devices that all methods can use, or else the fewest that one can."""
        return (self.common_devices or (min(map(min, filter(None, self.outcomes.values()))),))[-1]

    @property
    def compared(self) -> dict[Method, Outcome]:
        """The outcomes on as many devices, of those methods that can use them."""
        devices = self.compared_devices
        return {
            method: by_count[devices]
            for method, by_count in self.outcomes.items()
            if devices in by_count
        }

    @property
    def most_devices(self) -> dict[Method, int]:
        """The largest number of devices that each method can use."""
        return {method: method.most_devices(self.workload) for method in Method}

    def ranks(self, devices: Sequence[int]) -> dict[str, dict[Method, int]]:
        """Return ranks from 1 (worst) to 4 by metric key and `most_devices`; metrics are averaged
        over `devices`.
        """
        ranks = {"most_devices": rank(self.most_devices, more_is_better=True)}
        for metric in METRICS:
            sums: dict[Method, float] = {}
            for method, outcomes in self.outcomes.items():
                sums[method] = sum(metric.of(outcomes[count]) for count in devices)
            ranks[metric.key] = rank(sums, metric.more_is_better)
        return ranks


def rank(
    values: dict[Method, int] | dict[Method, float], more_is_better: bool
) -> dict[Method, int]:
    """Return ranks: 1 plus the number of methods that are worse; equal values share a rank."""
    sign = 1 if more_is_better else -1
    ranks = {}
    for method, mine in values.items():
        ranks[method] = 1 + sum(sign * other < sign * mine for other in values.values())
    return ranks


def compare_methods(workload: Workload, devices: Sequence[int]) -> Comparison:
    """Run each method on every number of devices that it can use.

    Raises:
        InputError: no method can use the largest number of devices, or a board has too few
            multipliers.
    """
    most = max(method.most_devices(workload) for method in Method)
    if devices and max(devices) > most:
        raise InputError(
            f"`devices` = {max(devices)}: must be 1 to {most}: no method divides"
            f" {workload.network.name} with batch {workload.batch} among more devices"
        )
    outcomes = {}
    for method in Method:
        counts = [count for count in devices if count <= method.most_devices(workload)]
        outcomes[method] = {count: method.run(workload, count) for count in counts}
    return Comparison(workload, outcomes)


def draw_comparison(
    comparison: Comparison, path: str | os.PathLike[str], flag: str = "--plot"
) -> None:
    """Draw Fig. 5: a panel for each metric, over the number of devices.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(9, 6.4, flag)
    devices = {count for outcomes in comparison.outcomes.values() for count in outcomes}
    for axes, metric in zip(figure.subplots(2, 2).flat, METRICS, strict=True):
        styles = zip(_STYLES, nested_widths(len(_STYLES)), strict=True)
        for (method, outcomes), (style, width) in zip(
            comparison.outcomes.items(), styles, strict=True
        ):
            values = [metric.shown(outcome) for outcome in outcomes.values()]
            axes.plot(
                list(outcomes),
                values,
                style,
                label=method.value,
                linewidth=width,
                markersize=3 + width,
            )
        axes.set(
            xlabel="devices",
            ylabel=f"{metric.name} / {metric.unit}",
            xscale="log",
            yscale=metric.scale,
        )
        axes.set_xticks([1 << power for power in range(max(devices).bit_length())])
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.minorticks_off()
        if metric.scale == "log":
            log_ticks(axes.yaxis)
    figure.axes[0].legend()
    workload = comparison.workload
    figure.suptitle(f"{workload.network.name} on {workload.cluster.name}, batch {workload.batch}")
    save_figure(figure, path, flag)


def method_ranges(comparison: Comparison) -> RankedRanges:
    """Return how sure a comparison by FLOP utilisation is, on `compared_devices`, with the names of
    the methods.
    """
    workload, devices, having = (
        comparison.workload,
        comparison.compared_devices,
        comparison.compared,
    )
    ordered = sorted(having, key=lambda method: -having[method].flop_utilisation)
    used = [having[method].flop_utilisation for method in ordered]
    cluster = workload.cluster
    constants = [cluster.range_of(key, device) for device in range(devices) for key in CLOCK]
    constants += [cluster.range_of(key) for key in (BANDWIDTH, LATENCY) if devices > 1]
    uncertain = tuple(dict.fromkeys(entry for entry in constants if not entry.is_exact))
    shares_of = {
        method.name: _utilisation(workload, method, devices, share, uncertain)
        for method, share in zip(ordered, used, strict=True)
    }
    return ranked_ranges(uncertain, shares_of, used)


def _utilisation(
    workload: Workload,
    method: Method,
    devices: int,
    share: float,
    constants: Sequence[ConstantRange],
) -> Callable[[Draws], Floats]:
    """Return a method's FLOP utilisation, `share` with the constants as they are, in draws of
    these.
    """
    network, cluster, batch = workload.network, workload.cluster, workload.batch
    if method in (Method.LP, Method.HP):
        mapping = (
            whole_layers(workload, devices)
            if method is Method.LP
            else partition(network, cluster, devices)
        )
        roofs = Roofs.of(load_parts(Timing.of(mapping, cluster))).at_rate(share)
        return lambda given: roofs.rates(given)

    def time_ps(given: Factors) -> float:
        return method.run(Workload(network, varied(cluster, given), batch), devices).iteration_ps

    slopes, exact_ps = by_slopes(constants, time_ps), time_ps({})
    return lambda given: share * exact_ps / slopes.times_ps(given)
