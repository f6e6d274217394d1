"""How sure a comparison of the four methods is: ranges of their FLOP utilisation, and in what share of draws one wins.

Cuts are fixed. The chains' rates (layer and hybrid parallelism) follow the roofs of their mappings; iterations of data
and model parallelism, which are sums of work and messages, follow each constant by its slope.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..cluster import BANDWIDTH, CLOCK, LATENCY, ConstantRange, varied
from ..mapping import partition
from ..run import AnswerRange, by_slopes, drawn_range
from ..timing import Floats, Roofs, Timing, factors, load_parts
from .comparison import Comparison
from .methods import Method, whole_layers
from .sweep import standing
from .workload import Workload


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
