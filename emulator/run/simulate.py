"""Simulation: the same chain, schedule and clocks as in training, without numerics; of a pair, its mini-batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ...comm import Observer
from ..common import format_time_ps, html_table, number, percent
from ..pair import PairTimes
from ..plan import ChainPlan, PairPlan
from .record import GivenSizes, Usage
from .segment import Segment
from .segments import segments_of
from .timed_run import TimedRun


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A timing-only run of a plan.

    `epoch_ends_ps` holds the virtual time from the start to the end of each epoch; `samples` is the number of samples
    in an epoch. `exchange_ps` is the time that a device spent on exchanges with other replicas, averaged over devices.
    If boards die, the run has several segments, and `usage` is that of the last one.
    """

    plan: ChainPlan
    samples: int
    epoch_ends_ps: tuple[int, ...]
    usage: Usage
    exchange_ps: int = 0
    segments: tuple[Segment, ...] = ()

    @property
    def virtual_time_ps(self) -> int:
        """Virtual time of the whole run."""
        return self.epoch_ends_ps[-1]

    @property
    def images_per_s(self) -> float:
        """Rate of the whole run, including filling and draining."""
        return self.samples * len(self.epoch_ends_ps) / (self.virtual_time_ps * 1e-12)

    @property
    def exchange_share(self) -> float:
        """Share of the run's time that the exchange took."""
        return self.exchange_ps / self.virtual_time_ps

    @property
    def _nouns(self) -> str:
        return f"{self.plan.network.sample_noun}s"

    def __repr__(self) -> str:
        return (
            f"<Simulation of {len(self.epoch_ends_ps)} x {self.samples} {self._nouns} in"
            f" {format_time_ps(self.virtual_time_ps)}, {self.images_per_s:.1f} {self._nouns}/s>"
        )

    def _repr_html_(self) -> str:
        rows = [
            [self._nouns, f"{len(self.epoch_ends_ps)} x {self.samples}"],
            ["virtual time", f"{format_time_ps(self.virtual_time_ps)} ({self.virtual_time_ps} ps)"],
            ["rate, filling and draining included", f"{self.images_per_s:.1f} {self._nouns}/s"],
        ]
        if self.exchange_ps:
            rows.append(["exchange of gradients", f"{100 * self.exchange_share:.1f} % of the time"])
        if self.usage.links:
            busiest = max(self.usage.links, key=lambda link: link.utilisation)
            used = f"{busiest.sender} -> {busiest.receiver}, {100 * busiest.utilisation:.1f} %"
            rows.append(["busiest link", used])
        return html_table(f"Simulation of {self.plan.title}", rows)


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
            *([each.value, f"busy {percent(use.busy_ps / times.mini_batch_ps)}"] for each, use in times.busy.items()),
        ]
        return html_table(f"Simulation of {self.plan.title}", rows)

    @property
    def _run(self) -> str:
        return f"{len(self.epoch_ends_ps)} x {self.samples} {self.plan.network.sample_noun}s"

    @property
    def _rate(self) -> str:
        return f"{number(self.images_per_s)} {self.plan.network.sample_noun}s/s"


def simulate(
    plan: ChainPlan, samples: int, observer: Observer | None = None, sizes: Sequence[GivenSizes] = ()
) -> Simulation:
    """Run `plan.config.epochs` epochs of `samples` samples for timing only.

    `observer` is called with what engines, links and exchanges of the first replica serve. `sizes` are those of
    compressed messages, for each epoch; without them, messages have the size that the codec expects.
    """
    segments, ends = segments_of(plan, samples), list[int]()
    for segment in segments:
        timed = TimedRun(segment, observer, by_message=bool(sizes))
        for epoch, leg in segment.legs():
            if sizes and leg.first == 0:
                timed.give_sizes(sizes[epoch])
            end_ps = timed.leg(leg)
            if leg == segment.all_legs[-1]:
                ends.append(end_ps)
    return Simulation(plan, samples, tuple(ends), timed.usage(), timed.exchange_ps, segments)
