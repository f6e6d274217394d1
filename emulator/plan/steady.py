"""The steady pipeline, timed before training: which samples use old weights, and how many are in flight.

A sample whose FP starts on a device before that device has updated for the mini-batch before uses the old weights
(FPDeep, section 4.4). A few mini-batches are run for timing only, without waiting for weights, until two in a row show
the same staleness; that pattern continues, since samples enter the chain at a fixed interval.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...comm import Times
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
        found = [_Device.of(trace, steps, batch) for trace in free_run(timing, batch, steps, exchange_ps)]
        before = _with_stores(timing, [device.before for device in found])
        last = _with_stores(timing, [device.last for device in found])
        fill_ps = max(device.fill_ps for device in found)
        if before == last or steps == _MOST_STEPS:
            return SteadyPipeline(last, tuple(device.in_flight for device in found), fill_ps)
        steps = min(max(2 * steps, fill_ps // (batch * timing.interval_ps) + 4), _MOST_STEPS)


class _Device(NamedTuple):
    """What a free run shows of a device: its staleness in the last two steps, samples in flight, and the fill time."""

    before: Staleness
    last: Staleness
    in_flight: int
    fill_ps: int

    @classmethod
    def of(cls, trace: Trace, steps: int, batch: int) -> _Device:
        """Return it of a trace of `steps` mini-batches."""
        return cls(*_staleness_of(trace, steps, batch), _in_flight(trace), int(trace.gradient_ps[0]))


def _with_stores(timing: Timing, staleness: Sequence[Staleness]) -> tuple[Staleness, ...]:
    """Return the staleness of all devices, each at least that of the devices that store its parameters."""
    found = list(staleness)
    for user, store in timing.stores:
        found[user] = found[user].at_least(found[store])
    return tuple(found)


def _staleness_of(trace: Trace, steps: int, batch: int) -> tuple[Staleness, Staleness]:
    """Return the staleness in the last two of `steps` mini-batches."""
    step = np.array([[steps - 2], [steps - 1]])

    def behind(starts_ps: Times) -> list[list[int]]:
        versions = np.searchsorted(trace.updated_ps, starts_ps[-2 * batch :], side="right")
        return np.asarray(step - np.minimum(step, versions.reshape(2, batch))).tolist()

    before, last = zip(behind(trace.forward_ps), behind(trace.backward_ps), strict=True)
    return Staleness(*map(tuple, before)), Staleness(*map(tuple, last))


def _in_flight(trace: Trace) -> int:
    """Return the largest number of samples between the start of their FP and the end of their PG."""
    finished = np.searchsorted(trace.gradient_ps, trace.forward_ps, side="right")
    return int(np.max(np.arange(1, len(finished) + 1) - finished))
