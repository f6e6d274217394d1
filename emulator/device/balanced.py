"""Transport of the values of balanced parameters (FPDeep, sections 3.4.2 and 5.1; `mapping/balancing.py` places them).

A device may *store* parameters that another one to its right *uses*: it holds them in BPRAM, and the sums of their
gradients in BGB. For each sample they cross the links in between on data path 5 when the sample's FP starts on the
storing device, and FP on the using device waits for them; their gradients return on path 6 when PG ends. Devices in
between relay them alongside their own program.

Times are sent for every sample; the clock computes them. The values are the same for all samples that see one version
of the weights, so they are sent once per update: the sum of the gradients one way, the new weights the other.

A codec may compress the gradients (INCEPTIONN, section V); then their mean over the samples is sent, since codecs are
designed for values of that magnitude. The compressed size is known when a mini-batch has ended, and sets the times of
the next one.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...comm.exchange import SizeLog
from ...kernels.codec import Codec
from ..mapping import DataPath, StreamKey
from ..schedule import MicroBatch, step_micro_batches
from ..timing import DeviceClock, StageClock
from .ports import Ports

if TYPE_CHECKING:
    from .device_numerics import DeviceNumerics
    from .rules import Rule

Data = NDArray[np.float32]


class Balanced:
    """The blocks that touch one device: stored here, used here, or passing through.

    `sizes` has the sizes of the gradients sent from here, by block. Without numerics, `shares` gives for each block the
    share of its bytes that is left by the codec, mini-batch by mini-batch.
    """

    def __init__(
        self, clock: DeviceClock | StageClock, numerics: DeviceNumerics | None, ports: Ports, codec: Codec
    ) -> None:
        self._clock, self._numerics, self._ports, self._codec = clock, numerics, ports, codec
        self._stored, self._passing = clock.streams.stored, clock.streams.passing
        self._used = [number for used in clock.streams.parameters for number in used]
        self.sizes = {number: SizeLog() for number in (*self._used, *self._passing)}
        self.shares: Mapping[int, Iterator[float]] = {}

    @property
    def _rows(self) -> DeviceClock:
        """The clock: parameters are balanced only where rows are timed."""
        assert isinstance(self._clock, DeviceClock)
        return self._clock

    def send_gradients(self, first: int, samples: int) -> None:
        """Send a mini-batch's gradients of the blocks used here, over `samples` samples."""
        for number in self._used:
            gradient = None if self._numerics is None else self._numerics.balanced_gradient(number)
            if gradient is not None and self._codec.compresses:
                gradient /= np.float32(samples)
            self._send(StreamKey(DataPath.PARAMETER_GRADIENTS, number), first, gradient)

    def _send(self, key: StreamKey, first: int, gradient: Data | None) -> None:
        """Send a mini-batch's gradient, with the codec's losses."""
        if gradient is not None and self._codec.compresses:
            compressed = self._codec.compress(gradient.reshape(-1))
            self._rows.shrink(key, compressed.nbytes / gradient.nbytes)
            self.sizes[key.number].add(gradient.nbytes, compressed.nbytes)
            gradient = self._codec.decompress(compressed, gradient.size).reshape(gradient.shape)
        elif key.number in self.shares:
            self._rows.shrink(key, next(self.shares[key.number]))
        self._ports.send_untimed(key._replace(values=True), first, gradient)

    async def collect(
        self, step: int, micro_batches: Sequence[MicroBatch], samples: int
    ) -> tuple[list[int], list[Data]]:
        """Return when the last gradient of each block stored here arrived, in ps, and the sums, if any."""
        came_ps, gradients = [], []
        for number in self._stored:
            key = StreamKey(DataPath.PARAMETER_GRADIENTS, number)
            for _ in step_micro_batches(micro_batches, step):  # one message for each, in the order of the user's W
                came = await self._ports.next_message(key)
            gradient = (await self._ports.next_message(key._replace(values=True))).data
            came_ps.append(int(came.times[-1, -1]))
            if gradient is not None:
                if self._codec.compresses:
                    gradient *= np.float32(samples)
                gradients.append(gradient)
        return came_ps, gradients

    def update_stored(self, step: int, gradients: Sequence[Data], samples: int, rule: Rule | None) -> None:
        """Update the blocks stored here from the sums of gradients over `samples` samples, and send them."""
        for place, number in enumerate(self._stored):
            weights = None
            if self._numerics is not None and rule is not None:
                weights = self._numerics.update_stored(number, gradients[place], samples, rule)
            self._ports.send_untimed(StreamKey(DataPath.PARAMETERS, number, values=True), step, weights)

    async def take_weights(self) -> None:
        """Receive the new weights of the blocks used here."""
        for number in self._used:
            message = await self._ports.next_message(StreamKey(DataPath.PARAMETERS, number, values=True))
            if self._numerics is not None and message.data is not None:
                self._numerics.take_balanced(number, message.data)

    def relays(self, step_samples: Sequence[int]) -> list[Coroutine[Any, Any, None]]:
        """Return programs that relay passing blocks in an epoch, alongside the device's own."""
        programs = []
        for number in self._passing:
            parameters = StreamKey(DataPath.PARAMETERS, number)
            programs.append(self._pass_on(parameters, sum(step_samples)))
            programs.append(self._pass_on_weights(parameters._replace(values=True), len(step_samples)))
            programs.append(self._pass_on_gradients(StreamKey(DataPath.PARAMETER_GRADIENTS, number), step_samples))
        return programs

    async def _pass_on(self, key: StreamKey, samples: int) -> None:
        done = 0
        while done < samples:
            message = await self._ports.next_message(key)
            self._ports.send(key, message.first, self._rows.relay(key, message.times), None)
            done += len(message.times)

    async def _pass_on_weights(self, key: StreamKey, steps: int) -> None:
        for _ in range(steps):
            message = await self._ports.next_message(key)
            self._ports.send_untimed(key, message.first, message.data)

    async def _pass_on_gradients(self, key: StreamKey, step_samples: Sequence[int]) -> None:
        """Relay step by step, since the compressed size of one mini-batch sets the times of the next."""
        for samples in step_samples:
            await self._pass_on(key, samples)
            message = await self._ports.next_message(key._replace(values=True))
            self._send(key, message.first, message.data)
