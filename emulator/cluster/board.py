"""A cluster as mapping and timing know it. `cluster.py` reads its description."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from ...comm.interconnect import Network, Nic

URAM_BANKS = 16
"""Banks in an UltraRAM of 4,096 words of 72 bits (Xilinx UG573)."""


@dataclasses.dataclass(frozen=True)
class Board:
    """An FPGA board (FPDeep, Table 3); its clock period is a whole number of picoseconds.

    What is None is not known. Of its DSPs, engines may take the share `dsp_share`; `lut_multipliers` are those built of
    LUTs beside them. Block RAMs are `bram` blocks of `bram_kbit` (36 at Xilinx, 20 at Intel), and `uram` of 288 kbit.
    `power_w` is what the board draws at work.
    """

    name: str
    period_ps: int
    dsp: int
    on_chip_memory_bytes: int
    power_w: float | None = None
    dsp_share: float = 1.0
    lut_multipliers: int = 0
    lut: int | None = None
    ff: int | None = None
    bram: int | None = None
    bram_kbit: int = 36
    uram: int = 0
    transceivers: int | None = None
    transceiver_gbps: float | None = None
    off_chip_memory_bytes: int | None = None
    off_chip_gbytes_per_s: float | None = None

    @property
    def dsp_multipliers(self) -> int:
        """Multipliers that engines may take from DSPs, one at the least: one DSP is one multiplier."""
        return max(1, math.floor(self.dsp * self.dsp_share + 1e-9))

    @property
    def multipliers(self) -> int:
        """Multipliers that engines may take, of DSPs and of LUTs."""
        return self.dsp_multipliers + self.lut_multipliers

    @property
    def banks(self) -> int:
        """Memories of 512 words of 32 bits: two in a BRAM of 36 kbit, one in an M20K, 16 in an UltraRAM."""
        if self.bram is None:
            return self.on_chip_memory_bytes * 8 // 18_000
        return self.bram * (self.bram_kbit // 18) + self.uram * URAM_BANKS


@dataclasses.dataclass(frozen=True)
class Link:
    """One direction of the connection of two neighbours."""

    bandwidth_mbps: int
    latency_ps: int

    @property
    def bandwidth_gbps(self) -> float:
        """For people."""
        return self.bandwidth_mbps / 1000


_SUMMED_BYTES = 64
"""Added to one's own in a cycle of a board: 16 values of 32 bits, as wide as a memory's port of 512 bits."""


_ENGINE_MBPS = 10_000
"""What INCEPTIONN has an engine of 256 bits a cycle for (section VI-A); a faster link has several side by side."""


def chain_network(boards: tuple[Board, ...], link: Link) -> Network:
    """The chain's links as a network for gradients: messages without packets' overhead, sums at the slowest clock."""
    slowest_ps = max(board.period_ps for board in boards)
    engines = -(-link.bandwidth_mbps // _ENGINE_MBPS)
    return Network(
        link.bandwidth_mbps,
        link.latency_ps,
        sum_ps_per_kbyte=round(1000 * slowest_ps / _SUMMED_BYTES),
        nic=Nic(slowest_ps, engines * Nic().burst_bits),
        topology="chain",
    )


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Boards in the order of the chain; the last one stands for all further devices.

    `alpha` is the share of engines built of DSPs and `beta` that of buffers built of block RAM; the others are built of
    LUTs. With the aim "storage", parameters move until the fullest device holds as little as may be; with "throughput"
    only those move that do not fit (FPDeep, section 3.4.2).
    """

    name: str
    boards: tuple[Board, ...]
    link: Link
    text: str = dataclasses.field(default="", repr=False, compare=False)
    alpha: float = 1.0
    beta: float = 1.0
    aim: Literal["throughput", "storage"] = "throughput"
    own_network: Network | None = None

    @property
    def network(self) -> Network:
        """Where replicas exchange gradients: a network of the cluster's own, or the chain's links."""
        return self.own_network or chain_network(self.boards, self.link)

    def board(self, device: int) -> Board:
        """The board of a device."""
        return self.boards[min(device, len(self.boards) - 1)]
