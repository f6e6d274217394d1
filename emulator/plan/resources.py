"""Resource allocation: LUTs, FFs, block RAM and DSPs that a device's engines and buffers take (FPDeep, section 3.4.2).

A share alpha of the engines is built of DSPs and the others of LUTs and FFs; a share beta of the buffers is built of
block RAM and the others of LUTs. The paper names the functions f1 to f7 of equations (6) to (12) and does not give
them. Here f1 is `memory.slice_memory`, and each of the others says its equation.

A large cluster is to be fast: with alpha < 1, engines of LUTs come on top of those of DSPs (`lut_multipliers`), and the
engines then share all of them so that the slowest is as fast as may be (engines.py), which is equation (7). A small
cluster is to hold the network at all: equation (12), where parameters move to devices with room (balancing.py).
"""

from __future__ import annotations

import dataclasses
import math

from ..cluster.board import Board
from ..mapping.memory import LUT_RAM_BITS, Buffer

LUT_PER_DSP = 83
FF_PER_DSP = 92
"""What a convolution engine of DSPs takes beside them, control and addressing included: 186,251 LUTs and 205,704 FFs
for 2,240 DSPs (C. Zhang et al., FPGA 2015, single precision on a VX485T; FPDeep's reference 42)."""

LUT_PER_LUT_MULTIPLIER = 1000
FF_PER_LUT_MULTIPLIER = 1200
"""A multiplier and an adder of single precision without DSPs; an assumption: Xilinx's floating-point operator (PG060)
takes about 600 and 400 LUTs for them."""

LUT_SHARE = 0.8
"""The share of a board's LUTs beyond which no engine is built of them: shallow memories need some, and routing more. An
assumption."""


@dataclasses.dataclass(frozen=True)
class Resources:
    """What is taken of a device; `bram_banks` are halves of a block of 36 kbit."""

    lut: int = 0
    ff: int = 0
    bram_banks: int = 0
    dsp: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.lut + other.lut, self.ff + other.ff, self.bram_banks + other.bram_banks, self.dsp + other.dsp
        )


def resources(dsp_multipliers: int, lut_multipliers: int, buffers: Buffer, beta: float = 1.0) -> Resources:
    """What so many multipliers of DSPs and of LUTs take together with their buffers."""
    return Resources(
        lut_used(dsp_multipliers, lut_multipliers, buffers, beta),
        ff_used(dsp_multipliers, lut_multipliers),
        bram_used(buffers, beta),
        dsp_used(dsp_multipliers),
    )


def lut_used(dsp_multipliers: int, lut_multipliers: int, buffers: Buffer, beta: float = 1.0) -> int:
    """f2, equation (8): LUTs of both kinds of engines, of shallow memories, and of buffers not in block RAM."""
    engines = LUT_PER_DSP * dsp_multipliers + LUT_PER_LUT_MULTIPLIER * lut_multipliers
    return engines + buffers.lut + math.ceil(lut_bytes(buffers, beta) * 8 / LUT_RAM_BITS)


def ff_used(dsp_multipliers: int, lut_multipliers: int) -> int:
    """f3, equation (9): FFs of both kinds of engines; buffers have none of their own."""
    return FF_PER_DSP * dsp_multipliers + FF_PER_LUT_MULTIPLIER * lut_multipliers


def bram_used(buffers: Buffer, beta: float = 1.0) -> int:
    """f4, equation (10): banks of 18 kbit."""
    return math.ceil(beta * buffers.banks)


def dsp_used(dsp_multipliers: int) -> int:
    """f5, equation (11): one DSP is one multiplier, whatever a multiplication of single precision would really take."""
    return dsp_multipliers


def bram_bytes(buffers: Buffer, beta: float = 1.0) -> int:
    """f6, equation (12): plain bytes in block RAM."""
    return math.ceil(beta * buffers.bytes)


def lut_bytes(buffers: Buffer, beta: float = 1.0) -> int:
    """f7, equation (12): plain bytes in LUTs because of beta."""
    return buffers.bytes - bram_bytes(buffers, beta)


def lut_multipliers(board: Board, alpha: float) -> int:
    """Multipliers of LUTs: alpha of all are to be of DSPs, but no more than the LUTs allow that DSPs leave over."""
    if alpha >= 1 or board.lut is None:
        return 0
    wanted = math.floor(board.dsp_multipliers * (1 - alpha) / alpha)
    room = (LUT_SHARE * board.lut - LUT_PER_DSP * board.dsp_multipliers) // LUT_PER_LUT_MULTIPLIER
    return max(0, min(wanted, int(room)))


def transceivers_used(link_gbps: float, transceiver_gbps: float) -> int:
    """Transceivers that a board needs for links to both neighbours; each sends and receives (Table 3: Trans_max)."""
    return 2 * math.ceil(link_gbps / transceiver_gbps)
