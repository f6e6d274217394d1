"""The time of a message: by hand on 10 Gb/s Ethernet, and what holds for any interconnect."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm import Chain, Interconnect, MessageCost, NicEngines, topologies
from emuchain.comm.interconnect import later

ETHERNET = Interconnect(
    bandwidth_mbps=10_000,
    latency_ps=100_000_000,
    packet_bytes=1448,
    packet_overhead_bytes=90,
    packet_stack_ps=500_000,
    sum_ps_per_kbyte=118_000,
)


@st.composite
def interconnects(draw: st.DrawFn) -> Interconnect:
    """Of any speed, with packets of any size."""
    return Interconnect(
        bandwidth_mbps=draw(st.integers(1, 10**6)),
        latency_ps=draw(st.integers(0, 10**9)),
        packet_bytes=draw(st.integers(1, 10**5)),
        packet_overhead_bytes=draw(st.integers(0, 1000)),
        packet_stack_ps=draw(st.integers(0, 10**7)),
        sum_ps_per_kbyte=draw(st.integers(0, 10**6)),
        engines=NicEngines(draw(st.integers(1, 10**5)), draw(st.sampled_from([64, 256, 512]))),
        topology=draw(st.sampled_from([*topologies().values()])),
    )


BYTES = st.integers(0, 10**8)


def test_by_hand() -> None:
    # 10,000 bytes are 7 packets; with 630 bytes of overhead 85,040 bits at 10 per ns.
    assert ETHERNET.transfer_ps(10_000) == 8_504_000
    # Compressed to 1,000 bytes, 13,040 bits are left, 1,304 ns; the stack's 7 packets of 500 ns
    # take longer.
    assert ETHERNET.transfer_ps(10_000, 1000) == 3_500_000
    assert ETHERNET.transfer_ps(10_000, 6000) == (6000 + 630) * 800
    assert ETHERNET.sum_ps(10_000) == 1_180_000
    assert ETHERNET.transfer_ps(0) == 0


def test_engines_take_a_burst_a_cycle() -> None:
    # 80 values are 10 bursts of 256 bits in; all of them incompressible, groups of 272 bits are 11
    # bursts.
    engines = NicEngines()
    assert engines.time_ps(320, 20) == 100_000
    assert engines.time_ps(320, 340) == 110_000
    assert engines.time_ps(321, 20) == 110_000
    fast = Interconnect(bandwidth_mbps=100_000, latency_ps=0)
    assert (
        fast.transfer_ps(3200, 200) == 1_000_000
    )  # the engines' 25.6 Gb/s; the wire alone would take 16 ns
    assert fast.transfer_ps(3200) == 256_000  # not compressed: past the engines


@given(interconnects(), BYTES, BYTES)
def test_compression_leaves_packets_and_stack(
    interconnect: Interconnect, message_bytes: int, compressed_bytes: int
) -> None:
    packets = -(-message_bytes // interconnect.packet_bytes)
    wire_bytes = packets * interconnect.packet_overhead_bytes + compressed_bytes
    less, taken, more = (
        interconnect.transfer_ps(message_bytes, of)
        for of in (0, compressed_bytes, compressed_bytes + 1)
    )
    assert taken >= packets * interconnect.packet_stack_ps
    assert taken * interconnect.bandwidth_mbps >= 8_000_000 * wire_bytes
    assert less <= taken <= more


@given(interconnects(), BYTES)
def test_engines_never_slow_down_a_wire_that_is_slower(
    interconnect: Interconnect, message_bytes: int
) -> None:
    slow = dataclasses.replace(interconnect, bandwidth_mbps=1, engines=NicEngines())
    assert slow.transfer_ps(message_bytes, message_bytes) == slow.transfer_ps(message_bytes)


@given(interconnects(), st.lists(st.tuples(BYTES, BYTES), min_size=1, max_size=5))
def test_arrays_are_messages_one_by_one(
    interconnect: Interconnect, messages: list[tuple[int, int]]
) -> None:
    sizes, compressed_sizes = np.array(messages).T
    each = [interconnect.transfer_ps(size, compressed) for size, compressed in messages]
    assert interconnect.transfer_ps(sizes, compressed_sizes).tolist() == each
    assert interconnect.transfer_ps(sizes).tolist() == [
        interconnect.transfer_ps(size) for size, _ in messages
    ]
    assert interconnect.sum_ps(sizes).tolist() == [
        interconnect.sum_ps(size) for size, _ in messages
    ]
    assert all(type(time) is int for time in each)


STEPPED = MessageCost(((64, 5_000), (1024, 9_000), (1025, 60_000), (4096, 40_000)))


def test_costs_by_hand() -> None:
    """Straight lines between points, as the first and the last one beyond; none for no message."""
    sizes = [0, 1, 64, 544, 1024, 1025, 4096, 10**9]
    costs = [0, 5_000, 5_000, 7_000, 9_000, 60_000, 40_000, 40_000]
    assert [STEPPED.ps(size) for size in sizes] == costs
    assert STEPPED.ps(np.array([sizes, sizes])).tolist() == [costs, costs]
    assert STEPPED.times(0.5).ps(1025) == 30_000
    dear = dataclasses.replace(ETHERNET, cost=STEPPED)
    assert dear.transfer_ps(1025) - ETHERNET.transfer_ps(1025) == 60_000
    # Of what is sent: compressed, it is below the step.
    assert dear.transfer_ps(1025, 544) - ETHERNET.transfer_ps(1025, 544) == 7_000


def test_hops() -> None:
    chain = dataclasses.replace(ETHERNET, topology=Chain())
    assert [chain.hops(2, other) for other in (0, 1, 3, 7)] == [2, 1, 1, 5]
    assert [ETHERNET.hops(2, other) for other in (0, 1, 3, 7)] == [1, 1, 1, 1]
    assert ETHERNET.hops(np.array([0, 5]), np.array([5, 1])).tolist() == [1, 1]


def test_later() -> None:
    assert later(3, 5, 4) == 5
    assert later(np.array([1, 9]), np.array([2, 3])).tolist() == [2, 9]


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ETHERNET.latency_ps = 0  # type: ignore[misc]
