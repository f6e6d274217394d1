"""Slices of convolutions whose products are summed in blocks, exactly, and blocks in fp32.

FP sums over input channels, EB over output channels, PG over pixels: where a format has blocks,
each takes operands whose blocks lie along what it sums, rounded from what there is:

    FP   activations and weights in blocks of input channels, as they come, and as updates round them
    EB   errors in blocks of output channels, as they come; weights rounded once more, from those that
         updates change, in blocks of output channels
    PG   activations and errors rounded once more, in blocks of a sample's output pixels, row by row:
         of activations those that these outputs read through a place of the kernel, zeros of padding
         among them
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....kernels import Arena
from ....kernels.conv import Convolving, DotConvolution
from ....kernels.number import NARROW_BITS, Rounding
from ...mapping import Slice
from ...network import Start, Training
from ...number import Precision, sum_bits
from ...schedule import SampleSpan
from ..formats import MapFormats, WeightFormats
from ..memories import TURNED, ActRam, Arrays
from ..rules import Rule
from .conv import ConvSlice
from .numerics import Data


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
        self._samples = ActRam(arena)
        self._turned_weights: Data | None = None
        super().__init__(part, start, seed, arena, formats, kept)

    def _convolving(self) -> Convolving:
        part, precision = self.part, self._formats.precision
        layer = part.layer
        return DotConvolution(
            len(part.in_channels),
            len(part.out_channels),
            layer.input[1:],
            *layer.window,
            precision.dot,
            narrow_sums(precision),
        )

    @property
    def _dots(self) -> DotConvolution:
        assert isinstance(self._convolution, DotConvolution)
        return self._convolution

    async def forward(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, training: Training
    ) -> Data:
        """See `SliceNumerics`."""
        if self.part.layer.has_pg:
            self._samples.put(span, training.samples)
        return await super().forward(span, x, partial, version, training)

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
        if precision.rounding_of("errors") is Rounding.STOCHASTIC:
            turned = np.ascontiguousarray(errors.swapaxes(1, 2))
            turned = self._formats.in_pixels("errors", turned, tensor, first, samples)
            errors[...] = turned.swapaxes(1, 2)
        else:
            self._formats.in_pixels("errors", errors, tensor, first, samples, axis=1)

        def rounded(place: int, x: Data) -> Data:
            first = (place * layer.input[0] + self.part.in_channels.start) * pixels
            return self._formats.in_pixels("activations", x, tensor, first, samples)

        dots.gradients(self._weight.gradient, frame, own, rounded, fresh=fresh)

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """See `SliceNumerics`."""
        self._number = rule.number
        super().update(samples, rule, keeps=keeps)

    def put_weights(self, weights: Data) -> None:
        """See `SliceNumerics`; EB's are rounded from these."""
        super().put_weights(weights)
        self._turn_from(weights)

    def _turn(self) -> None:
        precision, dots = self._formats.precision, self._dots
        if not precision.turns:
            super()._turn()
        elif self._turned is not None:
            if self._weight_formats.has_blocks("weights", self._number, dots.block):
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


def narrow_sums(precision: Precision) -> tuple[bool, bool, bool]:
    """Return whether sums of FP, EB and PG of a block are exact in fp32."""
    kinds = ("activations", "weights"), ("errors", "weights"), ("activations", "errors")
    forward, back, gradient = (
        sum_bits(precision.format(one), precision.format(other), precision.dot) <= NARROW_BITS
        for one, other in kinds
    )
    return forward, back, gradient
