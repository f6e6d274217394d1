"""FARNN's section 6.6: power and energy, with the published power of one row for all of them."""

from __future__ import annotations

import functools
import itertools

from ....pair import Cell
from ..measure import Measure, Measured
from . import applications
from .constants import ENCODER_SHARE, in_use
from .runs import FARNN, deep_speech, persistent_ps, standard_ps, time_ps

POWER = 1.27
"""Power of GPU and FPGA over the GPU's alone: 27 % more (DS2 LSTM, batch 1). No board's is given."""


def ds2_time_ratio(batch: int, cell: Cell = Cell.LSTM) -> float:
    """Return FARNN-9P's time of Deep Speech 2 over that of the better of cuDNN's forms."""
    workload = deep_speech(cell, batch)
    return time_ps(workload, FARNN["9P", cell]) / min(standard_ps(workload), persistent_ps(workload))


def rnnt_time_ratio(batch: int) -> float:
    """Return FARNN-9P's time of all of RNN-T over cuDNN-Std's, with the encoder's published share."""
    share = in_use(ENCODER_SHARE)
    return 1 - share + share / applications.encoder_speed_up("9P", batch)


def _ds2() -> Measured:
    ratio = ds2_time_ratio(1)
    return Measured(100 * (1 - POWER * ratio), f"{POWER} x the power for {ratio:.3f} of the time")


def _delay_product(batch: int) -> Measured:
    ratio = rnnt_time_ratio(batch)
    return Measured(100 * (1 - POWER * ratio**2), f"{POWER} x the power, as DS2's, for {ratio:.3f} of the time")


def _large_batch() -> Measured:
    ratios = [[ds2_time_ratio(batch, cell) for batch in applications.DS2_BATCHES] for cell in Cell]
    ratios.append([rnnt_time_ratio(batch) for batch in applications.RNNT_BATCHES])
    found = [POWER * (after - before) for of in ratios for before, after in itertools.pairwise(of)]
    return Measured(found, "growth of energy over the GPU's: DS2 LSTM and GRU, batch 1, 2, 4; RNN-T, 1, 2, 4, 8")


MEASURES: dict[str, Measure] = {
    "farnn-power-ds2": lambda: Measured(100 * (POWER - 1), "assumed for all rows of energy"),
    "farnn-energy-ds2": _ds2,
    "farnn-edp-rnnt-b1": functools.partial(_delay_product, 1),
    "farnn-edp-rnnt-b2": functools.partial(_delay_product, 2),
    "farnn-energy-large-batch": _large_batch,
}
