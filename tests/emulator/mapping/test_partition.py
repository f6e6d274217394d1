"""The partition: which device holds which channels; the fastest cut, and as even as it can be."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emuchain.emulator.cluster import Cluster, Fpga, load_cluster
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import Mapping, Slice, allocate, idle_share, imbalance, partition
from emuchain.emulator.network import Network, load_network, zoo

from ..counted import counted
from .networks import (
    BOARDS,
    FAST,
    Operation,
    board,
    channels_to_cut,
    check_order,
    cluster,
    conv,
    fc,
    fewest_cycles,
    max_pool,
    network,
    networks,
    work_of,
)


@given(networks(), BOARDS, st.data())
def test_partition(found: Network, boards: list[Fpga], data: st.DataObject) -> None:
    devices = data.draw(st.integers(1, min(sum(channels_to_cut(found)), 30)))
    mapping = partition(found, cluster(*boards), devices)
    assert len(mapping.devices) == devices
    check_order(found, mapping)
    assert sum(part.macs for slices in mapping.devices for part in slices) == found.macs


@settings(max_examples=60)
@given(networks(most=5), st.lists(st.builds(board, st.integers(30, 200), st.integers(5, 9)), min_size=1, max_size=3),
       st.integers(1, 4), st.booleans())  # fmt: skip
def test_no_cut_has_a_faster_slowest_engine(
    found: Network, boards: list[Fpga], devices: int, fc_fits: bool
) -> None:
    """Against all cuts of the row of channels; where fully connected layers do not fit, those that
    keep them apart.
    """
    if not fc_fits:
        boards = [dataclasses.replace(held, on_chip_memory_bytes=0) for held in boards]
    apart = not fc_fits and devices > 1 and found.layers[0].convolves
    row = [
        (layer, count, channel)
        for layer, count in zip(found.layers, channels_to_cut(found), strict=True)
        for channel in range(count)
    ]
    assume(devices <= len(row))
    best = None
    for cuts in itertools.combinations(range(1, len(row)), devices - 1):
        slowest: int | None = 0
        for device, (begin, end) in enumerate(itertools.pairwise([0, *cuts, len(row)])):
            held = boards[min(device, len(boards) - 1)]
            if apart and len({layer.convolves for layer, _, _ in row[begin:end]}) > 1:
                slowest = None
                break
            engines = [
                (rows, each * channels // count, k)
                for layer, count in dict.fromkeys(
                    (layer, count) for layer, count, _ in row[begin:end]
                )
                for channels in [sum(other is layer for other, _, _ in row[begin:end])]
                for rows, each, k in work_of(layer)
            ]
            cycles = fewest_cycles(engines, held.dsp)
            slowest = (
                None if cycles is None or slowest is None else max(slowest, cycles * held.period_ps)
            )
        if slowest is not None:
            best = slowest if best is None else min(best, slowest)
    if best is None:
        with pytest.raises(InputError, match="one tile of kernel size for each engine"):
            partition(found, cluster(*boards, link=FAST), devices)
        return
    mapping = partition(found, cluster(*boards, link=FAST), devices)
    assert mapping.balance is not None
    assert (
        mapping.balance.slowest_ps
        == best
        == slowest_engine_ps(mapping, cluster(*boards, link=FAST))
    )


def slowest_engine_ps(mapping: Mapping, chain: Cluster) -> int:
    """The time of a sample on the slowest engine of all devices."""
    return max(
        engine.sample_ps
        for device in range(len(mapping.devices))
        for held in allocate(mapping, device, chain.board(device))
        for engine in held.built
    )


@given(networks(), st.integers(100, 5000), st.data())
def test_even_as_rounding_to_the_nearest_channel_where_that_is_as_fast(
    found: Network, dsp: int, data: st.DataObject
) -> None:
    work = [
        sum(rows * each * k for rows, each, k in work_of(layer)) // count
        for layer, count in zip(found.layers, channels_to_cut(found), strict=True)
        for _ in range(count)
    ]
    devices = data.draw(st.integers(1, min(len(work), 12)))
    before = [0, *itertools.accumulate(work)]
    nearest = [0]
    for device in range(1, devices):
        due = Fraction(before[-1] * device, devices)
        channel = min(range(len(before)), key=lambda channel: (abs(before[channel] - due), channel))
        assume(
            2 * abs(before[channel] - due) < min(work)
        )  # of two that are as near, either may be taken
        assume(channel > nearest[-1])
        nearest.append(channel)
    assume(nearest[-1] < len(work))
    chain = cluster(board(dsp), link=FAST)
    mapping = partition(found, chain, devices)
    assert mapping.balance is not None
    rounded = Mapping(found, cut_at(found, [*nearest, len(work)]))
    shares = [
        before[end] - before[begin] for begin, end in itertools.pairwise([*nearest, len(work)])
    ]
    try:
        slowest_ps = slowest_engine_ps(rounded, chain)
    except InputError:
        return
    assert mapping.balance.slowest_ps <= slowest_ps
    if mapping.balance.slowest_ps == slowest_ps:
        assert mapping.balance.fine <= imbalance(shares) + 1e-9


def cut_at(found: Network, ends: list[int]) -> tuple[tuple[Slice, ...], ...]:
    """The devices' slices, from the boundaries in the row of all channels."""
    row = [
        (layer, channel)
        for layer, count in zip(found.layers, channels_to_cut(found), strict=True)
        for channel in range(count)
    ]
    devices = []
    for begin, end in itertools.pairwise(ends):
        held = []
        for layer, channels in itertools.groupby(row[begin:end], key=lambda channel: channel[0]):
            numbers = [channel for _, channel in channels]
            held.append(Slice(layer, numbers[0], numbers[-1] + 1))
        devices.append(tuple(held))
    return tuple(devices)


