"""The GPU of a pair, or a GPU alone: all layers, with the steps of recurrent ones on the FPGA, if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..schedule import Action, Kind, MicroBatch, with_versions
from .device import Epoch
from .device_numerics import DeviceNumerics
from .tally import Tally

OnUpdate = Callable[[int, Tally], None]
"""Callback with (step, tally)."""


async def train_on_gpu(numerics: DeviceNumerics, program: Iterable[Action], epoch: Epoch, on_update: OnUpdate) -> None:
    """Carry out an epoch's actions; `on_update` is called after each update."""
    assert numerics.head is not None and epoch.rule_of is not None
    numerics.begin_epoch()
    for action, keeps, frees in with_versions(program):
        if action.kind is Kind.UPDATE:
            step = action.index - 1
            numerics.update(epoch.step_samples[step], epoch.rule_of(step), keeps=keeps)
            on_update(step, numerics.head.step_done(step))
        else:
            span = epoch.micro_batches[action.index].span_of(action)
            if action.kind is Kind.FORWARD:
                await numerics.forward(span, {}, action.version or 0, epoch.sample_numbers[span.slice])
            elif action.kind is Kind.BACKWARD:
                await numerics.backward(span, {}, action.version or 0)
            else:
                numerics.gradient(span)
        if frees:
            numerics.free(frees)


async def evaluate_on_gpu(numerics: DeviceNumerics, micro_batches: Sequence[MicroBatch]) -> None:
    """Run forward propagation only, outside virtual time, with the newest weights; the GPU does all of it."""
    for micro_batch in micro_batches:
        await numerics.infer(micro_batch.whole, {})
