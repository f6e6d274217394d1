"""What a slice sums in: fp32, bf16 or fp16 as they are, or whole numbers, which operands are scaled to and sums from.

With `accumulate = "int32"` all formats are fixed point, with f fraction bits: a value is a whole number times 2^-f. FP
multiplies activations by weights, EB errors by weights, PG activations by errors. So the activations in Act-RAM are
scaled by the fraction bits of activations and weights: FP's products are then whole. PG reads them, too, so the errors
that it reads have the bits that errors have more than weights. Partial sums travel as the bits of int32.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ...kernels.conv import Sums
from ...kernels.number import FloatGrid
from ..number import SINGLE, Precision

Data = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class SliceSums:
    """The sums of a slice in a run's formats."""

    precision: Precision = SINGLE

    @property
    def kind(self) -> Sums:
        """What kernels sum in."""
        return Sums[self.precision.accumulate.upper()]

    def _bits(self, kind: str) -> int:
        grid = self.precision.format(kind).grid
        assert isinstance(grid, FloatGrid)
        return grid.fraction_bits - grid.least_exponent

    def activations(self, x: Data) -> Data:
        """Return activations as FP and PG multiply them."""
        return self._scaled(x, "activations", "weights")

    def errors(self, dy: Data) -> Data:
        """Return errors of outputs as EB multiplies them."""
        return self._scaled(dy, "errors", "weights")

    def gradient_errors(self, dy: Data) -> Data:
        """Return errors of outputs as PG multiplies them."""
        if self.kind is not Sums.INT32 or self._bits("errors") == self._bits("weights"):
            return dy
        return dy * np.float32(2.0 ** (self._bits("errors") - self._bits("weights")))

    def _scaled(self, maps: Data, *kinds: str) -> Data:
        return maps * np.float32(2.0 ** sum(map(self._bits, kinds))) if self.kind is Sums.INT32 else maps

    def make_whole(self, sums: Data, *kinds: str) -> None:
        """Make fp32 numbers of sums of products of two kinds, in place, once they are complete."""
        if self.kind is Sums.INT32:
            sums[...] = sums.view(np.int32) * np.float32(2.0 ** -sum(map(self._bits, kinds)))
