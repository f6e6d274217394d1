"""Shedding and placement: what is freed and moved, budgets, one place for everything, and how near
the least it is.
"""

from __future__ import annotations

import functools
import itertools
import random

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from emuchain.emulator.cluster import Cluster, Fpga, Link
from emuchain.emulator.mapping import (
    COPIES,
    BalancedParameters,
    Chain,
    Mapping,
    OffChip,
    ShedBounds,
    Slice,
    SliceNeeds,
    WeightBanks,
    cut_channels,
    parameter_memory,
    partition_with_memory,
    place,
    port_bytes,
    shed,
    slice_needs,
    streams,
)
from emuchain.emulator.mapping.shedding import _best_step
from emuchain.emulator.network import load_network

LAYERS = [
    *load_network("quick-cifar").layers,
    *load_network("vgg11-cifar").layers,
    *load_network("resnet8-cifar").layers,
]


@st.composite
def slices(draw: st.DrawFn, most: int = 512) -> Slice:
    """Some channels of a layer of a network that comes along."""
    layer = draw(st.sampled_from(LAYERS))
    channels = layer.channels if Slice(layer, 0, 1).cut.value == "OCP" else layer.input[0]
    begin = draw(st.integers(0, channels - 1))
    return Slice(layer, begin, min(channels, begin + draw(st.integers(1, most))))


@given(slices(), st.data())
def test_banks_of_weights_are_those_of_the_memories(part: Slice, data: st.DataObject) -> None:
    banks = WeightBanks.of(part)
    channels = data.draw(st.integers(0, part.channels))
    assert banks.of_channels(channels) == (
        COPIES * parameter_memory(part, channels).banks if channels else 0
    )
    available = data.draw(st.integers(0, 10_000))
    most = banks.most_channels(part.channels, available)
    assert banks.of_channels(most) <= available
    assert most == part.channels or banks.of_channels(most + 1) > available


def needs_of(parts: list[Slice], in_flight: int) -> list[SliceNeeds]:
    return [slice_needs(part, in_flight) for part in parts]


def banks_on_chip(needs: list[SliceNeeds], off_chip: tuple[OffChip, ...]) -> int:
    return sum(held.banks_with(off) for held, off in zip(needs, off_chip, strict=True))


@given(
    st.lists(slices(), min_size=1, max_size=5), st.integers(1, 40), st.integers(1, 5000), st.data()
)
def test_what_is_freed_and_what_moves(
    parts: list[Slice], in_flight: int, excess: int, data: st.DataObject
) -> None:
    needs = needs_of(parts, in_flight)
    budget = data.draw(st.one_of(st.just(1 << 62), st.integers(0, 10**8)))
    found = shed(needs, excess, budget)
    assert found.freed == sum(held.banks for held in needs) - banks_on_chip(needs, found.off_chip)
    assert found.moved == sum(
        port_bytes(part, off) for part, off in zip(parts, found.off_chip, strict=True)
    )
    assert found.moved <= budget
    if budget == 1 << 62:
        assert found.freed >= min(excess, sum(held.banks - held.fixed_banks for held in needs))


@given(st.lists(slices(), min_size=1, max_size=5), st.integers(1, 40), st.data())
def test_bounds_say_what_shedding_does(
    parts: list[Slice], in_flight: int, data: st.DataObject
) -> None:
    needs = needs_of(parts, in_flight)
    bounds = functools.reduce(ShedBounds.with_others, map(ShedBounds.of, needs))
    assert bounds.banks == sum(held.banks for held in needs)
    assume(bounds.most_freed > 0)
    excess = data.draw(st.integers(1, bounds.most_freed))
    budget = data.draw(st.one_of(st.integers(0, 2 * bounds.most_moved), st.just(bounds.most_moved)))
    said = bounds.frees(excess, budget)
    event(f"said {said}")
    assert said is None or said == (shed(needs, excess, budget).freed >= excess)


@given(
    st.lists(slices(most=64), min_size=1, max_size=6),
    st.integers(1, 40),
    st.integers(1, 5000),
    st.data(),
)
def test_each_step_is_the_cheapest(
    parts: list[Slice], in_flight: int, excess: int, data: st.DataObject
) -> None:
    """Of those of all slices, of equal ones that of the first slice."""
    needs = needs_of(parts, in_flight)
    budget = data.draw(st.one_of(st.just(1 << 62), st.integers(0, 10**7)))
    off_chip, freed, moved = [OffChip() for _ in needs], 0, 0
    while freed < excess:
        tried = [
            _best_step(place, held, off_chip[place], excess - freed, budget - moved)
            for place, held in enumerate(needs)
        ]
        steps = [step for step in tried if step is not None]
        if not steps:
            break
        step = min(steps, key=lambda step: step.cost)
        off_chip[step.place], freed, moved = step.off_chip, freed + step.freed, moved + step.moved
    assert shed(needs, excess, budget) == (tuple(off_chip), freed, moved)


def least_bytes(needs: list[SliceNeeds], excess: int) -> int:
    """The fewest bytes that free `excess` banks, by trying every set of slices."""
    choices = [
        [
            (held.banks - held.banks_with(off), held.moved_bytes(off))
            for off in (
                OffChip(count, act) for count in range(held.channels + 1) for act in (False, True)
            )
        ]
        for held in needs
    ]
    return min(
        sum(moved for _, moved in found)
        for found in itertools.product(*choices)
        if sum(freed for freed, _ in found) >= excess
    )


