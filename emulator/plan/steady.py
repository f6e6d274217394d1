"""The steady pipeline, timed before training: which samples see old weights, and how many are in flight.

A sample whose FP starts on a device before that device has updated for the mini-batch before uses the old weights
(FPDeep, section 4.4). A few mini-batches are run for timing only, without waiting for weights, until two in a row show
the same staleness; that pattern continues, since samples enter the chain at a fixed interval.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..schedule import Staleness
from ..timing import Timing, Trace, free_run

_MOST_STEPS = 256


@dataclasses.dataclass(frozen=True)
class SteadyPipeline:
    """For each device the staleness of its weights, and the number of samples whose activations its Act-RAM holds.

    `fill_ps` is the fill time of the pipeline: from the first sample's entry to the end of its last PG.
    """

    staleness: tuple[Staleness, ...]
    in_flight: tuple[int, ...]
    fill_ps: int


def find_steady(timing: Timing, batch: int, exchange_ps: Sequence[int] = ()) -> SteadyPipeline:
    """Run mini-batches of `batch` samples until their staleness repeats, which needs a full pipeline.

    `exchange_ps` is the duration of each device's exchange with other replicas, if there are any. If more than 256
    mini-batches fit into the pipeline, the 256th sets the staleness, and later ones will wait for weights.
    """
    steps = 4
    while True:
        traces = free_run(timing, batch, steps, exchange_ps)
        last_two = [_staleness(timing, traces, step, batch) for step in (steps - 2, steps - 1)]
        fill_ps = max(trace.gradient_ps[0] for trace in traces)
        if last_two[0] == last_two[1] or steps == _MOST_STEPS:
            return SteadyPipeline(last_two[1], tuple(_in_flight(trace) for trace in traces), fill_ps)
        steps = min(max(2 * steps, fill_ps // (batch * timing.interval_ps) + 4), _MOST_STEPS)


def _staleness(timing: Timing, traces: Sequence[Trace], step: int, batch: int) -> tuple[Staleness, ...]:
    """Return the staleness of all devices, each at least that of the devices that store its parameters."""
    found = [_staleness_of(trace, step, batch) for trace in traces]
    for user, store in timing.stores:
        found[user] = found[user].at_least(found[store])
    return tuple(found)


def _staleness_of(trace: Trace, step: int, batch: int) -> Staleness:
    updated_ps = np.array(trace.updated_ps)

    def behind(starts_ps: list[int]) -> tuple[int, ...]:
        versions = np.searchsorted(updated_ps, starts_ps[step * batch : (step + 1) * batch], side="right")
        return tuple((step - np.minimum(step, versions)).tolist())

    return Staleness(behind(trace.forward_ps), behind(trace.backward_ps))


def _in_flight(trace: Trace) -> int:
    """Return the largest number of samples between the start of their FP and the end of their PG."""
    finished = np.searchsorted(trace.gradient_ps, trace.forward_ps, side="right")
    return int(np.max(np.arange(1, len(finished) + 1) - finished))