@given(networks(), BOARDS, st.integers(1, 12))
def test_balance(found: Network, boards: list[Fpga], devices: int) -> None:
    """Perfect balance is all work on all multipliers, and V that of the shares."""
    devices = min(devices, sum(channels_to_cut(found)))
    chain = cluster(*boards)
    balance = partition(found, chain, devices).balance
    assert balance is not None
    work = sum(rows * each * k for layer in found.layers for rows, each, k in work_of(layer))
    able = sum(
        Fraction(chain.board(device).dsp, chain.board(device).period_ps)
        for device in range(devices)
    )
    assert balance.perfect_ps == pytest.approx(float(work / able))
    assert balance.gap == pytest.approx(balance.slowest_ps / balance.perfect_ps - 1)
    assert balance.gap > -1e-9
    assert balance.coarse >= 0
    assert balance.fine >= 0


@pytest.mark.parametrize("name", zoo())
@pytest.mark.parametrize("devices", [1, 2, 15, 85])
def test_zoo(name: str, devices: int) -> None:
    found, chain = load_network(name), load_cluster(counted())
    mapping = partition(found, chain, devices)
    check_order(found, mapping)
    assert mapping.balance is not None
    assert mapping.balance.slowest_ps == slowest_engine_ps(mapping, chain)


PAPER = ["alexnet", "vgg16", "vgg19"]


@pytest.mark.parametrize(
    ("name", "mean_of_many"), [("alexnet", 0.015), ("vgg16", 0.01), ("vgg19", 0.01)]
)
def test_idle_stages_of_the_paper(name: str, mean_of_many: float) -> None:
    """Always under 5 % from 5 to 85 FPGAs, and 0.5 to 1 % with more than 30 (FPDeep, section
    6.3.3).

    AlexNet misses the 1 %: conv1 has tiles of 121 multipliers, of which an engine gets a dozen.
    """
    found, chain = load_network(name), load_cluster(counted())
    idle = {
        devices: idle_share(partition(found, chain, devices), chain) for devices in range(5, 86, 5)
    }
    assert 0 <= min(idle.values()) <= max(idle.values()) < 0.05
    many = [share for devices, share in idle.items() if devices > 30]
    assert max(many) < 0.02
    assert 0.002 < sum(many) / len(many) < mean_of_many


