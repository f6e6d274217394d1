"""The four methods, and what each divides among devices (FPDeep, Table 4 and section 3.3)."""

from __future__ import annotations

import enum
from collections.abc import Callable

from ...mapping import cut_channels
from .data_parallel import data_parallel
from .model_parallel import model_parallel
from .outcome import Outcome
from .pipelines import hybrid_parallel, layer_parallel
from .workload import Workload


class Method(enum.Enum):
    """A way to divide training among devices."""

    DP = "data parallel"
    LP = "layer parallel"
    MP = "model parallel"
    HP = "hybrid parallel"

    @property
    def dimensions(self) -> frozenset[str]:
        """The dimensions divided: sample, layer, or model (channels); FPDeep, Table 4."""
        return _DIMENSIONS[self]

    def most_devices(self, workload: Workload) -> int:
        """Return the number of devices that can have work: one for each sample, layer, output channel of the narrowest
        layer, or channel of all layers that the hybrid method can cut."""
        layers = workload.network.layers
        if self is Method.DP:
            return workload.batch
        if self is Method.LP:
            return len(layers)
        if self is Method.MP:
            return min(layer.operation.pieces(layer.output) for layer in layers)
        return sum(map(cut_channels, layers))

    def run(self, workload: Workload, devices: int) -> Outcome:
        """Return the outcome of an iteration on `devices` devices, at most `most_devices`.

        Raises:
            InputError: a board has too few multipliers.
        """
        return _RUNS[self](workload, devices)


_DIMENSIONS = {
    Method.DP: frozenset({"sample"}),
    Method.LP: frozenset({"layer"}),
    Method.MP: frozenset({"model"}),
    Method.HP: frozenset({"layer", "model"}),
}
_RUNS: dict[Method, Callable[[Workload, int], Outcome]] = {
    Method.DP: data_parallel,
    Method.LP: layer_parallel,
    Method.MP: model_parallel,
    Method.HP: hybrid_parallel,
}
