"""A free run: mini-batches through a chain of clocks, one after another, without waiting for any weights.

It shows the steady pipeline: when samples are where, and when updates are ready (FPDeep, section 4.4).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ...comm import Times
from ..mapping import DataPath, StreamKey
from ..schedule import MicroBatch
from .device_clock import DeviceClock
from .timing import Timing


@dataclasses.dataclass(frozen=True)
class Trace:
    """When each sample's FP and EB started and its PG ended on a device, and when updates were ready, in ps."""

    forward_ps: list[int] = dataclasses.field(default_factory=list)
    backward_ps: list[int] = dataclasses.field(default_factory=list)
    gradient_ps: list[int] = dataclasses.field(default_factory=list)
    updated_ps: list[int] = dataclasses.field(default_factory=list)


def free_run(timing: Timing, batch: int, steps: int, exchange_ps: Sequence[int] = ()) -> list[Trace]:
    """Run `steps` mini-batches of `batch` samples, each as one micro-batch; return the trace of each device.

    `exchange_ps` is the time of each device's exchange with other replicas, if there are any; all replicas are ready at
    the same time, and the exchanges of mini-batches follow one another.
    """
    chain = _Chain(timing)
    traces = [Trace() for _ in chain.clocks]
    exchanged_ps = [0] * len(chain.clocks)
    for step in range(steps):
        chain.step(MicroBatch(step, step, step * batch, (step + 1) * batch), traces)
        for device, (clock, trace) in enumerate(zip(chain.clocks, traces, strict=True)):
            stored_ps = chain.gradients_of_stored_ps(device)
            if exchange_ps:
                ready_ps = max(clock.gradients_ps(stored_ps), exchanged_ps[device])
                exchanged_ps[device] = ready_ps + exchange_ps[device]
            clock.update(stored_ps, exchanged_ps[device])
            trace.updated_ps.append(clock.updated_ps)
    return traces


class _Chain:
    """The clocks of all devices, and what has arrived at each."""

    def __init__(self, timing: Timing) -> None:
        self._blocks = timing.blocks
        self.clocks: list[DeviceClock] = [timing.clock(device) for device in range(len(timing.mapping.devices))]
        self._arrived: list[dict[StreamKey, Times]] = [{} for _ in self.clocks]

    def step(self, micro_batch: MicroBatch, traces: Sequence[Trace]) -> None:
        """Take a mini-batch forward through all devices, then backward, then into gradients."""
        whole, devices = micro_batch.whole, list(enumerate(zip(self.clocks, traces, strict=True)))
        for device, (clock, trace) in devices:
            self._deliver(device, clock.forward(whole, self._arrived[device], 0))
            trace.forward_ps.extend(clock.slices[0].fp_start_ps.tolist())
        for device, (clock, trace) in reversed(devices):
            self._deliver(device, clock.backward(whole, self._arrived[device], 0))
            trace.backward_ps.extend(clock.slices[-1].eb_start_ps.tolist())
        for device, (clock, trace) in devices:
            self._deliver(device, clock.gradient(whole))
            ends = zip(*(part.pg_end_ps.tolist() for part in clock.slices), strict=True)
            trace.gradient_ps.extend(map(max, ends))

    def gradients_of_stored_ps(self, device: int) -> list[int]:
        """Return the time in ps at which the last gradients of each block that a device stores arrived."""
        keys = (StreamKey(DataPath.PARAMETER_GRADIENTS, number) for number in self.clocks[device].streams.stored)
        return [int(self._arrived[device][key][-1, -1]) for key in keys]

    def _deliver(self, device: int, sent: Mapping[StreamKey, Times]) -> None:
        """Deliver what a device sends; balanced parameters and their gradients are relayed to where they are needed."""
        for key, times in sent.items():
            direction = 1 if key.path.is_forward else -1
            receiver, arrives = device + direction, times
            if key.path in (DataPath.PARAMETERS, DataPath.PARAMETER_GRADIENTS):
                block = self._blocks[key.number]
                end = block.user_device if direction == 1 else block.store_device
                while receiver != end:
                    arrives = self.clocks[receiver].relay(key, arrives)
                    receiver += direction
            self._arrived[receiver][key] = arrives
