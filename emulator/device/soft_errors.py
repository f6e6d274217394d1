"""The numerics of a device with soft errors: bits flip in its weights, its Act-RAM, and messages
that it receives.

Every count is that of the device's own actions, in the order of samples and mini-batches. Images,
and values that travel to and from other boards' memories (paths 5 and 6), stay whole. Maps are
copied before a bit of theirs flips: the sender, or a device further on, may be reading them.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Coroutine, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.layers.vocabulary_loss import SUMS
from ...kernels.number import FP32, BlockGrid
from ...kernels.quantise import from_squares, in_squares
from ..faults import Begun, Flipper, LineFormat
from ..mapping import DataPath, Slice, Stream, StreamKey, first_own
from ..schedule import SampleSpan
from .device_numerics import Data, DeviceNumerics
from .ports import Maps
from .rules import Rule
from .scales import is_of_scales, name_of_scale
from .slices import SliceNumerics
from .weight_formats import WeightFormats


@dataclasses.dataclass(frozen=True)
class SoftErrors:
    """What flips on a device: in its weights, its activations, and messages from the left and from
    the right.

    `begun` is what its chain has behind it; `streams` are those of the messages, whose formats have
    the bits.
    """

    weights: Flipper
    activations: Flipper
    from_left: Flipper
    from_right: Flipper
    begun: Begun = dataclasses.field(default_factory=Begun)
    streams: Mapping[StreamKey, Stream] = dataclasses.field(default_factory=dict)


_SUMS_PART = 1 << 48
"""In the part of a message's stream, what says that its values are sums."""


