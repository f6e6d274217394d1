"""Slices of convolutions whose products are summed in blocks, exactly, and blocks in fp32.

FP sums over input channels, EB over output channels, PG over pixels: where a format has blocks,
each takes operands whose blocks lie along what it sums, rounded from what there is:

    FP   activations and weights in blocks of input channels, as they come, and as updates round them
    EB   errors in blocks of output channels, as they come; weights rounded once more, from those that
         updates change, in blocks of output channels
    PG   activations and errors rounded once more, in blocks of a sample's output pixels, row by row:
         of activations those that these outputs read through a place of the kernel, zeros of padding
         among them

In groups, these are channels of a group, from its first one on. Where a group has no whole blocks,
and does not lie within one, activations and errors are rounded once more as they come.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ....kernels import Arena
from ....kernels.conv import Convolving, DotConvolution, DotGrouped
from ....kernels.number import NARROW_BITS, BlockGrid, Rounding, number_formats
from ....kernels.quantise import Draws, PhiloxStream, on_blocks
from ...mapping import Slice
from ...network import Start, Training
from ...number import KINDS, Precision, sum_bits
from ...schedule import SampleSpan
from ..formats import MapFormats
from ..memories import TURNED, ActRam, Arrays
from ..rules import Rule
from ..weight_formats import WeightFormats
from .conv import ConvSlice, VocabularySlice
from .numerics import Data, Lengths

Numbers = NDArray[np.int64]

IN_GROUPS = 200
"""Of operands in blocks of a group's channels, what is added to their kind in the keys of their
draws.
"""

_MXINT8 = number_formats()["mxint8"]


class DotSlice(ConvSlice):
    """What a device computes for one slice of such a convolution."""

    def __init__(
        self,
        part: Slice,
        start: Start,
        seed: int,
        arena: Arena,
        formats: MapFormats,
        kept: NDArray[np.bool_] | None = None,
    ) -> None:
        self._formats, self._number = formats, 0
        self._weight_formats = WeightFormats(formats, part)
        self._samples, self._error_samples = ActRam(arena), ActRam(arena)
        self._turned_weights: Data | None = None
        super().__init__(part, start, seed, arena, formats, kept)

    def _convolving(self) -> Convolving:
        part, precision = self.part, self._formats.precision
        layer, ins, outputs = part.layer, len(part.in_channels), part.outputs_by_group
        window, narrow = (layer.input[1:], *layer.window), narrow_sums(precision)
        if len(outputs) > 1:
            return DotGrouped(ins, outputs, *window, block=precision.dot, narrow=narrow)
        size, kernel, stride, pad, dilation = window
        whole = size, kernel, stride, pad, precision.dot, narrow, dilation
        return DotConvolution(ins, outputs[0], *whole)

    @property
    def _dots(self) -> DotConvolution | DotGrouped:
        assert isinstance(self._convolution, DotConvolution | DotGrouped)
        return self._convolution

    async def forward(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, training: Training
    ) -> Data:
        """See `SliceNumerics`."""
        layer = self.part.layer
        if layer.has_pg:
            self._samples.put(span, training.samples)
        if not layer.makes.fixed:
            self._error_samples.put(span, training.samples)
        x = self._taken(x, training.samples)
        return await super().forward(span, x, partial, version, training)

    async def infer(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, lengths: Lengths | None
    ) -> Data:
        """See `SliceNumerics`."""
        return await super().infer(span, self._taken(x, None), partial, version, lengths)

    def _taken(self, x: Data, samples: Numbers | None) -> Data:
        """Return activations in blocks of a group's channels."""
        layer, inputs = self.part.layer, self.part.in_channels
        own, size = self._own(x), layer.input[0] // layer.operation.groups
        rounded = self._in_groups("activations", own, inputs.start, layer.input[0], size, samples)
        if rounded is own:
            return x
        x = x.copy()
        self._own(x)[...] = rounded
        return x

    def _own_errors(self, span: SampleSpan, dy: Data, version: int) -> Data:
        [samples] = self._error_samples.read(span)
        own, layer = super()._own_errors(span, dy, version), self.part.layer
        if not layer.has_eb:  # which alone sums over outputs
            return own
        size, begin = layer.channels // layer.operation.groups, self.part.out_channels.start
        return self._in_groups("errors", own, begin, layer.channels, size, samples)

    def _in_groups(
        self,
        kind: Literal["activations", "errors"],
        maps: Data,
        begin: int,
        channels: int,
        size: int,
        samples: Numbers | None,
    ) -> Data:
        """Return maps from channel `begin` of `channels` on in blocks of a group's `size` channels,
        unless these lie in the blocks in which they come.
        """
        precision = self._formats.precision
        grid, rounding = precision.format(kind).grid, precision.rounding_of(kind)
        if self.part.layer.operation.groups == 1 or not isinstance(grid, BlockGrid):
            return maps
        if not size % grid.size or not grid.size % size:
            return maps
        out = self._arena.take(maps.shape)
        out[...] = maps
        if rounding is not Rounding.STOCHASTIC or samples is None:
            even = Rounding.EVEN if rounding is Rounding.STOCHASTIC else rounding
            lines = out.reshape(-1, size)
            on_blocks(lines, grid, -1, even, out=lines)
            return out
        for sample, own in zip(samples.tolist(), out, strict=True):
            purpose = IN_GROUPS + KINDS.index(kind)
            tensor = self.part.layer.makes.number
            stream = PhiloxStream(self._formats.seed, tensor, purpose, sample)
            lines = own.reshape(own.shape[0] * own.shape[1], -1, size)
            on_blocks(lines, grid, -1, rounding, Draws(stream, begin, channels), out=lines)
        return out

    def _add_gradient(self, whole: SampleSpan, frame: Data, dy: Data, *, fresh: bool) -> None:
        [samples] = self._samples.read(whole)
        precision, dots, layer = self._formats.precision, self._dots, self.part.layer
        if not (precision.activations.block or precision.errors.block):
            super()._add_gradient(whole, frame, dy, fresh=fresh)
            return
        tensor, pixels = layer.makes.number, dots.pixels
        own, first = self._arena.take(dy.shape), self.part.out_channels.start * pixels
        errors = own.reshape(len(dy), pixels, -1)
        errors[...] = dy.reshape(errors.shape)
        if precision.hadamard or precision.rounding_of("errors") is Rounding.STOCHASTIC:
            turned = np.ascontiguousarray(errors.swapaxes(1, 2))
            turned = self._formats.in_pixels("errors", turned, tensor, first, samples)
            errors[...] = turned.swapaxes(1, 2)
        else:
            self._formats.in_pixels("errors", errors, tensor, first, samples, axis=1)

        def rounded(place: int, x: Data) -> Data:
            first = (place * layer.input[0] + self.part.in_channels.start) * pixels
            return self._formats.in_pixels("activations", x, tensor, first, samples)

        rounding = precision.rounding_of("activations")
        dots.gradients(
            self._weight.gradient,
            frame,
            own,
            rounded,
            fresh=fresh,
            to_7_bits=precision.activations.grid == _MXINT8.grid
            and precision.activations.block == dots.block
            and rounding is Rounding.EVEN
            and not precision.hadamard,
        )

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """See `SliceNumerics`."""
        self._number = rule.number
        super().update(samples, rule, keeps=keeps)

    def put_weights(self, weights: Data) -> None:
        """See `SliceNumerics`; EB's are rounded from these."""
        super().put_weights(weights)
        self._turn_from(weights)

    def _turn(self) -> None:
        self._turn_weights()
        if isinstance(self._dots, DotConvolution):
            for versions in (self._weight.versions, self._turned):
                if versions is not None:
                    self._dots.changed(versions.newest)

    def _turn_weights(self) -> None:
        precision, dots = self._formats.precision, self._dots
        if not precision.turns:
            super()._turn()
        elif self._turned is not None:
            lie_in_blocks = self._weight_formats.has_blocks("weights", self._number, dots.block)
            if isinstance(dots, DotConvolution) and lie_in_blocks:
                turned = self._turned.newest
                dots.turn(self._weight.trained, turned)
                parts = ((part, part) for part in dots.turned_blocks(turned))
                self._weight_formats.round_parts("weights", parts, 1, self._number, counts=False)
            else:
                self._turn_from(dots.unpack(self._weight.trained))

    def _turn_from(self, weights: Data) -> None:
        if self._turned is None:
            return
        if self._formats.precision.turns:
            weights = self._weight_formats.turned(weights, self._number)
            if self._formats.precision.turns_by_chance:
                self._turned_weights = weights
        self._dots.turn_weights(weights, self._turned.newest)

    def _weights_state(self) -> Arrays:
        # By chance, they could not be rounded again: the words are those of the last update.
        turned = {} if self._turned_weights is None else {TURNED: self._turned_weights.copy()}
        return {**super()._weights_state(), **turned}

    def _restore_weights(self, state: Arrays) -> None:
        arrays = {name: array for name, array in state.items() if name != TURNED}
        super()._restore_weights(arrays)
        if TURNED in state and self._turned is not None:
            self._turned_weights = state[TURNED].copy()
            self._dots.turn_weights(self._turned_weights, self._turned.newest)


class DotVocabularySlice(VocabularySlice, DotSlice):
    """What a device computes for some channels of a classifier that computes its part of the loss,
    with sums of blocks.
    """


def narrow_sums(precision: Precision) -> tuple[bool, bool, bool]:
    """Return whether sums of FP, EB and PG of a block are exact in fp32."""
    kinds = ("activations", "weights"), ("errors", "weights"), ("activations", "errors")
    forward, back, gradient = (
        sum_bits(precision.format(one), precision.format(other), precision.dot) <= NARROW_BITS
        for one, other in kinds
    )
    return forward, back, gradient
