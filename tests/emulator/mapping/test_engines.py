"""Engines: whole tiles, by hand and by FPDeep's operation counts, and no allocation that is
faster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.cluster import Board, Engine, Fpga
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import Mapping, allocate, allocate_all, partition
from emuchain.emulator.network import Network

from .networks import (
    BOARDS,
    PERIOD_PS,
    board,
    channels_to_cut,
    cluster,
    conv,
    fc,
    fewest_cycles,
    max_pool,
    network,
    networks,
    work_of,
)


def engines_of(
    mapping: Mapping, device: int, held: Board
) -> list[tuple[tuple[int, int, int], Engine]]:
    """What each engine of a device has to do, and what it got."""
    return [
        ((rows, each * part.channels // count, k), engine)
        for part, engines in zip(
            mapping.devices[device], allocate(mapping, device, held), strict=True
        )
        for count in [channels_to_cut(mapping.network)[part.layer.index]]
        for (rows, each, k), engine in zip(
            work_of(part.layer),
            [engines.fp, *([engines.eb] if engines.eb else []), engines.pg],
            strict=True,
        )
    ]


@given(networks(), st.integers(1, 3000), st.data())
def test_engines(found: Network, dsp: int, data: st.DataObject) -> None:
    """Whole tiles, one at the least, and cycles by FPDeep's operation counts."""
    devices = data.draw(st.integers(1, min(8, sum(channels_to_cut(found)))))
    mapping = partition(found, cluster(board(100)), devices)
    for device, slices in enumerate(mapping.devices):
        needed = sum(k for part in slices for _, _, k in work_of(part.layer))
        if dsp < needed:
            with pytest.raises(
                InputError, match=f"`dsp` = {dsp}.*device {device} needs at least {needed},"
            ):
                allocate(mapping, device, board(dsp))
            continue
        used = 0
        for (rows, each, k), engine in engines_of(mapping, device, board(dsp)):
            tiles, rest = divmod(engine.multipliers, k)
            assert (rest, engine.rows) == (0, rows)
            assert 1 <= tiles <= each
            assert engine.row_ps == -(-each // tiles) * PERIOD_PS
            assert engine.sample_ps == rows * engine.row_ps
            used += engine.multipliers
        assert used <= dsp


@given(networks(), st.lists(st.integers(90, 3000), min_size=1, max_size=3), st.integers(1, 8))
def test_all_engines_are_those_of_each_device(
    found: Network, dsps: list[int], devices: int
) -> None:
    chain = cluster(*map(board, dsps))
    mapping = partition(found, chain, min(devices, sum(channels_to_cut(found))))
    each = [
        allocate(mapping, device, chain.board(device)) for device in range(len(mapping.devices))
    ]
    assert allocate_all(mapping, chain) == tuple(each)


@given(networks(), st.integers(90, 3000), st.integers(1, 6))
def test_no_allocation_has_a_faster_slowest_engine(found: Network, dsp: int, devices: int) -> None:
    mapping = partition(found, cluster(board(100)), min(devices, sum(channels_to_cut(found))))
    not_held_back = dataclasses.replace(mapping, balance=None)
    for device in range(len(mapping.devices)):
        engines = engines_of(not_held_back, device, board(dsp))
        cycles = fewest_cycles([todo for todo, _ in engines], dsp)
        assert cycles is not None
        assert max(engine.sample_ps for _, engine in engines) == cycles * PERIOD_PS


@given(networks(), BOARDS, st.integers(1, 12))
def test_no_engine_has_tiles_that_the_slowest_device_leaves_idle(
    found: Network, boards: list[Fpga], devices: int
) -> None:
    """With fewer tiles an engine would be slower than the slowest device, but for one step more
    that an engine just as slow may have been given.
    """
    chain = cluster(*boards)
    mapping = partition(found, chain, min(devices, sum(channels_to_cut(found))))
    assert mapping.balance is not None
    for device in range(len(mapping.devices)):
        held = chain.board(device)
        for (rows, each, k), engine in engines_of(mapping, device, held):
            assert engine.sample_ps <= mapping.balance.slowest_ps
            cycles = mapping.balance.slowest_ps // held.period_ps
            fewest = -(-each // (cycles // rows))
            tiles = engine.multipliers // k
            one_more = (
                rows * -(-each // fewest) == cycles and engine.sample_ps < cycles * held.period_ps
            )
            assert tiles == fewest or one_more


def row_cycles(engine: Engine) -> int:
    """Cycles of a row; times are whole multiples of the clock period."""
    cycles, rest = divmod(engine.row_ps, PERIOD_PS)
    assert rest == 0
    return cycles


def cycles(found: Network, dsp: int) -> list[tuple[int, ...]]:
    """For each slice on a single device: multipliers and cycles of a row, of FP, EB (if any) and
    PG.
    """
    mapping = partition(found, cluster(board(dsp)), 1)
    return [
        tuple(
            number
            for engine in (engines.fp, engines.eb, engines.pg)
            if engine is not None
            for number in (engine.multipliers, row_cycles(engine))
        )
        for engines in allocate(mapping, 0, board(dsp))
    ]


def test_engines_of_one_layer_by_hand() -> None:
    """16 input and 8 output channels, 3x3 on 6x7, so 4x5: FP and PG share the board, for a first
    layer has no EB.

    Each has 16·8·5 = 640 convolutions in a row. 5184 multipliers are 576 tiles of 9, 288 for each:
    3 cycles, for which ceil(640 / 3) = 214 are enough. Of the 148 left over FP takes 106, for with
    320 it needs 2 cycles; 42 are left.
    """
    found = network((16, 6, 7), conv(8, 3), max_pool(4, 5))
    assert cycles(found, 5184) == [(320 * 9, 2, 214 * 9, 3)]


def test_engines_with_few_tiles_by_hand() -> None:
    """The same layer with 10 tiles, 5 for each: 640 / 5 = 128 cycles a row.

    With 11 tiles the one left over goes to FP: ceil(640 / 6) = 107.
    """
    found = network((16, 6, 7), conv(8, 3), max_pool(4, 5))
    assert cycles(found, 90) == [(45, 128, 45, 128)]
    assert cycles(found, 99) == [(54, 107, 45, 128)]
    assert cycles(found, 98) == cycles(found, 90)  # eight multipliers are no tile


def test_engines_of_two_layers_by_hand() -> None:
    """Both 1x1 on 1x3: 2 to 2 channels, 12 MACs (no EB), and 2 to 4, 24 MACs: 2·12 + 3·24 = 96 in
    all.

    With 9 multipliers 12 cycles are the least: the first layer's FP and PG have 12 convolutions,
    one multiplier each; the second's FP, EB and PG 24, two each. So 8 are taken, and the ninth
    goes to the first of the slowest engines.
    """
    found = network((2, 1, 3), conv(2), conv(4), max_pool(1, 3))
    assert [layer.macs for layer in found.layers] == [12, 24]
    assert cycles(found, 9) == [(2, 6, 1, 12), (2, 12, 2, 12, 2, 12)]


def test_strides_let_fp_and_eb_differ() -> None:
    """16 to 16 channels, 1x1, stride 2 on 1x5: 3 output pixels, 5 input pixels; S = 16 channels,
    one tile each.
    """
    found = network((16, 1, 5), conv(16), conv(16, stride=2), max_pool(1, 3))
    [_, second] = partition(found, cluster(board(5)), 1).devices[0]
    [_, engines] = allocate(partition(found, cluster(board(5)), 1), 0, board(5))
    assert second.layer.output == (16, 1, 3)
    assert engines.eb is not None
    assert list(map(row_cycles, (engines.fp, engines.eb, engines.pg))) == [
        3 * 256,
        5 * 256,
        3 * 256,
    ]


def test_too_few_multipliers(one_line: Callable[..., str]) -> None:
    found = network((1, 3, 3), conv(2, 3), fc(2))
    mapping = partition(found, cluster(board(21)), 1)
    allocate(mapping, 0, board(21, name="tiny"))  # 9 + 9 for the convolution, 1 + 1 + 1 for fc
    with pytest.raises(InputError) as error:
        allocate(mapping, 0, board(20, name="tiny"))
    line = one_line(error)
    for message in (
        "board tiny",
        "`dsp` = 20",
        "device 0",
        "at least 21",
        "conv1[0:2] OCP, fc1[0:2] ICP",
    ):
        assert message in line
