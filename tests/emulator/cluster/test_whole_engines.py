"""Boards with whole convolution engines: by hand, and against all cuts of the row of channels."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emuchain.emulator.cluster import Work, load_cluster
from emuchain.emulator.cluster.fpga import WholeEnginesFpga
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import Slice, partition, slice_works
from emuchain.emulator.network import Network
from emuchain.emulator.timing import Timing, engine_loads

from ..mapping.networks import FAST, channels_to_cut, cluster, networks

PERIOD_PS = 1000


def board(dsp: int) -> WholeEnginesFpga:
    return WholeEnginesFpga("whole", PERIOD_PS, dsp, 10**9)


def test_a_row_by_hand() -> None:
    """5 inputs, 7 outputs, 3x3, rows of 4 pixels: a CE has 45 multipliers; with 3 of them a pixel
    takes 3 cycles.
    """
    work = Work(rows=6, columns=4, inputs=5, outputs=7, tile=9)
    whole = board(10_000)
    assert whole.row_cycles(work, 3 * 45) == 4 * 3
    assert whole.multipliers_within(work, 6 * 4 * 3) == 3 * 45
    assert whole.multipliers_within(work, 6 * 4 * 3 - 1) == 4 * 45
    assert whole.multipliers_within(work, 6 * 4 * 7) == whole.fewest_multipliers([work]) == 45
    assert whole.multipliers_within(work, 6 * 4 - 1) > whole.multipliers
    [alone] = [whole.build_alone(work)]
    assert (alone.multipliers, alone.row_ps) == (7 * 45, 4 * PERIOD_PS)


def test_channels_need_tiles_of_their_own() -> None:
    """Under ICP a channel more is a tile more in each CE; under OCP an output more."""
    inputs = Work(2, 3, 1, 8, 9)
    assert board(100).most_channels([inputs, inputs], 50, 100, 2 * 3 * 8 * PERIOD_PS) == (5, 90)
    outputs = Work(2, 3, 3, 1, 9, by_outputs=True)
    assert board(100).most_channels([outputs], 50, 60, 2 * 3 * 4 * PERIOD_PS) == (8, 54)
    assert board(100).most_channels([outputs], 50, 60, 5 * PERIOD_PS) == (0, 0)


def test_fully_connected_layers_take_turns() -> None:
    work = Work(1, 1, 400, 10, 1, takes_turns=True)
    assert board(100).fewest_multipliers([work]) == 1
    assert board(100).row_cycles(work, 40) == 100


def fewest_ps(held: WholeEnginesFpga, works: list[Work]) -> int | None:
    """The least time of a sample on the slowest engine, over all numbers of CEs (or tiles) of
    each.
    """
    steps = [
        (
            [(w.rows * -(-w.convolutions // n), n) for n in range(1, w.convolutions + 1)]
            if w.takes_turns
            else [
                (w.rows * w.columns * -(-w.outputs // p), p * w.inputs * w.tile)
                for p in range(1, w.outputs + 1)
            ]
        )
        for w in works
    ]
    for cycles in sorted({cycles for of in steps for cycles, _ in of}):
        needed = [min((n for each, n in of if each <= cycles), default=10**9) for of in steps]
        if sum(needed) <= held.dsp:
            return cycles * PERIOD_PS
    return None


@settings(max_examples=40)
@given(networks(most=4), st.lists(st.integers(30, 900), min_size=1, max_size=3), st.integers(1, 3))
def test_no_cut_has_a_faster_slowest_engine(found: Network, sizes: list[int], devices: int) -> None:
    boards = [board(dsp) for dsp in sizes]
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
        found_ps = [
            slowest_ps(n, *ends) for n, ends in enumerate(itertools.pairwise([0, *cuts, len(row)]))
        ]
        if None not in found_ps:
            times.append(max(each for each in found_ps if each is not None))
    if not times:
        with pytest.raises(InputError, match="needs at least"):
            partition(found, cluster(*boards, link=FAST), devices)
        return
    chain = cluster(*boards, link=FAST)
    mapping = partition(found, chain, devices)
    assert mapping.balance is not None
    loads = engine_loads(Timing.of(mapping, chain))
    assert mapping.balance.slowest_ps == max(load.sample_ps for load in loads) == min(times)


def test_too_few_multipliers(capsys: Any) -> None:
    from emuchain.emulator.network import load_network

    whole = load_cluster("vc709", {"board.convolution_engines": "whole"})
    assert isinstance(whole.board(0), WholeEnginesFpga)
    with pytest.raises(
        InputError, match=r"vgg16 needs at least \d{6} multipliers, a tile for each input channel"
    ):
        partition(load_network("vgg16"), whole, 15)
