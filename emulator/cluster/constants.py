"""The constants of a cluster by their keys: what exists of each, and how far one may be wrong.

What exists is a range that holds all hardware that is known, from the smallest to the largest, not
only what trains networks; a constant outside it is often one of another unit. It is taken all the
same, but not without a word: a study may ask for what will exist. A latency of 0 is none that is
modelled, and no mistake.

How far one may be wrong is said by the `[uncertainty]` of a cluster's file or a board's, or else by
its class:

[uncertainty]                 # keys as in `--what-if`
"link.latency_ns" = { low = 665, high = 683, class = "measured", from = "ping.csv: 84 rows, 4 runs", date = 2026-11-25 }
"board.clock_mhz" = { class = "data sheet" }                  # without `low` and `high`: the range of the class

A range holds a constant in nine of ten cases: `low` is its 5th and `high` its 95th percentile, as a
calibration's are. Without an entry, a constant is of the class that its key has in `EXISTING`:

- a bandwidth of memory is a data sheet's, of which programs reach 0.80 to 0.95;
- a bandwidth of links is a data sheet's, of which messages get 0.90 to 1.00;
- a latency is assumed, and software and switches make it 1.0 to 1.5 times as long, as beside a data
  sheet;
- a clock is assumed, as are rates of gradient sums and what a packet takes: 0.67 to 1.5 times;
- what is fitted to a paper's figures is 0.95 to 1.05 times. Of shipped constants only those have an
  entry;
- what a report of a build estimates, such as watts, is 0.90 to 1.10 times, an assumption.

What is counted, such as DSPs, has no range: it is what the user builds. Nor has a value that a
study changes (`--set`, `--what-if`, `--link.bandwidth_gbps`) the entry that its file has: the
file's is of another value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from ..common import number

RangeClass: TypeAlias = Literal["measured", "data sheet", "assumed", "fitted", "report"]

EXACT = (1.0, 1.0)
_FITTED, _REPORTED, _GUESSED = (0.95, 1.05), (0.9, 1.1), (0.67, 1.5)


class Trust(NamedTuple):
    """The class of a constant without an entry, and its ranges as a data sheet's and as one that is
    assumed.
    """

    kind: RangeClass = "data sheet"
    data_sheet: tuple[float, float] = EXACT
    assumed: tuple[float, float] = _GUESSED


class Existing(NamedTuple):
    """What exists of a constant, smallest to largest, its unit, where that is known from; and how
    far it is trusted.
    """

    low: float
    high: float
    unit: str
    source: str
    trust: Trust = Trust()

    def holds(self, value: float) -> bool:
        """Return whether hardware with such a value exists."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{number(self.low)} to {number(self.high)} {self.unit}".rstrip()


_ASSUMED = Trust("assumed")
_MEMORY, _BANDWIDTH = Trust(data_sheet=(0.80, 0.95)), Trust(data_sheet=(0.90, 1.00))
_LATENCY = Trust("assumed", (1.0, 1.5), (1.0, 1.5))

_TWO = "a board may have two chips"
_CLOCK = Existing(
    1,
    1000,
    "MHz",
    "global clocks: 891 MHz in UltraScale+, AMD DS923; 1 GHz in Stratix 10, Intel S10-OVERVIEW",
)
_RATE = Existing(0.1, 10_000, "Gb/s", "Fast Ethernet; NVLink 5 has 7,200 each way", _BANDWIDTH)
_ON_CHIP = Existing(1, 100_000, "GB/s", "what registers and caches of a GPU deliver")
PER_DSP = Existing(
    0.1,
    64,
    "",
    "5 DSP48 for one of single precision, AMD PG060; 60 in a tensor block, Intel Stratix 10 NX",
)

