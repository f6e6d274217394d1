"""A board: how long FP, EB and PG of a slice take on it, and what memory it has.

Each kind of board is a file in this folder with a class that implements `Board`. Mapping, timing
and studies use only this interface.

Chains of processing elements (PEs) for recurrent layers (FARNN, section 5.1).
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

from .constants import ConstantRange

KBIT = 1024
"""Bits of a kbit of on-chip memory in data sheets: a block RAM of 36 kbit has 36,864."""

BANK_BYTES = 512 * 4
"""Bytes of a bank of on-chip memory, half a block RAM of 36 kbit: 512 words of 4 bytes, or 1,024
of 2.
"""


ACTIVATION_CYCLES = 204
"""Latency of a recurrent layer's activations: "the longest pipeline latency is 204 cycles" (FARNN,
section 5.1.3).
"""


@dataclasses.dataclass(frozen=True)
class Work:
    """The work of FP, EB or PG of a slice for one sample.

    There are `rows` rows of `columns` pixels, each with a K×K convolution for each pair of its
    input and output channels: `tile` = K·K multiply-accumulates. More channels of the slice are
    more outputs with `by_outputs`, else more inputs. Fully connected layers have no maps to read at
    once, so their tiles take turns (`takes_turns`).
    """

    rows: int
    columns: int
    inputs: int
    outputs: int
    tile: int
    by_outputs: bool = False
    takes_turns: bool = False
    phase: int = 0
    """FP, EB or PG, by their number."""
    classes: int = 0
    """Which three of the board's classes of multipliers it is of, where layers differ."""

    @functools.cached_property
    def convolutions(self) -> int:
        """Number of K×K convolutions of a row."""
        return self.columns * self.inputs * self.outputs

    @property
    def place(self) -> int:
        """The place of its class among the board's."""
        return 3 * self.classes + self.phase

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a sample."""
        return self.rows * self.convolutions * self.tile

    def of_channels(self, channels: int) -> Work:
        """Return the work of `channels` channels, where this is the work of one."""
        if self.by_outputs:
            return dataclasses.replace(self, outputs=self.outputs * channels)
        return dataclasses.replace(self, inputs=self.inputs * channels)


@dataclasses.dataclass(frozen=True)
class Engine:
    """FP, EB or PG of one slice on its board: its multipliers, and the time of a row.

    Of that time, `wait_ps` are those in which a recurrent layer's multipliers wait for the results
    of the step before.
    """

    multipliers: int
    rows: int
    row_ps: int
    wait_ps: int = 0

    @property
    def sample_ps(self) -> int:
        """Time of a sample."""
        return self.rows * self.row_ps

    def waiting(self, more_ps: int) -> Engine:
        """Return the engine with rows that wait so much longer."""
        return dataclasses.replace(
            self, row_ps=self.row_ps + more_ps, wait_ps=self.wait_ps + more_ps
        )


@dataclasses.dataclass(frozen=True)
class Resources:
    """The resources of a board that are used; `bram_banks` are halves of a 36 kbit block."""

    lut: int = 0
    ff: int = 0
    bram_banks: int = 0
    dsp: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.lut + other.lut,
            self.ff + other.ff,
            self.bram_banks + other.bram_banks,
            self.dsp + other.dsp,
        )


class Board(abc.ABC):
    """A board of any kind. Times on it are whole multiples of its clock period; None means unknown.

    The engines of a board share its `multipliers`. The number that a piece of work needs depends on
    the time that it may take; the needs of several pieces add up. `ranges` are those of its
    constants that are not their class's.
    """

    name: str
    period_ps: int
    on_chip_memory_bytes: int
    power_w: float | None
    price: float | None
    off_chip_memory_bytes: int | None
    off_chip_gbytes_per_s: float | None
    host_gbytes_per_s: float | None
    off_chip_pj_per_bit: float | None
    transceivers: int | None
    transceiver_gbps: float | None
    activation_cycles: int = ACTIVATION_CYCLES
    load_exposed: float = 0.0
    ranges: tuple[ConstantRange, ...] = ()

    @property
    def activation_ps(self) -> int:
        """Time in ps from the sums of a recurrent layer's step to its results."""
        return self.activation_cycles * self.period_ps

    @property
    def clock_mhz(self) -> float:
        """Frequency of the clock in MHz."""
        return 1e6 / self.period_ps

    @property
    @abc.abstractmethod
    def multipliers(self) -> int:
        """Number of multipliers that engines may take; each does one multiply-accumulate in a clock
        period.
        """

    @property
    def is_built(self) -> bool:
        """Whether its multipliers are built, so that no plan is over what it has."""
        return False

    @property
    def banks(self) -> int:
        """Number of on-chip memories of 512 words of 32 bits."""
        return self.on_chip_memory_bytes // BANK_BYTES

    @property
    def off_chip_mbytes_per_s(self) -> int:
        """Bandwidth of the off-chip memory's port in MB/s; 0 if it is unknown."""
        return round(1000 * (self.off_chip_gbytes_per_s or 0))

    @property
    def capacity(self) -> float:
        """Multiply-accumulates of all multipliers together in a picosecond."""
        return self.multipliers / self.period_ps

    @property
    @abc.abstractmethod
    def limits(self) -> Mapping[str, int | None]:
        """The board's amount of each field of `Resources`; None where it is unknown."""

    @abc.abstractmethod
    def fewest_multipliers(self, works: Sequence[Work]) -> int:
        """Return the fewest multipliers that can do all `works`, however long it takes."""

    @abc.abstractmethod
    def most_channels(
        self, works: Sequence[Work], available: int, left: int, time_ps: int
    ) -> tuple[int, int]:
        """Return the number of channels that the board can do within `time_ps` for a sample, and
        their multipliers.

        Args:
            works: work of FP, EB and PG for one channel.
            available: number of channels to choose from.
            left: multipliers that are still free.
            time_ps: bound on each engine's time for a sample.
        """

    @abc.abstractmethod
    def build(self, works: Sequence[Work], no_faster_than_ps: int) -> list[Engine]:
        """Share the multipliers among engines so that the slowest is as fast as possible, but not
        faster than needed.

        Every engine gets the fewest multipliers with which it is no slower than the slowest, or
        than `no_faster_than_ps` for a sample. The works' `fewest_multipliers` must not exceed the
        board's multipliers.
        """

    @abc.abstractmethod
    def build_alone(self, work: Work) -> Engine:
        """Build one engine that may take all multipliers, because FP, EB and PG take turns."""

    def alone_ps(self, work: Work, macs: int, samples: int) -> int:
        """Return the time in ps of FP, EB or PG of some samples on all multipliers, without loads.

        A sample has `macs` multiply-accumulates, which engines need not do tile by tile.
        """
        return -(-samples * macs * self.period_ps // self.multipliers)

    def one_set(self, works: Iterable[Work], alpha: float) -> Board:
        """Return the board with one set of engines for all of some works, for all of its
        multipliers, of which DSPs make the share `alpha`.

        Raises:
            InputError: the board's multipliers are too narrow for the class that holds all.
        """
        return self

    def tile_multipliers(self, work: Work) -> int:
        """Return the multipliers of which an engine has a whole number."""
        return work.tile

    @abc.abstractmethod
    def update_ps(self, out_channels: int) -> int:
        """Return the time in ps to update the parameters of `out_channels` output channels."""

    @abc.abstractmethod
    def engine_resources(self, multipliers: Sequence[int]) -> list[Resources]:
        """Return the resources of each slice's engines, given each slice's multipliers."""

    def slice_resources(self, slices: Sequence[Sequence[int]]) -> list[Resources]:
        """Return the resources of each slice's engines, given the multipliers of its FP, EB and
        PG, in the order of the board's classes.
        """
        return self.engine_resources([sum(counts) for counts in slices])

    def function_resources(self, counts: tuple[int, int, int], sample_ps: int) -> Resources:
        """Return the resources of a special function unit, of what it needs to keep up.

        Args:
            counts: multiply-adds, exponentials and divisions of a sample.
            sample_ps: time of a sample on the engine whose outputs it takes.
        """
        return Resources()

    @abc.abstractmethod
    def share(self, parts: int, *, whole: bool) -> Board:
        """Return what one of `parts` stages on this board has: a part of its memory, and, unless
        `whole`, of all.
        """

    def beside(self, *, dsp: int, lut: int, ff: int, bram: int) -> Board:
        """Return the board with so much less, which cores of its links take."""
        return self

    @property
    def smallest_engine(self) -> str:
        """The smallest engines that can be built, as a phrase for messages."""
        return "one tile of kernel size for each engine"

    @abc.abstractmethod
    def said(self) -> str:
        """Return a phrase for messages that gives the multipliers in the terms of the cluster's
        file.
        """


LSTM_UNITS = 4
"""MVM units, one for each gate of an LSTM (section 5)."""


@dataclasses.dataclass(frozen=True)
class PeArray:
    """The MVM units of an FPGA: each has `chains` chains of `pes_per_chain` PEs, with `words`
    weights in each PE.

    A chain takes one weight a cycle while weights are loaded. The activation pipeline takes
    `activation_cycles`.
    """

    chains: int
    pes_per_chain: int
    words: int
    units: int = LSTM_UNITS
    activation_cycles: int = ACTIVATION_CYCLES

    @property
    def pes(self) -> int:
        """Number of PEs of an MVM unit."""
        return self.chains * self.pes_per_chain
