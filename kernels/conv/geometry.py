"""The shapes that a convolution computes: maps, their frames of zeros, and the phases of EB."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from typing import NamedTuple

from ..jit import Kernels
from ..window import extent

microkernel = Kernels("conv.microkernel")
padded_lanes, lanes_together = microkernel.padded_lanes, microkernel.lanes_together


class Sums(enum.Enum):
    """The format of sums: fp32, or as `narrow_kernel.py` says."""

    FP32 = 0
    BF16 = 1
    FP16 = 2
    INT32 = 3


class Geometry(NamedTuple):
    """The shapes to compute; for a fully connected layer, one pixel of many channels."""

    ic: int
    oc: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    output: tuple[int, int]
    dilation: tuple[int, int] = (1, 1)

    @property
    def taps(self) -> int:
        """Number of weights of one output channel."""
        return self.ic * self.kernel[0] * self.kernel[1]

    @property
    def framed(self) -> tuple[int, int]:
        """Size of an input map with its padding."""
        return self.size[0] + 2 * self.pad[0], self.size[1] + 2 * self.pad[1]

    @property
    def error_before(self) -> tuple[int, int]:
        """Rows and columns of zeros above and to the left of the output errors, which EB reads."""
        reach = extent(self.kernel, self.dilation)
        return (reach[0] - 1) // self.stride[0], (reach[1] - 1) // self.stride[1]

    @property
    def error_after(self) -> tuple[int, int]:
        """Rows and columns of zeros below and to the right of the output errors."""
        last = [(self.size[i] - 1 + self.pad[i]) // self.stride[i] for i in (0, 1)]
        return max(0, last[0] - self.output[0] + 1), max(0, last[1] - self.output[1] + 1)

    @property
    def error_framed(self) -> tuple[int, int]:
        """Size of a map of output errors with these zeros."""
        before, after = self.error_before, self.error_after
        return before[0] + self.output[0] + after[0], before[1] + self.output[1] + after[1]

    @property
    def tap_steps(self) -> tuple[int, int]:
        """Kernel rows and columns from one that reaches an input to the next one that does."""
        down, across = (
            step // math.gcd(step, by) for step, by in zip(self.stride, self.dilation, strict=True)
        )
        return down, across

    @property
    def error_steps(self) -> tuple[int, int]:
        """Rows and columns of output errors between what two such kernel places read."""
        (down, across), (sh, sw), (dh, dw) = self.tap_steps, self.stride, self.dilation
        return down * dh // sh, across * dw // sw

    def error_begin(self, phase: Phase) -> tuple[int, int]:
        """Return the row and column, among framed output errors, that the first input of a phase
        reads through the first kernel place of the phase.
        """
        before, (sh, sw), (dh, dw) = self.error_before, self.stride, self.dilation
        row = phase.rows.start + self.pad[0] - phase.first[0] * dh
        column = phase.columns.start + self.pad[1] - phase.first[1] * dw
        return before[0] + row // sh, before[1] + column // sw


class Contraction(NamedTuple):
    """The operands of the micro-kernel, addresses and counts of floats (see `microkernel.py`).

    c[c_pixel[q] * c_step + l] += sum over k < depth of a[a_pixel[q] + a_k[k]] * b[k][l], for q <
    pixels and l < lanes; where `fresh`, from +0. In FP and EB, b is packed in panels; in PG its
    rows are `b_step` floats apart, c is packed.
    """

    c: int
    c_pixel: int
    c_step: int
    pixels: int
    lanes: int
    a: int
    a_pixel: int
    a_k: int
    depth: int
    b: int
    b_step: int
    fresh: bool


class BlockContraction(NamedTuple):
    """The operands of `block_kernel.py`, addresses and counts of floats: `depth` values of k in
    `blocks` blocks of `lengths`.

    In FP and EB, b is packed in panels, and c lies at c[c_pixel[q] * c_step + l]; in PG rows of b
    are `b_step` floats apart, and c is packed in panels of `c_step` rows, at rows c_pixel[q].
    """

    c: int
    c_pixel: int
    c_step: int
    pixels: int
    lanes: int
    a: int
    a_pixel: int
    a_k: int
    depth: int
    b: int
    b_step: int
    lengths: int
    blocks: int


class IntegerContraction(NamedTuple):
    """The operands of `integer_kernel.py`, addresses: c as `BlockContraction` has it, in panels of
    `c_rows` rows or, if that is 0, plain.

    Of pixel q and of a block, what a has begins a_pixel[q] + a_block[block] bytes after `a`, and its
    words lie `a_step` bytes apart; `words` has how many words of integers a block has.
    """

    c: int
    c_pixel: int
    c_step: int
    c_rows: int
    pixels: int
    lanes: int
    a: int
    a_pixel: int
    a_block: int
    a_step: int
    b: int
    words: int
    blocks: int


class Phase(NamedTuple):
    """One class of kernel places in EB: those that reach the same input rows and columns, modulo
    the stride.
    """

    first: tuple[int, int]
    down: int
    across: int
    begin: int  # of its panels in the turned weights, in floats
    rows: range
    columns: range

    def depth(self, oc: int) -> int:
        """Return the number of products that each input error of these rows and columns sums."""
        return oc * self.down * self.across


def phases_of(g: Geometry) -> Iterator[Phase]:
    """Yield the classes of kernel places in EB that reach any input, in the order of the turned
    weights.
    """
    begin, (by_row, by_column) = 0, g.tap_steps
    for u in range(min(by_row, g.kernel[0])):
        for v in range(min(by_column, g.kernel[1])):
            # Row o of the outputs reads row o * stride - pad + u * dilation through tap u, so that
            # this tap passes errors on to rows that are u * dilation - pad modulo the stride.
            rows = range((u * g.dilation[0] - g.pad[0]) % g.stride[0], g.size[0], g.stride[0])
            columns = range((v * g.dilation[1] - g.pad[1]) % g.stride[1], g.size[1], g.stride[1])
            if rows and columns:
                down, across = (
                    len(range(u, g.kernel[0], by_row)),
                    len(range(v, g.kernel[1], by_column)),
                )
                phase = Phase((u, v), down, across, begin, rows, columns)
                yield phase
                begin += phase.depth(g.oc) * int(padded_lanes(g.ic))
