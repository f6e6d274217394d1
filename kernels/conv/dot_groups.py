"""Convolutions in groups that add their products in blocks (`dots.py`), from the first channel of a
group on.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ..jit import Floats
from .dots import DotConvolution, Rounded
from .grouped import Grouped, Part


@dataclasses.dataclass(frozen=True)
class DotGrouped(Grouped):
    """A convolution in groups as its base has it, but for its sums; `block` and `narrow` are those
    of `DotConvolution`.
    """

    block: int = 1
    narrow: tuple[bool, bool, bool] = (False, False, False)

    def _side_by_side(self, in_channels: int, out_channels: int) -> DotConvolution:
        window = self.size, self.kernel, self.stride, self.pad
        sums = self.block, self.narrow, self.dilation
        return DotConvolution(in_channels, out_channels, *window, *sums)

    def _inputs_of(self, frame: Floats, part: Part) -> Floats:
        return np.ascontiguousarray(frame[..., part.ins])

    def _errors_of(self, error_frame: Floats, part: Part) -> Floats:
        return np.ascontiguousarray(error_frame[..., part.outs])

    @property
    def places(self) -> int:
        """Places of the kernel."""
        return int(self._whole.places)

    @property
    def pixels(self) -> int:
        """Pixels of an output map."""
        return int(self._whole.pixels)

    def turn_weights(self, w: Floats, out: Floats) -> None:
        """See `DotConvolution`."""
        for part in self._parts:
            part.convolution.turn_weights(w[part.outs], out[part.turned])

    def inputs_at(self, frame: Floats, place: int) -> Floats:
        """See `DotConvolution`."""
        inputs: Floats = self._whole.inputs_at(frame, place)
        return inputs

    def gradients(
        self,
        packed_gradient: Floats,
        frame: Floats,
        dy: Floats,
        rounded: Rounded,
        *,
        fresh: bool,
        to_7_bits: bool = False,
    ) -> None:
        """See `DotConvolution`; inputs are rounded before they are packed in any case."""
        for place in range(self.places):
            x = rounded(place, self.inputs_at(frame, place))
            self.gradient_at(packed_gradient, place, x, dy, fresh=fresh)

    def gradient_at(
        self, packed_gradient: Floats, place: int, x: Floats, dy: Floats, *, fresh: bool
    ) -> None:
        """See `DotConvolution`."""
        for part in self._parts:
            own = x[:, part.ins].copy()
            gradient = packed_gradient[part.packed]
            part.convolution.gradient_at(gradient, place, own, dy[..., part.outs], fresh=fresh)
