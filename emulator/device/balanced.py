"""Balanced parameters, as a device meets them (FPDeep, sections 3.4.2 and 5.1; mapping/balancing.py finds them).

A device may *store* parameters that another one, to its right, *uses*: it holds them in BPRAM, and sums of their
gradients in BGB. For each sample they cross the links in between on data path 5, when FP of the sample starts on the
storing device, and FP on the using device waits for them; their gradients come back on path 6, when PG is done. Devices
in between pass them on beside their own program.

Times go with every sample. The values are the same for all samples that see one version of the weights, so they travel
once for each update: the sum of the gradients one way, the new weights the other.

A codec may make the gradients smaller (INCEPTIONN, section V); then their mean over the samples travels, whose size it
is made for. How much smaller they get is known once a mini-batch is through; with that the next one's times go along.
"""

from __future__ import annotations

import bisect
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ...comm.fifo import Times
from ...kernels.codec.codec import Codec, NoCodec
from ..mapping.balancing import Loan, loans_of
from ..mapping.slices import Slice
from ..mapping.traffic import DataPath, Lane
from ..schedule.action import MicroBatch, Portion
from .numerics import Numerics
from .parameter import Parameter, Sgd
from .ports import Ports
from .start import initial_weights


class Stored(Protocol):
    """The numbers of a loan, where it is stored."""

    def update(self, gradient: Any, samples: int, rule: Sgd) -> Any:
        """New weights from the sum of the gradients of so many samples; both (1, 1, 1, values), or None."""


class Bpram:
    """BPRAM and BGB of one loan."""

    def __init__(self, loan: Loan, start: Literal["he", "xavier"], seed: int) -> None:
        part = loan.part
        weights = initial_weights(loan.layer, start, seed, part.in_channels, part.out_channels)
        self._parameter = Parameter(weights)

    def update(self, gradient: NDArray[np.float32], samples: int, rule: Sgd) -> NDArray[np.float32]:
        """See `Stored`."""
        of = self._parameter
        of.begins_sum()
        of.gradient[...] = gradient.reshape(of.gradient.shape)
        of.update(samples, rule)
        return of.value.reshape(1, 1, 1, -1)


class NoBpram:
    """For timing alone."""

    def update(self, gradient: None, samples: int, rule: Sgd) -> None:
        """Nothing."""


