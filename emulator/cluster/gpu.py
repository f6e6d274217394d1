"""GPU boards, which train alone or in a pair with an FPGA (FARNN): rates of what they do with recurrent layers.

A GPU has no engines for slices of layers, so that the chain's schedules cannot use it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NoReturn

from ..common import InputError
from .board import Board, Engine, Resources, Work
from .uncertainty import ConstantRange


@dataclasses.dataclass(frozen=True)
class Gpu(Board):
    """A GPU.

    Matrix products over many time steps reach the share `gemm_efficiency` of `peak_tflops`. In cuDNN's standard form
    each phase that depends on the one before takes `recurrent_ps` at least; in the persistent form recurrent weights
    are read at `persistent_gbytes_per_s` in each step, those of GRU at a rate of their own. Other work is bound by
    `memory_gbytes_per_s`.
    """

    name: str
    peak_tflops: float
    gemm_efficiency: float
    memory_gbytes_per_s: float
    recurrent_ps: int
    persistent_gbytes_per_s: float
    persistent_gru_gbytes_per_s: float
    off_chip_memory_bytes: int | None = None
    power_w: float | None = None
    period_ps: int = 1000
    on_chip_memory_bytes: int = 0
    off_chip_gbytes_per_s: float | None = None
    off_chip_pj_per_bit: float | None = None
    transceivers: int | None = None
    transceiver_gbps: float | None = None
    ranges: tuple[ConstantRange, ...] = dataclasses.field(default=(), repr=False, compare=False)

    @property
    def multipliers(self) -> int:
        """See `Board`.

        Raises:
            InputError: always, as for all that a chain asks of a board.
        """
        self._refuse()

    @property
    def limits(self) -> Mapping[str, int | None]:
        """See `Board`; none of them is known."""
        return {"dsp": None, "lut": None, "ff": None, "bram_banks": None}

    def fewest_multipliers(self, works: Sequence[Work]) -> int:
        """See `multipliers`."""
        self._refuse()

    def most_channels(self, works: Sequence[Work], available: int, left: int, time_ps: int) -> tuple[int, int]:
        """See `multipliers`."""
        self._refuse()

    def build(self, works: Sequence[Work], no_faster_than_ps: int) -> list[Engine]:
        """See `multipliers`."""
        self._refuse()

    def build_alone(self, work: Work) -> Engine:
        """See `multipliers`."""
        self._refuse()

    def update_ps(self, out_channels: int) -> int:
        """See `multipliers`."""
        self._refuse()

    def engine_resources(self, multipliers: Sequence[int]) -> list[Resources]:
        """See `multipliers`."""
        self._refuse()

    def share(self, parts: int, *, whole: bool) -> Gpu:
        """See `multipliers`."""
        self._refuse()

    def said(self) -> str:
        """See `Board`."""
        return f"`peak_tflops` = {self.peak_tflops:g}"

    def _refuse(self) -> NoReturn:
        raise InputError(
            f"board {self.name}: a GPU, on which no slices of layers can be placed; should be an FPGA, or `schedule`"
            " one of 'farnn', 'farnn-no-overlap', 'farnn-all-fpga', 'gpu-standard', 'gpu-persistent'"
        )
