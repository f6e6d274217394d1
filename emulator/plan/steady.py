"""The steady pipeline, found by the clock before training: who sees old weights, and how many samples are in flight.

"A sample whose FP starts on a device before that device's update of the last mini-batch is done uses the old weights"
(FPDeep, section 4.4). A few mini-batches are run for their times alone, nobody waiting for weights, until two in a
row show the same lags; that is the pattern that goes on, since samples enter the chain at a fixed interval.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from ...comm.exchange.gradient import Gradient
from ...comm.host import run
from ..device.device import Epoch, Trace
from ..device.parameter import Sgd
from ..run.chain import Placement, Wiring, build
from ..schedule.action import Action, Kind
from ..schedule.pipeline import Lags, cut_samples
from ..timing.timing import Timing

_MOST_STEPS = 256


@dataclasses.dataclass(frozen=True)
class Steady:
    """For each device: the lags of its weights, and the samples whose activations its Act-RAM holds at once.

    `fill_ps` is what the pipeline takes to fill: from the first sample's entry to the end of its last PG.
    """

    lags: tuple[Lags, ...]
    in_flight: tuple[int, ...]
    fill_ps: int


class _Waiting:
    """An exchange with replicas that are ready at the same time; one mini-batch's after the other."""

    replicas = 1

    def __init__(self, takes_ps: int) -> None:
        self._takes_ps, self._done_ps = takes_ps, 0

    async def total(self, gradient: Gradient, ready_ps: int) -> int:
        """Wait."""
        self._done_ps = max(ready_ps, self._done_ps) + self._takes_ps
        return self._done_ps


def find_steady(timing: Timing, batch: int, exchange_ps: Sequence[int] = ()) -> Steady:
    """Run mini-batches of `batch` samples until the pattern repeats, which it does not before the pipeline is full.

    `exchange_ps` says for each device what its exchange with other replicas takes, if there are any. If more than 256
    mini-batches fit into the pipeline, the last of those counts, and later ones will wait for weights.
    """
    steps = 4
    while True:
        traces = _free_run(timing, batch, steps, exchange_ps)
        lags = [_all_lags(timing, traces, step, batch) for step in (steps - 2, steps - 1)]
        fill_ps = max(trace.gradient_ps[0] for trace in traces)
        if lags[0] == lags[1] or steps == _MOST_STEPS:
            return Steady(lags[1], tuple(_in_flight(trace) for trace in traces), fill_ps)
        steps = min(max(2 * steps, fill_ps // (batch * timing.interval_ps) + 4), _MOST_STEPS)


def _free_run(timing: Timing, batch: int, steps: int, exchange_ps: Sequence[int]) -> list[Trace]:
    devices = len(timing.mapping.devices)
    micro_batches = cut_samples(batch * steps, batch, batch)
    wiring = Wiring(Placement(devices, 1), 0, None, throttled=False, most_samples=batch, with_data=False)
    chain = build(timing, wiring, None)
    for device, takes_ps in zip(chain.devices, exchange_ps, strict=False):
        device.exchange = _Waiting(takes_ps)
    samples = [batch] * steps
    epoch = Epoch(micro_batches, samples, np.zeros(0, np.int64), Sgd(0, 0, 0), samples)
    traces = []
    for device in chain.devices:
        device.trace = Trace()
        traces.append(device.trace)
    run(chain.train({device.number: _free_running(steps) for device in chain.devices}, epoch))
    return traces


def _free_running(steps: int) -> Iterator[Action]:
    """Mini-batch after mini-batch as one micro-batch, without versions: nobody waits for weights."""
    for step in range(steps):
        for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.GRADIENT):
            yield Action(kind, step)
        yield Action(Kind.UPDATE, step + 1)


def _all_lags(timing: Timing, traces: list[Trace], step: int, batch: int) -> tuple[Lags, ...]:
    """The lags of all devices. Who uses parameters that are stored elsewhere sees weights as old as those there."""
    lags = [_lags(trace, step, batch) for trace in traces]
    for loan in sorted(timing.loans, key=lambda loan: loan.user_device):
        lags[loan.user_device] = lags[loan.user_device].at_least(lags[loan.store_device])
    return tuple(lags)


def _lags(trace: Trace, step: int, batch: int) -> Lags:
    def behind(starts_ps: list[int]) -> tuple[int, ...]:
        return tuple(
            step - min(step, bisect.bisect_right(trace.updated_ps, start))
            for start in starts_ps[step * batch : (step + 1) * batch]
        )

    return Lags(behind(trace.forward_ps), behind(trace.backward_ps))


def _in_flight(trace: Trace) -> int:
    """The most samples between the start of their FP and the end of their PG."""
    finished = [bisect.bisect_right(trace.gradient_ps, start) for start in trace.forward_ps]
    return max(number + 1 - done for number, done in enumerate(finished))
