"""Number formats of RTL: which there are, and what modules have of them as parameters
(`sv/formats.sv`).

Whole maps and weights are rounded where the emulator rounds them (docs/numbers.md). Buses carry
narrow numbers as fp32 numbers of their values; memories and line buffers hold codes.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping

from ...kernels.number import (
    BIAS,
    FRACTION_BITS,
    BlockGrid,
    FloatGrid,
    Grid,
    NumberFormat,
    Rounding,
)
from ...kernels.quantise import PhiloxStream
from ..common import InputError
from ..number import KINDS, NARROW, Precision
from .engines import step_of

BLOCK_LATENCY = 2
"""Cycles in which rows are rounded in blocks: to scales, and onto their grids. Other formats take
none.
"""

ROUNDING_TAIL = 3
"""Cycles from the last block of weights to its codes in LPRAM."""

DRAW_CYCLES = 10
"""Cycles in which `sv/philox.sv` takes a counter."""

WORDS = 4
"""Random words of a counter."""

_DRAWN_TOGETHER = 8
"""Weights that stand alone, and are rounded by chance at once."""

_HAVE = "fp32, bf16, fp16, fp8, fixed point, and formats of blocks, such as mxint8"
_LEAST_STEP = -22  # of an element: fp32 holds its values under every scale


def check_formats(precision: Precision) -> None:
    """Check that RTL has a run's number formats.

    Raises:
        InputError: it has not; the message says what it has.
    """
    given = f"`precision` = {str(precision)!r}: RTL"
    if precision.accumulate != "fp32" and not precision.dot:
        raise InputError(f"{given} accumulates in fp32, or by dot:N; leave out `accumulate`")
    if precision.dot:
        _check_dots(given, precision)
    if precision.grows_every:
        raise InputError(f"{given} scales errors by one number; give `loss_scale` such as 1024")
    if precision.history:
        raise InputError(f"{given} has no scales of whole maps; leave out `scaling`")
    if precision.layers:
        raise InputError(f"{given} computes all layers in one format; leave out `layer`")
    if precision.epochs:
        raise InputError(f"{given} computes in one format in all epochs; leave out `epoch`")
    for kind in KINDS:
        number = precision.format(kind)
        if number.grid is None:
            continue
        if kind in ("gradients", "states"):
            raise InputError(f"{given} keeps {kind} in fp32; leave out `{kind}`")
        if kind == "master" and by_chance(precision, kind):
            raise InputError(
                f"{given} rounds by chance what engines read, and keeps a `master` in fp32 beside"
                " that; leave out `master`"
            )
        if number.tensor_bytes:
            raise InputError(
                f"{given} hands rows on as they come, and the scale of a tensor in {number.name} is"
                f" known once a row of {kind} is whole; it has {_HAVE}"
            )
        if not _has_codes(number):
            raise InputError(f"{given} has no {number.name} for {kind}; it has {_HAVE}")
    if precision.master.grid is not None and (precision.has_copies or precision.master.block):
        raise InputError(
            f"{given} updates weights in fp32, or in their own format if that has no blocks; leave"
            " out `master`"
        )


def _check_dots(given: str, precision: Precision) -> None:
    for kind in NARROW:
        number = precision.format(kind)
        if number.block:
            raise InputError(
                f"{given} adds products in blocks of numbers without scales, such as int8: those of"
                f" {kind} in {number.name} lie along channels, and PG, which sums over pixels, would"
                " need others, whose pixels come with several rows"
            )
        step_of(number)


def by_chance(precision: Precision, kind: str) -> bool:
    """Return whether numbers of a kind are rounded by random words; weights that are their own
    master copy are rounded as that.
    """
    if precision.format(kind).grid is None or (kind == "weights" and not precision.has_copies):
        return False
    return precision.rounding_of(kind) is Rounding.STOCHASTIC


def _has_codes(number: NumberFormat) -> bool:
    """Return whether a code of a format's bits says each of its values, and what is none; fixed
    point has no NaN.
    """
    grid = number.grid
    if isinstance(grid, BlockGrid):
        return grid.element.least_exponent - grid.element.fraction_bits >= _LEAST_STEP
    assert grid is not None
    beyond = 0 if grid.is_fixed_point else 2 if grid.overflows else 1
    return _place(grid) + beyond < 2 ** (number.bits - 1)


def _place(grid: FloatGrid) -> int:
    """Return the place of the largest value among a grid's positive ones."""
    exponent, value = grid.least_exponent, grid.largest
    while value >= 2.0 ** (exponent + 1):
        exponent += 1
    return (exponent - grid.least_exponent << grid.fraction_bits) + int(
        value / 2.0 ** (exponent - grid.fraction_bits)
    )


