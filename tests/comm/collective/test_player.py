"""Times of collectives: closed forms, those of INCEPTIONN's exchanges, and what costs at ends
add.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from emuchain.comm import EndCosts, Interconnect, TopologyError, squarest, topologies
from emuchain.comm.collective import (
    check,
    collective_ends_ps,
    collective_of,
    laid,
    piece_bounds,
)
from emuchain.comm.exchange import aggregator_ps, hierarchy_ps
from emuchain.comm.exchange.time import ring_of_nodes_ps

ALPHA, KBYTE = 1_000_000, 8000
LINKS = Interconnect(1_000_000, ALPHA)
"""1 Tb/s: 1,000 bytes take 8,000 ps."""


def ends_of(name: str, ranks: int, size: int, over: Interconnect = LINKS, ready: Any = None) -> Any:
    """When each rank ends a collective of some bytes."""
    collective = collective_of(name)
    among = over.among(collective.nodes(ranks))
    phases = laid(check(collective, ranks, among.topology), among.topology)
    begins = np.zeros(collective.nodes(ranks), np.int64)
    begins[:ranks] = 0 if ready is None else ready
    blocks = collective.goal.is_in_blocks

    def bounds(pieces: int) -> list[int]:
        return (
            [size * piece for piece in range(pieces + 1)] if blocks else piece_bounds(size, pieces)
        )

    return collective_ends_ps(phases, among, begins, bounds)[:ranks]


def log2_of(ranks: int) -> int:
    return (ranks - 1).bit_length()


# In alpha, and in transfers of 840 kB: closed forms on equal links of a switch.
FORMS = {
    "ring": lambda p: (2 * (p - 1), 2 * (p - 1) / p),
    "ring-reduce-scatter": lambda p: (p - 1, (p - 1) / p),
    "ring-allgather": lambda p: (p - 1, p - 1),
    "binomial-broadcast": lambda p: (log2_of(p), log2_of(p)),
    "binomial-reduce": lambda p: (log2_of(p), log2_of(p)),
    "tree": lambda p: (2 * log2_of(p), 2 * log2_of(p)),
    "linear-broadcast": lambda p: (1, p - 1),
    "linear-reduce": lambda p: (1, p - 1),
    "linear": lambda p: (2, 2 * (p - 1)),
    "linear-gather": lambda p: (1, p - 1),
    "linear-scatter": lambda p: (1, p - 1),
    "doubling": lambda p: (log2_of(p), log2_of(p)),
    "halving-doubling": lambda p: (2 * log2_of(p), 2 * (p - 1) / p),
    "switch": lambda p: (2, 2),
    "alltoall-in-pairs": lambda p: (1, p - 1),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_closed_forms(name: str, ranks: int) -> None:
    starts, transfers = FORMS[name](ranks)
    found = int(ends_of(name, ranks, 840_000).max())
    assert found == round(starts * ALPHA + transfers * 840 * KBYTE)


def test_in_order_all_meet_at_rank_0() -> None:
    """Of 8 ranks the last message comes behind 2 p - 4 others."""
    assert int(ends_of("alltoall-in-order", 8, 1_000_000).max()) == ALPHA + 13 * 1000 * KBYTE


@given(
    ranks=st.integers(2, 12),
    topology=st.sampled_from(["switch", "chain", "ring", "torus"]),
    values=st.integers(1, 3000),
    blocking=st.booleans(),
    data=st.data(),
)
def test_inceptionns_exchanges_take_the_times_of_their_collectives(
    ranks: int, topology: str, values: int, blocking: bool, data: st.DataObject
) -> None:
    ready = np.array(data.draw(st.lists(st.integers(0, 10**8), min_size=ranks, max_size=ranks)))
    over = Interconnect(
        10_000,
        ALPHA,
        4096,
        78,
        blocking=blocking,
        sum_ps_per_kbyte=100,
        topology=topologies()[topology],
    )
    try:
        among, beside = over.among(ranks), over.among(ranks + 1)
    except TopologyError:
        assume(False)
    groups = ready.reshape(squarest(ranks)[0], -1)
    expected = {
        "ring": ring_of_nodes_ps(among, ready, values),
        "aggregator": aggregator_ps(beside, ready, values),
        "rings": hierarchy_ps(among, groups, values, "ring").reshape(-1),
        "rings-aggregator": hierarchy_ps(beside, groups, values, "aggregator").reshape(-1),
    }
    for name, times in expected.items():
        collective = collective_of(name)
        wires = over.among(collective.nodes(ranks))
        begins = np.append(ready, [0] * (collective.nodes(ranks) - ranks))
        phases = laid(check(collective, ranks, wires.topology), wires.topology)
        found = collective_ends_ps(
            phases, wires, begins, lambda pieces: [4 * at for at in piece_bounds(values, pieces)]
        )
        assert found[:ranks].tolist() == times.tolist(), name


def test_costs_of_ends() -> None:
    """A root that sends to 3 is held up 3 times; one that receives from 3 copies one by one."""
    costs = EndCosts(send_ps=100, receive_ps=500, copy_ps_per_kbyte=KBYTE, sum_ps=7)
    over = dataclasses.replace(LINKS, ends=costs)
    sent = int(ends_of("linear-broadcast", 4, 1000, over).max())
    assert sent == 3 * (100 + KBYTE) + ALPHA + 500 + KBYTE
    received = int(ends_of("linear-gather", 4, 1000, over).max())
    assert received == 100 + ALPHA + KBYTE + 3 * (500 + KBYTE)
    plain = dataclasses.replace(LINKS, ends=EndCosts(sum_ps=7))
    assert int(ends_of("linear-reduce", 4, 1000, plain).max()) == ALPHA + 3 * KBYTE + 7


def test_above_some_bytes_ends_agree_one_by_one() -> None:
    over = dataclasses.replace(LINKS, ends=EndCosts(turn_bytes=1000))
    assert int(ends_of("linear-gather", 4, 1000, over).max()) == ALPHA + 3 * KBYTE
    assert int(ends_of("linear-gather", 4, 2000, over).max()) == 3 * (ALPHA + 2 * KBYTE)


@given(ranks=st.sampled_from([2, 4, 8]), late=st.integers(0, 10**8), size=st.integers(1, 10**6))
def test_no_collective_is_faster_where_a_rank_is_late(ranks: int, late: int, size: int) -> None:
    for name in FORMS:
        ready = np.zeros(ranks, np.int64)
        ready[-1] = late
        assert ends_of(name, ranks, size, ready=ready).max() >= max(
            late, int(ends_of(name, ranks, size).max())
        )
