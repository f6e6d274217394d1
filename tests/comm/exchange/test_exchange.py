"""Replicas exchange gradients: sums in a fixed order to the last bit, and times equal to those of `TimedExchange`.

Coroutines carry out the exchange message by message; `comm/exchange/time.py` works out its times with arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.comm import COMPRESSIBLE_TOS, Interconnect, Mailbox, run
from emuchain.comm.exchange import (
    ORDINARY_TOS,
    Aggregator,
    Channel,
    DataParallel,
    ExchangePhase,
    Gradient,
    GradientExchange,
    GradientFormat,
    GradientMessage,
    Nic,
    TimedExchange,
    TimedMember,
    aggregator,
    exchange_ends_ps,
    exchange_ps,
    exchange_steps,
    histogram,
)
from emuchain.kernels import Arena
from emuchain.kernels.codec import Codec, Inceptionn, NoCodec, Truncation

Kind = Literal["ring", "aggregator"]
SWITCH = Interconnect(10_000, 5_000_000, 1448, 90, 500_000, sum_ps_per_kbyte=120_000)
CHAIN = dataclasses.replace(SWITCH, topology="chain")
interconnects = st.sampled_from([SWITCH, CHAIN, dataclasses.replace(SWITCH, blocking=True)])


@dataclasses.dataclass
class Outcome:
    """The values that each replica has in the end, when it has them in each turn, and its NIC."""

    values: list[Any]
    turns: list[list[int]]
    nics: list[Nic]

    @property
    def times(self) -> list[int]:
        """In the first turn."""
        return [times[0] for times in self.turns]


class Replicas:
    """The exchanges of all replicas, and their aggregator if there is one, among coroutines in this process."""

    def __init__(self, of: DataParallel, interconnect: Interconnect, count: int, with_data: bool) -> None:
        mailboxes: dict[tuple[ExchangePhase, int, int], Mailbox] = {}

        def channels(*ends: Any) -> Channel:
            mailbox = mailboxes.setdefault(ends, Mailbox())
            return Channel(mailbox, mailbox)

        self.nics = [Nic(interconnect, of.codec) for _ in range(of.replicas)]
        self.exchanges = [
            GradientExchange(of, nic, exchange_steps(of, replica, nic, channels))
            for replica, nic in enumerate(self.nics)
        ]
        self.aggregator: Aggregator | None = None
        if of.exchange == "aggregator":
            self.aggregator = aggregator(of, Nic(interconnect, of.codec), count, with_data, channels)
        self._count, self._mailboxes = count, mailboxes

    def run(self, gradients: Any, turns: Sequence[Sequence[int]]) -> Outcome:
        """Exchange gradients in turns, each of which says when the replicas are ready."""
        outcome = Outcome([None] * len(self.nics), [[] for _ in self.nics], self.nics)

        async def take_part(replica: int, exchange: GradientExchange) -> None:
            values = None if gradients is None else gradients[replica].copy()
            for ready_ps in turns:
                outcome.turns[replica].append(await exchange.total(Gradient(self._count, values), ready_ps[replica]))
            outcome.values[replica] = values

        programs = [take_part(replica, exchange) for replica, exchange in enumerate(self.exchanges)]
        run([*programs, *([] if self.aggregator is None else [self.aggregator.serve(len(turns))])])
        assert not any(self._mailboxes.values())
        return outcome

    def state(self) -> list[Any]:
        """The state of all exchanges, and of the aggregator."""
        return [part.state() for part in self._parts]

    def restore(self, state: list[Any]) -> None:
        """Put back what `state` returned."""
        for part, held in zip(self._parts, state, strict=True):
            part.restore(held)

    @property
    def _parts(self) -> list[Any]:
        return [*self.exchanges, *([] if self.aggregator is None else [self.aggregator])]


def carried_out(
    of: DataParallel, interconnect: Interconnect, count: int, gradients: Any, turns: Sequence[Sequence[int]] = ()
) -> Outcome:
    """The exchange of gradients among new replicas; all are ready at time 0, unless `turns` say otherwise."""
    replicas = Replicas(of, interconnect, count, with_data=gradients is not None)
    return replicas.run(gradients, turns or [[0] * of.replicas])


def gradients_of(replicas: int, count: int, seed: int = 0) -> np.ndarray:
    """Values of very different sizes, so that the order of a sum shows."""
    rng = np.random.default_rng(seed)
    exponents = rng.integers(-12, 0, (replicas, count))
    return (rng.standard_normal((replicas, count)) * 2.0**exponents).astype(np.float32)


def in_order(ring: list[np.ndarray], first: int) -> np.ndarray:
    """The sum that begins at a worker and goes on around the ring."""
    total = ring[first].copy()
    for step in range(1, len(ring)):
        total = total + ring[(first + step) % len(ring)]
    return total


@settings(max_examples=60, deadline=None)
@given(replicas=st.integers(1, 9), count=st.integers(1, 60), seed=st.integers(0, 99))
def test_a_ring_sums_each_block_in_the_order_of_the_ring(replicas: int, count: int, seed: int) -> None:
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
def test_an_aggregator_sums_in_the_order_of_the_workers(replicas: int, count: int, interconnect: Interconnect) -> None:
    gradients = gradients_of(replicas, count)
    outcome = carried_out(DataParallel(replicas, exchange="aggregator"), interconnect, count, gradients)
    expected = in_order(list(gradients), 0)
    for values in outcome.values:
        assert values.tobytes() == expected.tobytes()


def test_on_a_chain_the_ring_is_folded() -> None:
    """Workers 0, 1, 2, 3 stand in the ring as 0, 2, 3, 1: so the first block's sum goes on at worker 2."""
    gradients = gradients_of(4, 4)
    outcome = carried_out(DataParallel(4), CHAIN, 4, gradients)
    ring = [gradients[worker] for worker in (0, 2, 3, 1)]
    expected = [in_order([gradient[block : block + 1] for gradient in ring], block) for block in range(4)]
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
    groups: int, members: int, count: int, interconnect: Interconnect, exchange: Kind, codec: Codec, data: st.DataObject
) -> None:
    of = DataParallel(groups * members, groups, exchange, codec)
    ready = data.draw(st.lists(st.integers(0, 10**8), min_size=of.replicas, max_size=of.replicas))
    outcome = carried_out(of, interconnect, count, None, [ready])
    assert outcome.times == exchange_ends_ps(of, interconnect, count, np.array(ready))[0].tolist()


