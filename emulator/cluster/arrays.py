"""Engines as accelerators have them: arrays of outputs x positions, with a start and a drain.

An array makes `outputs` x `positions` results at once. FP's results are output channels x pixels,
EB's input channels x pixels, and PG's weights: output channels x weights of one of them. A *pass*
makes as many results as the array holds, and takes a cycle for each product of a result on one
multiplier, or 1 / c of that where each result has c; a pass is no shorter than the `drain`, in
which its results leave the array. A sample takes a `start` besides.

    FP of 48 outputs and 100 pixels, 27 taps, on arrays of 32 x 64 with 3 multipliers a result:

                 64 pixels      36 pixels        4 passes of max(27 / 3, drain) cycles, and the start
    32 outputs  [#############][#######......]
    16 outputs  [######.......][###..........]   of the array's places, 59 % have a result

So cycles = ceil(results / array) x max(ceil(taps / c), drain) + start. Fitted to VGG-16's layers
alone, `emuchain calibrate board` finds this form for measured accelerators (docs/calibration.md).
Fully connected layers have one position; their multipliers take turns as on `Fpga`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..common import InputError
from .board import Engine, Work
from .fpga import TOO_MANY, UnevenFpga


@dataclasses.dataclass(frozen=True)
class EngineArray:
    """The shape of an engine: results that it makes at once, and the cycles that it takes
    besides.
    """

    outputs: int
    positions: int
    drain_cycles: int = 0
    start_cycles: int = 0

    @property
    def size(self) -> int:
        """Number of results that it makes at once."""
        return self.outputs * self.positions

    def passes(self, work: Work) -> int:
        """Return the passes of a sample."""
        outputs, positions, _ = _results(work)
        return -(-outputs // self.outputs) * -(-positions // self.positions)

    def sample_cycles(self, work: Work, lanes: int) -> int:
        """Return the cycles of a sample with `lanes` multipliers for a result."""
        taps = _results(work)[2]
        return self.passes(work) * max(-(-taps // lanes), self.drain_cycles) + self.start_cycles

    def fewest_lanes(self, work: Work, cycles: int) -> int | None:
        """Return the fewest multipliers for a result with which a sample takes no more cycles; None
        if none suffice.
        """
        of_pass = (cycles - self.start_cycles) // self.passes(work)
        if of_pass < max(1, self.drain_cycles):
            return None
        return -(-_results(work)[2] // of_pass)


def _results(work: Work) -> tuple[int, int, int]:
    """Return the results of FP, EB or PG as outputs x positions, and the products of each."""
    pixels = work.rows * work.columns
    return (
        (work.outputs, pixels, work.inputs * work.tile),
        (work.inputs, pixels, work.outputs * work.tile),
        (work.outputs, work.inputs * work.tile, pixels),
    )[work.phase]


@dataclasses.dataclass(frozen=True)
class ArrayFpga(UnevenFpga):
    """An FPGA board whose convolutions run on arrays; a slice's engine has a whole number of
    multipliers for each result.
    """

    array: EngineArray = EngineArray(1, 1)

    @property
    def smallest_engine(self) -> str:
        """See `Board`."""
        return f"{self.array.outputs} x {self.array.positions} for each engine"

    def multipliers_within(self, work: Work, cycles: int) -> int:
        """See `Fpga`; in whole multipliers for each result of the array."""
        if work.takes_turns:
            left = cycles - self.array.start_cycles
            return super().multipliers_within(work, left) if left >= work.rows else TOO_MANY
        lanes = self.array.fewest_lanes(work, cycles // work.rows * work.rows)
        return TOO_MANY if lanes is None else lanes * self.array.size

    def row_cycles(self, work: Work, multipliers: int) -> int:
        """See `Fpga`: a sample's cycles in equal parts, rounded up."""
        if work.takes_turns:
            return super().row_cycles(work, multipliers) + -(-self.array.start_cycles // work.rows)
        return -(-self.array.sample_cycles(work, multipliers // self.array.size) // work.rows)

    def build_alone(self, work: Work) -> Engine:
        """See `Board`; a result has no more multipliers than products."""
        if work.takes_turns:
            return super().build_alone(work)
        most = self.multipliers // self.shared.parts[work.place]
        lanes = min(most // self.array.size, _results(work)[2])
        return self._engine(work, max(1, lanes) * self.array.size)

    def tile_multipliers(self, work: Work) -> int:
        """See `Board`; one for each result of the array."""
        return work.tile if work.takes_turns else self.array.size

    def alone_ps(self, work: Work, macs: int, samples: int) -> int:
        """See `Board`: all passes after one start.

        Raises:
            InputError: the board has too few multipliers for an array.
        """
        most = self.multipliers // self.shared.parts[work.place]
        if work.takes_turns:
            cycles = -(-samples * work.macs // most)
        else:
            lanes = min(most // self.array.size, _results(work)[2])
            if not lanes:
                raise InputError(
                    f"board {self.name}: {self.said()}: an array of {self.array.outputs} x"
                    f" {self.array.positions} takes {self.array.size:,}"
                )
            of_pass = max(-(-_results(work)[2] // lanes), self.array.drain_cycles)
            cycles = samples * self.array.passes(work) * of_pass
        return (cycles + self.array.start_cycles) * self.period_ps

    def _most_cycles(self, works: Sequence[Work]) -> int:
        """See `Fpga`."""
        return max(work.rows * self.row_cycles(work, self.tile_multipliers(work)) for work in works)
