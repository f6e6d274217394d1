"""The four methods side by side, in figures and as a picture (FPDeep, Fig. 5), their ranks (Table 5), and how sure they
are.

Ranges are those of FLOP utilisation, and in what share of draws one method wins. Cuts are fixed. The chains' rates
(layer and hybrid parallelism) follow the roofs of their mappings; iterations of data and model parallelism, which are
sums of work and messages, follow each constant by its slope.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ..cluster import BANDWIDTH, CLOCK, LATENCY, ConstantRange, varied
from ..common import InputError
from ..mapping import partition
from ..run import AnswerRange, by_slopes, drawn_range
from ..timing import Floats, Roofs, Timing, factors, load_parts
from ..view import log_ticks, nested_widths, new_figure, save_figure
from .methods import Method, Outcome, Workload, whole_layers
from .sweep import standing

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


@dataclasses.dataclass(frozen=True)
class MethodRanges:
    """The ranges of the methods' FLOP utilisation on some devices, the best first; see `Choice` for the others."""

    devices: int
    ranges: dict[Method, AnswerRange]
    best_share: float
    rivals: tuple[Method, ...]

    @property
    def best(self) -> Method:
        """The method with the highest FLOP utilisation."""
        return next(iter(self.ranges))

    def to_dict(self) -> dict[str, Any]:
        """Return the range of the best method, those of all, and the confidence, as JSON has them."""
        ends = {method.name: of.to_dict()["range"] for method, of in self.ranges.items()}
        rivals = [method.name for method in self.rivals]
        confidence = {"best": self.best_share, "not_distinguishable": rivals}
        told = {"of": f"flop_utilisation of {self.best.name} on {self.devices} devices"}
        said = self.ranges[self.best].to_dict()
        return {**said, "range": {**told, **said["range"]}, "ranges": ends, "confidence": confidence}


def method_ranges(comparison: Comparison) -> MethodRanges:
    """Return how sure a comparison is, on the most devices that all methods can use, or else on the fewest."""
    workload, outcomes = comparison.workload, comparison.outcomes
    devices = (comparison.common_devices or (min(map(min, filter(None, outcomes.values()))),))[-1]
    used = {method: by_count[devices].flop_utilisation for method, by_count in outcomes.items() if devices in by_count}
    used = dict(sorted(used.items(), key=lambda share: -share[1]))
    cluster = workload.cluster
    constants = [cluster.range_of(key, device) for device in range(devices) for key in CLOCK]
    constants += [cluster.range_of(key) for key in (BANDWIDTH, LATENCY) if devices > 1]
    uncertain = tuple(dict.fromkeys(entry for entry in constants if not entry.is_exact))
    drawn = {entry: factors(entry) for entry in uncertain}
    shares_of = {method: _utilisation(workload, method, devices, share, drawn) for method, share in used.items()}
    rates = np.stack([of(drawn) for of in shares_of.values()])
    stands = standing(rates, [*used.values()])
    methods = list(used)
    rivals = tuple(methods[number] for number in (*stands.ties, *stands.rivals))
    ranges = {method: drawn_range(drawn, of).times(1.0) for method, of in shares_of.items()}
    return MethodRanges(devices, ranges, stands.best_share, rivals)


def _utilisation(
    workload: Workload, method: Method, devices: int, share: float, drawn: Mapping[ConstantRange, Floats]
) -> Callable[[Mapping[ConstantRange, Floats]], Floats]:
    """Return a method's FLOP utilisation, `share` with the constants as they are, in draws of these."""
    network, cluster, batch = workload.network, workload.cluster, workload.batch
    if method in (Method.LP, Method.HP):
        mapping = whole_layers(workload, devices) if method is Method.LP else partition(network, cluster, devices)
        roofs = Roofs.of(load_parts(Timing.of(mapping, cluster))).at_rate(share)
        return lambda given: roofs.rates(given)

    def time_ps(given: Mapping[ConstantRange, float]) -> float:
        other = varied(cluster, lambda entry: given.get(entry, 1.0))
        return method.run(Workload(network, other, batch), devices).iteration_ps

    slopes, exact_ps = by_slopes(drawn, time_ps), time_ps({})
    return lambda given: share * exact_ps / slopes.times_ps(given)
