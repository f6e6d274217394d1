"""Which samples of a mini-batch see old weights on which device: found by the clock, before training.

"A sample whose FP starts on a device before that device's update of the last mini-batch is done uses the old weights"
(FPDeep, section 4.4). A few mini-batches are run for their times alone, nobody waiting for weights, until two in a
row show the same lags; that is the pattern that goes on, since samples enter the chain at a fixed interval.
"""

from __future__ import annotations

import bisect

import numpy as np

from ..comm.host import run
from .chain import Placement, Wiring, build
from .device import Epoch, Trace
from .parameter import Sgd
from .schedule import Action, Lags, sync
from .timing import Timing

_MOST_STEPS = 64


def find_lags(timing: Timing, batch: int) -> list[Lags]:
    """The lags of each device once the pipeline runs steadily, for mini-batches of `batch` samples."""
    steps = 4
    while True:
        by_step = _lags_by_step(timing, batch, steps)
        if by_step[-1] == by_step[-2] or steps >= _MOST_STEPS:
            return by_step[-1]
        steps *= 2


def _lags_by_step(timing: Timing, batch: int, steps: int) -> list[list[Lags]]:
    devices = len(timing.mapping.devices)
    schedule = sync(devices, batch * steps, batch, batch)
    wiring = Wiring(Placement(devices, 1), 0, None, throttled=False, most_samples=batch, with_data=False)
    chain = build(timing, wiring, None, None, None)
    epoch = Epoch(schedule.micro_batches, [batch] * steps, np.zeros(0, np.int64), Sgd(0, 0, 0))
    programs = schedule.programs(range(devices))
    traces = []
    coroutines = []
    for device in chain.devices:
        device.trace = Trace()
        traces.append(device.trace)
        free_running = (Action(action.kind, action.index, None) for action in programs[device.number])
        coroutines.append(device.train(free_running, epoch, None))
    run(coroutines)
    return [
        [
            Lags(
                _lags(trace.forward_ps[step * batch : (step + 1) * batch], trace.updated_ps, step),
                _lags(trace.backward_ps[step * batch : (step + 1) * batch], trace.updated_ps, step),
            )
            for trace in traces
        ]
        for step in range(steps)
    ]


def _lags(starts_ps: list[int], updated_ps: list[int], step: int) -> tuple[int, ...]:
    return tuple(step - min(step, bisect.bisect_right(updated_ps, start)) for start in starts_ps)
