"""Looking symbols up in a table: an embedding, which is a convolution over maps that are 1 in one
channel, else 0.

Sums have the bits of that convolution: FP's only product is that of the symbol, and PG adds the
errors of a symbol's rows in the order sample, step, both ascending, to +0 or to what is there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit import FLOAT_BYTES, Floats, compiled, in_place, of_float32, source
from ..memory import aligned


@dataclasses.dataclass(frozen=True)
class LookUp:
    """An embedding of `symbols` in `out_channels` values, for sequences of `steps`; see
    `Convolving`.

    Inputs are (n, steps, 1, 1), the numbers of the symbols. Weights lie symbol by symbol. There is
    no EB.
    """

    symbols: int
    out_channels: int
    steps: int

    in_channels = 1
    turned_size = 0

    @property
    def size(self) -> tuple[int, int]:
        """(steps, 1)"""
        return self.steps, 1

    @property
    def output(self) -> tuple[int, int]:
        """(steps, 1)"""
        return self.steps, 1

    @property
    def packed_size(self) -> int:
        """Floats of the table."""
        return self.symbols * self.out_channels

    @property
    def outputs_together(self) -> int:
        """See `Convolving`: all."""
        return self.out_channels

    def frame_shape(self, samples: int) -> tuple[int, ...]:
        """Return the shape of the symbols' numbers as they are kept."""
        return samples, self.steps

    def error_frame_shape(self, samples: int) -> tuple[int, ...]:
        """Return the shape of what EB reads: nothing."""
        return samples, 0

    def pack(self, w: Floats, out: Floats | None = None) -> Floats:
        """Return weights (values, symbols, 1, 1) as a table, in `out` if given.

        Raises:
            ValueError: they have another shape.
        """
        if w.shape != (self.out_channels, self.symbols, 1, 1):
            raise ValueError(
                f"weights {w.shape} do not fit; {(self.out_channels, self.symbols, 1, 1)} are"
                " needed"
            )
        table = aligned(FLOAT_BYTES * self.packed_size).view(np.float32) if out is None else out
        table.reshape(self.symbols, self.out_channels)[...] = of_float32(w, "w")[:, :, 0, 0].T
        return table

    def unpack(self, packed: Floats, out: Floats | None = None) -> Floats:
        """Return a table as weights (values, symbols, 1, 1), in `out` if given."""
        w = np.empty((self.out_channels, self.symbols, 1, 1), np.float32) if out is None else out
        w[:, :, 0, 0] = packed.reshape(self.symbols, self.out_channels).T
        return w

    def turn(self, packed: Floats, out: Floats) -> None:
        """Write nothing: there is no EB."""

    def frame(self, x: Floats, out: Floats) -> None:
        """Write the numbers of symbols (n, steps, 1, 1) to `out`.

        Raises:
            ValueError: some are not numbers of symbols.
        """
        if x.size and not 0 <= x.min() <= x.max() < self.symbols:
            raise ValueError(f"symbols from {x.min()} to {x.max()} are not among {self.symbols}")
        out[...] = x[:, :, 0, 0]

    def error_frame(self, dy: Floats, out: Floats) -> None:
        """Write nothing: there is no EB."""

    def forward(self, y: Floats, frame: Floats, packed: Floats, *, fresh: bool) -> None:
        """Run FP: add what the table has for the symbols to `y` (n, steps, 1, values); where
        `fresh`, overwrite `y`.
        """
        values = packed.reshape(self.symbols, self.out_channels)[frame.astype(np.int64)]
        if fresh:
            y[:, :, 0] = values
        else:
            y[:, :, 0] += values

    def gradient(self, packed_gradient: Floats, frame: Floats, dy: Floats, *, fresh: bool) -> None:
        """Run PG: add the errors `dy` (n, steps, 1, values) to the gradients of the symbols' rows;
        where `fresh`, overwrite the table.
        """
        if fresh:
            packed_gradient[...] = 0
        if dy.size:
            symbols: NDArray[np.int64] = frame.astype(np.int64).reshape(-1)
            _scatter(in_place(packed_gradient, "packed_gradient"), symbols, *source(dy, "dy"))

    def error(self, dx: Floats, error_frame: Floats, turned: Floats, *, fresh: bool) -> None:
        """Run no EB: the numbers of symbols have no errors."""


@compiled
def _scatter(table: Any, symbols: Any, dy: Any, extent: Any) -> None:
    _, _, _, channels, pitch = extent
    for row in range(symbols.size):
        at, to = np.uint64(row * pitch), np.uint64(symbols[row] * channels)
        for c in range(np.uint64(channels)):
            table[to + c] += dy[at + c]


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    LookUp(2, 2, 1).gradient(
        np.ones(4, np.float32),
        np.zeros((1, 1), np.float32),
        np.ones((1, 1, 1, 2), np.float32),
        fresh=True,
    )
