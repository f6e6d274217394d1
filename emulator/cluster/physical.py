"""What exists of a cluster's physical constants, so that one that no hardware has is not taken without a word.

A range holds all hardware that is known, from the smallest to the largest, not only what trains networks; a constant
outside it is often one of another unit. It is taken all the same: a study may ask for what will exist. A latency of 0
is none that is modelled, and no mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..common import number

if TYPE_CHECKING:
    from .description import ClusterDescription, NamedCluster


class Existing(NamedTuple):
    """The range of a constant that exists, smallest to largest, with its unit, and where that is known from."""

    low: float
    high: float
    unit: str
    source: str

    def holds(self, value: float) -> bool:
        """Return whether hardware with such a value exists."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{number(self.low)} to {number(self.high)} {self.unit}".rstrip()


_TWO = "a board may have two chips"
_CLOCK = Existing(
    1, 1000, "MHz", "global clocks: 891 MHz in UltraScale+, AMD DS923; 1 GHz in Stratix 10, Intel S10-OVERVIEW"
)
_RATE = Existing(0.1, 10_000, "Gb/s", "Fast Ethernet; NVLink 5 has 7,200 each way")
_ON_CHIP = Existing(1, 100_000, "GB/s", "what registers and caches of a GPU deliver")
_PER_DSP = Existing(
    0.1, 64, "", "5 DSP48 for one of single precision, AMD PG060; 60 in a tensor block, Intel Stratix 10 NX"
)

EXISTING: Mapping[str, Existing] = {
    "board.clock_mhz": _CLOCK,
    "board.dsp": Existing(1, 30_000, "DSPs", f"14,352 in Versal VP1802, AMD DS950; {_TWO}"),
    "board.on_chip_memory_kbit": Existing(
        2, 2_000_000, "kbit", f"2 in MachXO2-256, Lattice FPGA-DS-02056; 916,380 in Versal VP1802, AMD DS950; {_TWO}"
    ),
    "board.power_w": Existing(0.01, 2000, "W", "milliwatts of an iCE40; 1,000 W of an NVIDIA B200"),
    "board.lut": Existing(100, 20_000_000, "LUTs", f"384 in iCE40 LP384; 8,460,288 in VP1902, AMD DS950; {_TWO}"),
    "board.lut_per_dsp": Existing(1, 5000, "LUTs", "1,020 of single precision beside two DSP48, by Yosys"),
    "board.ff": Existing(100, 40_000_000, "FFs", f"two for each LUT, AMD DS950; {_TWO}"),
    "board.bram": Existing(1, 25_000, "blocks", f"11,721 in Stratix 10 GX 2800, Intel S10-OVERVIEW; {_TWO}"),
    "board.bram_kbit": Existing(18, 36, "kbit", "20 of Intel, 18 and 36 of AMD"),
    "board.uram": Existing(0, 6000, "blocks", f"2,549 in Versal VP1802, AMD DS950; {_TWO}"),
    "board.transceivers": Existing(1, 320, "transceivers", f"160 in Versal VP1902, AMD DS950; {_TWO}"),
    "board.transceiver_gbps": Existing(0.1, 226, "Gb/s", "116 of Agilex 7's F-tile, Intel; 212 of IEEE 802.3dj"),
    "board.off_chip_memory_gbytes": Existing(0.001, 1024, "GB", "a chip of 16 Mbit; 4 modules of 256 GB"),
    "board.off_chip_gbytes_per_s": Existing(
        0.05, 2000, "GB/s", f"SDRAM of 16 bits; 819 of HBM2E beside Versal, AMD DS950; {_TWO}"
    ),
    "board.off_chip_pj_per_bit": Existing(
        1, 200, "pJ", "3.9 of HBM2, O'Connor et al., MICRO 2017; 70 of DDR3, Malladi et al., ISCA 2012"
    ),
    "board.peak_tflops": Existing(0.01, 5000, "TFLOP/s", "4,500 of half precision in an NVIDIA B200, with sparsity"),
    "board.memory_gbytes": Existing(0.1, 512, "GB", "288 of an NVIDIA B300"),
    "board.memory_gbytes_per_s": Existing(1, 10_000, "GB/s", "8,000 of an NVIDIA B200"),
    "board.persistent_gbytes_per_s": _ON_CHIP,
    "board.persistent_gru_gbytes_per_s": _ON_CHIP,
    "board.recurrent_us": Existing(0.1, 1000, "us", "a GPU's kernel starts in 2 to 40 us, FARNN, section 6.2"),
    "link.bandwidth_gbps": _RATE,
    "link.latency_ns": Existing(1, 1e6, "ns", "a hand of cable; TCP by hosts takes 0.1 to 0.5 ms"),
    "network.bandwidth_gbps": _RATE,
    "network.latency_us": Existing(0.001, 1000, "us", "a hand of cable; TCP by hosts takes 100 to 500 us"),
    "network.packet_stack_ns": Existing(1, 1e5, "ns", "567 fitted to the hosts of INCEPTIONN, section VIII"),
    "network.nic_clock_mhz": _CLOCK,
}
"""By the keys of `--set`. What a design counts, such as PEs, and shares have no entry, nor has `sum_gbytes_per_s`: by
a rate beyond all memories, files say that sums take no time."""


class Outside(NamedTuple):
    """A constant that no hardware has: its table, the number of that, its key there, its name, and what exists."""

    table: str
    place: int
    key: str
    name: str
    line: str


def outside(said: ClusterDescription | NamedCluster) -> Iterator[Outside]:
    """Yield the constants of a cluster that no hardware has."""
    networks = () if said.network is None else (said.network,)
    for table, several in (("board", said.boards), ("link", said.link_tables), ("network", networks)):
        for place, keys in enumerate(several):
            for key, value, existing in _constants(table, keys):
                if value and not existing.holds(value):
                    name = f"{table}s[{place}].{key}" if len(several) > 1 else f"{table}.{key}"
                    has = f"`{name}` = {number(value)} {existing.unit}".rstrip()
                    yield Outside(table, place, key, name, f"{has}: what exists is {existing} ({existing.source})")


def _constants(table: str, keys: Any) -> Iterator[tuple[str, float | None, Existing]]:
    """Yield the constants that a table may have: the key, the value if it has one, and what exists."""
    for full, existing in EXISTING.items():
        named, _, key = full.partition(".")
        if named == table:
            yield key, getattr(keys, key, None), existing
    for kind, rate in getattr(keys, "multipliers", None) or ():
        if rate is not None:
            yield f"multipliers.{kind}.per_dsp", rate.per_dsp, _PER_DSP
