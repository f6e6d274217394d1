"""Parameter balancing: every channel has one place, no room is overrun, and links carry no more
than they must.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.mapping import (
    BalancedParameters,
    Balancing,
    Mapping,
    Slice,
    balance,
    balance_evenly,
    channel_bytes,
    partition,
)
from emuchain.emulator.network import Network

from .networks import board, cluster, conv, fc, network


def network_of(channels: Sequence[int]) -> Network:
    """1x1 convolutions with these channels, and a fully connected layer."""
    return network((16, 2, 2), *map(conv, channels), fc(2))


@st.composite
def mappings(draw: st.DrawFn) -> Mapping:
    """Channels on up to eight devices."""
    found = network_of(draw(st.lists(st.sampled_from([16, 17, 24]), min_size=1, max_size=4)))
    return partition(found, cluster(board(10_000, 1)), draw(st.integers(1, 8)))


def kept_bytes(mapping: Mapping, balancing: Balancing, device: int) -> int:
    """Weights and gradients of a device's own slices that no other device stores."""
    own = sum(2 * channel_bytes(part) * part.channels for part in mapping.devices[device])
    return own - 2 * sum(
        block.parameter_bytes for block in balancing.blocks if block.user_device == device
    )


@given(mappings(), st.data())
def test_places(mapping: Mapping, data: st.DataObject) -> None:
    devices = len(mapping.devices)
    rooms = data.draw(st.lists(st.integers(-500, 30_000), min_size=devices, max_size=devices))
    balancing = balance(mapping.devices, rooms)
    for block in balancing.blocks:
        assert block.store_device < block.user_device, "only to the left"
        [part] = [part for part in mapping.devices[block.user_device] if part.layer == block.layer]
        assert part.begin <= block.begin < block.end <= part.end
        assert block.parameter_bytes == (block.end - block.begin) * channel_bytes(part)
    for one, other in itertools.combinations(balancing.blocks, 2):
        same = one.layer == other.layer
        assert not same or one.end <= other.begin or other.end <= one.begin, (
            "no channel is stored twice"
        )
    for device, room in enumerate(rooms):
        stored = 2 * sum(
            block.parameter_bytes for block in balancing.blocks if block.store_device == device
        )
        missing = balancing.shortfall_bytes[device] - max(0, -room)
        assert missing >= 0
        assert stored + kept_bytes(mapping, balancing, device) - missing <= max(0, room)
    assert balancing.fits == (sum(balancing.shortfall_bytes) == 0)


@given(mappings())
def test_with_room_enough_nothing_moves(mapping: Mapping) -> None:
    assert balance(mapping.devices, [10**9] * len(mapping.devices)) == Balancing(
        (), (0,) * len(mapping.devices)
    )


@given(mappings())
def test_without_any_room_all_is_missing(mapping: Mapping) -> None:
    balancing = balance(mapping.devices, [0] * len(mapping.devices))
    assert not balancing.blocks
    weights = sum(
        channel_bytes(part) * part.channels for slices in mapping.devices for part in slices
    )
    assert sum(balancing.shortfall_bytes) == 2 * weights


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6)), min_size=2, max_size=8))
def test_links_carry_the_least_that_they_can(devices: list[tuple[int, int]]) -> None:
    """With channels of one size: link l carries what devices l+1 ... j have no room for, for the j
    with the most.
    """
    [layer] = [layer for layer in network_of([64]).layers if layer.name == "conv1"]
    layer_of = [Slice(layer, 0, count) for count, _ in devices]
    size = 2 * channel_bytes(layer_of[0])
    balancing = balance([[part] for part in layer_of], [room * size for _, room in devices])
    for link in range(len(devices) - 1):
        needed = max(
            sum(count - room for count, room in devices[link + 1 : last])
            for last in range(link + 2, len(devices) + 1)
        )
        if balancing.fits:
            assert 2 * balancing.link_bytes(link) == size * max(0, needed)


def test_by_hand() -> None:
    """Three devices with two channels each; the last has no room, the middle one for three, the
    first for four.
    """
    [layer] = [layer for layer in network_of([64]).layers if layer.name == "conv1"]
    slices = [[Slice(layer, begin, begin + 2)] for begin in (0, 2, 4)]
    size = channel_bytes(slices[0][0])
    assert size == 64 * 4
    balancing = balance(slices, [2 * 4 * size, 2 * 3 * size, 0])
    assert balancing.fits
    to_middle, to_first = (
        BalancedParameters(layer, 4, 5, 2, 1, size),
        BalancedParameters(layer, 5, 6, 2, 0, size),
    )
    assert balancing.blocks == (to_middle, to_first)
    assert [balancing.link_bytes(link) for link in (0, 1)] == [size, 2 * size]
    assert [balancing.balanced_channels(slices[2][0], device) for device in (1, 2)] == [0, 2]
    short = balance(slices, [2 * 2 * size, 2 * 2 * size, 2 * size - 1])
    assert short.shortfall_bytes == (0, 0, 2 * 2 * size)
    assert balance(slices, [0, 10**6, 10**6]).shortfall_bytes == (2 * 2 * size, 0, 0), (
        "never to the right"
    )


@given(mappings(), st.integers(0, 30_000))
def test_evenly_is_as_low_as_can_be(mapping: Mapping, spare: int) -> None:
    """One byte less for the fullest, and something has no place."""
    devices = len(mapping.devices)
    capacities = [spare + 20_000] * devices
    rooms = [spare + 100 * device for device in range(devices)]
    balancing = balance_evenly(mapping.devices, rooms, capacities)
    assert balancing.fits == balance(mapping.devices, rooms).fits
    if not balancing.fits:
        return
    held = []
    for device, (room, capacity) in enumerate(zip(rooms, capacities, strict=True)):
        stored = 2 * sum(
            block.parameter_bytes for block in balancing.blocks if block.store_device == device
        )
        held.append(capacity - room + stored + kept_bytes(mapping, balancing, device))
    level = max(held) - 1
    lower = [
        room - max(0, capacity - level) for room, capacity in zip(rooms, capacities, strict=True)
    ]
    other_buffers = max(capacity - room for room, capacity in zip(rooms, capacities, strict=True))
    assert level < other_buffers or not balance(mapping.devices, lower).fits
