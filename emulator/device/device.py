"""A device: a coroutine that awaits messages, computes, and sends messages (FPDeep, sections 5.1 and 5.2).

It holds slices of consecutive layers. Activations and partial sums come from the left and go to the right; errors come
from the right and go to the left; so does what passes by, for layers further on. Numbers (`Numerics`) and time
(`DeviceClock`) run beside one another, and neither knows the other. Whether a neighbour is in this process or another
the device does not know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...comm.host import Mailbox
from ...kernels.arena import Arena
from ...kernels.codec.codec import Codec, NoCodec
from ..mapping.balancing import Loan
from ..mapping.slices import Slice
from ..mapping.traffic import DataPath, Lane
from ..network.layers import Layer, Tensor
from ..schedule.action import Action, Kind, MicroBatch, Portion
from ..timing.timing import DeviceClock
from .act_ram import ActRam
from .balanced import Balanced, Stored
from .ends import Head, NoHead, NoImages, Source, Tally
from .gradients import Exchange, GradientRow
from .numerics import Numerics
from .parameter import Sgd
from .ports import Held, Maps, Outlet, Ports, Rows


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
    all_step_samples: Sequence[int] = ()  # those of all replicas; none where there is one


class Device:
    """One FPGA of the chain."""

    def __init__(
        self,
        number: int,
        slices: Sequence[Slice],
        numerics: Sequence[Numerics],
        clock: DeviceClock,
        inlets: Mapping[Lane, Mailbox],
        outlets: Mapping[Lane, Outlet],
        arena: Arena,
        loans: Sequence[Loan] = (),
        stored: Mapping[int, Stored] | None = None,
        codec: Codec | None = None,
    ) -> None:
        self.number = number
        self.slices = slices
        self.numerics = numerics
        self.clock = clock
        self.source: Source = NoImages()
        self.head: Head = NoHead()
        self.trace: Trace | None = None
        self.exchange: Exchange | None = None
        self.gradient_row = GradientRow(number, slices, loans)
        self._ports = Ports(number, inlets, outlets, clock.paths, arena)
        self._balanced = Balanced(number, slices, loans, self._ports, stored or {}, codec or NoCodec())
        self._ends, self._output_error_times = ActRam(arena), ActRam(arena)

    @property
    def is_chain_start(self) -> bool:
        """Whether images enter here."""
        return self.number == 0

    @property
    def is_chain_end(self) -> bool:
        """Whether the loss is computed here."""
        last = self.slices[-1]
        return last.is_last and not self._ports.sends_on(DataPath.ACTIVATIONS)

    async def train(
        self, program: Iterator[Action], epoch: Epoch, on_step: Callable[[int, Tally, int], None] | None
    ) -> None:
        """Carry out an epoch's actions; `on_step` (step, tally, virtual time) is called after each update."""
        for action in program:
            if action.kind is Kind.UPDATE:
                await self._update(action.index - 1, epoch, on_step)
                continue
            portion = epoch.micro_batches[action.index].portion(action)
            not_before_ps = 0 if action.version is None else self.clock.updated_ps
            if action.kind is Kind.FORWARD:
                await self._forward(portion, epoch, not_before_ps)
            elif action.kind is Kind.BACKWARD:
                await self._backward(portion, not_before_ps)
            else:
                self._gradient(portion, epoch)

    def relays(self, epoch: Epoch) -> list[Coroutine[Any, Any, None]]:
        """What others send one another through this device in an epoch, which it passes on beside its program."""
        return self._balanced.relays(epoch.step_samples)

    async def _forward(self, portion: Portion, epoch: Epoch, not_before_ps: int) -> None:
        held = await self._enter(portion, not_before_ps)
        held_here = zip(self.slices, self.numerics, self.clock.slices, strict=True)
        for place, (part, numerics, clock) in enumerate(held_here):
            layer = part.layer
            x = held.rows(layer.reads)
            if not part.is_last:
                self._hand_on(layer, held, portion, numerics)
            partial = await self._partial(part, portion)
            y = numerics.forward(portion, x.data, partial.data if partial else None)
            ready_ps = await self._balanced.here_ps(place, portion, not_before_ps)
            times = clock.forward(x.times, partial.times if partial else None, ready_ps)
            if part.is_last:
                held.put(layer.makes, times, y)
                clock.activate(held.times)
                numerics.activate(portion, held.data, epoch.sample_numbers[portion.slice])
                held.keep(layer.hands_on)
            else:
                self._ports.send(Lane(DataPath.PARTIAL_ACTIVATIONS, layer.makes.number), portion.first, times, y)
        self._balanced.lend(portion, self.clock.slices[0].fp_start_ps)
        if self.trace is not None:
            self.trace.forward_ps.extend(self.clock.slices[0].fp_start_ps.tolist())
        last = self.slices[-1]
        if self.is_chain_end:
            outputs = held.rows(last.layer.hands_on[0])
            self.head.forward(portion, outputs.data)
            self._ends.put(portion, outputs.times)
        elif last.is_last:
            for tensor in last.layer.hands_on:
                rows = held.rows(tensor)
                self._ports.send(Lane(DataPath.ACTIVATIONS, tensor.number), portion.first, rows.times, rows.data)

    async def _enter(self, portion: Portion, not_before_ps: int) -> Held:
        """What the device's first slice takes in: images from the source, or activations from the left."""
        held, layer = Held(), self.slices[0].layer
        if self.is_chain_start:
            times = self.clock.enter(portion.samples, layer.input[1], not_before_ps)
            held.put(layer.reads, times, self.source.images(portion))
            return held
        return await self._ports.receive_all(DataPath.ACTIVATIONS, layer.takes, portion)

    def _hand_on(self, layer: Layer, held: Held, portion: Portion, numerics: Numerics) -> None:
        """Pass to the next slice of a layer what that needs of what came here."""
        for tensor in layer.takes:
            rows = held.rows(tensor)
            data = numerics.beyond(rows.data) if tensor == layer.reads else rows.data
            self._ports.send(Lane(DataPath.ACTIVATIONS, tensor.number), portion.first, rows.times, data)

    async def _partial(self, part: Slice, portion: Portion) -> Rows | None:
        """The partial sums of the slices before."""
        if part.is_first:
            return None
        return await self._ports.receive(Lane(DataPath.PARTIAL_ACTIVATIONS, part.layer.makes.number), portion)

    async def _backward(self, portion: Portion, not_before_ps: int) -> None:
        """EB of all slices, the last one first; keeps the times of their output errors, for PG."""
        output_error_times = []
        errors = await self._errors_of_outputs(portion) if self.slices[-1].is_last else Held()
        for part, numerics, clock in zip(
            reversed(self.slices), reversed(self.numerics), reversed(self.clock.slices), strict=True
        ):
            layer = part.layer
            output_errors = Lane(DataPath.OUTPUT_ERRORS, layer.makes.number)
            if part.is_last:
                clock.deactivate(errors.times)
                numerics.deactivate(portion, errors.data)
                dy = errors.pop(layer.makes)
            else:
                dy = await self._ports.receive(output_errors, portion)
            if not part.is_first:
                self._ports.send(output_errors, portion.first, dy.times, numerics.before(dy.data))
            if not part.is_last:
                errors = await self._ports.receive_all(DataPath.INPUT_ERRORS, layer.takes, portion)
            dx = numerics.error(portion, dy.data, errors.data.get(layer.reads.number))
            times = clock.error(dy.times, errors.times.get(layer.reads.number), not_before_ps)
            errors.put(layer.reads, times, dx)
            output_error_times.append(dy.times)
        if self.trace is not None:
            self.trace.backward_ps.extend(self.clock.slices[-1].eb_start_ps.tolist())
        if not self.is_chain_start:
            for tensor in self.slices[0].layer.takes:
                if not tensor.is_images:
                    rows = errors.rows(tensor)
                    self._ports.send(Lane(DataPath.INPUT_ERRORS, tensor.number), portion.first, rows.times, rows.data)
        self._output_error_times.put(portion, *reversed(output_error_times))

    async def _errors_of_outputs(self, portion: Portion) -> Held:
        """Errors of what the device's last layer hands on: from the loss, or from the right."""
        tensors = self.slices[-1].layer.hands_on
        if not self.is_chain_end:
            return await self._ports.receive_all(DataPath.INPUT_ERRORS, tensors, portion)
        held = Held()
        [times] = self._ends.read(portion)
        held.put(tensors[0], times, self.head.backward(portion))
        return held

    def _gradient(self, whole: Portion, epoch: Epoch) -> None:
        all_times = self._output_error_times.read(whole)
        following = epoch.micro_batches[whole.of.index + 1 : whole.of.index + 2]
        ends_step = not following or following[0].step > whole.of.step
        ends_step_of = epoch.step_samples[whole.of.step] if ends_step else None
        held_here = zip(self.numerics, self.clock.slices, all_times, strict=True)
        for place, (numerics, clock, times) in enumerate(held_here):
            numerics.gradient(whole)
            clock.gradient(times)
            self._balanced.give_back(place, whole, clock.pg_end_ps, numerics, ends_step_of=ends_step_of)
        if self.trace is not None:
            ends = [clock.pg_end_ps for clock in self.clock.slices]
            self.trace.gradient_ps.extend(np.max(ends, axis=0).tolist())

    async def _update(self, step: int, epoch: Epoch, on_step: Callable[[int, Tally, int], None] | None) -> None:
        samples, exchanged_ps = epoch.step_samples[step], 0
        collected = await self._balanced.collect(step, epoch.micro_batches, samples)
        came_ps, returned = [came for came, _ in collected], [gradient for _, gradient in collected]
        if self.exchange is not None:
            samples = self.exchange.replicas
            gradient = self.gradient_row.gather(self.numerics, returned, samples / epoch.all_step_samples[step])
            exchanged_ps = await self.exchange.total(gradient, self.clock.gradients_ps(came_ps))
            returned = self.gradient_row.scatter(gradient, self.numerics)
        self._balanced.update_stored(step, returned, samples, epoch.rule)
        for numerics in self.numerics:
            numerics.update(samples, epoch.rule)
        await self._balanced.update_used(self.numerics)
        self.clock.update(came_ps, exchanged_ps)
        if self.trace is not None:
            self.trace.updated_ps.append(self.clock.updated_ps)
        if on_step is not None:
            on_step(step, self.head.step_done(step), self.clock.updated_ps)

    async def evaluate(self, micro_batches: Sequence[MicroBatch]) -> None:
        """Forward propagation only, outside virtual time, with the weights as they are."""
        for whole in (micro_batch.whole for micro_batch in micro_batches):
            data = await self._enter_untimed(whole)
            for part, numerics in zip(self.slices, self.numerics, strict=True):
                layer = part.layer
                x = data[layer.reads.number]
                if not part.is_last:
                    for tensor in layer.takes:
                        passing = numerics.beyond(x) if tensor == layer.reads else data[tensor.number]
                        self._pass_on(DataPath.ACTIVATIONS, tensor, whole, passing)
                partial = await self._partial(part, whole)
                y = numerics.infer(x, partial.data if partial else None)
                if part.is_last:
                    data[layer.makes.number] = y
                    numerics.activate_infer(data)
                    data = {tensor.number: data[tensor.number] for tensor in layer.hands_on}
                else:
                    self._pass_on(DataPath.PARTIAL_ACTIVATIONS, layer.makes, whole, y)
            last = self.slices[-1]
            if self.is_chain_end:
                self.head.infer(whole, data[last.layer.hands_on[0].number])
            elif last.is_last:
                for tensor in last.layer.hands_on:
                    self._pass_on(DataPath.ACTIVATIONS, tensor, whole, data[tensor.number])

    async def _enter_untimed(self, whole: Portion) -> dict[int, Maps]:
        layer = self.slices[0].layer
        if self.is_chain_start:
            return {layer.reads.number: self.source.images(whole)}
        return (await self._ports.receive_all(DataPath.ACTIVATIONS, layer.takes, whole)).data

    def _pass_on(self, path: DataPath, tensor: Tensor, whole: Portion, data: Maps) -> None:
        """Send outside virtual time."""
        self._ports.send_untimed(Lane(path, tensor.number), whole.first, whole.samples, tensor.shape[1], data)
