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
from ..comm.message import Message, join, split
from ..kernels.arena import Arena
from .act_ram import ActRam
from .ends import Head, NoHead, NoImages, Source, Tally
from .mapping import DataPath, Slice
from .numerics import Numerics
from .parameter import Sgd
from .schedule import Action, Kind, MicroBatch, Portion
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
        arena: Arena,
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
        self._rest: dict[DataPath, Message] = {}
        self._arena = arena
        self._ends, self._output_error_times = ActRam(arena), ActRam(arena)

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
        for action in program:
            if action.kind is Kind.UPDATE:
                self._update(action.index - 1, epoch, on_step)
                continue
            portion = epoch.micro_batches[action.index].portion(action)
            not_before_ps = 0 if action.version is None else self.clock.updated_ps
            if action.kind is Kind.FORWARD:
                await self._forward(portion, epoch, not_before_ps)
            elif action.kind is Kind.BACKWARD:
                await self._backward(portion, not_before_ps)
            else:
                self._gradient(portion)

    async def _forward(self, portion: Portion, epoch: Epoch, not_before_ps: int) -> None:
        rows = await self._enter(portion, not_before_ps)
        for part, numerics, clock in zip(self.slices, self.numerics, self.clock.slices, strict=True):
            if not part.is_last:
                self._send(DataPath.ACTIVATIONS, portion, rows.times, numerics.beyond(rows.data))
            partial = await self._partial(DataPath.PARTIAL_ACTIVATIONS, portion, expected=not part.is_first)
            y = numerics.forward(portion, rows.data, partial.data if partial else None)
            times = clock.forward(rows.times, partial.times if partial else None, not_before_ps)
            if part.is_last:
                samples = epoch.sample_numbers[portion.slice]
                rows = _Rows(times[:, clock.maps.sfu], numerics.activate(portion, y, samples))
            else:
                self._send(DataPath.PARTIAL_ACTIVATIONS, portion, times, y)
        if self.trace is not None:
            self.trace.forward_ps.extend(self.clock.slices[0].fp_start_ps.tolist())
        if self.is_chain_end:
            self.head.forward(portion, rows.data)
            self._ends.put(portion, rows.times)
        elif self.slices[-1].is_last:
            self._send(DataPath.ACTIVATIONS, portion, rows.times, rows.data)

    async def _enter(self, portion: Portion, not_before_ps: int) -> _Rows:
        """What the device's first slice takes in: images from the source, or activations from the left."""
        if self.is_chain_start:
            rows = self.slices[0].layer.input[1]
            return _Rows(self.clock.enter(portion.samples, rows, not_before_ps), self.source.images(portion))
        return await self._receive(DataPath.ACTIVATIONS, portion)

    async def _backward(self, portion: Portion, not_before_ps: int) -> None:
        """EB of all slices, the last one first; keeps the times of their output errors, for PG."""
        output_error_times = []
        errors: _Rows | None = None
        for part, numerics, clock in zip(
            reversed(self.slices), reversed(self.numerics), reversed(self.clock.slices), strict=True
        ):
            if part.is_last:
                if errors is None:
                    errors = await self._errors_of_outputs(portion)
                dy = _Rows(errors.times[:, clock.maps.sfu_back], numerics.deactivate(portion, errors.data))
            else:
                dy = await self._receive(DataPath.OUTPUT_ERRORS, portion)
            if not part.is_first:
                self._send(DataPath.OUTPUT_ERRORS, portion, dy.times, numerics.before(dy.data))
            partial = await self._partial(
                DataPath.INPUT_ERRORS, portion, expected=not part.is_last and part.layer.index > 0
            )
            dx = numerics.error(portion, dy.data, partial.data if partial else None)
            times = clock.error(dy.times, partial.times if partial else None, not_before_ps)
            output_error_times.append(dy.times)
            errors = _Rows(times, dx)
        if self.trace is not None:
            self.trace.backward_ps.extend(self.clock.slices[-1].eb_start_ps.tolist())
        if self.slices[0].layer.index > 0 and errors is not None:
            self._send(DataPath.INPUT_ERRORS, portion, errors.times, errors.data)
        self._output_error_times.put(portion, *reversed(output_error_times))

    async def _errors_of_outputs(self, portion: Portion) -> _Rows:
        """Errors of what the device's last slice gave: from the loss, or from the right."""
        if self.is_chain_end:
            [times] = self._ends.read(portion)
            return _Rows(times, self.head.backward(portion))
        return await self._receive(DataPath.INPUT_ERRORS, portion)

    def _gradient(self, whole: Portion) -> None:
        all_times = self._output_error_times.read(whole)
        for numerics, clock, times in zip(self.numerics, self.clock.slices, all_times, strict=True):
            numerics.gradient(whole)
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
        for whole in (micro_batch.whole for micro_batch in micro_batches):
            if self.is_chain_start:
                x = self.source.images(whole)
            else:
                x = (await self._receive(DataPath.ACTIVATIONS, whole)).data
            for part, numerics in zip(self.slices, self.numerics, strict=True):
                if not part.is_last:
                    self._pass_on(DataPath.ACTIVATIONS, whole, part.layer.input[1], numerics.beyond(x))
                partial = await self._partial(DataPath.PARTIAL_ACTIVATIONS, whole, expected=not part.is_first)
                y = numerics.infer(x, partial.data if partial else None)
                if part.is_last:
                    x = numerics.activate_infer(y)
                else:
                    self._pass_on(DataPath.PARTIAL_ACTIVATIONS, whole, part.layer.output[1], y)
            if self.is_chain_end:
                self.head.infer(whole, x)
            elif self.slices[-1].is_last:
                self._pass_on(DataPath.ACTIVATIONS, whole, self.slices[-1].layer.feeds[1], x)

    def _send(self, path: DataPath, portion: Portion, ready: Times, data: Data | None) -> None:
        """Send rows as they become ready; the message says when they arrive."""
        self._outlets[path].put(Message(portion.first, self.clock.paths[path].serve(ready), data))

    def _pass_on(self, path: DataPath, whole: Portion, rows: int, data: Data | None) -> None:
        """Send outside virtual time."""
        self._outlets[path].put(Message(whole.first, np.zeros((whole.samples, rows), np.int64), data))

    async def _receive(self, path: DataPath, portion: Portion) -> _Rows:
        """A portion's samples, which may come in several messages, and more with them."""
        got = self._rest.pop(path, None) or await self._inlets[path].get()
        if got.first != portion.first:
            raise RuntimeError(f"device {self.number}: {path.name} of sample {got.first} came, {portion.first} was due")
        if len(got.times) < portion.samples:
            parts = [got]
            while sum(len(part.times) for part in parts) < portion.samples:
                parts.append(await self._inlets[path].get())
            got = join(parts, self._arena)
        if len(got.times) > portion.samples:
            got, self._rest[path] = split(got, portion.samples)
        return _Rows(got.times, got.data)

    async def _partial(self, path: DataPath, portion: Portion, *, expected: bool) -> _Rows | None:
        return await self._receive(path, portion) if expected else None
