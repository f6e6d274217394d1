"""FPGA boards with whole convolution engines, as FPDeep's sections 5.3 and 5.4 have them to the letter.

A slice with S input and OC output channels has in FP and PG P convolution engines (CEs) of S tiles each: all tiles read
their own input channel, K·K·S activations a cycle, and each CE makes the partial results of one output channel. EB has
S CEs of P tiles, among which the errors of P output channels are broadcast. So each takes ceil(OC / P) cycles for a
pixel, on P·S·K·K multipliers. A slice cannot have less than one CE, however little time that needs.

Section 6.3.3 rounds multipliers to K·K alone, and its idle shares need that: `Fpga` has single tiles. Fully connected
layers have them here, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .board import Engine, Work
from .fpga import Fpga, most_within

_TOO_MANY = 1 << 60
"""Multipliers that no board has, where a row has fewer cycles than pixels."""


@dataclasses.dataclass(frozen=True)
class WholeEnginesFpga(Fpga):
    """An FPGA board whose convolutions have whole engines."""

    @property
    def smallest_engine(self) -> str:
        """See `Board`."""
        return "a tile for each input channel of each engine"

    def multipliers_within(self, work: Work, cycles: int) -> int:
        """See `Fpga`; in whole convolution engines."""
        if work.takes_turns:
            return super().multipliers_within(work, cycles)
        pixel_cycles = cycles // work.rows // work.columns
        if not pixel_cycles:
            return _TOO_MANY
        return -(-work.outputs // pixel_cycles) * engine_multipliers(work)

    def row_cycles(self, work: Work, multipliers: int) -> int:
        """See `Fpga`."""
        if work.takes_turns:
            return super().row_cycles(work, multipliers)
        return work.columns * -(-work.outputs // (multipliers // engine_multipliers(work)))

    def most_channels(self, works: Sequence[Work], available: int, left: int, time_ps: int) -> tuple[int, int]:
        """See `Board`."""
        cycles = time_ps // self.period_ps
        if any(work.rows > cycles for work in works):
            return 0, 0

        def used(channels: int) -> int:
            more = works if channels else ()
            return sum(self._parts_within(work.of_channels(channels), cycles) for work in more)

        return most_within(used, left, 0, available + 1)

    def build_alone(self, work: Work) -> Engine:
        """See `Board`."""
        if work.takes_turns:
            return super().build_alone(work)
        size = engine_multipliers(work)
        most = self.multipliers // self.shared.parts[work.phase]
        return self._engine(work, min(most // size, work.outputs) * size)


def engine_multipliers(work: Work) -> int:
    """Return the multipliers of a convolution engine: S tiles, one for each input channel."""
    return work.inputs * work.tile
