"""What convolutions of all kinds have in common: one for all channels, depthwise ones, and others in groups."""

from __future__ import annotations

from typing import Protocol

from ..jit import Floats


class Convolving(Protocol):
    """A convolution of maps of `size`; what its methods take, give and refuse is said at `Convolution`."""

    @property
    def in_channels(self) -> int:
        """Number of input channels."""

    @property
    def out_channels(self) -> int:
        """Number of output channels."""

    @property
    def size(self) -> tuple[int, int]:
        """(rows, columns) of the input maps."""

    @property
    def output(self) -> tuple[int, int]:
        """(rows, columns) of the output maps."""

    @property
    def packed_size(self) -> int:
        """Floats of the packed weights."""

    @property
    def turned_size(self) -> int:
        """Floats of the weights as EB reads them."""

    def frame_shape(self, samples: int) -> tuple[int, ...]:
        """Return the shape of the input maps in their frame."""

    def error_frame_shape(self, samples: int) -> tuple[int, ...]:
        """Return the shape of the output errors in their frame."""

    def pack(self, w: Floats) -> Floats:
        """Return weights (oc, input channels of an output channel, kh, kw) as FP and PG use them."""

    def unpack(self, packed: Floats) -> Floats:
        """Return packed weights as they were."""

    def turn(self, packed: Floats, out: Floats) -> None:
        """Write packed weights to `out` as EB reads them."""

    def frame(self, x: Floats, out: Floats) -> None:
        """Write the inputs to the frame that `forward` and `gradient` read."""

    def error_frame(self, dy: Floats, out: Floats) -> None:
        """Write the output errors to the frame that `error` reads."""

    def forward(self, y: Floats, frame: Floats, packed: Floats, *, fresh: bool) -> None:
        """Run FP: add the outputs to `y` in place; where `fresh`, overwrite it."""

    def gradient(self, packed_gradient: Floats, frame: Floats, dy: Floats, *, fresh: bool) -> None:
        """Run PG: add the gradient to packed gradients in place; where `fresh`, overwrite them."""

    def error(self, dx: Floats, error_frame: Floats, turned: Floats, *, fresh: bool) -> None:
        """Run EB: add the input errors to `dx` in place; where `fresh`, overwrite it."""
