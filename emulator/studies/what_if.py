"""`--what-if KEY=VALUE`: the same run with some keys changed, beside the run as configured.

Keys are those of the cluster file (`link.bandwidth_gbps` on all links, `board.dsp` on all boards,
…) and some of the configuration file. Values are validated as in the files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..config import is_of_run, parse_changes
from ..run import Simulation, SteadyState

CONFIG_KEYS = (
    *("network", "cluster", "devices", "batch", "micro_batch", "schedule", "samples", "epochs"),
    *("warm_up", "chunks", "stages", "engines", "transport"),
    *("replicas", "exchange", "groups", "zero", "compress", "error_feedback", "compress_ratio"),
)


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """Changed values of cluster keys and of configuration keys."""

    cluster: dict[str, object]
    config: dict[str, object]

    def __str__(self) -> str:
        return ", ".join(
            f"{key} = {value}" for key, value in {**self.cluster, **self.config}.items()
        )


def parse_what_if(texts: Sequence[str]) -> WhatIf:
    """Parse `KEY=VALUE` texts (`config.parse_changes`).

    Raises:
        InputError: a text has another form, or a key is unknown or given twice.
    """
    changes = parse_changes(texts, "--what-if", CONFIG_KEYS)
    cluster = {key: value for key, value in changes.items() if not is_of_run(key)}
    return WhatIf(cluster, {key: value for key, value in changes.items() if is_of_run(key)})


@dataclasses.dataclass(frozen=True)
class Compared:
    """A figure, named with its unit, before and after the change; None where it is unknown."""

    figure: str
    before: float | None
    after: float | None

    @property
    def ratio(self) -> float | None:
        """`after` over `before`; None where it is undefined."""
        if self.before == self.after:
            return 1.0
        return self.after / self.before if self.before and self.after is not None else None


def compare_runs(
    before: tuple[Simulation, SteadyState | None],
    after: tuple[Simulation, SteadyState | None],
    epoch_images: int,
) -> list[Compared]:
    """Return the main figures of two runs side by side."""
    figures = [main_figures(*run, epoch_images) for run in (before, after)]
    return [
        Compared(name, figures[0].get(name), figures[1].get(name))
        for name in {**figures[0], **figures[1]}
    ]


def main_figures(
    simulation: Simulation, state: SteadyState | None, epoch_images: int
) -> dict[str, float | None]:
    """Return a run's main figures by name; names include units. Boards that take actions as a whole
    have no `state`.
    """
    if state is None:
        return {
            "virtual_time_ps": simulation.virtual_time_ps,
            "images_per_s": simulation.images_per_s,
        }
    convolutions = state.convolutions
    return {
        "virtual_time_ps": simulation.virtual_time_ps,
        **({"exchange_share": simulation.exchange_share} if state.replicas > 1 else {}),
        "steady_images_per_s": state.images_per_s,
        "steady_epoch_hours": state.epoch_hours(epoch_images),
        "convolutions_gops_per_fpga": convolutions.gops_per_fpga if convolutions else None,
        "convolutions_gop_per_j": convolutions.gop_per_j if convolutions else None,
        "all_layers_gops_per_fpga": state.all_layers.gops_per_fpga,
        "all_layers_gop_per_j": state.all_layers.gop_per_j,
        "mean_idle_share": state.mean_idle_share,
        "highest_demand_gbps": state.highest_demand_gbps,
        "fill_ps": state.fill_ps,
    }
