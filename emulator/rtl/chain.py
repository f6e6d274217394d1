"""A chain of Verilated devices, joined by the links of a plan: mini-batches in turn, with the host at both ends.

A link's streams are FIFO resources with bandwidth and latency (docs/time-model.md). Devices have clocks of their own. A
device runs as far as no row can arrive that is not known yet: a row takes its time on the link, and the latency.

The host gives images, those of a mini-batch once the first device has updated after the one before, and computes the
loss and the errors of the outputs: softmax has exponentials.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...comm import FifoResource
from ...kernels.layers import loss
from ..config import Config
from ..mapping import StreamKey
from ..plan import ChainPlan
from .clock import clocks_of
from .design import DeviceDesign
from .model import DeviceModel, Row, update_numbers
from .ports import ERRORS, IMAGES, OUTPUTS


@dataclasses.dataclass(frozen=True)
class MiniBatch:
    """Images (samples, rows, columns, channels) in the format of activations, and labels; the learning rate of its
    update; smoothing of the labels.
    """

    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    rate: float
    smoothing: float = 0.0

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.images)

    def numbers(self, config: Config) -> list[int]:
        """Return what a device takes of its update, as `update_numbers` has it."""
        scale = config.precision.loss_scale
        return update_numbers(self.samples, self.rate, config.momentum, config.weight_decay, scale)


class RtlChain:
    """Devices at time zero, which have their parameters."""

    def __init__(
        self,
        plan: ChainPlan,
        designs: Sequence[DeviceDesign],
        models: Sequence[DeviceModel],
        batches: Sequence[MiniBatch],
    ) -> None:
        self._models, self._batches, self._config = models, batches, plan.config
        self._links: list[Mapping[StreamKey, FifoResource]] = [
            plan.timing.clock(design.number).links for design in designs
        ]
        self._to_end: list[Row] = []
        self._loss_scale = np.float32(plan.config.precision.loss_scale)
        self._labels = np.concatenate([batch.labels for batch in batches])
        self._updated_ps: list[list[int]] = [[] for _ in models]  # of each device, after each mini-batch
        self._entry = clocks_of(plan, tuple(designs[:1]))[0]
        self._enter(batches[0], 0)
        self._waits = [self._lookahead(number) for number in range(len(models))]

    def run(self, most_ps: int) -> tuple[int, ...]:
        """Run the mini-batches until all devices have updated; return when they had after each, in ps.

        Raises:
            RuntimeError: they have not, `most_ps` after the start.
        """
        while not self._is_done:
            for number, model in enumerate(self._models):
                self._advance(number, model, most_ps)
        return tuple(map(max, zip(*self._updated_ps, strict=True)))

    @property
    def _is_done(self) -> bool:
        return all(len(times) == len(self._batches) for times in self._updated_ps)

    def _enter(self, batch: MiniBatch, updated_ps: int) -> None:
        """Put all images of a mini-batch on their port, in the cycles in which they enter after an update."""
        images, first = batch.images, self._models[0]
        times = self._entry._enter(len(images), images.shape[1], updated_ps)
        [path] = [path for path, port in enumerate(first.inputs) if port.name == IMAGES]
        for sample, rows in enumerate(times.tolist()):
            for row, at_ps in enumerate(rows):
                first.put(path, at_ps // first.design.period_ps, images[sample, row])

    def _lookahead(self, number: int) -> list[tuple[int, int]]:
        """Return for each neighbour its number, and the least time in ps from a row there to its arrival here."""
        waits = []
        for neighbour, forward in ((number - 1, True), (number + 1, False)):
            if 0 <= neighbour < len(self._models):
                keys = (key for key in self._links[neighbour] if key.path.is_forward == forward)
                hops = [self._links[neighbour][key].row_ps + self._links[neighbour][key].latency_ps for key in keys]
                if hops:
                    waits.append((neighbour, min(hops)))
        return waits

    def _advance(self, number: int, model: DeviceModel, most_ps: int) -> None:
        """Run a device as far as it is known what arrives there."""
        period_ps = model.design.period_ps
        while True:
            # All that arrives up to this time is known: the neighbours' next cycles are still to come.
            #   neighbour  ----| cycle + 1       no further row leaves before this cycle,
            #                   \ hop_ps         nor is it here before it has crossed the link:
            #   here       ----------| known_ps  up to then this device runs without waiting
            known_ps = min(
                (
                    (self._models[neighbour].cycle + 1) * self._models[neighbour].design.period_ps + hop_ps - 1
                    for neighbour, hop_ps in self._waits[number]
                ),
                default=most_ps,
            )
            until = min(known_ps, most_ps) // period_ps
            if model.cycle >= until:
                if model.cycle * period_ps >= most_ps - period_ps:
                    raise RuntimeError(f"device {number} has not updated after {most_ps} ps")
                return
            for path, row in model.run(until).items():
                self._send(number, model, path, row)
            if model.done:
                self._updated(number, model)
            if self._is_done:
                return

    def _updated(self, number: int, model: DeviceModel) -> None:
        """Note that a device has updated, and go on with the next mini-batch if there is one."""
        times = self._updated_ps[number]
        if len(times) == len(self._batches):
            return
        times.append(model.cycle * model.design.period_ps)
        for batch in self._batches[len(times) : len(times) + 1]:
            model.settle(batch.numbers(self._config))
            if number == 0:
                self._enter(batch, times[-1])

    def _send(self, number: int, model: DeviceModel, path: int, row: Row) -> None:
        port, now_ps = model.outputs[path], model.cycle * model.design.period_ps
        if port.name == OUTPUTS:
            self._judge(model, row)
            return
        assert port.key is not None
        arrives_ps = int(self._links[number][port.key].serve(np.array([[now_ps]]))[0, 0])
        to = self._models[number + 1 if port.key.path.is_forward else number - 1]
        [place] = [place for place, entry in enumerate(to.inputs) if entry.key == port.key]
        to.put(place, -(-arrives_ps // to.design.period_ps), row)

    def _judge(self, model: DeviceModel, row: Row) -> None:
        """Return the errors of a sample's outputs, in the cycle after."""
        label = self._labels[len(self._to_end) : len(self._to_end) + 1]
        self._to_end.append(row)
        _, errors, _ = loss.softmax_cross_entropy(row.reshape(1, -1), label, self._batches[0].smoothing)
        [path] = [path for path, port in enumerate(model.inputs) if port.name == ERRORS]
        model.put(path, model.cycle + 1, errors * self._loss_scale)
