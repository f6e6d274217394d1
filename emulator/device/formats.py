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
import functools
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...kernels.number import BlockGrid, NumberFormat, Rounding
from ...kernels.quantise import PhiloxStream, on_blocks, on_grid
from ..mapping import Cut, Slice, first_own
from ..number import KINDS, Precision

COUNTED = "values", "saturated", "flushed"
"""What is counted of each kind of numbers."""

Data = NDArray[np.float32]
Numbers = NDArray[np.int64]


class RoundingTally:
    """What a device has rounded: by kind the values, those beyond the largest, and those that became zero.

    Of weights also how many were updated, and how many of them an update left as they were.
    """

    def __init__(self) -> None:
        self._counts = {kind: np.zeros(3, np.int64) for kind in KINDS}
        self._updated = self._unmoved = 0

    def of_kind(self, kind: str, values: int) -> NDArray[np.int64]:
        """Count values of a kind; return the two counts that their rounding adds to."""
        self._counts[kind][0] += values
        return self._counts[kind][1:]

    def update(self, weights: int, unmoved: int) -> None:
        """Count weights of an update."""
        self._updated += weights
        self._unmoved += unmoved

    def counts(self) -> dict[str, int]:
        """Return all counts by name."""
        names = itertools.product(KINDS, COUNTED)
        counts = (count for kind in KINDS for count in self._counts[kind].tolist())
        moves = {"weights_updated": self._updated, "weights_unmoved": self._unmoved}
        return {**{f"{kind}_{what}": count for (kind, what), count in zip(names, counts, strict=True)}, **moves}

    def take(self) -> dict[str, int]:
        """Return all counts by name, and begin anew."""
        counts = self.counts()
        self.restore({})
        return counts

    def restore(self, counts: Mapping[str, int]) -> None:
        """Restore what `counts` returned; what is missing is 0."""
        for kind in KINDS:
            self._counts[kind][:] = [counts.get(f"{kind}_{what}", 0) for what in COUNTED]
        self._updated, self._unmoved = (counts.get(f"weights_{what}", 0) for what in ("updated", "unmoved"))


@dataclasses.dataclass(frozen=True)
class MapFormats:
    """Rounds maps (samples, rows, columns, channels) to a run's formats, and counts what it rounds in training."""

    precision: Precision
    seed: int
    tally: RoundingTally = dataclasses.field(default_factory=RoundingTally, compare=False)

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
        counts = None if samples is None else self.tally.of_kind(kind, maps.size)
        stream = PhiloxStream(self.seed, tensor, KINDS.index(kind), 0)
        return _rounded(maps, number, rounding, -1, counts, stream=stream, numbers=samples)

    def input_errors(self, part: Slice, dx: Data, samples: Numbers | None) -> Data:
        """Return the errors of a layer's inputs, from the first channel on that a slice has, rounded by that slice.

        Under ICP it rounds the blocks that begin among its own channels, under OCP the layer's first slice all.
        """
        number, tensor, channels = self.precision.errors, part.layer.reads.number, part.layer.input[0]
        if part.cut is Cut.OCP or (part.is_first and part.is_last):
            return self.rounded("errors", dx, tensor, samples) if part.is_first else dx
        begin, end = (min(channels, first_own(edge, number)) for edge in (part.begin, part.end))
        if number.grid is None or begin == end:
            return dx
        own, rounding = dx[..., begin - part.begin : end - part.begin], self.precision.rounding_of("errors")
        counts = self.tally.of_kind("errors", own.size)
        if rounding is not Rounding.STOCHASTIC or samples is None:
            own[...] = _rounded(own, number, rounding, -1, counts)
            return dx
        for sample, maps in zip(samples.tolist(), own, strict=True):
            stream = PhiloxStream(self.seed, tensor, KINDS.index("errors"), sample)
            pixels = maps.reshape(-1, end - begin)
            rounded = _rounded(pixels, number, rounding, -1, counts, stream=stream, first=begin, stride=channels)
            maps[...] = rounded.reshape(maps.shape)
        return dx