@settings(max_examples=60)
@given(slices(most=64), st.integers(1, 30), st.data())
def test_the_fewest_bytes_of_one_slice(part: Slice, in_flight: int, data: st.DataObject) -> None:
    [held] = needs_of([part], in_flight)
    assume(held.banks > held.fixed_banks)
    excess = data.draw(st.integers(1, held.banks - held.fixed_banks))
    assert shed([held], excess).moved == least_bytes([held], excess)


def test_near_the_fewest_bytes_of_two_slices() -> None:
    """Whole Act-RAMs and whole channels make it a knapsack: the greedy choice is exact in most
    cases, not in all.
    """
    source, ratios = random.Random(1), []
    for _ in range(60):
        first = source.randrange(len(LAYERS) - 1)
        needs = []
        for layer in LAYERS[first : first + 2]:
            all_channels = cut_channels(layer)
            channels = min(all_channels, source.randint(8, 40))
            begin = source.randint(0, all_channels - channels)
            needs.append(slice_needs(Slice(layer, begin, begin + channels), source.randint(5, 25)))
        sheddable = sum(held.banks - held.fixed_banks for held in needs)
        if sheddable:
            excess = source.randint(1, sheddable)
            ratios.append(shed(needs, excess).moved / least_bytes(needs, excess))
    ratios.sort()
    assert ratios[0] >= 1
    assert ratios[len(ratios) // 2] == 1
    assert ratios[len(ratios) * 8 // 10] < 1.3


CHAINS = st.tuples(
    st.sampled_from(["quick-cifar", "vgg11-cifar", "resnet8-cifar"]),
    st.integers(1, 9),
    st.integers(100, 2500),
    st.sampled_from([0.1, 1.0, 10.0]),
    st.sampled_from([1_000, 40_000]),
    st.integers(1, 20),
)


@settings(max_examples=40)
@given(CHAINS)
def test_everything_has_one_place(chain: tuple[str, int, int, float, int, int]) -> None:
    name, devices, banks, gbytes_per_s, mbps, in_flight = chain
    network = load_network(name)
    board = Fpga("b", 5000, 2000, banks * 2250, off_chip_gbytes_per_s=gbytes_per_s)
    cluster = Cluster("c", (board,), Link(mbps, 0))
    mapping = partition_with_memory(network, cluster, devices, None)
    links = [streams(mapping, link) for link in range(devices - 1)]
    held = Chain.of(mapping, cluster, links, [in_flight] * devices)
    assert mapping.balance is not None
    base_ps = mapping.balance.server_ps
    alone, found = (place(held, base_ps, balancing=balancing) for balancing in (False, True))
    times = []
    for placement in (alone, found):
        check_places(mapping, placement.blocks, placement.off_chip)
        ports = [
            sum(port_bytes(part, off) for part, off in zip(parts, offs, strict=True))
            for parts, offs in zip(mapping.devices, placement.off_chip, strict=True)
        ]
        carried = [
            count
            + sum(
                b.parameter_bytes
                for b in placement.blocks
                if b.store_device <= link < b.user_device
            )
            for link, count in enumerate(held.link_bytes)
        ]
        for device, (needs, offs) in enumerate(zip(held.needs, placement.off_chip, strict=True)):
            own = 0
            for need, off in zip(needs, offs, strict=True):
                away = [
                    b
                    for b in placement.blocks
                    if b.user_device == device and b.layer == need.part.layer
                ]
                own += need.banks_with(
                    OffChip(off.channels + sum(b.end - b.begin for b in away), off.activations)
                )
            stored = [b.part for b in placement.blocks if b.store_device == device]
            own += sum(WeightBanks.of(part).of_channels(part.channels) for part in stored)
            assert own - placement.missing_banks[device] <= held.rooms[device]
        times.append(
            max(
                base_ps,
                *(count * 10**6 // board.off_chip_mbytes_per_s for count in ports),
                *(8 * 10**6 * count // mbps for count in carried),
            )
        )
    if alone.fits:
        assert found.fits
        assert times[1] <= times[0] * 1.002


def check_places(
    mapping: Mapping, blocks: tuple[BalancedParameters, ...], offs: tuple[tuple[OffChip, ...], ...]
) -> None:
    """No channel is both off chip and on another device, or on two of them."""
    for device, parts in enumerate(mapping.devices):
        for part, off in zip(parts, offs[device], strict=True):
            away = [b for b in blocks if b.user_device == device and b.layer == part.layer]
            channels = [c for b in away for c in range(b.begin, b.end)] + [
                *range(part.end - off.channels, part.end)
            ]
            assert len(set(channels)) == len(channels)
            assert all(part.begin <= channel < part.end for channel in channels)
            assert all(b.store_device < device for b in away)
            assert not (off.activations and away)


@pytest.mark.parametrize("excess", [0, -5])
def test_nothing_moves_without_need(excess: int) -> None:
    [needs] = needs_of([Slice(LAYERS[0], 0, 8)], 3)
    assert shed([needs], excess) == ((OffChip(),), 0, 0)
