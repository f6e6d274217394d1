"""Weights in a run's formats, and what belongs to them: rounded in the order of their whole layer,
so that no cut changes a bit, and counted with maps (`formats.py`).

Blocks lie along the dimension in which the layer is not cut, so that each slice has whole ones,
but where products are summed in blocks, along what is summed, or as squares along both:
output channels under ICP, and under OCP the inputs and taps of an output channel; of a recurrent
layer the inputs, or the states, of a unit's gate. Where tensors have scales, these are of the
weights of a channel in which the layer is cut. Tied weights are one table, which both ends round
alike: in blocks of a feature's symbols, with the words of the embedding. The embedding counts it.
Where products are summed in blocks, those of a table are of a symbol's features, which the head
sums.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...kernels.conv import Convolving, DotConvolution
from ...kernels.number import BlockGrid, FloatGrid, Rounding
from ...kernels.optimizers import count_unmoved
from ...kernels.quantise import Draws, on_blocks, on_squares
from ..mapping import Cut, Slice, outputs_side_by_side
from .formats import Data, MapFormats, round_into
from .scales import OF_WEIGHTS

_Number = TypeVar("_Number", bound=np.generic)
_OUTPUTS, _INPUTS, _ROWS = 0, 1, -1
"""Along which axis of weights blocks lie."""


@dataclasses.dataclass(frozen=True)
class WeightFormats:
    """Rounds weights of a slice, and what belongs to them, (its output channels, its input
    channels, kh, kw).

    They are counted with the maps of `formats`. Of updates, only channels that are `kept` here are
    rounded and counted (all of them without a mask): the weights of others come from where they are
    stored.
    """

    formats: MapFormats
    part: Slice
    kept: NDArray[np.bool_] | None = None

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of the slice's weights."""
        return len(self.part.out_channels), len(self.part.weight_inputs), *self.part.layer.kernel

    @property
    def counts_updates(self) -> bool:
        """Whether updates count here what they round; of tied weights, the embedding's do."""
        return self.part.layer.tied is None

    @functools.cached_property
    def runs(self) -> list[slice]:
        """The channels that are kept here, in the dimension in which the layer is cut, as runs."""
        if self.kept is None:
            return [slice(0, self.part.channels)]
        edges = np.flatnonzero(np.diff(self.kept, prepend=False, append=False)).tolist()
        return [slice(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True)]

    def runs_of(self, update: int) -> list[slice]:
        """Return the runs of channels that an update changes; before the first one, number 0, these
        are all.
        """
        return self.runs if update else [slice(0, self.part.channels)]

    def of_run(self, weights: Data, run: slice) -> Data:
        """Return the weights of some channels, in the dimension in which the layer is cut."""
        return weights[:, run] if self.part.cut is Cut.ICP else weights[run]

    def round(self, kind: str, weights: Data, update: int, place: int = 0) -> None:
        """Round weights in place to the format of a kind, once update number `update` is done; 0 is
        before the first.

        `place` tells states from one another.
        """
        for run in self.runs_of(update):
            own = self.of_run(weights, run)
            rows = np.ascontiguousarray(own.reshape(len(own), -1))
            self._round(kind, rows, run.start, update, place)
            if not np.may_share_memory(rows, weights):
                own[...] = rows.reshape(own.shape)

    def line(self, kind: str, update: int, outputs_together: int) -> int:
        """Return how many packed weights are a line of whole blocks, if all may be rounded as they
        lie; otherwise 0.

        So may those that are rounded each by itself, or in blocks of output channels that lie side
        by side.
        """
        precision = self.formats.precision
        number, rounding = precision.format(kind), precision.rounding_of(kind)
        if rounding is Rounding.STOCHASTIC or self.runs_of(update) != self.runs_of(0):
            return 0
        if number.tensor_bytes or number.lines > 1:  # those of a scale do not lie side by side
            return 0
        if not isinstance(number.grid, BlockGrid):
            return 1
        return (
            0 if self._axis != _OUTPUTS or outputs_together % number.grid.size else outputs_together
        )

    def has_blocks(self, kind: str, update: int, block: int) -> bool:
        """Return whether weights that lie in blocks of a size may be rounded as they lie."""
        number, rounding = self.formats.precision.format(kind), self.formats.precision.rounding_of
        is_whole = self.runs_of(update) == self.runs_of(0) and not number.tensor_bytes
        is_line = number.block == block and number.lines == 1
        return is_whole and is_line and rounding(kind) is not Rounding.STOCHASTIC

    def round_parts(
        self, kind: str, parts: Iterable[tuple[Data, Data]], axis: int, update: int, *, counts: bool
    ) -> None:
        """Round all packed weights as they lie, in parts with blocks along an axis, into others;
        spare ones are 0 and do not count.
        """
        precision, counted = self.formats.precision, None
        form = precision.format(kind), precision.rounding_of(kind)
        if counts and update and self.counts_updates:
            counted = self.formats.tally.of_kind(kind, math.prod(self.shape))
        for weights, out in parts:
            round_into(weights, out, *form, axis, None, counted)

    def _round(self, kind: str, rows: Data, channel: int, update: int, place: int) -> None:
        """Round the weights from a channel of the slice on, a row for each output channel, in
        place.
        """
        precision = self.formats.precision
        form = precision.format(kind), precision.rounding_of(kind)
        # Rounding of the first weights belongs to no update, and is not counted.
        counts = None
        if update and self.counts_updates:
            counts = self.formats.tally.of_kind(kind, rows.size)
        words, tied = self._words(kind, channel, update, place), self.part.layer.tied
        grid = form[0].grid
        if isinstance(grid, BlockGrid) and grid.lines > 1:
            lies = rows if tied is None else np.ascontiguousarray(rows.T)
            drawn = self.apart(_drawn(words, lies.shape)) if _by_chance(form[1]) else None
            made = on_squares(self.apart(lies), grid, form[1], drawn, counts=counts)
            rows[...] = made.reshape(lies.shape) if tied is None else made.reshape(lies.shape).T
            return
        if tied is not None:
            table = np.ascontiguousarray(rows.T)
            axis = 0 if precision.dot else -1
            rows[...] = round_into(table, table, *form, axis, words, counts, table.shape[1]).T
            return
        lines, taps = rows, math.prod(self.part.layer.kernel)
        if self._axis == _INPUTS:
            lines = rows.reshape(len(rows), -1, taps)
        channel = taps if self._axis == _OUTPUTS else rows.shape[1]
        round_into(lines, lines, *form, self._axis, words, counts, channel)

    def apart(self, weights: NDArray[_Number]) -> NDArray[_Number]:
        """Return the slice's weights as squares lie in them: (groups, output channels of one, its
        input channels, places of the kernel); or a tied table's, its features first.
        """
        together = len(weights)
        if self.part.layer.tied is None:
            together = outputs_side_by_side(self.part, together)
        taps = math.prod(self.part.layer.kernel)
        return weights.reshape(len(weights) // together, together, -1, taps)

    @property
    def _axis(self) -> int:
        """Along which axis of weights blocks lie: of those in rows, or of (outputs, inputs,
        taps).
        """
        layer = self.part.layer
        if self.formats.precision.dot and not layer.operation.looks_up:
            return _INPUTS
        if self.formats.precision.dot and layer.shares_weights:
            return _OUTPUTS
        return _OUTPUTS if self.part.cut is Cut.ICP else _ROWS

    def turned(self, weights: Data, update: int) -> Data:
        """Return weights as EB reads them where it has its own: in blocks of output channels (of a
        group), rounded from those that updates change, by the words of the others; not counted.
        """
        precision = self.formats.precision
        form = precision.weights, precision.rounding_of("weights")
        rows: Data = np.ascontiguousarray(weights).reshape(len(weights), -1)
        words, axis = self._words("weights", 0, update), _OUTPUTS
        if self.part.layer.tied is not None:
            table = np.ascontiguousarray(rows.T)
            turned = round_into(table, np.empty_like(table), *form, -1, words, None)
            return np.ascontiguousarray(turned.T).reshape(weights.shape)
        groups = self.part.layer.operation.groups
        outputs = self.part.layer.channels // groups
        if groups > 1 and outputs % precision.weights.block:  # a slice has whole groups
            rows, axis = rows.reshape(-1, outputs, rows.shape[1]), 1
            words = Draws(words.stream, words.first)
        return round_into(rows, np.empty_like(rows), *form, axis, words, None).reshape(
            weights.shape
        )

    def _words(self, kind: str, channel: int, update: int, place: int = 0) -> Draws:
        """Return the words of the weights from a channel of the slice on, by their place among
        those of the whole layer, whatever part of it is here.
        """
        is_icp = self.part.cut is Cut.ICP
        _, inputs, *taps = self.part.layer.weight_shape
        tap_count = math.prod(taps)
        output = self.part.out_channels[0] + (0 if is_icp else channel)
        first_input = self.part.weight_inputs[0] + (channel if is_icp else 0)
        tied = self.part.layer.tied
        index = self.part.layer.stream if tied is None else tied.stream
        stream = self.formats.words_of_weights(kind, index, update, place)
        if tied is not None:
            symbols = self.part.layer.channels
            return Draws(stream, first_input * symbols + output, symbols)
        return Draws(stream, (output * inputs + first_input) * tap_count, inputs * tap_count)


def _by_chance(rounding: Rounding) -> bool:
    return rounding is Rounding.STOCHASTIC


def _drawn(words: Draws, shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Return the words of rows of weights."""
    rows, columns = shape
    firsts = (words.first + row * (words.stride or columns) for row in range(rows))
    return np.stack([words.stream.words(first, columns) for first in firsts])


class ParameterFormats(abc.ABC):
    """The formats of a parameter."""

    @property
    @abc.abstractmethod
    def maps(self) -> MapFormats:
        """The formats of a run's maps, with which weights are counted."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of weights."""

    @property
    @abc.abstractmethod
    def scale_name(self) -> str:
        """The name of the scale of its weights, the same in all slices of a layer."""

    @abc.abstractmethod
    def moved(self, before: Data, after: Data) -> None:
        """Count what an update has left as it was."""

    def round(
        self, kind: str, weights: Data, update: int, place: int = 0, *, out: Data | None = None
    ) -> None:
        """Round weights, as they lie in memory, to the format of a kind, in place or into `out`,
        once update number `update` is done; 0 is before the first, without a scale.

        `place` tells states from one another.
        """
        out = weights if out is None else out
        scale = 0
        if kind == "weights" and update and self.has_scale:
            history, scales = self.maps.precision.history, self.maps.scales
            scale = scales.of_update(self.scale_name, weights, self._largest, history)
        if not scale:
            self._round(kind, weights, update, place, out)
            return
        np.multiply(weights, np.float32(2.0**-scale), out=out)
        self._round(kind, out, update, place, out)
        out *= np.float32(2.0**scale)

    @abc.abstractmethod
    def _round(self, kind: str, weights: Data, update: int, place: int, out: Data) -> None:
        """Round weights without a scale, as `round` does."""

    @property
    def has_scale(self) -> bool:
        """Whether weights that engines read have a scale by those of updates before."""
        return self.maps.precision.scales_weights

    @property
    def _largest(self) -> float:
        grid = self.maps.precision.weights.grid
        assert isinstance(grid, FloatGrid)
        return grid.largest

    def begin_scale(self, trained: Data) -> None:
        """Note the largest of the weights that the first update changes."""
        if self.has_scale:
            self.maps.scales.begin(self.scale_name, trained, self._largest)

    @property
    def has_master(self) -> bool:
        """Whether updates change other weights than those that engines read."""
        return self.maps.precision.has_copies

    def rounds(self, kind: str) -> bool:
        """Whether a kind is not in single precision."""
        return self.maps.precision.format(kind).grid is not None

    def round_share(
        self, kind: str, share: int, weights: Data, update: int, place: int = 0
    ) -> None:
        """Round weights in place of which all are zero but for a `share`; count these alone."""
        self.round(kind, weights, update, place)
        self.maps.tally.of_kind(kind, share - self.size)

    def moved_share(self, before: Data, after: Data) -> None:
        """Count what an update has left as it was, of a share of the weights."""
        self.maps.tally.update(after.size, count_unmoved(before, after))


@dataclasses.dataclass(frozen=True)
class RowFormats(ParameterFormats):
    """The formats of one of a recurrent layer's arrays of weights, in blocks along its rows.

    `layer` is the layer's number, `first` the place of the array's first weight among all of the
    layer, and `step` how far rows are apart there. Each unit, or output, has rows of `gates`. The
    `name` is the array's own.
    """

    formats: MapFormats
    layer: int
    name: str
    shape: tuple[int, int]
    first: int
    step: int
    gates: int = 1

    @property
    def maps(self) -> MapFormats:
        """See `ParameterFormats`."""
        return self.formats

    @property
    def size(self) -> int:
        """See `ParameterFormats`."""
        return math.prod(self.shape)

    def moved(self, before: Data, after: Data) -> None:
        """See `ParameterFormats`."""
        self.formats.tally.update(after.size, count_unmoved(before, after))

    @property
    def scale_name(self) -> str:
        """See `ParameterFormats`."""
        return f"{OF_WEIGHTS}{self.layer}_{self.name}"

    def _round(self, kind: str, weights: Data, update: int, place: int, out: Data) -> None:
        if not self.rounds(kind):
            if out is not weights:
                out[...] = weights
            return
        form = self.formats.precision.format(kind), self.formats.precision.rounding_of(kind)
        stream = self.formats.words_of_weights(kind, self.layer, update, place)
        # Rounding of the first weights belongs to no update, and is not counted.
        counts = self.formats.tally.of_kind(kind, weights.size) if update else None
        rows = weights.reshape(self.shape)
        words, grid = Draws(stream, self.first, self.step), form[0].grid
        if isinstance(grid, BlockGrid) and grid.lines > 1:
            drawn = self._by_unit(_drawn(words, self.shape)) if _by_chance(form[1]) else None
            made = on_squares(self._by_unit(rows), grid, form[1], drawn, counts=counts)
            out.reshape(self.shape)[...] = made.transpose(0, 1, 3, 2).reshape(self.shape)
            return
        round_into(rows, out.reshape(self.shape), *form, -1, words, counts, self.shape[1])

    def _by_unit(self, rows: NDArray[_Number]) -> NDArray[_Number]:
        """Return rows as squares lie in them: (1, units, columns, gates)."""
        own, columns = self.shape
        return rows.reshape(1, own // self.gates, self.gates, columns).transpose(0, 1, 3, 2)

    def turned(self, weights: Data, update: int) -> Data:
        """Return weights as EB reads them where it has its own: in blocks of a gate's rows, of
        which those of a unit lie side by side; rounded from those that updates change, by the words
        of the others; not counted.
        """
        precision = self.formats.precision
        grid, rounding = precision.weights.grid, precision.rounding_of("weights")
        assert isinstance(grid, BlockGrid)
        rows, _ = self.shape
        by_unit = np.ascontiguousarray(weights).reshape(rows // self.gates, -1)
        words = None
        if rounding is Rounding.STOCHASTIC:
            stream = self.formats.words_of_weights("weights", self.layer, update, 0)
            drawn = _drawn(Draws(stream, self.first, self.step), self.shape)
            words = drawn.reshape(by_unit.shape)
        return on_blocks(by_unit, grid, 0, rounding, words).reshape(self.shape)


@dataclasses.dataclass(frozen=True)
class SliceFormats(ParameterFormats):
    """The formats of a parameter that lies in memory as a convolution packs weights, or as they are
    without one.
    """

    of_weights: WeightFormats
    convolution: Convolving | None = None

    @property
    def maps(self) -> MapFormats:
        """See `ParameterFormats`."""
        return self.of_weights.formats

    @property
    def size(self) -> int:
        """See `ParameterFormats`."""
        return math.prod(self.of_weights.shape)

    def moved(self, before: Data, after: Data) -> None:
        """See `ParameterFormats`; of tied weights, the embedding counts."""
        if not self.of_weights.counts_updates:
            return
        for earlier, later in self._changed(before, after):
            self.of_weights.formats.tally.update(later.size, count_unmoved(earlier, later))

    def _changed(self, before: Data, after: Data) -> Iterator[tuple[Data, Data]]:
        """Yield what an update changes: packed weights as they lie there, if these are all and
        nothing else.
        """
        formats = self.of_weights
        has_spare = after.size != math.prod(formats.shape)  # lanes
        if not has_spare and formats.runs == formats.runs_of(0):
            yield before, after
            return
        weights = self._unpacked(before), self._unpacked(after)
        for run in formats.runs:
            earlier, later = (np.ascontiguousarray(formats.of_run(array, run)) for array in weights)
            yield earlier, later

    @property
    def scale_name(self) -> str:
        """See `ParameterFormats`."""
        return f"{OF_WEIGHTS}{self.of_weights.part.layer.index}"

    def _round(self, kind: str, weights: Data, update: int, place: int, out: Data) -> None:
        if not self.rounds(kind):
            if out is not weights:
                out[...] = weights
        elif line := self.of_weights.line(
            kind, update, self.convolution.outputs_together if self.convolution else 1
        ):
            lines = weights.reshape(-1, line), out.reshape(-1, line)
            self.of_weights.round_parts(kind, [lines], -1, update, counts=True)
        elif isinstance(self.convolution, DotConvolution) and self.of_weights.has_blocks(
            kind, update, self.convolution.block
        ):
            blocks = (self.convolution.packed_blocks(packed) for packed in (weights, out))
            self.of_weights.round_parts(kind, zip(*blocks, strict=True), 1, update, counts=True)
        else:
            unpacked = self._unpacked(weights)
            self.of_weights.round(kind, unpacked, update, place)
            if self.convolution is None:
                out[...] = unpacked
            else:
                self.convolution.pack(unpacked, out)

    def _unpacked(self, packed: Data) -> Data:
        """Return packed weights as weights, in memory of the arena."""
        weights: Data = self.of_weights.formats.arena.take(self.of_weights.shape)
        if self.convolution is None:
            weights[...] = packed
            return weights
        return self.convolution.unpack(packed, weights)
