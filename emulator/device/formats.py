"""Numbers in a run's formats: what a device rounds, by which random words if by chance, and counts
of it all.

Whole maps are rounded, on the device that has them so, and weights in the order of their whole
layer. The words of stochastic rounding are those of an element's place in its tensor, of the
tensor, and of the sample or update. So no rounding depends on how the network is cut
(`number/precision.py` says what is rounded where).

Blocks of maps are of channels of a pixel, from channel 0 on; those of weights lie along the
dimension in which the layer is not cut, so that each slice has whole ones: output channels under
ICP, and under OCP the inputs and taps of an output channel; of a recurrent layer the inputs, or the
states, of a unit's gate. Where tensors have scales, these are of a row of a map, and of the weights
of a channel in which the layer is cut. Tied weights are one table, which both
ends round alike: in blocks of a feature's symbols, with the words of the embedding. The embedding
counts it.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...kernels.attention import Operand
from ...kernels.conv import Convolving, DotConvolution
from ...kernels.number import BlockGrid, FloatGrid, NumberFormat, Rounding
from ...kernels.optimizers import count_unmoved
from ...kernels.quantise import Draws, PhiloxStream, on_blocks, on_grid, transform
from ..mapping import Cut, Slice, first_own
from ..number import KINDS, Precision
from .scales import TensorScales

_OPERANDS = 128
"""Of operands within a layer, what is added to their kind in the keys of their draws."""
_PLACES = 8
"""More than there are kinds: what is added for each operand of one kind that a layer has beside the
first."""

COUNTED = "values", "saturated", "flushed"
"""What is counted of each kind of numbers."""
SCALED, SKIPPED = "updates_scaled", "updates_skipped"
"""The names of counts of updates whose loss scale follows overflows, and of those it skips."""
_OUTPUTS, _INPUTS, _ROWS = 0, 1, -1
"""Along which axis of weights blocks lie."""
_PIXELS = 192
"""Of operands of PG in blocks of pixels, what is added to their kind in the keys of their draws."""
_SIGNS = 224
"""What the signs are for that come before a transform of pixels."""
_UPDATE_BITS = 48
"""Of the number by which words are drawn; those above have the replica."""


class RoundingTally:
    """What a device has rounded: by kind the values, those beyond the largest, and those that
    became zero.

    Of weights also how many were updated, and how many of them an update left as they were; of
    updates whose loss scale follows overflows, how many there were, and how many were skipped.
    """

    def __init__(self) -> None:
        self._counts = {kind: np.zeros(3, np.int64) for kind in KINDS}
        self._updated = self._unmoved = 0
        self._scaled = self._skipped = 0

    def of_kind(self, kind: str, values: int) -> NDArray[np.int64]:
        """Count values of a kind; return the two counts that their rounding adds to."""
        self._counts[kind][0] += values
        return self._counts[kind][1:]

    def update(self, weights: int, unmoved: int) -> None:
        """Count weights of an update."""
        self._updated += weights
        self._unmoved += unmoved

    def end_update(self, *, skipped: bool) -> None:
        """Count an update whose loss scale follows overflows."""
        self._scaled += 1
        self._skipped += skipped

    def counts(self) -> dict[str, int]:
        """Return all counts by name."""
        names = itertools.product(KINDS, COUNTED)
        counts = (count for kind in KINDS for count in self._counts[kind].tolist())
        moves = {"weights_updated": self._updated, "weights_unmoved": self._unmoved}
        return {
            **{f"{kind}_{what}": count for (kind, what), count in zip(names, counts, strict=True)},
            **moves,
            **({SCALED: self._scaled, SKIPPED: self._skipped} if self._scaled else {}),
        }

    def take(self) -> dict[str, int]:
        """Return all counts by name, and begin anew."""
        counts = self.counts()
        self.restore({})
        return counts

    def restore(self, counts: Mapping[str, int]) -> None:
        """Restore what `counts` returned; what is missing is 0."""
        for kind in KINDS:
            self._counts[kind][:] = [counts.get(f"{kind}_{what}", 0) for what in COUNTED]
        self._updated, self._unmoved = (
            counts.get(f"weights_{what}", 0) for what in ("updated", "unmoved")
        )
        self._scaled, self._skipped = counts.get(SCALED, 0), counts.get(SKIPPED, 0)


Data = NDArray[np.float32]
Numbers = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class MapFormats:
    """Rounds maps (samples, rows, columns, channels) to a run's formats, and counts what it rounds
    in training.

    Memory is from the arena. Gradients are of a `replica`, which draws words of its own for them:
    errors that are the same in all would not become less in their mean.
    """

    precision: Precision
    seed: int
    arena: Arena = dataclasses.field(compare=False)
    replica: int = 0
    tally: RoundingTally = dataclasses.field(default_factory=RoundingTally, compare=False)
    scales: TensorScales = dataclasses.field(default_factory=TensorScales, compare=False)

    @property
    def counts_updates(self) -> bool:
        """Whether updates count, which may be skipped: of the first replica, as all do the same."""
        return self.precision.grows_every > 0 and self.replica == 0

    def of(self, formats: int) -> MapFormats:
        """Return the formats of layers and tensors that are marked with a number
        (`Precision.of`).
        """
        return dataclasses.replace(self, precision=self.precision.of(formats)) if formats else self

    def reading(self, inputs: MapFormats) -> MapFormats:
        """Return the formats of what engines multiply where they read maps in others."""
        return dataclasses.replace(self, precision=self.precision.reading(inputs.precision))

    def rounded(
        self,
        kind: Literal["activations", "errors"],
        maps: Data,
        tensor: int,
        samples: Numbers | None = None,
        place: str = "outputs",
    ) -> Data:
        """Return whole maps of a tensor in the format of their kind; `samples` (n,) are their
        numbers in training. They are of a layer's outputs or inputs, which tells scales apart.

        In evaluation, which has no `samples`, what is rounded by chance in training is rounded to
        even. Errors may be overwritten; activations may still be needed as they were.
        """
        number, rounding = self.precision.format(kind), self.precision.rounding_of(kind)
        if number.grid is None:
            return maps
        if rounding is Rounding.STOCHASTIC and samples is None:
            rounding = Rounding.EVEN
        counts = None if samples is None else self.tally.of_kind(kind, maps.size)
        words = Draws(PhiloxStream(self.seed, tensor, KINDS.index(kind), 0), numbers=samples)
        out = maps if kind == "errors" and maps.flags.carray else self.arena.take(maps.shape)
        row, history = math.prod(maps.shape[2:]), self.precision.history
        if not history or not isinstance(number.grid, FloatGrid):
            return _round(maps, out, number, rounding, -1, words, counts, row)
        name = f"{kind}_{place}_{tensor}"
        scale = self.scales.exponent(name, maps, number.grid.largest, history, samples)
        np.multiply(maps, np.float32(2.0**-scale), out=out)
        made = _round(out, out, number, rounding, -1, words, counts, row)
        made *= np.float32(2.0**scale)
        return made

    def operand(
        self,
        kind: Literal["activations", "errors"],
        tensor: int,
        first: int,
        samples: Numbers | None,
        values: int,
        place: int = 0,
    ) -> Operand | None:
        """Return how operands within a layer that makes a tensor are rounded to the format of their
        kind; None if they are not.

        Their words are from number `first` of each sample on; `place` tells a layer's operands of a
        kind from one another. Of operands that are computed again, no `values` are counted.
        """
        number, rounding = self.precision.format(kind), self.precision.rounding_of(kind)
        if number.grid is None:
            return None
        if samples is None:
            even = Rounding.EVEN if rounding is Rounding.STOCHASTIC else rounding
            return Operand(number.grid, even)
        purpose = _OPERANDS + _PLACES * place + KINDS.index(kind)
        words = Draws(PhiloxStream(self.seed, tensor, purpose, 0), first, numbers=samples)
        counts = self.tally.of_kind(kind, values) if values else None
        return Operand(number.grid, rounding, words, counts)

    def in_pixels(
        self,
        kind: Literal["activations", "errors"],
        maps: Data,
        tensor: int,
        first: int,
        samples: Numbers | None,
        axis: int = -1,
    ) -> Data:
        """Return maps (samples, channels, pixels) that PG sums, in place, in blocks of pixels, maybe
        transformed; they are rounded a second time, and not counted.

        Their words are those of a layer that makes a tensor, from number `first` of each sample on.
        Where none are drawn, pixels may be another `axis`.
        """
        number, rounding = self.precision.format(kind), self.precision.rounding_of(kind)
        if not number.block:
            return maps
        if self.precision.hadamard:
            assert axis == -1
            signs = PhiloxStream(self.seed, tensor, _SIGNS, 0).words(0, self.precision.hadamard)
            transform(maps, 1 - 2 * (signs >> 31).astype(np.float32))
        words = self.again(kind, tensor, first, samples)
        return _round(maps, maps, number, rounding, axis, words, None)

    def again(self, kind: str, tensor: int, first: int, samples: Numbers | None) -> Draws:
        """Return the words of numbers that are rounded once more, in blocks of what is summed."""
        stream = PhiloxStream(self.seed, tensor, _PIXELS + KINDS.index(kind), 0)
        return Draws(stream, first, numbers=samples)

    def words_of_weights(self, kind: str, layer: int, update: int, place: int) -> PhiloxStream:
        """Return the words by which weights of a layer, or what belongs to them, are rounded once
        update number `update` is done.
        """
        # All but gradients of an update is the same in all replicas.
        replica = self.replica if kind == "gradients" else 0
        purpose = KINDS.index(kind) + place
        return PhiloxStream(self.seed, layer, purpose, update | replica << _UPDATE_BITS)

    def input_errors(self, part: Slice, dx: Data, samples: Numbers | None) -> Data:
        """Return the errors of a layer's inputs, from the first channel on that a slice has,
        rounded by that slice.

        Under ICP it rounds the blocks that begin among its own channels, under OCP the layer's
        first slice all.
        """
        number, tensor, channels = (
            self.precision.errors,
            part.layer.reads.number,
            part.layer.input[0],
        )
        # A row that has a scale has to be whole.
        is_whole = part.cut is Cut.OCP or (part.is_first and part.is_last)
        if is_whole or number.tensor_bytes or self.precision.history:
            return self.rounded("errors", dx, tensor, samples, "inputs") if part.is_first else dx
        begin, end = (min(channels, first_own(edge, number)) for edge in (part.begin, part.end))
        if number.grid is None or begin == end:
            return dx
        self._round_channels(
            dx[..., begin - part.begin : end - part.begin], tensor, begin, channels, samples
        )
        return dx

    def output_errors(self, part: Slice, dy: Data, samples: Numbers | None) -> None:
        """Round the errors of a slice's own outputs in place, where each slice makes its own: these
        are whole blocks.
        """
        if self.precision.errors.grid is not None:
            tensor, begin = part.layer.makes.number, part.out_channels.start
            self._round_channels(dy, tensor, begin, part.layer.channels, samples)

    def _round_channels(
        self, own: Data, tensor: int, begin: int, channels: int, samples: Numbers | None
    ) -> None:
        """Round errors of the channels of a tensor from `begin` on, in place, of `channels` in
        all.
        """
        number, rounding = self.precision.errors, self.precision.rounding_of("errors")
        counts = self.tally.of_kind("errors", own.size)
        if rounding is not Rounding.STOCHASTIC or samples is None:
            own[...] = _round(own, self.arena.take(own.shape), number, rounding, -1, None, counts)
            return
        for sample, maps in zip(samples.tolist(), own, strict=True):
            stream = PhiloxStream(self.seed, tensor, KINDS.index("errors"), sample)
            pixels = np.ascontiguousarray(maps.reshape(-1, own.shape[-1]))
            # Numbered by the place in the whole map, so that draws do not depend on the cut.
            words = Draws(stream, first=begin, stride=channels)
            maps[...] = _round(pixels, pixels, number, rounding, -1, words, counts).reshape(
                maps.shape
            )


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
        if number.tensor_bytes:  # a channel's weights do not lie side by side
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
        return is_whole and number.block == block and rounding(kind) is not Rounding.STOCHASTIC

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
            _round(weights, out, *form, axis, None, counted)

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
        if tied is not None:
            table = np.ascontiguousarray(rows.T)
            rows[...] = _round(table, table, *form, -1, words, counts, table.shape[1]).T
            return
        lines, taps = rows, math.prod(self.part.layer.kernel)
        if self._axis == _INPUTS:
            lines = rows.reshape(len(rows), -1, taps)
        channel = taps if self._axis == _OUTPUTS else rows.shape[1]
        _round(lines, lines, *form, self._axis, words, counts, channel)

    @property
    def _axis(self) -> int:
        """Along which axis of weights blocks lie: of those in rows, or of (outputs, inputs,
        taps).
        """
        if self.formats.precision.dot and not self.part.layer.operation.looks_up:
            return _INPUTS
        return _OUTPUTS if self.part.cut is Cut.ICP else _ROWS

    def turned(self, weights: Data, update: int) -> Data:
        """Return weights as EB reads them where it has its own: in blocks of output channels (of a
        group), rounded from those that updates change, by the words of the others; not counted.
        """
        precision = self.formats.precision
        form = precision.weights, precision.rounding_of("weights")
        rows: Data = np.ascontiguousarray(weights).reshape(len(weights), -1)
        words, axis = self._words("weights", 0, update), _OUTPUTS
        groups = self.part.layer.operation.groups
        outputs = self.part.layer.channels // groups
        if groups > 1 and outputs % precision.weights.block:  # a slice has whole groups
            rows, axis = rows.reshape(-1, outputs, rows.shape[1]), 1
            words = Draws(words.stream, words.first)
        return _round(rows, np.empty_like(rows), *form, axis, words, None).reshape(weights.shape)

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

    @abc.abstractmethod
    def moved(self, before: Data, after: Data) -> None:
        """Count what an update has left as it was."""

    @abc.abstractmethod
    def round(
        self, kind: str, weights: Data, update: int, place: int = 0, *, out: Data | None = None
    ) -> None:
        """Round weights, as they lie in memory, to the format of a kind, in place or into `out`,
        once update number `update` is done; 0 is before the first.

        `place` tells states from one another.
        """

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
    layer, and `step` how far rows are apart there.
    """

    formats: MapFormats
    layer: int
    shape: tuple[int, int]
    first: int
    step: int

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

    def round(
        self, kind: str, weights: Data, update: int, place: int = 0, *, out: Data | None = None
    ) -> None:
        """See `ParameterFormats`."""
        out = weights if out is None else out
        if not self.rounds(kind):
            if out is not weights:
                out[...] = weights
            return
        form = self.formats.precision.format(kind), self.formats.precision.rounding_of(kind)
        stream = self.formats.words_of_weights(kind, self.layer, update, place)
        # Rounding of the first weights belongs to no update, and is not counted.
        counts = self.formats.tally.of_kind(kind, weights.size) if update else None
        rows = weights.reshape(self.shape)
        words = Draws(stream, self.first, self.step)
        _round(rows, out.reshape(self.shape), *form, -1, words, counts)


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

    def round(
        self, kind: str, weights: Data, update: int, place: int = 0, *, out: Data | None = None
    ) -> None:
        """See `ParameterFormats`."""
        out = weights if out is None else out
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


def _round(
    values: Data,
    out: Data,
    number: NumberFormat,
    rounding: Rounding,
    axis: int,
    words: Draws | None,
    counts: NDArray[np.int64] | None,
    tensor: int = 0,
) -> Data:
    """Round numbers to a format, in blocks along an axis, into `out`, and return it; `words` are
    for those by chance.

    What saturates or becomes zero is added to `counts`. A `tensor` is as `on_blocks` has it.
    """
    values, words = np.ascontiguousarray(values), words if rounding is Rounding.STOCHASTIC else None
    if isinstance(number.grid, BlockGrid):
        return on_blocks(
            values, number.grid, axis, rounding, words, tensor=tensor, out=out, counts=counts
        )
    assert number.grid is not None
    return on_grid(values, number.grid, rounding, words, out=out, counts=counts)
