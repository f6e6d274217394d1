"""Numbers in a run's formats: what a device rounds of maps, by which random words if by chance, and
counts of it all.

Whole maps are rounded, on the device that has them so. The words of stochastic rounding are those
of an element's place in its tensor, of the tensor, and of the sample or update. So no rounding
depends on how the network is cut (`number/precision.py` says what is rounded where). Blocks are of
channels of a pixel, from channel 0 on; where tensors have scales, these are of a row of a map.
Weights are in `weight_formats.py`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...kernels.attention import Operand, Scale, largest_finite
from ...kernels.number import BlockGrid, FloatGrid, NumberFormat, Rounding
from ...kernels.quantise import Draws, PhiloxStream, on_blocks, on_grid, transform
from ..mapping import Cut, Slice, first_own
from ..number import KINDS, Precision
from .scales import SampleScales, TensorScales, name_of_scale

_OPERANDS = 128
"""Of operands within a layer, what is added to their kind in the keys of their draws."""
_PLACES = 8
"""More than there are kinds: what is added for each operand of one kind that a layer has beside the
first."""

COUNTED = "values", "saturated", "flushed"
"""What is counted of each kind of numbers."""
SCALED, SKIPPED = "updates_scaled", "updates_skipped"
"""The names of counts of updates whose loss scale follows overflows, and of those it skips."""
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
        row, scale = math.prod(maps.shape[2:]), self.scale(kind, tensor, place, samples)
        if scale is None:
            return round_into(maps, out, number, rounding, -1, words, counts, row)
        scale.largest[0] = largest_finite(maps)
        self.note(kind, tensor, place, samples, scale)
        np.multiply(maps, np.float32(2.0**-scale.exponent), out=out)
        made = round_into(out, out, number, rounding, -1, words, counts, row)
        made *= np.float32(2.0**scale.exponent)
        return made

    def scales_of(self, samples: Numbers | None) -> SampleScales | None:
        """Return the scales of the maps of some samples, if any have one."""
        has_any = any(own.history for own in self.precision.all_of)
        return SampleScales(self.scales, samples) if has_any else None

    def scale(
        self,
        kind: Literal["activations", "errors"],
        tensor: int,
        place: str,
        samples: Numbers | None,
        *,
        shared: bool = False,
    ) -> Scale | None:
        """Return the scale of a tensor, or of operands within the layer that makes it, at a place;
        None without one. What is `shared` by several devices, these tell each other.
        """
        if not self.precision.scales(kind):
            return None
        name, history = name_of_scale(kind, place, tensor), self.precision.history
        exponent = self.scales.exponent(name, history, samples, shared=shared)
        return Scale(exponent, np.zeros(1, np.float32))

    def note(
        self, kind: str, tensor: int, place: str, samples: Numbers | None, scale: Scale | None
    ) -> None:
        """Note the largest number that was rounded under a scale, if there is one."""
        if scale is not None:
            grid, most = self.precision.format(kind).grid, float(scale.largest[0])
            assert isinstance(grid, FloatGrid)
            self.scales.note(name_of_scale(kind, place, tensor), most, grid.largest, samples)

    def operand(
        self,
        kind: Literal["activations", "errors"],
        tensor: int,
        first: int,
        samples: Numbers | None,
        values: int,
        place: int = 0,
        scale: Scale | None = None,
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
            return Operand(number.grid, even, scale=scale)
        purpose = _OPERANDS + _PLACES * place + KINDS.index(kind)
        words = Draws(PhiloxStream(self.seed, tensor, purpose, 0), first, numbers=samples)
        counts = self.tally.of_kind(kind, values) if values else None
        return Operand(number.grid, rounding, words, counts, scale)

    def in_pixels(
        self,
        kind: Literal["activations", "errors"],
        maps: Data,
        tensor: int,
        first: int,
        samples: Numbers | None,
        axis: int = -1,
    ) -> Data:
        """Return maps (samples, channels, pixels) that PG sums, in place, in blocks of pixels,
        maybe transformed; they are rounded a second time, and not counted.

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
        return round_into(maps, maps, number, rounding, axis, words, None)

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
        if self.precision.errors.grid is None:
            return
        tensor, begin = part.layer.makes.number, part.out_channels.start
        shared = not (part.is_first and part.is_last)
        scale = self.scale("errors", tensor, "logits", samples, shared=shared)
        if scale is not None:
            scale.largest[0] = largest_finite(dy)
            self.note("errors", tensor, "logits", samples, scale)
            dy *= np.float32(2.0**-scale.exponent)
        self._round_channels(dy, tensor, begin, part.layer.channels, samples)
        if scale is not None:
            dy *= np.float32(2.0**scale.exponent)

    def _round_channels(
        self, own: Data, tensor: int, begin: int, channels: int, samples: Numbers | None
    ) -> None:
        """Round errors of the channels of a tensor from `begin` on, in place, of `channels` in
        all.
        """
        number, rounding = self.precision.errors, self.precision.rounding_of("errors")
        counts = self.tally.of_kind("errors", own.size)
        if rounding is not Rounding.STOCHASTIC or samples is None:
            own[...] = round_into(
                own, self.arena.take(own.shape), number, rounding, -1, None, counts
            )
            return
        for sample, maps in zip(samples.tolist(), own, strict=True):
            stream = PhiloxStream(self.seed, tensor, KINDS.index("errors"), sample)
            pixels = np.ascontiguousarray(maps.reshape(-1, own.shape[-1]))
            # Numbered by the place in the whole map, so that draws do not depend on the cut.
            words = Draws(stream, first=begin, stride=channels)
            maps[...] = round_into(pixels, pixels, number, rounding, -1, words, counts).reshape(
                maps.shape
            )


def round_into(
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
