"""The cut for the slowest server: engines and links, which may differ, against all cuts; and what a
link takes.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emuchain.emulator.cluster import Cluster, Fpga, Link, load_cluster
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import (
    Mapping,
    Slice,
    can_take,
    partition_with_memory,
    sample_ps,
    streams,
)
from emuchain.emulator.mapping.row import Boundaries, common, merged
from emuchain.emulator.network import Network, load_network
from emuchain.emulator.timing import Timing

from .networks import board, channels_to_cut, check_order, conv, network, networks

LINKS = st.lists(
    st.builds(Link, st.sampled_from([100, 400, 1000, 5000, 40_000]), st.just(0)),
    min_size=1,
    max_size=3,
)


def cut_at(found: Network, cuts: list[int]) -> Mapping:
    """The mapping whose devices end at these boundaries of the row of all channels."""
    row = [
        (layer, c)
        for layer, n in zip(found.layers, channels_to_cut(found), strict=True)
        for c in range(n)
    ]
    devices = []
    for begin, end in itertools.pairwise([0, *cuts, len(row)]):
        held = [
            (layer, [channel for _, channel in channels])
            for layer, channels in itertools.groupby(row[begin:end], key=lambda channel: channel[0])
        ]
        devices.append(tuple(Slice(layer, numbers[0], numbers[-1] + 1) for layer, numbers in held))
    return Mapping(found, tuple(devices))


def of_links(boards: list[Fpga], links: list[Link]) -> Cluster:
    return Cluster("c", tuple(boards), links[0], own_links=tuple(links))


@settings(max_examples=60)
@given(networks(most=5), st.lists(st.builds(board, st.integers(30, 200)), min_size=1, max_size=3), LINKS,
       st.integers(2, 4))  # fmt: skip
def test_no_cut_has_a_faster_slowest_server(
    found: Network, boards: list[Fpga], links: list[Link], devices: int
) -> None:
    """Of all cuts of the row of channels, timed as the simulator times them."""
    cluster, channels = of_links(boards, links), sum(channels_to_cut(found))
    assume(devices <= channels)
    times = []
    for cuts in itertools.combinations(range(1, channels), devices - 1):
        try:
            times.append(Timing.of(cut_at(found, list(cuts)), cluster).interval_ps)
        except InputError:
            continue  # too few multipliers
    if not times:
        with pytest.raises(InputError, match="one tile of kernel size for each engine"):
            partition_with_memory(found, cluster, devices, None)
        assert not can_take(found, cluster, devices, 10**18)
        return
    mapping = partition_with_memory(found, cluster, devices, None)
    check_order(found, mapping)
    assert mapping.balance is not None
    assert mapping.balance.server_ps == min(times)
    assert can_take(found, cluster, devices, min(times))
    assert not can_take(found, cluster, devices, min(times) - 1)
    assert Timing.of(mapping, cluster).interval_ps == min(times)


@pytest.mark.parametrize(
    "link", [Link(777, 5), Link(777, 5, header_bytes=66, packet_bytes=1448)], ids=repr
)
@pytest.mark.parametrize("name", ["quick-cifar", "resnet8-cifar", "inception-cifar", "alexnet"])
def test_a_link_takes_what_its_streams_take(name: str, link: Link) -> None:
    """At every boundary, the layers' begins among them."""
    found = load_network(name)
    taken = Boundaries(found.layers).sample_ps(link)
    channels = sum(channels_to_cut(found))
    assert len(taken) == channels + 1
    step = max(1, channels // 200)
    firsts = itertools.accumulate(channels_to_cut(found))
    for boundary in {*range(1, channels, step), *(first for first in firsts if first < channels)}:
        assert taken[boundary] == sample_ps(link, streams(cut_at(found, [boundary]), 0))


def test_a_slow_link_moves_the_cut() -> None:
    """The middle link of three carries little only behind the pool, so the boards around it part
    there.
    """
    found = network(
        (16, 8, 8), conv(16), conv(16), {"type": "max-pool", "kernel": 8}, conv(16), conv(16)
    )
    boards = [board(64)] * 4
    fast, slow = Link(10_000, 0), Link(10, 0)
    even = partition_with_memory(found, of_links(boards, [fast]), 4, None)
    moved = partition_with_memory(found, of_links(boards, [fast, slow, fast]), 4, None)
    assert even.devices != moved.devices
    assert even.devices[2][0].layer.index < 2 <= moved.devices[2][0].layer.index


def test_vgg16_is_linear_to_100_boards_at_250_gbps() -> None:
    """FPDeep, abstract and section 6.3.3: linear to over 100 FPGAs, where links have at least 250
    Gb/s.
    """
    found, cluster = load_network("vgg16"), load_cluster("vc709", {"link.bandwidth_gbps": 250})
    rate = {}
    for devices in (15, 50, 100):
        balance = partition_with_memory(found, cluster, devices, None).balance
        assert balance is not None
        rate[devices] = 1 / balance.server_ps / devices
    assert rate[50] == pytest.approx(rate[15], rel=0.03)
    assert rate[100] == pytest.approx(rate[15], rel=0.03)


INTERVALS = st.lists(st.integers(0, 60), max_size=12, unique=True).map(
    lambda ends: list(zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False))
)


def members(intervals: list[tuple[int, int]]) -> set[int]:
    return {number for low, high in intervals for number in range(low, high + 1)}


@given(INTERVALS, INTERVALS)
def test_intervals(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    assert members(common(some, others)) == members(some) & members(others)
    joined = merged(sorted(some + others))
    assert members(joined) == members(some) | members(others)
    assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(joined))


@given(networks(), st.integers(1, 10**9))
def test_boundaries_within_a_time(found: Network, time_ps: int) -> None:
    boundaries, link = Boundaries(found.layers), Link(1000, 0)
    expected = set(np.flatnonzero(boundaries.sample_ps(link) <= time_ps).tolist())
    assert members(boundaries.within(link, time_ps)) == expected
