"""Resource allocation: LUTs, FFs, block RAM and DSPs that a device's engines and buffers take (FPDeep, section 3.4.2).

A share alpha of the engines is built from DSPs and the rest from LUTs and FFs; a share beta of the buffers is built
from block RAM and the rest from LUTs. The paper names the functions f1 to f7 of equations (6) to (12) but does not
define them. Here f1 is `mapping.slice_memory`; the board defines those of engines (`Board.engine_resources`: for FPGAs
f5 and the engines' part of f2 and f3); the others are below.

A large cluster aims at speed: with alpha < 1, multipliers built from LUTs are added to the DSPs
(`cluster.lut_multipliers`), and the engines share all of them so that the slowest is as fast as possible, which is
equation (7). A small cluster must first hold the network: equation (12), where parameters move to devices with room
(`mapping.balance`).
"""

from __future__ import annotations

import math

from ..cluster import Resources
from ..mapping import LUT_RAM_BITS, Buffer


def buffer_resources(buffers: Buffer, beta: float = 1.0) -> Resources:
    """Return the resources of buffers: f4, equation (10), 18-kbit banks; and their part of f2, equation (8), LUTs.

    LUTs hold shallow memories, and buffers that are not in block RAM. Buffers use no FFs.
    """
    lut = buffers.lut + math.ceil(lut_bytes(buffers, beta) * 8 / LUT_RAM_BITS)
    return Resources(lut=lut, bram_banks=math.ceil(beta * buffers.banks))


def bram_bytes(buffers: Buffer, beta: float = 1.0) -> int:
    """Return f6, equation (12): plain bytes in block RAM."""
    return math.ceil(beta * buffers.bytes)


def lut_bytes(buffers: Buffer, beta: float = 1.0) -> int:
    """Return f7, equation (12): plain bytes that beta places in LUTs."""
    return buffers.bytes - bram_bytes(buffers, beta)


def transceivers_used(link_gbps: float, transceiver_gbps: float) -> int:
    """Return the number of transceivers for a link to one neighbour; each sends and receives (Table 3: Trans_max)."""
    return math.ceil(link_gbps / transceiver_gbps)