def timed(members: Sequence[TimedMember], count: int, turns: Sequence[Sequence[int]]) -> list[list[int]]:
    """When each member has ended each of its exchanges."""
    found: list[list[int]] = [[] for _ in members]

    async def take_part(replica: int, member: TimedMember) -> None:
        for ready_ps in turns:
            found[replica].append(await member.total(Gradient(count, None), ready_ps[replica]))

    run([take_part(replica, member) for replica, member in enumerate(members)])
    return found


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
    replicas: int, groups: int, count: int, interconnect: Interconnect, exchange: Kind, data: st.DataObject
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
    np.testing.assert_allclose(outcome.values[0], gradients.sum(axis=0, dtype=np.float64), rtol=1e-4, atol=1e-6)
    for values in outcome.values:
        assert values.tobytes() == outcome.values[0].tobytes()


@pytest.mark.parametrize("codec", [Inceptionn(-10), Inceptionn(-6), Truncation(16), Truncation(24)], ids=str)
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
    """A block's sum is cut off once at each of the N - 1 hops of P1, and once more when it is complete."""
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
        outcome = carried_out(DataParallel(4, exchange=exchange, codec=Inceptionn(-10)), SWITCH, 800, zeros)  # type: ignore[arg-type]
        for nic in outcome.nics:
            assert nic.traffic.value_bytes == 4 * sent
            assert nic.traffic.compressed_bytes == sent // 8 * 2
            assert nic.traffic.statistics == {"width_0": sent, "width_8": 0, "width_16": 0, "width_32": 0}
            assert nic.traffic.ratio == 16


