"""A board of another kind than FPGAs: what mapping, timing and layout ask of `Board` is all that
they need.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emuchain.emulator.cluster import Board, Cluster, Engine, Fpga, Resources, Work
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import Slice, allocate, partition, slice_works
from emuchain.emulator.network import Network, load_network
from emuchain.emulator.plan import find_steady, lay_out
from emuchain.emulator.timing import LinkLoad, Timing, engine_loads, find_bottleneck, link_loads

from ..mapping.networks import (
    FAST,
    LINK,
    board,
    channels_to_cut,
    check_order,
    cluster,
    conv,
    fc,
    max_pool,
    network,
    networks,
)


@dataclasses.dataclass(frozen=True)
class Array(Board):
    """A board whose multipliers are not in tiles: a row takes its MACs / multipliers cycles,
    rounded up.
    """

    name: str
    period_ps: int
    cells: int
    on_chip_memory_bytes: int = 10**9
    power_w: float | None = None
    off_chip_memory_bytes: int | None = None
    off_chip_gbytes_per_s: float | None = None
    off_chip_pj_per_bit: float | None = None
    transceivers: int | None = None
    transceiver_gbps: float | None = None

    @property
    def multipliers(self) -> int:
        return self.cells

    @property
    def limits(self) -> Mapping[str, int | None]:
        return {"dsp": self.cells, "lut": None, "ff": None, "bram_banks": None}

    def fewest_multipliers(self, works: Sequence[Work]) -> int:
        return len(works)

    def most_channels(
        self, works: Sequence[Work], available: int, left: int, time_ps: int
    ) -> tuple[int, int]:
        for channels in range(available, 0, -1):
            used = self.needed([work.of_channels(channels) for work in works], time_ps)
            if used is not None and used <= left:
                return channels, used
        return 0, 0

    def build(self, works: Sequence[Work], no_faster_than_ps: int) -> list[Engine]:
        cycles = itertools.count(max(1, no_faster_than_ps // self.period_ps))
        times = (each * self.period_ps for each in cycles)
        time_ps = next(
            each for each in times if (self.needed(works, each) or self.cells + 1) <= self.cells
        )
        return [self._engine(work, self.needed([work], time_ps) or 0) for work in works]

    def build_alone(self, work: Work) -> Engine:
        return self._engine(work, self.cells)

    def update_ps(self, out_channels: int) -> int:
        return self.period_ps

    def engine_resources(self, multipliers: Sequence[int]) -> list[Resources]:
        return [Resources(dsp=count) for count in multipliers]

    def share(self, parts: int, *, whole: bool) -> Array:
        cells = self.cells if whole else self.cells // parts
        return dataclasses.replace(
            self, cells=cells, on_chip_memory_bytes=self.on_chip_memory_bytes // parts
        )

    def said(self) -> str:
        return f"`cells` = {self.cells}"

    def needed(self, works: Sequence[Work], time_ps: int) -> int | None:
        """The fewest multipliers with which no work takes longer than this for a sample; None if
        none are enough.
        """
        row_cycles = [time_ps // self.period_ps // work.rows for work in works]
        if not all(row_cycles):
            return None
        return sum(
            -(-row_macs(work) // cycles) for work, cycles in zip(works, row_cycles, strict=True)
        )

    def _engine(self, work: Work, multipliers: int) -> Engine:
        return Engine(multipliers, work.rows, -(-row_macs(work) // multipliers) * self.period_ps)


def row_macs(work: Work) -> int:
    """Multiply-accumulates of a row."""
    return work.convolutions * work.tile


def fewest_ps(held: Array, works: Sequence[Work]) -> int | None:
    """The least time of a sample on the slowest engine: cell after cell given to the slowest
    one.
    """
    cells = [1] * len(works)
    if held.cells < len(works):
        return None
    while True:
        row_cycles = [-(-row_macs(work) // count) for work, count in zip(works, cells, strict=True)]
        cycles = [work.rows * each for work, each in zip(works, row_cycles, strict=True)]
        slowest = cycles.index(max(cycles))
        if row_cycles[slowest] == 1:
            return cycles[slowest] * held.period_ps
        more = -(-row_macs(works[slowest]) // (row_cycles[slowest] - 1))
        if sum(cells) + more - cells[slowest] > held.cells:
            return cycles[slowest] * held.period_ps
        cells[slowest] = more


ARRAYS = st.lists(
    st.builds(Array, st.just("array"), st.integers(1000, 9000), st.integers(3, 400)),
    min_size=1,
    max_size=3,
)
"""With periods of a nanosecond and more: a row takes a link a picosecond at least."""
MIXED = st.lists(
    st.one_of(
        st.builds(Array, st.just("array"), st.sampled_from([4000, 6000]), st.integers(100, 2000)),
        st.builds(board, st.integers(100, 2000), st.sampled_from([5000, 10_000])),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40)
@given(networks(most=4), ARRAYS, st.integers(1, 3))
def test_no_cut_has_a_faster_slowest_engine(
    found: Network, boards: list[Array], devices: int
) -> None:
    """Against all cuts of the row of channels."""
    counts = channels_to_cut(found)
    row = [
        (layer, channel)
        for layer, count in zip(found.layers, counts, strict=True)
        for channel in range(count)
    ]
    assume(devices <= len(row))

    @functools.cache
    def slowest_ps(device: int, begin: int, end: int) -> int | None:
        works: list[Work] = []
        for layer, channels in itertools.groupby(row[begin:end], key=lambda channel: channel[0]):
            numbers = [channel for _, channel in channels]
            works += slice_works(Slice(layer, numbers[0], numbers[-1] + 1))
        return fewest_ps(boards[min(device, len(boards) - 1)], works)

    times = []
    for cuts in itertools.combinations(range(1, len(row)), devices - 1):
        pieces = itertools.pairwise([0, *cuts, len(row)])
        found_ps = [slowest_ps(device, begin, end) for device, (begin, end) in enumerate(pieces)]
        if None not in found_ps:
            times.append(max(each for each in found_ps if each is not None))
    if not times:
        with pytest.raises(InputError, match="needs at least"):
            partition(found, cluster(*boards, link=FAST), devices)
        return
    mapping = partition(found, cluster(*boards, link=FAST), devices)
    check_order(found, mapping)
    assert mapping.balance is not None
    assert mapping.balance.slowest_ps == min(times)


@given(networks(), MIXED, st.integers(1, 6), st.integers(1, 4))
def test_a_chain_of_both_kinds(
    found: Network, boards: list[Board], devices: int, batch: int
) -> None:
    """Mapped, timed and laid out: each board builds its own engines, and no engine is slower than
    the chain.
    """
    chain = cluster(*boards)
    devices = min(devices, sum(channels_to_cut(found)))
    mapping = partition(found, chain, devices)
    check_order(found, mapping)
    timing = Timing.of(mapping, chain)
    assert timing.interval_ps == max(
        load.sample_ps for load in (*engine_loads(timing), *link_loads(timing))
    )
    steady = find_steady(timing, batch)
    layout = lay_out(timing, steady.in_flight)
    assert layout.interval_ps == timing.interval_ps
    assert mapping.balance is not None
    assert mapping.balance.slowest_ps == max(load.sample_ps for load in engine_loads(timing))
    for device in layout.devices:
        held = chain.board(device.device)
        works = [work for part in device.slices for work in slice_works(part.part)]
        engines = [engine for part in device.slices for engine in part.engines.built]
        assert sum(engine.multipliers for engine in engines) <= held.multipliers
        for work, engine in zip(works, engines, strict=True):
            parallel = (
                engine.multipliers if isinstance(held, Array) else engine.multipliers // work.tile
            )
            todo = row_macs(work) if isinstance(held, Array) else work.convolutions
            assert engine == Engine(
                engine.multipliers, work.rows, -(-todo // parallel) * held.period_ps
            )
        if isinstance(held, Array):
            assert device.resources.dsp == sum(engine.multipliers for engine in engines)
            assert layout.utilisation(device)["dsp_share"] == device.resources.dsp / held.cells
            assert layout.utilisation(device)["lut_share"] is None
        else:
            assert isinstance(held, Fpga)
            assert layout.utilisation(device)["dsp_share"] == device.resources.dsp / held.dsp
    assert not layout.exceeded().get("dsp")


def test_by_hand() -> None:
    """conv1, 3x3, 1 to 2 channels on 4x4: 2 rows of 2 pixels, 36 MACs a row. fc: 8 inputs, 2
    outputs, 16 MACs a row.

    FP and PG of conv1, and FP, EB and PG of fc, with 40 cells at 1 ns: in 6 cycles a sample, conv1
    has 3 for a row, which takes 12 cells, and fc 6, which takes 3. That is 2·12 + 3·3 = 33; in 5 it
    would be 2·18 + 3·4 = 48.
    """
    found = network((1, 4, 4), conv(2, 3), fc(2))
    held = Array("array", 1000, 40)
    mapping = partition(found, Cluster("c", (held,), LINK), 1)
    assert mapping.balance is not None
    assert mapping.balance.slowest_ps == 6000
    first, second = allocate(mapping, 0, held)
    assert (first.fp, first.eb, first.pg) == (Engine(12, 2, 3000), None, Engine(12, 2, 3000))
    assert second.built == (Engine(3, 1, 6000),) * 3
    assert held.build_alone(slice_works(mapping.devices[0][1])[0]) == Engine(40, 1, 1000)
    timing = Timing.of(mapping, Cluster("c", (held,), LINK))
    layout = lay_out(timing, [1])
    [device] = layout.devices
    assert device.resources.dsp == 33
    assert layout.interval_ps == 6000
    assert find_bottleneck(timing).slowest.name == "FP of conv1[0:2] OCP on device 0"


def test_too_few_multipliers_in_the_boards_own_words() -> None:
    found = network((1, 4, 4), conv(2, 3), fc(2))
    with pytest.raises(InputError, match="board array: `cells` = 1: fc1 of n needs at least 3"):
        partition(found, Cluster("c", (Array("array", 1000, 1),), LINK), 1)
    mapping = partition(found, Cluster("c", (Array("array", 1000, 40),), LINK), 1)
    with pytest.raises(InputError, match="board array: `cells` = 4: device 0 needs at least 5"):
        allocate(mapping, 0, Array("array", 1000, 4))


def test_as_many_multipliers_as_engines() -> None:
    """One cell for each: the engines of conv1 take 2·36 cycles for a sample, and those of fc 16."""
    found = network((1, 4, 4), conv(2, 3), fc(2))
    mapping = partition(found, Cluster("c", (Array("array", 1000, 5),), LINK), 1)
    assert mapping.balance is not None
    assert mapping.balance.slowest_ps == 72_000


def test_updates_take_the_boards_time() -> None:
    """All parameters of a slice are new in one cycle, where an FPGA takes one for each output
    channel.
    """
    found = network((16, 2, 2), conv(4), conv(8), max_pool(2, 2))
    late = []
    for held in (Array("array", 1000, 100), Fpga("fpga", 1000, 100, 10**9)):
        chain = Cluster("c", (held,), LINK)
        clock = Timing.of(partition(found, chain, 1), chain).clock(0)
        late.append([part.updated_ps() for part in clock.slices])
    assert late == [[1000, 1000], [4000, 8000]]


def test_a_network_of_the_zoo() -> None:
    """The links are the slowest of a chain whose boards have enough cells."""
    found = load_network("vgg11-cifar")
    chain = cluster(Array("array", 1000, 10**6))
    timing = Timing.of(partition(found, chain, 6), chain)
    layout = lay_out(timing, find_steady(timing, 4).in_flight)
    slowest = max(link_loads(timing), key=lambda load: load.sample_ps)
    assert isinstance(slowest, LinkLoad)
    assert layout.interval_ps == slowest.sample_ps
    assert find_bottleneck(timing).slowest == slowest
    assert not layout.exceeded()