class Balanced:
    """The loans that touch one device, by their numbers: stored here, used here (by slice), or passing through."""

    def __init__(
        self,
        device: int,
        slices: Sequence[Slice],
        loans: Sequence[Loan],
        ports: Ports,
        stored: Mapping[int, Stored],
        codec: Codec,
    ) -> None:
        self._ports, self._stored = ports, stored
        self._codec = None if isinstance(codec, NoCodec) else codec
        self._loans = loans
        self._used = [[number for number, _ in loans_of(loans, part, device)] for part in slices]
        self._passing = [n for n, loan in enumerate(loans) if loan.store_device < device < loan.user_device]

    def lend(self, portion: Portion, started_ps: Times) -> None:
        """Send what is stored here after the FP of these samples, as each starts."""
        for number in self._stored:
            self._ports.send(Lane(DataPath.PARAMETERS, number), portion.first, started_ps[:, None], None)

    async def here_ps(self, place: int, portion: Portion, not_before_ps: int) -> Times | int:
        """When the borrowed parameters of the slice at a place are here, (samples, 1), and not before a time."""
        ready: Times | int = not_before_ps
        for number in self._used[place]:
            came = await self._ports.receive(Lane(DataPath.PARAMETERS, number), portion)
            ready = np.maximum(ready, came.times)
        return ready

    def give_back(
        self, place: int, whole: Portion, ended_ps: Times, numerics: Numerics, *, ends_step_of: int | None
    ) -> None:
        """Send the gradients of a slice's borrowed parameters, each sample's when its PG has ended.

        `ends_step_of` says of how many samples the mini-batch is that is through with these, if it is.
        """
        for number in self._used[place]:
            lane = Lane(DataPath.PARAMETER_GRADIENTS, number)
            self._ports.send(lane, whole.first, ended_ps[:, None], None)
            if ends_step_of is not None:
                loan = self._loans[number]
                gradient = numerics.borrowed_gradient(loan.begin, loan.end)
                if self._codec is not None and gradient is not None:
                    gradient /= np.float32(ends_step_of)
                self._send_gradient(lane, whole.first, gradient)

    def _send_gradient(self, lane: Lane, first: int, gradient: Any) -> None:
        """Send a mini-batch's gradient, as the codec leaves it, if there is one."""
        if self._codec is not None and gradient is not None:
            made = self._codec.compress(gradient.reshape(-1))
            self._ports.shrink(lane, made.nbytes / gradient.nbytes)
            gradient = self._codec.decompress(made, gradient.size).reshape(gradient.shape)
        self._ports.send_untimed(lane._replace(values=True), first, 1, 1, gradient)

    async def collect(self, step: int, micro_batches: Sequence[MicroBatch], samples: int) -> list[tuple[int, Any]]:
        """For each loan that is stored here, when the last of its gradients came, and their sum."""
        collected = []
        begin = bisect.bisect_left(micro_batches, step, key=lambda micro_batch: micro_batch.step)
        end = bisect.bisect_right(micro_batches, step, key=lambda micro_batch: micro_batch.step)
        for number in self._stored:
            lane = Lane(DataPath.PARAMETER_GRADIENTS, number)
            for micro_batch in micro_batches[begin:end]:
                came = await self._ports.receive(lane, micro_batch.whole)
            gradient = (await self._ports.next_message(lane._replace(values=True))).data
            if self._codec is not None and gradient is not None:
                gradient *= np.float32(samples)
            collected.append((int(came.times[-1, -1]), gradient))
        return collected

    def update_stored(self, step: int, gradients: Sequence[Any], samples: int, rule: Sgd) -> None:
        """Update what is stored here, from the sums of gradients of so many samples, and send it."""
        for (number, stored), gradient in zip(self._stored.items(), gradients, strict=True):
            weights = stored.update(gradient, samples, rule)
            self._ports.send_untimed(Lane(DataPath.PARAMETERS, number, values=True), step, 1, 1, weights)

    async def update_used(self, numerics: Sequence[Numerics]) -> None:
        """Take in the new weights of what is used here."""
        for used, of in zip(self._used, numerics, strict=True):
            for number in used:
                message = await self._ports.next_message(Lane(DataPath.PARAMETERS, number, values=True))
                of.borrow(self._loans[number].begin, self._loans[number].end, message.data)

    def relays(self, step_samples: Sequence[int]) -> list[Coroutine[Any, Any, None]]:
        """What passes through in an epoch, as programs beside the device's own."""
        programs = []
        for number in self._passing:
            parameters = Lane(DataPath.PARAMETERS, number)
            programs.append(self._pass_on(parameters, sum(step_samples)))
            programs.append(self._pass_on_weights(parameters._replace(values=True), len(step_samples)))
            programs.append(self._pass_on_gradients(Lane(DataPath.PARAMETER_GRADIENTS, number), step_samples))
        return programs

    async def _pass_on(self, lane: Lane, samples: int) -> None:
        done = 0
        while done < samples:
            message = await self._ports.next_message(lane)
            self._ports.send(lane, message.first, message.times, None)
            done += len(message.times)

    async def _pass_on_weights(self, lane: Lane, steps: int) -> None:
        for _ in range(steps):
            message = await self._ports.next_message(lane)
            self._ports.send_untimed(lane, message.first, 1, 1, message.data)

    async def _pass_on_gradients(self, lane: Lane, step_samples: Sequence[int]) -> None:
        """Step by step, for what the codec made of a mini-batch counts for the next one."""
        for samples in step_samples:
            await self._pass_on(lane, samples)
            message = await self._ports.next_message(lane._replace(values=True))
            self._send_gradient(lane, message.first, message.data)
