"""A finished run's times under another cluster, beside its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from ..common import format_time_ps, html_table, plural
from ..plan import ChainPlan
from ..run import Simulation, SteadyState


@dataclasses.dataclass(frozen=True)
class Retiming:
    """A finished run, which took `own_ends_ps` as planned in `own`, timed under another cluster.

    `own_ends_ps` and `epoch_ends_ps` are the virtual times from the start to the end of each epoch. `label` names the
    other cluster; `notes` say what is assumed.
    """

    label: str
    own: ChainPlan
    own_ends_ps: tuple[int, ...]
    simulation: Simulation
    steady: SteadyState
    notes: tuple[str, ...] = ()

    @property
    def plan(self) -> ChainPlan:
        """The run's plan under the other cluster."""
        return self.simulation.plan

    @property
    def epoch_ends_ps(self) -> tuple[int, ...]:
        """Virtual time under the other cluster, from the start to the end of each epoch."""
        return self.simulation.epoch_ends_ps

    @property
    def virtual_time_ps(self) -> int:
        """Virtual time of the whole run under the other cluster."""
        return self.simulation.virtual_time_ps

    @property
    def own_virtual_time_ps(self) -> int:
        """Virtual time of the run as it was."""
        return self.own_ends_ps[-1]

    @property
    def images_per_s(self) -> float:
        """Rate of the whole run under the other cluster."""
        return self.simulation.images_per_s

    @property
    def own_images_per_s(self) -> float:
        """Rate of the whole run as it was."""
        return self.images_per_s / self.speed_up

    @property
    def speed_up(self) -> float:
        """Time of the run over that under the other cluster."""
        return self.own_virtual_time_ps / self.virtual_time_ps

    @property
    def own_stale_samples(self) -> tuple[int, ...]:
        """Samples of a mini-batch that used old weights, by device."""
        return _stale_samples(self.own)

    @property
    def stale_samples(self) -> tuple[int, ...]:
        """Samples of a mini-batch that would use old weights under the other cluster, by device."""
        return _stale_samples(self.plan)

    @property
    def same_staleness(self) -> bool:
        """Whether each sample would use weights as old as in the run, so that time changes no numbers."""
        return self.plan.config.schedule.drains or self.own.steady.staleness == self.plan.steady.staleness

    @property
    def about_numbers(self) -> str:
        """One line: whether accuracy and loss would stay as they are."""
        schedule, batch = self.plan.config.schedule, self.plan.batch
        if schedule.drains:
            return f"accuracy and loss stay: under {schedule.name} they do not depend on time"
        if self.same_staleness:
            return f"accuracy and loss stay: under {self.label} the same samples use old weights"
        before, after = self.own_stale_samples, self.stale_samples
        device = int(np.argmax(np.abs(np.subtract(after, before))))
        where = f"on device {device}"
        also = sum(a != b for a, b in zip(before, after, strict=True)) - 1
        if also > 0:
            where += f" and others on {also} more"
        changed = f"{after[device]} instead of {before[device]} of {plural(batch, 'sample')} use old weights {where}"
        if before == after:
            changed = "EB of other samples uses old weights"
        return f"under {self.label} {changed}: accuracy and loss would differ; times are right"

    def __repr__(self) -> str:
        return (
            f"<Retiming under {self.label}: {format_time_ps(self.own_virtual_time_ps)} ->"
            f" {format_time_ps(self.virtual_time_ps)}, {self.images_per_s:.1f} {self.plan.network.sample_noun}s/s,"
            f" limited by {self.steady.bottleneck.slowest.name}>"
        )

    def _repr_html_(self) -> str:
        rows = [
            ["virtual time", format_time_ps(self.own_virtual_time_ps), format_time_ps(self.virtual_time_ps)],
            [f"{self.plan.network.sample_noun}s/s", f"{self.own_images_per_s:.1f}", f"{self.images_per_s:.1f}"],
            ["speed-up", "", f"{self.speed_up:.3g}"],
            ["limited by", "", self.steady.bottleneck.slowest.name],
            ["accuracy and loss", "", "stay" if self.same_staleness else "would differ"],
        ]
        return html_table(f"Run under {self.label}", rows, ["", "as it was", "retimed"])


def label_of(cluster: str, changes: Mapping[str, object] | None) -> str:
    """Return what a cluster with changed keys is called: `vc709 (link.bandwidth_gbps=10)`."""
    changed = ", ".join(f"{key}={value}" for key, value in (changes or {}).items())
    return f"{cluster} ({changed})" if changed else cluster


def _stale_samples(plan: ChainPlan) -> tuple[int, ...]:
    return () if plan.config.schedule.drains else tuple(late.stale_samples for late in plan.steady.staleness)