@dataclasses.dataclass(frozen=True)
class WeightFormats:
    """Rounds weights of a slice, and what belongs to them, (its output channels, its input channels, kh, kw).

    They are counted with the maps of `formats`. Of updates, only channels that are `kept` here are rounded and counted
    (all of them without a mask): the weights of others come from where they are stored.
    """

    formats: MapFormats
    part: Slice
    kept: NDArray[np.bool_] | None = None

    @functools.cached_property
    def runs(self) -> list[slice]:
        """The channels that are kept here, in the dimension in which the layer is cut, as runs."""
        if self.kept is None:
            return [slice(0, self.part.channels)]
        edges = np.flatnonzero(np.diff(self.kept, prepend=False, append=False)).tolist()
        return [slice(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True)]

    def of_run(self, weights: Data, run: slice) -> Data:
        """Return the weights of some channels, in the dimension in which the layer is cut."""
        return weights[:, run] if self.part.cut is Cut.ICP else weights[run]

    def rounded(self, kind: str, weights: Data, update: int, place: int = 0) -> Data:
        """Return weights in the format of a kind, once update number `update` is done; 0 is before the first.

        `place` tells states from one another.
        """
        precision = self.formats.precision
        if precision.format(kind).grid is None:
            return weights
        runs = self.runs if update else [slice(0, self.part.channels)]
        result = weights.copy()
        for run in runs:
            self.of_run(result, run)[...] = self._rounded(kind, self.of_run(weights, run), run.start, update, place)
        return result

    def _rounded(self, kind: str, weights: Data, channel: int, update: int, place: int) -> Data:
        """Return the weights from a channel of the slice on, rounded."""
        precision, is_icp = self.formats.precision, self.part.cut is Cut.ICP
        _, inputs, *taps = self.part.layer.weight_shape
        tap_count = math.prod(taps)
        output = self.part.out_channels[0] + (0 if is_icp else channel)
        first_input = self.part.weight_inputs[0] + (channel if is_icp else 0)
        rows = weights.reshape(len(weights), -1)
        result = _rounded(
            rows,
            precision.format(kind),
            precision.rounding_of(kind),
            0 if is_icp else -1,
            self.formats.tally.of_kind(kind, weights.size) if update else None,
            stream=PhiloxStream(self.formats.seed, self.part.layer.index, KINDS.index(kind) + place, update),
            first=(output * inputs + first_input) * tap_count,
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
        return self.of_weights.formats.precision.has_copies

    def rounds(self, kind: str) -> bool:
        """Whether a kind is not in single precision."""
        return self.of_weights.formats.precision.format(kind).grid is not None

    def moved(self, before: Data, after: Data) -> None:
        """Count what an update has left as it was, of packed weights."""
        formats, weights = self.of_weights, (self.unpack(before), self.unpack(after))
        for run in formats.runs:
            earlier, later = (formats.of_run(array, run) for array in weights)
            formats.formats.tally.update(later.size, int(np.count_nonzero(earlier == later)))

    def rounded(self, kind: str, packed: Data, update: int, place: int = 0) -> Data:
        """Return packed weights in the format of a kind; see `WeightFormats`."""
        if not self.rounds(kind):
            return packed
        return self.pack(self.of_weights.rounded(kind, self.unpack(packed), update, place))


def _rounded(
    values: Data, number: NumberFormat, rounding: Rounding, axis: int, counts: NDArray[np.int64] | None, **drawn: Any
) -> Data:
    """Return numbers in a format, in blocks along an axis; `drawn` says which random words they have, if any.

    What saturates or becomes zero is added to `counts`.
    """
    values = np.ascontiguousarray(values)
    words = drawn if rounding is Rounding.STOCHASTIC else {}
    if isinstance(number.grid, BlockGrid):
        return on_blocks(values, number.grid, axis, rounding, counts=counts, **words)
    assert number.grid is not None
    return on_grid(values, number.grid, rounding, counts=counts, **words)
