"""A cluster as mapping and timing know it. `cluster.py` reads its description."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Board:
    """An FPGA board; its clock period is a whole number of picoseconds. `power_w` is what it draws, where known."""

    name: str
    period_ps: int
    dsp: int
    on_chip_memory_bytes: int
    power_w: float | None = None


@dataclasses.dataclass(frozen=True)
class Link:
    """One direction of the connection of two neighbours."""

    bandwidth_mbps: int
    latency_ps: int

    @property
    def bandwidth_gbps(self) -> float:
        """For people."""
        return self.bandwidth_mbps / 1000


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Boards in the order of the chain; the last one stands for all further devices."""

    name: str
    boards: tuple[Board, ...]
    link: Link
    text: str = dataclasses.field(default="", repr=False, compare=False)

    def board(self, device: int) -> Board:
        """The board of a device."""
        return self.boards[min(device, len(self.boards) - 1)]
