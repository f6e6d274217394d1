"""GPU boards, which train alone or in a pair with an FPGA (FARNN): rates of what they do with
recurrent layers.

A GPU has no engines for slices of layers, so that the chain's schedules cannot use it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NoReturn

from ..common import InputError
from .board import Board
from .constants import ConstantRange


@dataclasses.dataclass(frozen=True)
class Gpu(Board):
    """A GPU.

    Matrix products over many time steps reach the share `gemm_efficiency` of `peak_tflops`. In
    cuDNN's standard form each phase that depends on the one before takes `recurrent_ps` at least;
    in the persistent form recurrent weights are read at `persistent_gbytes_per_s` in each step,
    those of GRU at a rate of their own. Other work is bound by `memory_gbytes_per_s`.
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
    price: float | None = None
    period_ps: int = 1000
    on_chip_memory_bytes: int = 0
    off_chip_gbytes_per_s: float | None = None
    host_gbytes_per_s: float | None = None
    off_chip_pj_per_bit: float | None = None
    transceivers: int | None = None
    transceiver_gbps: float | None = None
    ranges: tuple[ConstantRange, ...] = dataclasses.field(default=(), repr=False, compare=False)

    @property
    def limits(self) -> Mapping[str, int | None]:
        """See `Board`; none of them is known."""
        return {"dsp": None, "lut": None, "ff": None, "bram_banks": None}

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Refuse what a chain asks of a board.

        Raises:
            InputError: always.
        """
        raise InputError(
            f"board {self.name}: a GPU, on which no slices of layers can be placed; should be an"
            " FPGA, or `schedule` one of 'farnn', 'farnn-no-overlap', 'farnn-all-fpga',"
            " 'gpu-standard', 'gpu-persistent'"
        )

    # Defined, since they are abstract in `Board` and a GPU could not be made without them; refused
    # only where a chain asks for them.
    multipliers = property(_refuse)
    fewest_multipliers = most_channels = build = build_alone = _refuse
    update_ps = engine_resources = share = _refuse

    def said(self) -> str:
        """See `Board`."""
        return f"`peak_tflops` = {self.peak_tflops:g}"