def literal(number: NumberFormat, rounding: Rounding) -> str:
    """Return a format as a `format_t`."""
    if number.grid is None:
        return "formats::FP32"
    grid, floor = _element(number.grid), isinstance(number.grid, BlockGrid) and number.grid.floor
    least = f"{'-' if grid.least_exponent < 0 else ''}9'sd{abs(grid.least_exponent)}"
    return (
        f"{{6'd{number.bits}, 5'd{grid.fraction_bits}, {least},"
        f" 32'h{single_bits(grid.largest):08x}, 1'b{int(grid.overflows)}, 2'd{rounding.value},"
        f" 17'd{number.block}, 1'b{int(floor)}}}"
    )


def _element(grid: Grid) -> FloatGrid:
    """Return the grid of numbers that stand alone, or of a block's elements."""
    return grid.element if isinstance(grid, BlockGrid) else grid


def single_bits(value: float) -> int:
    """Return the bits of an fp32 number."""
    return int.from_bytes(struct.pack("<f", value), "little")


def factors(one: NumberFormat, other: NumberFormat) -> tuple[int, int]:
    """Return of factors of two formats SIGNIFICAND and SUBNORMAL of `fp32_fma`."""
    ends = [_least_place(number) for number in (one, other)]
    bits = [_significand(number) for number in (one, other)]
    return max(bits), int(min(ends) < 1 - BIAS)


def _least_place(number: NumberFormat) -> int:
    """Return the exponent of a format's least distance of two values, under the least scale of a
    block.
    """
    if number.grid is None:
        return 1 - BIAS - FRACTION_BITS
    element = _element(number.grid)
    return element.least_exponent - element.fraction_bits - (BIAS if number.block else 0)


def _significand(number: NumberFormat) -> int:
    """Return the bits from the leading one, or from the place of fp32's least normal number, that a
    value may have.
    """
    if number.grid is None:
        return FRACTION_BITS + 1
    return max(_element(number.grid).fraction_bits + 1, 1 - BIAS - _least_place(number) + 1)


def stream_literal(tensor: int, kind: str) -> str:
    """Return the second word of the counters for a tensor, or a layer's weights, of a kind."""
    number, *_ = PhiloxStream(0, tensor, KINDS.index(kind), 0).words_of
    return f"32'd{number}"


def seed_literal(seed: int) -> str:
    """Return the key of all counters of a run."""
    return f"64'h{seed % (1 << 64):x}"


@dataclasses.dataclass(frozen=True)
class RowDraws:
    """The random words of a map's rows, as `sv/row_words.sv` draws them: for the tensor and the
    purpose that `stream` says, of channels of the map `apart`, from the `first` one on.
    """

    stream: str
    first: int
    apart: int
    rows: int
    units: int
    groups: int

    @classmethod
    def of(
        cls,
        precision: Precision,
        kind: str,
        tensor: int,
        shape: tuple[int, int, int],
        first: int,
        cycles: int,
    ) -> RowDraws | None:
        """Return those of a tensor of (channels, rows, columns), whose channels from the first one
        on are rounded as their kind; None if not by chance. Words of a row come within `cycles`, as
        far as a generator for each counter makes them.
        """
        if not by_chance(precision, kind):
            return None
        channels, rows, columns = shape
        counters = columns * _counters(channels - first)
        units = -(-counters // max(1, (cycles - 2) // DRAW_CYCLES))
        return cls(
            stream_literal(tensor, kind), first, channels, rows, units, -(-counters // units)
        )

    @property
    def first_cycle(self) -> int:
        """The cycle from which the first row's words are there."""
        return DRAW_CYCLES * self.groups

    @property
    def cycles(self) -> int:
        """Cycles from the words of a row to those of the next."""
        return self.first_cycle + 2

    def parameters(self, seed: int, depth: int) -> Mapping[str, int | str]:
        """Return the parameters of `round_rows` for a run's seed; `depth` rows may wait."""
        return {
            "FIRST": self.first,
            "APART": self.apart,
            "ROWS": self.rows,
            "STREAM": self.stream,
            "SEED": seed_literal(seed),
            "UNITS": self.units,
            "DEPTH": depth,
        }


def _counters(values: int) -> int:
    """Return how many counters values side by side touch at most, wherever they begin."""
    return (values + 2 * (WORDS - 1)) // WORDS


def rounding_cycles(
    number: NumberFormat, weights: tuple[int, int], *, across: bool, chance: bool
) -> int:
    """Return the cycles in which the weights of a slice, (output channels, weights of each), are
    rounded behind an update: in blocks, which may lie `across` output channels, or by chance.
    Others take none.
    """
    if not number.block and not chance:
        return 0
    outputs, inner = weights
    across = across and number.block > 0
    along, others = (outputs, inner) if across else (inner, outputs)
    size = min(along, number.block or _DRAWN_TOGETHER)
    counters = size if across else _counters(size)
    blocks = -(-along // size) * others
    return blocks * (DRAW_CYCLES * counters + 2 if chance else 1) + ROUNDING_TAIL


def row_latency(number: NumberFormat) -> int:
    """Return the cycles in which rows of whole maps are rounded to a format."""
    return BLOCK_LATENCY if number.block else 0
