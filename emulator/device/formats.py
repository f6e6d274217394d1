"""Numbers in a run's formats: what a device rounds, and by which random words if by chance.

Whole maps are rounded, on the device that has them so, and weights in the order of their whole layer. The words of
stochastic rounding are those of an element's place in its tensor, of the tensor, and of the sample or update. So no
rounding depends on how the network is cut (`number/precision.py` says what is rounded where).

Blocks of maps are of channels of a pixel, from channel 0 on; those of weights lie along the dimension in which the
layer is not cut, so that each slice has whole ones: output channels under ICP, and under OCP the inputs and taps of an
output channel.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...kernels.number import BlockGrid, NumberFormat, Rounding
from ...kernels.quantise import PhiloxStream, on_blocks, on_grid
from ..mapping import Cut, Slice
from ..number import KINDS, Precision

Data = NDArray[np.float32]
Numbers = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class MapFormats:
    """Rounds maps (samples, rows, columns, channels) to a run's formats."""

    precision: Precision
    seed: int

    def rounded(
        self, kind: Literal["activations", "errors"], maps: Data, tensor: int, samples: Numbers | None = None
    ) -> Data:
        """Return whole maps of a tensor in the format of their kind; `samples` (n,) are their numbers in training.

        In evaluation, which has no `samples`, what is rounded by chance in training is rounded to even.
        """
        number, rounding = self.precision.format(kind), self.precision.rounding_of(kind)
        if number.grid is None:
            return maps
        if rounding is Rounding.STOCHASTIC and samples is None:
            rounding = Rounding.EVEN
        stream = PhiloxStream(self.seed, tensor, KINDS.index(kind), 0)
        return _rounded(maps, number, rounding, -1, stream=stream, numbers=samples)


@dataclasses.dataclass(frozen=True)
class WeightFormats:
    """Rounds weights of a slice, and what belongs to them, (its output channels, its input channels, kh, kw)."""

    precision: Precision
    seed: int
    part: Slice

    def rounded(self, kind: str, weights: Data, update: int, place: int = 0) -> Data:
        """Return weights in the format of a kind, once update number `update` is done; 0 is before the first.

        `place` tells states from one another.
        """
        number, rounding = self.precision.format(kind), self.precision.rounding_of(kind)
        if number.grid is None:
            return weights
        _, inputs, *taps = self.part.layer.weight_shape
        tap_count, first_input = math.prod(taps), self.part.weight_inputs[0]
        rows = weights.reshape(len(weights), -1)
        result = _rounded(
            rows,
            number,
            rounding,
            0 if self.part.cut is Cut.ICP else -1,
            stream=PhiloxStream(self.seed, self.part.layer.index, KINDS.index(kind) + place, update),
            first=(self.part.out_channels[0] * inputs + first_input) * tap_count,
            stride=inputs * tap_count,
        )
        return result.reshape(weights.shape)


@dataclasses.dataclass(frozen=True)
class ParameterFormats:
    """The formats of a parameter, which lies in memory as `pack` makes it of weights, and `unpack` makes weights of."""

    of_weights: WeightFormats
    pack: Callable[[Data], Data] = lambda weights: weights
    unpack: Callable[[Data], Data] = lambda packed: packed

    @property
    def has_master(self) -> bool:
        """Whether updates change other weights than those that engines read."""
        return self.of_weights.precision.has_copies

    def rounds(self, kind: str) -> bool:
        """Whether a kind is not in single precision."""
        return self.of_weights.precision.format(kind).grid is not None

    def rounded(self, kind: str, packed: Data, update: int, place: int = 0) -> Data:
        """Return packed weights in the format of a kind; see `WeightFormats`."""
        if not self.rounds(kind):
            return packed
        return self.pack(self.of_weights.rounded(kind, self.unpack(packed), update, place))


def _rounded(values: Data, number: NumberFormat, rounding: Rounding, axis: int, **drawn: Any) -> Data:
    """Return numbers in a format, in blocks along an axis; `drawn` says which random words they have, if any."""
    values = np.ascontiguousarray(values)
    words = drawn if rounding is Rounding.STOCHASTIC else {}
    if isinstance(number.grid, BlockGrid):
        return on_blocks(values, number.grid, axis, rounding, **words)
    assert number.grid is not None
    return on_grid(values, number.grid, rounding, **words)
