"""The numerics of a device with soft errors: bits flip in its weights, its Act-RAM, and messages that it receives.

Every count here is that of the device's own actions, in the order of samples and mini-batches. Images, and values that
travel to and from other boards' memories (paths 5 and 6), stay whole. Maps are copied before a bit of theirs flips:
the sender, or a device further on, may be reading them.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.layers.vocabulary_loss import SUMS
from ..faults import Begun, Flipper
from ..mapping import DataPath, StreamKey
from ..schedule import SampleSpan
from .device_numerics import Data, DeviceNumerics
from .ports import Maps
from .rules import Rule
from .slices import SliceNumerics


@dataclasses.dataclass(frozen=True)
class SoftErrors:
    """What flips on a device: in its weights, its activations, and messages from the left and from the right.

    `begun` is what its chain has behind it.
    """

    weights: Flipper
    activations: Flipper
    from_left: Flipper
    from_right: Flipper
    begun: Begun = dataclasses.field(default_factory=Begun)


class FaultyNumerics(DeviceNumerics):
    """A device's numerics with `errors`; evaluation sees no others than those that training left in the weights."""

    def __init__(self, errors: SoftErrors, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._errors = errors
        self._seen: collections.Counter[str] = collections.Counter()  # samples and updates, by what happened to them
        tensors = (tensor for part in self.streams.slices for tensor in part.layer.takes)
        self._images = {tensor.number for tensor in tensors if tensor.is_images}
        heads = (part.layer for part in self.streams.slices if part.layer.vocabulary_parallel)
        self._states = {StreamKey(DataPath.PARTIAL_ACTIVATIONS, layer.makes.number) for layer in heads}

    async def forward(self, span: SampleSpan, arrived: Maps, version: int, samples: NDArray[np.int64]) -> Maps:
        """See `DeviceNumerics`."""
        return await super().forward(span, self._received(arrived, self._errors.from_left), version, samples)

    async def backward(
        self, span: SampleSpan, arrived: Maps, version: int, samples: NDArray[np.int64] | None = None
    ) -> Maps:
        """See `DeviceNumerics`."""
        return await super().backward(span, self._received(arrived, self._errors.from_right), version, samples)

    def _received(self, arrived: Maps, flipper: Flipper) -> Maps:
        if not flipper:
            return arrived
        return {key: self._flipped(key, maps, flipper) for key, maps in arrived.items()}

    def _flipped(self, key: StreamKey, maps: Data, flipper: Flipper) -> Data:
        if key.path.is_forward and key.number in self._images:
            return maps
        sent = maps[..., :SUMS] if key in self._states else maps
        hit = flipper.samples(sent, key.path << 32 | key.number, self._sample(f"{key.path} {key.number}", len(maps)))
        if key not in self._states:
            return hit
        return maps if hit is sent else np.concatenate([hit, maps[..., SUMS:]], axis=-1)

    def taken(self, numerics: SliceNumerics, x: Data) -> Data:
        """See `DeviceNumerics`."""
        layer, flipper = numerics.part.layer, self._errors.activations
        if not flipper or layer.reads.is_images:
            return x
        return flipper.samples(x, layer.index, self._sample(f"activations {layer.index}", len(x)))

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """See `DeviceNumerics`."""
        super().update(samples, rule, keeps=keeps)
        if not self._errors.weights:
            return
        step = self._errors.begun.steps + self._counted("updates", 1)
        for numerics in self.slices:
            weights = numerics.weights()
            hit = self._errors.weights.values(weights, numerics.part.layer.index, step)
            if hit is not weights:
                numerics.put_weights(hit)

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
        self._seen = collections.Counter({name: count for name, count in state.items() if name not in rounded})
