"""Every topology: routes and hops, and what the times of an exchange take for granted. By hand for
a chain.
"""

from collections import Counter
from itertools import pairwise

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm import (
    Chain,
    Cycle,
    Hosts,
    Interconnect,
    Switch,
    Topology,
    TopologyError,
    Torus,
    squarest,
    topologies,
)
from emuchain.comm.exchange import broadcast_rounds

ALL = pytest.mark.parametrize(
    "name", [name for name, topology in topologies().items() if topology.joins_boards]
)
NODES = st.integers(2, 60)


def among(name: str, nodes: int) -> Topology:
    """Return a topology by its name, for a number of nodes, which is drawn again where it cannot
    have as many.
    """
    hypothesis.assume(topologies()[name].problem(nodes) is None)
    return Interconnect(1, 1, topology=topologies()[name]).among(nodes).topology


@ALL
@given(nodes=NODES, ends=st.tuples(st.integers(0, 59), st.integers(0, 59)))
def test_a_route_leads_to_the_receiver(name: str, nodes: int, ends: tuple[int, int]) -> None:
    sender, receiver = (end % nodes for end in ends)
    topology = among(name, nodes)
    route = topology.route(sender, receiver)
    if sender == receiver:
        assert route == ()
        return
    assert (route[0][0], route[-1][1]) == (sender, receiver)
    assert all(before[1] == after[0] for before, after in pairwise(route))
    assert len({link[0] for link in route}) == len(route)
    assert topology.hops(sender, receiver) == len(route)
    both = topology.hops(np.array([sender, receiver]), np.array([receiver, sender]))
    assert both.tolist() == [len(route), len(topology.route(receiver, sender))]


@ALL
@given(nodes=NODES)
def test_no_two_messages_of_a_round_share_a_direction_of_a_link(name: str, nodes: int) -> None:
    """Where a tree's do, as on some tori, each knows among how many."""
    topology = among(name, nodes)
    places = topology.ring_places(nodes).tolist()
    assert sorted(places) == list(range(nodes))
    ring = list(zip(places, [*places[1:], places[0]], strict=True))
    for messages in [ring, *broadcast_rounds(nodes)]:
        routes = [topology.route(*ends) for ends in messages]
        load = Counter(link for route in routes for link in route)
        shares = [max(load[link] for link in route) for route in routes]
        assert topology.shares(messages) == shares
        assert max(shares) == 1 or (name == "torus" and messages is not ring)


@given(rows=st.integers(1, 12), columns=st.integers(1, 12))
def test_a_torus_is_walked_in_single_hops(rows: int, columns: int) -> None:
    nodes = rows * columns
    torus = Torus(shape=(rows, columns)).among(nodes)
    if nodes > 1:
        assert {torus.hops(node, (node + 1) % nodes) for node in range(nodes)} == {1}
        assert torus.ring_places(nodes).tolist() == list(range(nodes))
    farthest = max(torus.hops(0, node) for node in range(nodes))
    assert farthest == rows // 2 + columns // 2


@given(nodes=NODES, ends=st.tuples(st.integers(0, 59), st.integers(0, 59)))
def test_a_ring_takes_the_shorter_way(nodes: int, ends: tuple[int, int]) -> None:
    sender, receiver = (end % nodes for end in ends)
    assert Cycle(nodes).hops(sender, receiver) == min(
        (receiver - sender) % nodes, (sender - receiver) % nodes
    )


def test_a_shape_has_as_many_places_as_there_are_nodes() -> None:
    with pytest.raises(TopologyError, match="a torus of 4 x 6 has 24 places"):
        Torus(shape=(4, 6)).among(23)
    assert [squarest(nodes) for nodes in (1, 7, 12, 16, 24)] == [
        (1, 1),
        (1, 7),
        (3, 4),
        (4, 4),
        (4, 6),
    ]


def test_groups_of_a_ring_are_folded() -> None:
    """All nodes of a ring, and leaders all round it, are in their own order; a part of it is a
    chain.
    """
    cycle = Cycle(6)
    assert cycle.ring_places(6).tolist() == [0, 1, 2, 3, 4, 5]
    assert cycle.ring_places(3, [0, 2, 4]).tolist() == [0, 1, 2]
    assert cycle.ring_places(4, [1, 2, 3, 4]).tolist() == [0, 2, 3, 1]


@given(NODES)
def test_a_ring_in_a_chain_is_folded(nodes: int) -> None:
    chain = Chain(nodes)
    places = chain.ring_places(nodes)
    assert chain.hops(places, np.roll(places, 1)).max() <= 2


def test_by_hand() -> None:
    assert Chain().route(1, 4) == ((1, 2), (2, 3), (3, 4))
    assert Chain().route(4, 2) == ((4, 3), (3, 2))
    assert Switch().route(4, 2) == ((4, 2),)
    assert Cycle(6).route(5, 1) == ((5, 0), (0, 1))
    assert Cycle(4).route(0, 2) == ((0, 1), (1, 2))  # of two ways that of rising numbers
    # Two lines of three: 0 1 2 and, walked backwards, 5 4 3.
    assert Torus(shape=(2, 3)).among(6).route(0, 3) == ((0, 2), (2, 3))
    assert Torus(shape=(2, 3)).among(6).route(1, 5) == ((1, 0), (0, 5))
    assert Chain().ring_places(6).tolist() == [0, 2, 4, 5, 3, 1]
    assert Switch().ring_places(3).tolist() == [0, 1, 2]


def test_hosts_by_hand() -> None:
    """Three nodes a host; between hosts a message takes four times as long, and 20 latencies."""
    hosts = Hosts(boards=3, slower=4, latencies=20).among(8)
    assert [hosts.hops(0, other) for other in (1, 2, 3, 7)] == [1, 1, 20, 20]
    assert hosts.hops(np.array([0, 5]), np.array([2, 6])).tolist() == [1, 20]
    # Two leave the first host, three come into the last one.
    messages = [(0, 1), (1, 6), (2, 3), (4, 7), (5, 6), (6, 7)]
    assert hosts.shares(messages) == [1, 12, 8, 12, 12, 1]
    assert hosts.ring_places(8).tolist() == [*range(8)]
    with pytest.raises(ValueError, match="`boards` = 0"):
        Hosts(boards=0)
