"""Simulation of a GPU, alone or with an FPGA: the timeline of its mini-batches, without numerics."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...common import format_time_ps, html_table, number, percent
from ...pair import PairTimes
from ...plan import PairPlan


@dataclasses.dataclass(frozen=True)
class PairSimulation:
    """A timing-only run of a plan on a GPU, alone or with an FPGA; its mini-batches follow one another."""

    plan: PairPlan

    @property
    def samples(self) -> int:
        """Number of samples in an epoch."""
        return self.plan.samples

    @property
    def times(self) -> PairTimes:
        """The timeline of a mini-batch: tasks, and how long each resource is busy."""
        return self.plan.times

    @property
    def epoch_ends_ps(self) -> tuple[int, ...]:
        """Virtual time from the start to the end of each epoch."""
        return self.plan.epoch_ends_ps

    @property
    def virtual_time_ps(self) -> int:
        """Virtual time of the whole run."""
        return self.epoch_ends_ps[-1]

    @property
    def images_per_s(self) -> float:
        """Rate of the whole run, of samples of any kind."""
        return self.samples * len(self.epoch_ends_ps) / (self.virtual_time_ps * 1e-12)

    def to_dict(self) -> dict[str, Any]:
        """Return what `emuchain simulate --json` prints (docs/running.md)."""
        return self.plan.to_dict()

    def __str__(self) -> str:
        return str(self.plan)

    def __repr__(self) -> str:
        return f"<PairSimulation of {self._run} in {format_time_ps(self.virtual_time_ps)}, {self._rate}>"

    def _repr_html_(self) -> str:
        times = self.times
        rows = [
            [f"{self.plan.network.sample_noun}s", f"{len(self.epoch_ends_ps)} x {self.samples}"],
            ["virtual time", f"{format_time_ps(self.virtual_time_ps)} ({self.virtual_time_ps} ps)"],
            ["mini-batch", f"{format_time_ps(times.mini_batch_ps)}, of it FW {format_time_ps(times.forward_ps)}"],
            ["rate", self._rate],
            *([each.value, f"busy {percent(of.busy_ps / times.mini_batch_ps)}"] for each, of in times.busy.items()),
        ]
        return html_table(f"Simulation of {self.plan.title}", rows)

    @property
    def _run(self) -> str:
        return f"{len(self.epoch_ends_ps)} x {self.samples} {self.plan.network.sample_noun}s"

    @property
    def _rate(self) -> str:
        return f"{number(self.images_per_s)} {self.plan.network.sample_noun}s/s"
