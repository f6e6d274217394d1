"""`--what-if KEY=VALUE`: the same run with other values of some keys, beside the run as it is.

Keys are those of the cluster's file (`link.bandwidth_gbps`, `board.dsp`, …: on all links, on all boards) and some of
the configuration's. They are validated as in the files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..cluster.load import changeable_keys
from ..common.errors import InputError
from ..inputs.validation import tomllib
from ..report.steady_state import Report
from ..run.simulate import Simulation

CONFIG_KEYS = (
    *("network", "cluster", "devices", "batch", "schedule", "samples", "epochs"),
    *("replicas", "exchange", "groups", "compress", "compress_ratio"),
)


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """Other values: of keys of the cluster, and of the configuration."""

    cluster: dict[str, object]
    config: dict[str, object]

    def __str__(self) -> str:
        return ", ".join(f"{key} = {value}" for key, value in {**self.cluster, **self.config}.items())


def parse_what_if(texts: Sequence[str]) -> WhatIf:
    """What `KEY=VALUE` texts ask for; a value is TOML, or a word.

    Raises:
        InputError: a text of another form, an unknown key, or one given twice.
    """
    known = [*CONFIG_KEYS, *changeable_keys()]
    found: dict[str, object] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals:
            raise InputError(f"--what-if {text}: expected KEY=VALUE, such as link.bandwidth_gbps=250")
        if key not in known:
            raise InputError(f"--what-if {text}: unknown key `{key}`; known keys: {', '.join(known)}")
        if key in found:
            raise InputError(f"--what-if {text}: `{key}` is given twice")
        found[key] = _value(value.strip())
    cluster = {key: value for key, value in found.items() if key not in CONFIG_KEYS}
    return WhatIf(cluster, {key: value for key, value in found.items() if key in CONFIG_KEYS})


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


@dataclasses.dataclass(frozen=True)
class Compared:
    """A figure, named with its unit, as it is and as it would be; None where it is not known."""

    figure: str
    before: float | None
    after: float | None

    @property
    def ratio(self) -> float | None:
        """What it would be over what it is; None where that says nothing."""
        if self.before == self.after:
            return 1.0
        return self.after / self.before if self.before and self.after is not None else None


def compare(before: tuple[Simulation, Report], after: tuple[Simulation, Report], epoch_images: int) -> list[Compared]:
    """The figures of two runs side by side."""
    figures = [main_figures(*run, epoch_images) for run in (before, after)]
    return [Compared(name, figures[0].get(name), figures[1].get(name)) for name in {**figures[0], **figures[1]}]


def main_figures(simulation: Simulation, report: Report, epoch_images: int) -> dict[str, float | None]:
    """A run's main figures, by names with units."""
    convolutions = report.convolutions
    return {
        "virtual_time_ps": simulation.figures.virtual_time_ps,
        **({"exchange_share": simulation.exchange_share} if report.replicas > 1 else {}),
        "steady_images_per_s": report.images_per_s,
        "steady_epoch_hours": report.epoch_hours(epoch_images),
        "convolutions_gops_per_fpga": convolutions.gops_per_fpga if convolutions else None,
        "convolutions_gop_per_j": convolutions.gop_per_j if convolutions else None,
        "all_layers_gops_per_fpga": report.all_layers.gops_per_fpga,
        "all_layers_gop_per_j": report.all_layers.gop_per_j,
        "mean_idle_share": report.mean_idle_share,
        "highest_demand_gbps": report.highest_demand_gbps,
        "fill_ps": report.fill_ps,
    }
