"""A chain of Verilated devices, joined by the links of a plan: one mini-batch, with the host at both ends.

A link's streams are FIFO resources with bandwidth and latency (docs/time-model.md). Devices have clocks of their own. A
device runs as far as no row can arrive that is not known yet: a row takes its time on the link, and the latency.

The host gives images, and computes the loss and the errors of the outputs: softmax has exponentials.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...comm import FifoResource
from ...kernels.layers import loss
from ..mapping import StreamKey
from ..plan import ChainPlan
from .clock import clocks_of
from .design import DeviceDesign
from .model import DeviceModel, Row
from .ports import ERRORS, IMAGES, OUTPUTS


@dataclasses.dataclass(frozen=True)
class MiniBatch:
    """Images (samples, rows, columns, channels) in the format of activations, and labels; smoothing of the labels."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    smoothing: float = 0.0

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.images)


class RtlChain:
    """Devices at time zero, which have their parameters."""

    def __init__(
        self, plan: ChainPlan, designs: Sequence[DeviceDesign], models: Sequence[DeviceModel], batch: MiniBatch
    ) -> None:
        self._models, self._batch = models, batch
        self._links: list[Mapping[StreamKey, FifoResource]] = [
            plan.timing.clock(design.number).links for design in designs
        ]
        self._to_end: list[Row] = []
        self._loss_scale = np.float32(plan.config.precision.loss_scale)
        self._updated_ps = [0] * len(models)
        self._left = len(models)
        self._enter(plan, designs)
        self._waits = [self._lookahead(number) for number in range(len(models))]

    def run(self, most_ps: int) -> int:
        """Run the mini-batch until all devices have updated; return when, in ps.

        Raises:
            RuntimeError: they have not, `most_ps` after the start.
        """
        while self._left:
            for number, model in enumerate(self._models):
                self._advance(number, model, most_ps)
        return max(self._updated_ps)

    def _enter(self, plan: ChainPlan, designs: Sequence[DeviceDesign]) -> None:
        """Put all images on their port, in the cycles in which they enter."""
        images, first = self._batch.images, self._models[0]
        clock = clocks_of(plan, tuple(designs[:1]))[0]
        times = clock._enter(len(images), images.shape[1], 0)
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
            if model.done and not self._updated_ps[number]:
                self._updated_ps[number] = model.cycle * period_ps
                self._left -= 1
            if not self._left:
                return

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
        label = self._batch.labels[len(self._to_end) : len(self._to_end) + 1]
        self._to_end.append(row)
        _, errors, _ = loss.softmax_cross_entropy(row.reshape(1, -1), label, self._batch.smoothing)
        [path] = [path for path, port in enumerate(model.inputs) if port.name == ERRORS]
        model.put(path, model.cycle + 1, errors * self._loss_scale)
