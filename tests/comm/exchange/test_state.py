"""Exchanges, NICs and timed exchanges go on from a restored state as those did from which it was
taken.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.comm import COMPRESSIBLE_TOS, Interconnect
from emuchain.comm.exchange import (
    ORDINARY_TOS,
    DataParallel,
    Gradient,
    Nic,
    TimedExchange,
    TimedMember,
)
from emuchain.kernels.codec import Codec, Inceptionn, NoCodec
from emuchain.papers.inceptionn.truncation import Truncation

from .replicas import SWITCH, Kind, Replicas, gradients_of, interconnects, timed


@settings(max_examples=40, deadline=None)
@given(
    groups=st.integers(1, 3),
    members=st.integers(1, 4),
    count=st.integers(1, 500),
    interconnect=interconnects,
    exchange=st.sampled_from(["ring", "aggregator"]),
    codec=st.sampled_from([NoCodec(), Truncation(22), Inceptionn(-10)]),
    with_data=st.booleans(),
    data=st.data(),
)
def test_restored_exchanges_go_on_as_those_before(
    groups: int,
    members: int,
    count: int,
    interconnect: Interconnect,
    exchange: Kind,
    codec: Codec,
    with_data: bool,
    data: st.DataObject,
) -> None:
    """The same sums, times and traffic, from the state that exchanges and the aggregator had in
    between.
    """
    of = DataParallel(groups * members, groups, exchange, codec)
    turn = st.lists(st.integers(0, 10**7), min_size=of.replicas, max_size=of.replicas)
    before, after = (data.draw(st.lists(turn, min_size=1, max_size=2)) for _ in range(2))
    gradients = gradients_of(of.replicas, count) if with_data else None
    first, second = (Replicas(of, interconnect, count, with_data) for _ in range(2))
    first.run(gradients, before)
    state = first.state()
    expected = first.run(gradients, after)
    second.restore(state)
    assert (
        second.state() == state
    )  # a state does not change with the exchange that it was taken from
    found = second.run(gradients, after)
    assert found.turns == expected.turns
    assert [values is not None and values.tobytes() for values in found.values] == [
        values is not None and values.tobytes() for values in expected.values
    ]
    assert second.state() == first.state()
    assert [own.spent_ps for own in second.exchanges] == [own.spent_ps for own in first.exchanges]
    assert [nic.traffic for nic in second.nics] == [nic.traffic for nic in first.nics]


@settings(max_examples=40, deadline=None)
@given(
    groups=st.integers(1, 3),
    members=st.integers(1, 4),
    count=st.integers(1, 500),
    interconnect=interconnects,
    exchange=st.sampled_from(["ring", "aggregator"]),
    data=st.data(),
)
def test_restored_members_of_a_timed_exchange_go_on_as_those_before(
    groups: int,
    members: int,
    count: int,
    interconnect: Interconnect,
    exchange: Kind,
    data: st.DataObject,
) -> None:
    of = DataParallel(groups * members, groups, exchange)
    turn = st.lists(st.integers(0, 10**7), min_size=of.replicas, max_size=of.replicas)
    before, after = (data.draw(st.lists(turn, min_size=1, max_size=2)) for _ in range(2))
    shared = [TimedExchange(of, interconnect, count) for _ in range(2)]
    first, second = (
        [TimedMember(each, replica) for replica in range(of.replicas)] for each in shared
    )
    timed(first, count, before)
    states = [member.state() for member in first]
    expected = timed(first, count, after)
    for member, state in zip(second, states, strict=True):
        member.restore(state)
    assert [member.state() for member in second] == states
    assert timed(second, count, after) == expected
    assert [member.state() for member in second] == [member.state() for member in first]
    assert [member.spent_ps for member in second] == [member.spent_ps for member in first]
    assert shared[1].aggregator_ps == shared[0].aggregator_ps


@pytest.mark.parametrize("exchange", ["ring", "aggregator"])
def test_exchanges_and_aggregator_both_need_their_state(exchange: Kind) -> None:
    """With a fresh aggregator, or with exchanges that are all fresh, the next exchange ends
    earlier.
    """
    of, at_once = DataParallel(2, exchange=exchange), [[0, 0]]
    first = Replicas(of, SWITCH, 50_000, with_data=False)
    first.run(None, at_once)
    state = first.state()
    expected = first.run(None, at_once).turns

    def found(restored: int) -> list[list[int]]:
        """With the state of the first two, the exchanges, or of these and the aggregator, or of
        none.
        """
        fresh = Replicas(of, SWITCH, 50_000, with_data=False)
        fresh.restore([*state[:restored], *fresh.state()[restored:]])
        return fresh.run(None, at_once).turns

    assert found(len(state)) == expected
    for fewer in range(0, len(state), 2):
        assert all(early < late for (early,), (late,) in zip(found(fewer), expected, strict=True))


@pytest.mark.parametrize(
    ("exchange", "name"), [("ring", "done_ps"), ("aggregator", "aggregator_ps")]
)
def test_timed_exchanges_and_their_members_need_their_state(exchange: Kind, name: str) -> None:
    """Without the end of the last exchange, or the aggregator's, the next exchange ends earlier."""
    of, at_once = DataParallel(2, exchange=exchange), [[0, 0]]
    shared = TimedExchange(of, SWITCH, 50_000)
    first = [TimedMember(shared, replica) for replica in range(2)]
    timed(first, 50_000, at_once)
    states = [member.state() for member in first]
    expected = timed(first, 50_000, at_once)

    def found(**others: int) -> list[list[int]]:
        anew = TimedExchange(of, SWITCH, 50_000)
        fresh = [TimedMember(anew, replica) for replica in range(2)]
        for member, state in zip(fresh, states, strict=True):
            member.restore({**state, **others})
        return timed(fresh, 50_000, at_once)

    assert found() == expected
    assert all(early < late for (early,), (late,) in zip(found(**{name: 0}), expected, strict=True))


@pytest.mark.parametrize("codec", [NoCodec(), Truncation(22), Inceptionn(-10)], ids=str)
def test_a_restored_nic_counts_on(codec: Codec) -> None:
    """Also where it has counted something else before."""
    gradients = [Gradient(50, values) for values in gradients_of(3, 50)]
    first, second = Nic(SWITCH, codec), Nic(SWITCH, codec)
    first.pack(gradients[0], COMPRESSIBLE_TOS)
    second.pack(gradients[1], COMPRESSIBLE_TOS, copies=3)
    state = first.state()
    for nic in (first, second):
        if nic is second:
            nic.restore(state)
            assert nic.state() == state
        nic.pack(gradients[1], ORDINARY_TOS)
        nic.pack(gradients[2], COMPRESSIBLE_TOS, copies=2)
    assert second.traffic == first.traffic
    assert second.traffic.value_bytes == 3 * 4 * 50
    assert sum(second.traffic.statistics.values()) == (
        3 * 50 if isinstance(codec, Inceptionn) else 0
    )
