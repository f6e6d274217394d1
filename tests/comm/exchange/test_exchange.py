"""Replicas exchange gradients: sums in a fixed order to the last bit, and times equal to those of
`TimedExchange`.

Coroutines carry out the exchange message by message; `comm/exchange/time.py` works out its times
with arrays.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.comm import COMPRESSIBLE_TOS, Interconnect
from emuchain.comm.exchange import (
    ORDINARY_TOS,
    DataParallel,
    Gradient,
    GradientFormat,
    GradientMessage,
    Nic,
    TimedExchange,
    TimedMember,
    exchange_ends_ps,
    exchange_ps,
    histogram,
)
from emuchain.kernels import Arena
from emuchain.kernels.codec import Codec, Inceptionn, NoCodec
from emuchain.papers.inceptionn.truncation import Truncation

from .replicas import CHAIN, SWITCH, Kind, carried_out, gradients_of, interconnects, timed


def in_order(ring: list[np.ndarray], first: int) -> np.ndarray:
    """The sum that begins at a worker and goes on around the ring."""
    total = ring[first].copy()
    for step in range(1, len(ring)):
        total = total + ring[(first + step) % len(ring)]
    return total


@settings(max_examples=60, deadline=None)
@given(replicas=st.integers(1, 9), count=st.integers(1, 60), seed=st.integers(0, 99))
def test_a_ring_sums_each_block_in_the_order_of_the_ring(
    replicas: int, count: int, seed: int
) -> None:
    gradients = gradients_of(replicas, count, seed)
    outcome = carried_out(DataParallel(replicas), SWITCH, count, gradients)
    sizes = [count // replicas + (block < count % replicas) for block in range(replicas)]
    bounds = np.cumsum([0, *sizes])
    expected = np.concatenate(
        [
            in_order([gradient[bounds[block] : bounds[block + 1]] for gradient in gradients], block)
            for block in range(replicas)
        ]
    )
    for values in outcome.values:
        assert values.tobytes() == expected.tobytes()


@settings(max_examples=30, deadline=None)
@given(replicas=st.integers(1, 9), count=st.integers(1, 60), interconnect=interconnects)
def test_an_aggregator_sums_in_the_order_of_the_workers(
    replicas: int, count: int, interconnect: Interconnect
) -> None:
    gradients = gradients_of(replicas, count)
    outcome = carried_out(
        DataParallel(replicas, exchange="aggregator"), interconnect, count, gradients
    )
    expected = in_order(list(gradients), 0)
    for values in outcome.values:
        assert values.tobytes() == expected.tobytes()


def test_on_a_chain_the_ring_is_folded() -> None:
    """Workers 0, 1, 2, 3 stand in the ring as 0, 2, 3, 1: so the first block's sum goes on at
    worker 2.
    """
    gradients = gradients_of(4, 4)
    outcome = carried_out(DataParallel(4), CHAIN, 4, gradients)
    ring = [gradients[worker] for worker in (0, 2, 3, 1)]
    expected = [
        in_order([gradient[block : block + 1] for gradient in ring], block) for block in range(4)
    ]
    assert outcome.values[0].tobytes() == np.concatenate(expected).tobytes()


@settings(max_examples=100, deadline=None)
@given(
    groups=st.integers(1, 4),
    members=st.integers(1, 5),
    count=st.integers(1, 5000),
    interconnect=interconnects,
    exchange=st.sampled_from(["ring", "aggregator"]),
    codec=st.sampled_from([NoCodec(), Truncation(22), Inceptionn(-10)]),
    data=st.data(),
)
def test_messages_take_as_long_as_worked_out(
    groups: int,
    members: int,
    count: int,
    interconnect: Interconnect,
    exchange: Kind,
    codec: Codec,
    data: st.DataObject,
) -> None:
    of = DataParallel(groups * members, groups, exchange, codec)
    ready = data.draw(st.lists(st.integers(0, 10**8), min_size=of.replicas, max_size=of.replicas))
    outcome = carried_out(of, interconnect, count, None, [ready])
    assert outcome.times == exchange_ends_ps(of, interconnect, count, np.array(ready))[0].tolist()


@settings(max_examples=30, deadline=None)
@given(
    replicas=st.integers(1, 6),
    groups=st.integers(1, 3),
    count=st.integers(1, 2000),
    interconnect=interconnects,
    exchange=st.sampled_from(["ring", "aggregator"]),
    data=st.data(),
)
def test_one_exchange_after_another_takes_as_long_as_worked_out(
    replicas: int,
    groups: int,
    count: int,
    interconnect: Interconnect,
    exchange: Kind,
    data: st.DataObject,
) -> None:
    """Also where replicas are ready again before the last exchange has ended."""
    of = DataParallel(groups * replicas, groups, exchange)
    turns = [[data.draw(st.integers(0, 10**7)) for _ in range(of.replicas)] for _ in range(3)]
    exchange_of_all = TimedExchange(of, interconnect, count)
    members = [TimedMember(exchange_of_all, replica) for replica in range(of.replicas)]
    assert timed(members, count, turns) == carried_out(of, interconnect, count, None, turns).turns


@pytest.mark.parametrize("exchange", ["ring", "aggregator"])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_hierarchies_sum_all(groups: int, exchange: Kind) -> None:
    gradients = gradients_of(6, 50)
    outcome = carried_out(DataParallel(6, groups, exchange), SWITCH, 50, gradients)
    np.testing.assert_allclose(
        outcome.values[0], gradients.sum(axis=0, dtype=np.float64), rtol=1e-4, atol=1e-6
    )
    for values in outcome.values:
        assert values.tobytes() == outcome.values[0].tobytes()


@pytest.mark.parametrize(
    "codec", [Inceptionn(-10), Inceptionn(-6), Truncation(16), Truncation(24)], ids=str
)
@pytest.mark.parametrize("exchange", ["ring", "aggregator"])
@pytest.mark.parametrize("groups", [1, 2])
def test_replicas_stay_alike_with_a_codec(groups: int, exchange: Kind, codec: Codec) -> None:
    gradients = gradients_of(4, 100) / 4
    outcome = carried_out(DataParallel(4, groups, exchange, codec), SWITCH, 100, gradients)
    exact = carried_out(DataParallel(4, groups, exchange), SWITCH, 100, gradients)
    assert outcome.values[0].tobytes() != exact.values[0].tobytes()
    for values in outcome.values:
        assert values.tobytes() == outcome.values[0].tobytes()


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_partial_sums_are_compressed_at_every_hop(workers: int) -> None:
    """A block's sum is cut off once at each of the N - 1 hops of P1, and once more when it is
    complete.
    """
    codec, gradients = Truncation(16), gradients_of(workers, workers)
    outcome = carried_out(DataParallel(workers, codec=codec), SWITCH, workers, gradients)

    def cut(value: np.ndarray) -> np.ndarray:
        return (value.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)

    for block in range(workers):
        total = gradients[block, block : block + 1].copy()
        for step in range(1, workers):
            total = cut(total) + gradients[(block + step) % workers, block : block + 1]
        assert outcome.values[0][block] == cut(total)


def test_errors_stay_within_the_bound_times_the_hops() -> None:
    gradients = gradients_of(4, 4000) / 8
    outcome = carried_out(DataParallel(4, codec=Inceptionn(-8)), SWITCH, 4000, gradients)
    errors = np.abs(outcome.values[0] - gradients.sum(axis=0, dtype=np.float64))
    assert 2.0**-8 < errors.max() < 4 * 2.0**-8 + 1e-6


def test_the_aggregator_compresses_one_phase_and_a_ring_both() -> None:
    """Zero gradients become tags: 2 bytes for 8 values. Weights are not compressed."""
    zeros = np.zeros((4, 800), np.float32)
    for exchange, sent in (("ring", 6 * 200), ("aggregator", 800)):
        outcome = carried_out(
            DataParallel(4, exchange=exchange, codec=Inceptionn(-10)), SWITCH, 800, zeros
        )  # type: ignore[arg-type]
        for nic in outcome.nics:
            assert nic.traffic.value_bytes == 4 * sent
            assert nic.traffic.compressed_bytes == sent // 8 * 2
            assert nic.traffic.statistics == {
                "width_0": sent,
                "width_8": 0,
                "width_16": 0,
                "width_32": 0,
            }
            assert nic.traffic.ratio == 16


def test_time_follows_from_the_compressed_bytes() -> None:
    """With bandwidth alone, a message of a sixteenth of the bytes takes a sixteenth of the time."""
    bare = Interconnect(1_000, 0, engines=dataclasses.replace(SWITCH.engines, clock_period_ps=1))
    zeros = np.zeros((4, 8000), np.float32)
    whole = carried_out(DataParallel(4), bare, 8000, zeros).times[0]
    assert whole == 6 * 8000 * 8000  # 2 (N - 1) blocks of 2,000 values, 8 ns a byte
    assert (
        carried_out(DataParallel(4, codec=Inceptionn(-10)), bare, 8000, zeros).times[0] * 16
        == whole
    )
    assert exchange_ps(DataParallel(4, codec=Inceptionn(-10), ratio=16), bare, 8000) * 16 == whole


def test_a_tos_decides_on_compression() -> None:
    nic = Nic(SWITCH, Inceptionn(-10))
    gradient = Gradient(8, np.full(8, 2.0**-12, np.float32))
    ordinary, marked = (nic.pack(gradient, tos) for tos in (ORDINARY_TOS, COMPRESSIBLE_TOS))
    assert ordinary.payload is not None and marked.payload is not None
    assert (ordinary.payload.nbytes, marked.payload.nbytes) == (32, 2)
    assert np.array_equal(nic.open(ordinary, 8), gradient.values)  # type: ignore[arg-type]  # there are values
    assert not np.any(nic.open(marked, 8))
    assert nic.traffic.value_bytes == 32


@given(
    st.integers(0, 1 << 62),
    st.integers(0, 1 << 40),
    st.sampled_from([0, 0x28]),
    st.binary(max_size=50),
)
def test_gradient_messages_pack_and_unpack(
    ready_ps: int, transfer_ps: int, tos: int, payload: bytes
) -> None:
    form, arena = GradientFormat(), Arena()
    for held in (np.frombuffer(payload, np.uint8), None):
        packed = form.pack(GradientMessage(ready_ps, transfer_ps, tos, held), arena)
        assert packed.nbytes <= form.bytes_of(50)
        found = form.unpack(packed)
        assert (found.ready_ps, found.transfer_ps, found.tos) == (ready_ps, transfer_ps, tos)
        assert (found.payload is None) == (held is None)
        assert held is None or found.payload.tobytes() == payload  # type: ignore[union-attr]


def test_histogram_counts_by_sign_and_power_of_two() -> None:
    values = np.array([0, 0.5, 0.75, -0.5, 2.0**-40, -(2.0**-60), 1, -3, 0.3], np.float32)
    counts = histogram(values)
    assert counts.sum() == len(values)
    expected = {
        (0, 0): 1,
        (0, 40): 2,
        (1, 40): 1,
        (0, 1): 1,
        (1, 1): 1,
        (0, 41): 1,
        (1, 41): 1,
        (0, 39): 1,
    }
    assert {tuple(place): counts[tuple(place)] for place in np.argwhere(counts)} == expected


def test_nothing_is_compressed_where_there_is_no_codec() -> None:
    outcome = carried_out(DataParallel(3, codec=NoCodec()), SWITCH, 10, gradients_of(3, 10))
    assert all(nic.traffic.compressed_bytes == nic.traffic.value_bytes > 0 for nic in outcome.nics)