EXISTING: Mapping[str, Existing] = {
    "board.clock_mhz": _CLOCK._replace(trust=_ASSUMED),
    "board.dsp": Existing(1, 30_000, "DSPs", f"14,352 in Versal VP1802, AMD DS950; {_TWO}"),
    "board.on_chip_memory_kbit": Existing(
        2,
        2_000_000,
        "kbit",
        f"2 in MachXO2-256, Lattice FPGA-DS-02056; 916,380 in Versal VP1802, AMD DS950; {_TWO}",
    ),
    "board.power_w": Existing(0.01, 2000, "W", "milliwatts of an iCE40; 1,000 W of an NVIDIA B200"),
    "board.lut": Existing(
        100, 20_000_000, "LUTs", f"384 in iCE40 LP384; 8,460,288 in VP1902, AMD DS950; {_TWO}"
    ),
    "board.lut_per_dsp": Existing(
        1, 5000, "LUTs", "1,020 of single precision beside two DSP48, by Yosys"
    ),
    "board.ff": Existing(100, 40_000_000, "FFs", f"two for each LUT, AMD DS950; {_TWO}"),
    "board.bram": Existing(
        1, 25_000, "blocks", f"11,721 in Stratix 10 GX 2800, Intel S10-OVERVIEW; {_TWO}"
    ),
    "board.bram_kbit": Existing(18, 36, "kbit", "20 of Intel, 18 and 36 of AMD"),
    "board.uram": Existing(0, 6000, "blocks", f"2,549 in Versal VP1802, AMD DS950; {_TWO}"),
    "board.transceivers": Existing(
        1, 320, "transceivers", f"160 in Versal VP1902, AMD DS950; {_TWO}"
    ),
    "board.transceiver_gbps": Existing(
        0.1, 226, "Gb/s", "116 of Agilex 7's F-tile, Intel; 212 of IEEE 802.3dj"
    ),
    "board.off_chip_memory_gbytes": Existing(
        0.001, 1024, "GB", "a chip of 16 Mbit; 4 modules of 256 GB"
    ),
    "board.off_chip_gbytes_per_s": Existing(
        0.05,
        2000,
        "GB/s",
        f"SDRAM of 16 bits; 819 of HBM2E beside Versal, AMD DS950; {_TWO}",
        _MEMORY,
    ),
    "board.off_chip_pj_per_bit": Existing(
        1,
        200,
        "pJ",
        "3.9 of HBM2, O'Connor et al., MICRO 2017; 70 of DDR3, Malladi et al., ISCA 2012",
    ),
    "board.peak_tflops": Existing(
        0.01, 5000, "TFLOP/s", "4,500 of half precision in an NVIDIA B200, with sparsity"
    ),
    "board.memory_gbytes": Existing(0.1, 512, "GB", "288 of an NVIDIA B300"),
    "board.memory_gbytes_per_s": Existing(1, 10_000, "GB/s", "8,000 of an NVIDIA B200", _MEMORY),
    "board.persistent_gbytes_per_s": _ON_CHIP,
    "board.persistent_gru_gbytes_per_s": _ON_CHIP,
    "board.recurrent_us": Existing(
        0.1, 1000, "us", "a GPU's kernel starts in 2 to 40 us, FARNN, section 6.2"
    ),
    "link.bandwidth_gbps": _RATE,
    "link.latency_ns": Existing(
        1, 1e6, "ns", "a hand of cable; TCP by hosts takes 0.1 to 0.5 ms", _LATENCY
    ),
    "network.bandwidth_gbps": _RATE,
    "network.latency_us": Existing(
        0.001, 1000, "us", "a hand of cable; TCP by hosts takes 100 to 500 us", _LATENCY
    ),
    "network.packet_stack_ns": Existing(
        1, 1e5, "ns", "567 fitted to the hosts of INCEPTIONN, section VIII", _ASSUMED
    ),
    "network.nic_clock_mhz": _CLOCK,
}
"""By the keys of `--set`. What a design counts, such as PEs, and shares have no entry, and are
exact.
"""

_UNKNOWN = {"network.sum_gbytes_per_s": _ASSUMED}
"""Constants of which nothing is known to exist: by a rate beyond all memories, files say that sums
take no time.
"""


def _trust_of(key: str) -> Trust:
    return EXISTING[key].trust if key in EXISTING else _UNKNOWN.get(key, Trust())


@dataclasses.dataclass(frozen=True)
class ConstantRange:
    """The range of a constant, `low` and `high` as multiples of its value; `key` as in
    `--what-if`.
    """

    key: str
    low: float
    high: float
    kind: RangeClass
    source: str = ""
    date: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether the range is a point."""
        return self.low == self.high == 1


def range_of_class(key: str, kind: RangeClass) -> tuple[float, float]:
    """Return the range of a constant that is not measured, as multiples of its value."""
    if kind == "fitted":
        return _FITTED
    if kind == "report":
        return _REPORTED
    trust = _trust_of(key)
    return trust.assumed if kind == "assumed" else trust.data_sheet


def find_range(key: str, given: Iterable[ConstantRange]) -> ConstantRange:
    """Return the range of a constant: of those `given`, or else that of its class."""
    for entry in given:
        if entry.key == key:
            return entry
    kind = _trust_of(key).kind
    return ConstantRange(key, *range_of_class(key, kind), kind)
