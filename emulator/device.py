"""A device: a coroutine that awaits messages, computes, and sends messages (FPDeep, sections 5.1 and 5.2).

It holds slices of consecutive layers. Activations and partial sums come from the left and go to the right; errors come
from the right and go to the left. Numbers (`Numerics`) and time (`DeviceClock`) run beside one another, and neither
knows the other. Whether a neighbour is in this process or another the device does not know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..comm.clock import Times
from ..comm.host import Mailbox
from ..comm.message import Message
from .ends import Head, NoHead, NoImages, Source, Tally
from .mapping import DataPath, Slice
from .numerics import Numerics
from .parameter import Sgd
from .schedule import Action, Kind, MicroBatch
from .timing import DeviceClock

Data = NDArray[np.float32]


class Outlet(Protocol):
    """Where a device leaves a message for a neighbour."""

    def put(self, message: Message) -> None:
        """Send without waiting."""


@dataclasses.dataclass
class Trace:
    """When each sample's FP and EB started and its PG ended on a device, and when updates were through."""

    forward_ps: list[int] = dataclasses.field(default_factory=list)
    backward_ps: list[int] = dataclasses.field(default_factory=list)
    gradient_ps: list[int] = dataclasses.field(default_factory=list)
    updated_ps: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Epoch:
    """What a device needs to know of an epoch beside its actions."""

    micro_batches: Sequence[MicroBatch]
    step_samples: Sequence[int]
    sample_numbers: NDArray[np.int64]
    rule: Sgd


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Maps on their way, with the time of each row of each sample."""

    times: Times
    data: Data | None


class Device:
    """One FPGA of the chain."""

    def __init__(
        self,
        number: int,
        slices: Sequence[Slice],
        numerics: Sequence[Numerics],
        clock: DeviceClock,
        inlets: Mapping[DataPath, Mailbox],
        outlets: Mapping[DataPath, Outlet],
    ) -> None:
        self.number = number
        self.slices = slices
        self.numerics = numerics
        self.clock = clock
        self.source: Source = NoImages()
        self.head: Head = NoHead()
        self.trace: Trace | None = None
        self._inlets = inlets
        self._outlets = outlets
        self._errors: dict[int, Times] = {}

    @property
    def is_chain_start(self) -> bool:
        """Whether images enter here."""
        return self.number == 0

    @property
    def is_chain_end(self) -> bool:
        """Whether the loss is computed here."""
        last = self.slices[-1]
        return last.is_last and DataPath.ACTIVATIONS not in self._outlets

    async def train(
        self, program: Iterator[Action], epoch: Epoch, on_step: Callable[[int, Tally, int], None] | None
    ) -> None:
        """Carry out an epoch's actions; `on_step` (step, tally, virtual time) is called after each update."""
        output_error_times: dict[int, list[Times]] = {}
        for action in program:
            if action.kind is Kind.UPDATE:
                self._update(action.index - 1, epoch, on_step)
                continue
            micro_batch = epoch.micro_batches[action.index]
            not_before_ps = 0 if action.version is None else self.clock.updated_ps
            if action.kind is Kind.FORWARD:
                await self._forward(micro_batch, epoch, not_before_ps)
            elif action.kind is Kind.BACKWARD:
                output_error_times[action.index] = await self._backward(micro_batch, not_before_ps)
            else:
                self._gradient(action.index, output_error_times.pop(action.index))

    async def _forward(self, micro_batch: MicroBatch, epoch: Epoch, not_before_ps: int) -> None:
        index = micro_batch.index
        rows = await self._enter(micro_batch, not_before_ps)
        for part, numerics, clock in zip(self.slices, self.numerics, self.clock.slices, strict=True):
            if not part.is_last:
                self._send(DataPath.ACTIVATIONS, index, rows.times, numerics.beyond(rows.data))
            partial = await self._partial(DataPath.PARTIAL_ACTIVATIONS, index, expected=not part.is_first)
            y = numerics.forward(index, rows.data, partial.data if partial else None)
            times = clock.forward(rows.times, partial.times if partial else None, not_before_ps)
            if part.is_last:
                samples = epoch.sample_numbers[micro_batch.begin : micro_batch.end]
                rows = _Rows(times[:, clock.maps.sfu], numerics.activate(index, y, samples))
            else:
                self._send(DataPath.PARTIAL_ACTIVATIONS, index, times, y)
        if self.trace is not None:
            self.trace.forward_ps.extend(self.clock.slices[0].fp_start_ps.tolist())
        if self.is_chain_end:
            self.head.forward(micro_batch, rows.data)
            self._errors[index] = rows.times
        elif self.slices[-1].is_last:
            self._send(DataPath.ACTIVATIONS, index, rows.times, rows.data)

    async def _enter(self, micro_batch: MicroBatch, not_before_ps: int) -> _Rows:
        """What the device's first slice takes in: images from the source, or activations from the left."""
        if self.is_chain_start:
            rows = self.slices[0].layer.input[1]
            return _Rows(self.clock.enter(micro_batch.samples, rows, not_before_ps), self.source.images(micro_batch))
        return await self._receive(DataPath.ACTIVATIONS, micro_batch.index)

    async def _backward(self, micro_batch: MicroBatch, not_before_ps: int) -> list[Times]:
        """EB of all slices, the last one first; returns the times of their output errors, for PG."""
        index = micro_batch.index
        all_times = []
        errors: _Rows | None = None
        for part, numerics, clock in zip(
            reversed(self.slices), reversed(self.numerics), reversed(self.clock.slices), strict=True
        ):
            if part.is_last:
                if errors is None:
                    errors = await self._errors_of_outputs(micro_batch)
                dy = _Rows(errors.times[:, clock.maps.sfu_back], numerics.deactivate(index, errors.data))
            else:
                dy = await self._receive(DataPath.OUTPUT_ERRORS, index)
            if not part.is_first:
                self._send(DataPath.OUTPUT_ERRORS, index, dy.times, numerics.before(dy.data))
            partial = await self._partial(
                DataPath.INPUT_ERRORS, index, expected=not part.is_last and part.layer.index > 0
            )
            dx = numerics.error(index, dy.data, partial.data if partial else None)
            times = clock.error(dy.times, partial.times if partial else None, not_before_ps)
            all_times.append(dy.times)
            errors = _Rows(times, dx)
        if self.trace is not None:
            self.trace.backward_ps.extend(self.clock.slices[-1].eb_start_ps.tolist())
        if self.slices[0].layer.index > 0 and errors is not None:
            self._send(DataPath.INPUT_ERRORS, index, errors.times, errors.data)
        return all_times[::-1]

    async def _errors_of_outputs(self, micro_batch: MicroBatch) -> _Rows:
        """Errors of what the device's last slice gave: from the loss, or from the right."""
        if self.is_chain_end:
            return _Rows(self._errors.pop(micro_batch.index), self.head.backward(micro_batch))
        return await self._receive(DataPath.INPUT_ERRORS, micro_batch.index)

    def _gradient(self, index: int, output_error_times: list[Times]) -> None:
        for numerics, clock, times in zip(self.numerics, self.clock.slices, output_error_times, strict=True):
            numerics.gradient(index)
            clock.gradient(times)
        if self.trace is not None:
            ends = [clock.pg_end_ps for clock in self.clock.slices]
            self.trace.gradient_ps.extend(np.max(ends, axis=0).tolist())

    def _update(self, step: int, epoch: Epoch, on_step: Callable[[int, Tally, int], None] | None) -> None:
        for numerics in self.numerics:
            numerics.update(epoch.step_samples[step], epoch.rule)
        self.clock.update()
        if self.trace is not None:
            self.trace.updated_ps.append(self.clock.updated_ps)
        if on_step is not None:
            on_step(step, self.head.step_done(step), self.clock.updated_ps)

    async def evaluate(self, micro_batches: Sequence[MicroBatch]) -> None:
        """Forward propagation only, outside virtual time, with the weights as they are."""
        for micro_batch in micro_batches:
            index = micro_batch.index
            if self.is_chain_start:
                x = self.source.images(micro_batch)
            else:
                x = (await self._receive(DataPath.ACTIVATIONS, index)).data
            for part, numerics in zip(self.slices, self.numerics, strict=True):
                if not part.is_last:
                    self._pass_on(DataPath.ACTIVATIONS, micro_batch, part.layer.input[1], numerics.beyond(x))
                partial = await self._partial(DataPath.PARTIAL_ACTIVATIONS, index, expected=not part.is_first)
                y = numerics.infer(x, partial.data if partial else None)
                if part.is_last:
                    x = numerics.activate_infer(y)
                else:
                    self._pass_on(DataPath.PARTIAL_ACTIVATIONS, micro_batch, part.layer.output[1], y)
            if self.is_chain_end:
                self.head.infer(micro_batch, x)
            elif self.slices[-1].is_last:
                self._pass_on(DataPath.ACTIVATIONS, micro_batch, self.slices[-1].layer.feeds[1], x)

    def _send(self, path: DataPath, index: int, ready: Times, data: Data | None) -> None:
        """Send rows as they become ready; the message says when they arrive."""
        self._outlets[path].put(Message(index, self.clock.paths[path].serve(ready), data))

    def _pass_on(self, path: DataPath, micro_batch: MicroBatch, rows: int, data: Data | None) -> None:
        """Send outside virtual time."""
        self._outlets[path].put(Message(micro_batch.index, np.zeros((micro_batch.samples, rows), np.int64), data))

    async def _receive(self, path: DataPath, index: int) -> _Rows:
        message = await self._inlets[path].get()
        if message.micro_batch != index:
            raise RuntimeError(f"device {self.number}: {path.name} of {message.micro_batch} came, {index} was due")
        return _Rows(message.times, message.data)

    async def _partial(self, path: DataPath, index: int, *, expected: bool) -> _Rows | None:
        return await self._receive(path, index) if expected else None
