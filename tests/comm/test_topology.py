"""Every topology: routes and hops, and what the times of an exchange take for granted. By hand for a chain."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm import Chain, Interconnect, Switch, Topology, topologies
from emuchain.comm.exchange import broadcast_rounds

ALL = pytest.mark.parametrize("name", [*topologies()])
NODES = st.integers(2, 60)


def among(name: str, nodes: int) -> Topology:
    """Return a topology by its name, for a number of nodes."""
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
    topology = among(name, nodes)
    places = topology.ring_places(nodes).tolist()
    assert sorted(places) == list(range(nodes))
    ring = list(zip(places, [*places[1:], places[0]], strict=True))
    for messages in [ring, *broadcast_rounds(nodes)]:
        links = [link for sender, receiver in messages for link in topology.route(sender, receiver)]
        assert len(set(links)) == len(links)


@given(NODES)
def test_a_ring_in_a_chain_is_folded(nodes: int) -> None:
    chain = Chain(nodes)
    places = chain.ring_places(nodes)
    assert chain.hops(places, np.roll(places, 1)).max() <= 2


def test_by_hand() -> None:
    assert Chain().route(1, 4) == ((1, 2), (2, 3), (3, 4))
    assert Chain().route(4, 2) == ((4, 3), (3, 2))
    assert Switch().route(4, 2) == ((4, 2),)
    assert Chain().ring_places(6).tolist() == [0, 2, 4, 5, 3, 1]
    assert Switch().ring_places(3).tolist() == [0, 1, 2]