def test_time_follows_from_the_compressed_bytes() -> None:
    """With bandwidth alone, a message of a sixteenth of the bytes takes a sixteenth of the time."""
    bare = Interconnect(1_000, 0, engines=dataclasses.replace(SWITCH.engines, clock_period_ps=1))
    zeros = np.zeros((4, 8000), np.float32)
    whole = carried_out(DataParallel(4), bare, 8000, zeros).times[0]
    assert whole == 6 * 8000 * 8000  # 2 (N - 1) blocks of 2,000 values, 8 ns a byte
    assert carried_out(DataParallel(4, codec=Inceptionn(-10)), bare, 8000, zeros).times[0] * 16 == whole
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


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 40), st.sampled_from([0, 0x28]), st.binary(max_size=50))
def test_gradient_messages_pack_and_unpack(ready_ps: int, transfer_ps: int, tos: int, payload: bytes) -> None:
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
    expected = {(0, 0): 1, (0, 40): 2, (1, 40): 1, (0, 1): 1, (1, 1): 1, (0, 41): 1, (1, 41): 1, (0, 39): 1}
    assert {tuple(place): counts[tuple(place)] for place in np.argwhere(counts)} == expected


def test_nothing_is_compressed_where_there_is_no_codec() -> None:
    outcome = carried_out(DataParallel(3, codec=NoCodec()), SWITCH, 10, gradients_of(3, 10))
    assert all(nic.traffic.compressed_bytes == nic.traffic.value_bytes > 0 for nic in outcome.nics)


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
    """The same sums, times and traffic, from the state that exchanges and the aggregator had in between."""
    of = DataParallel(groups * members, groups, exchange, codec)
    turn = st.lists(st.integers(0, 10**7), min_size=of.replicas, max_size=of.replicas)
    before, after = (data.draw(st.lists(turn, min_size=1, max_size=2)) for _ in range(2))
    gradients = gradients_of(of.replicas, count) if with_data else None
    first, second = (Replicas(of, interconnect, count, with_data) for _ in range(2))
    first.run(gradients, before)
    state = first.state()
    expected = first.run(gradients, after)
    second.restore(state)
    assert second.state() == state  # a state does not change with the exchange that it was taken from
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
    groups: int, members: int, count: int, interconnect: Interconnect, exchange: Kind, data: st.DataObject
) -> None:
    of = DataParallel(groups * members, groups, exchange)
    turn = st.lists(st.integers(0, 10**7), min_size=of.replicas, max_size=of.replicas)
    before, after = (data.draw(st.lists(turn, min_size=1, max_size=2)) for _ in range(2))
    shared = [TimedExchange(of, interconnect, count) for _ in range(2)]
    first, second = ([TimedMember(each, replica) for replica in range(of.replicas)] for each in shared)
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
    """With a fresh aggregator, or with exchanges that are all fresh, the next exchange ends earlier."""
    of, at_once = DataParallel(2, exchange=exchange), [[0, 0]]
    first = Replicas(of, SWITCH, 50_000, with_data=False)
    first.run(None, at_once)
    state = first.state()
    expected = first.run(None, at_once).turns

    def found(restored: int) -> list[list[int]]:
        """With the state of the first two, the exchanges, or of these and the aggregator, or of none."""
        fresh = Replicas(of, SWITCH, 50_000, with_data=False)
        fresh.restore([*state[:restored], *fresh.state()[restored:]])
        return fresh.run(None, at_once).turns

    assert found(len(state)) == expected
    for fewer in range(0, len(state), 2):
        assert all(early < late for (early,), (late,) in zip(found(fewer), expected, strict=True))


@pytest.mark.parametrize(("exchange", "name"), [("ring", "done_ps"), ("aggregator", "aggregator_ps")])
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
    assert sum(second.traffic.statistics.values()) == (3 * 50 if isinstance(codec, Inceptionn) else 0)