def test_150_layers_on_1000_devices() -> None:
    """The cut is exact for any number of devices; here no cut could be more than 4 % better."""
    operations: list[Operation] = []
    for channels, count in ((64, 38), (128, 38), (256, 38), (512, 36)):
        operations += [conv(channels, 3, pad=1)] * count + [max_pool(2, 2)]
    found = network((3, 224, 224), *operations, fc(1000))
    assert len(found.layers) == 151
    mapping = partition(found, load_cluster(counted()), 1000)
    check_order(found, mapping)
    assert len(mapping.devices) == 1000
    assert mapping.balance is not None
    assert 0 < mapping.balance.gap < 0.04


@pytest.mark.parametrize("name", PAPER)
def test_large_fully_connected_layers_have_devices_of_their_own(name: str) -> None:
    """The last one of 15 (FPDeep, section 6.3.1)."""
    found, chain = load_network(name), load_cluster(counted())
    assert not partition(found, chain, 1).off_chip_devices
    assert partition(found, chain, 15).off_chip_devices == range(14, 15)
    for devices in (2, 15, 80):
        mapping = partition(found, chain, devices)
        for device, slices in enumerate(mapping.devices):
            assert {part.layer.convolves for part in slices} == {
                device not in mapping.off_chip_devices
            }


@pytest.mark.parametrize("name", ["lenet-mnist", "quick-cifar", "vgg11-cifar", "vgg16-cifar"])
def test_small_fully_connected_layers_have_none(name: str) -> None:
    mapping = partition(load_network(name), load_cluster("vc709"), 4)
    assert not mapping.off_chip_devices
    assert {part.layer.convolves for part in mapping.devices[-1]} == {True, False}


def test_as_many_devices_for_fully_connected_layers_as_keep_them_from_being_the_slowest() -> None:
    """Convolutions of 5·256 multiplier-cycles, and fc of 3·1280, 240 for each of its 16 channels;
    40 multipliers.

    On two boards fc is alone: 3·13 tiles do 1280 convolutions each in 99 cycles. On three it has
    two boards, 8 channels each, 640 / 13 = 50 cycles. On six it needs four, 4 channels each, 320 /
    13 = 25 cycles; on two boards the convolutions take 16, as five engines with 128 convolutions
    and 8 tiles each do.
    """
    found = network((16, 1, 1), conv(16), conv(16), fc(80))
    small, roomy = (
        cluster(board(40, 1, on_chip_memory_bytes=size), link=FAST) for size in (10_000, 20_000)
    )
    assert not partition(found, roomy, 6).off_chip_devices
    for devices, first, slowest_ps in ((2, 1, 99), (3, 1, 50), (6, 2, 25)):
        mapping = partition(found, small, devices)
        assert mapping.off_chip_devices == range(first, devices)
        assert mapping.balance is not None
        assert mapping.balance.slowest_ps == slowest_ps


@pytest.mark.parametrize("devices", [0, -1, 9, 1000])
def test_too_many_devices_or_none(one_line: Callable[..., str], devices: int) -> None:
    """conv: 3 output channels; fc: 3 input channels, and 2 of the next: 8 in all."""
    found = network((1, 2, 2), conv(3), fc(2), fc(2))
    assert len(partition(found, cluster(board(100)), 8).devices) == 8
    with pytest.raises(InputError) as error:
        partition(found, cluster(board(100)), devices)
    line = one_line(error)
    assert f"`devices` = {devices}" in line
    assert "1 to 8" in line


@pytest.mark.parametrize(
    ("dsp", "message"),
    [
        (20, ("`devices` = 1", "at least 21 multipliers", "tiny 20")),
        (17, ("board tiny", "`dsp` = 17", "conv1", "at least 18")),
    ],
)
def test_too_few_multipliers_for_any_cut(
    one_line: Callable[..., str], dsp: int, message: tuple[str, ...]
) -> None:
    found = network((1, 3, 3), conv(2, 3), fc(2))
    with pytest.raises(InputError) as error:
        partition(found, cluster(board(dsp, name="tiny")), 1)
    line = one_line(error)
    assert all(part in line for part in message)