class FaultyNumerics(DeviceNumerics):
    """A device's numerics with `errors`; evaluation sees no others than those that training left in
    the weights.
    """

    def __init__(self, errors: SoftErrors, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._errors = errors
        self._seen: collections.Counter[str] = (
            collections.Counter()
        )  # samples and updates, by what happened to them
        tensors = (tensor for part in self.streams.slices for tensor in part.layer.takes)
        self._images = {tensor.number for tensor in tensors if tensor.is_images}
        heads = (part.layer for part in self.streams.slices if part.layer.vocabulary_parallel)
        self._states = {
            StreamKey(DataPath.PARTIAL_ACTIVATIONS, layer.makes.number) for layer in heads
        }

    def forward(
        self, span: SampleSpan, arrived: Maps, version: int, samples: NDArray[np.int64]
    ) -> Coroutine[Any, Any, Maps]:
        """See `DeviceNumerics`."""
        return super().forward(
            span, self._received(arrived, self._errors.from_left), version, samples
        )

    async def backward(
        self,
        span: SampleSpan,
        arrived: Maps,
        version: int,
        samples: NDArray[np.int64] | None = None,
    ) -> Maps:
        """See `DeviceNumerics`."""
        return await super().backward(
            span, self._received(arrived, self._errors.from_right), version, samples
        )

    def _received(self, arrived: Maps, flipper: Flipper) -> Maps:
        if not flipper:
            return arrived
        hit = Maps()
        for key, maps in arrived.items():
            scale = arrived.scales.get(key, 0)
            hit[key], hit.scales[key] = self._flipped(key, maps, scale, flipper), scale
        return hit

    def _flipped(self, key: StreamKey, maps: Data, scale: int, flipper: Flipper) -> Data:
        if key.path.is_forward and key.number in self._images:
            return maps
        sent = maps[..., :SUMS] if key in self._states else maps
        part, first = (
            key.path << 32 | key.number,
            self._sample(f"{key.path} {key.number}", len(maps)),
        )
        hit = self._flipped_row(sent, key, scale, flipper, part, first)
        if key not in self._states:
            return hit
        # What is for the report alone takes no time on a link, and stays whole.
        return maps if hit is sent else np.concatenate([hit, maps[..., SUMS:]], axis=-1)

    def _flipped_row(
        self, maps: Data, key: StreamKey, scale: int, flipper: Flipper, part: int, first: int
    ) -> Data:
        """Return what has arrived with some bits flipped, of the formats in which it was sent, with
        the exponent of its scale.
        """
        stream = self._errors.streams.get(key)
        if stream is None or not maps.shape[-1]:
            return flipper.samples(maps, part, first)
        number, columns, begin = stream.number_format, maps.shape[-2], stream.begin
        if stream.sums is None:
            return flipper.samples(maps, part, first, LineFormat(number, begin, columns, scale))
        # Channels of a block that began before are sums still.
        sums = min(maps.shape[-1], first_own(begin, number) - begin)
        whole = flipper.samples(
            maps[..., sums:], part, first, LineFormat(number, begin + sums, columns)
        )
        if not sums:
            return whole
        own = flipper.samples(maps[..., :sums], part | _SUMS_PART, first, LineFormat(stream.sums))
        return np.concatenate([own, whole], axis=-1)

    def taken(self, numerics: SliceNumerics, x: Data, samples: NDArray[np.int64]) -> Data:
        """See `DeviceNumerics`."""
        part, layer, flipper = numerics.part, numerics.part.layer, self._errors.activations
        if not flipper or layer.reads.is_images:
            return x
        form = LineFormat()
        if self._formats is not None and not layer.operation.looks_up:
            number = self._formats.of(layer.reads.formats).precision.activations
            name = name_of_scale("activations", "outputs", layer.reads.number)
            scale = self._formats.scales.in_force(name, samples)
            form = LineFormat(number, part.in_channels.start, x.shape[-2], scale)
        first = self._sample(f"activations {layer.index}", len(x))
        return flipper.samples(x, layer.index, first, form)

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """See `DeviceNumerics`."""
        super().update(samples, rule, keeps=keeps)
        if not self._errors.weights:
            return
        step = self._errors.begun.steps + self._counted("updates", 1)
        for numerics in self.slices:
            weights = numerics.weights()
            hit = self._flipped_weights(numerics.part, weights, numerics.scale, step)
            if hit is not weights:
                numerics.put_weights(hit)

    def _flipped_weights(self, part: Slice, weights: Data, scale: int, step: int) -> Data:
        """Return weights with some bits flipped, in blocks and tensors as updates round them, or
        with the exponent of their scale.
        """
        flipper, layer = self._errors.weights, part.layer
        number = FP32
        if self._formats is not None:
            number = self._formats.of(layer.formats).precision.weights
        if number.grid is None or layer.operation.recurs or not weights.size:
            return flipper.values(weights, layer.index, step)
        if isinstance(number.grid, BlockGrid) and number.lines > 1:
            assert self._formats is not None
            side, whole = number.lines, WeightFormats(self._formats, part).apart(weights)
            squares = in_squares(whole, side)
            grid = dataclasses.replace(number.grid, size=side**2, lines=1)
            form = LineFormat(dataclasses.replace(number, grid=grid))
            hit = flipper.values(squares, layer.index, step, form)
            if hit is squares:
                return weights
            return from_squares(hit, side, whole.shape).reshape(weights.shape)
        if part.lies_along_outputs:  # (inputs, taps, outputs): a line is of outputs
            turned = np.moveaxis(weights, 0, -1)
            taps = turned.shape[1] * turned.shape[2]
            form = LineFormat(number, 0, taps, scale)
            hit = flipper.values(turned, layer.index, step, form)
            return weights if hit is turned else np.ascontiguousarray(np.moveaxis(hit, -1, 0))
        rows = weights.reshape(len(weights), -1)
        hit = flipper.values(rows, layer.index, step, LineFormat(number, scale=scale))
        return weights if hit is rows else hit.reshape(weights.shape)

    def _sample(self, what: str, count: int) -> int:
        """Return the number of the first of `count` samples, since the start of training."""
        return self._errors.begun.samples + self._counted(what, count)

    def _counted(self, what: str, count: int) -> int:
        first = self._seen[what]
        self._seen[what] += count
        return first

    def counts(self) -> dict[str, int]:
        """See `DeviceNumerics`."""
        return {**super().counts(), **self._seen}

    def restore_counts(self, state: Mapping[str, int]) -> None:
        """See `DeviceNumerics`."""
        super().restore_counts(state)
        rounded = super().counts().keys()
        self._seen = collections.Counter(
            {
                name: count
                for name, count in state.items()
                if name not in rounded and not is_of_scales(name)
            }
        )
