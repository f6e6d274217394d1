"""Messages, exchanges and ranks over MPI: these tests run on the ranks themselves, and each
assertion on every rank.

mpiexec -n 4 python -m pytest --with-mpi tests
"""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from emuchain.comm import Format, Interconnect, Mailbox, Message, Pump, Receiver, Sender, run
from emuchain.comm.exchange import (
    Channel,
    DataParallel,
    Gradient,
    GradientExchange,
    GradientFormat,
    Nic,
    aggregator,
    exchange_parts,
    ring_ps,
)
from emuchain.kernels import Arena
from emuchain.kernels.codec import NoCodec, parse_codec
from emuchain.launch import MpiRanks

pytestmark = pytest.mark.mpi(min_size=2)

FORM = Format(channels=3, rows=4, columns=5, with_data=True)


@pytest.fixture
def ranks() -> Iterator[MpiRanks]:
    from mpi4py import MPI

    found = MpiRanks(MPI.COMM_WORLD.Clone())
    yield found
    found.gather(None)
    found.free()


def message(rank: int, first: int, samples: int) -> Message:
    """What a rank sends: numbers that tell sender, sample and place."""
    times = 1000 * rank + np.arange(first * 4, (first + samples) * 4, dtype=np.int64).reshape(
        samples, 4
    )
    data = (
        (10_000 * rank + 60 * first + np.arange(samples * 60))
        .reshape(samples, 4, 5, 3)
        .astype(np.float32)
    )
    return Message(first, times, data)


def test_streams_arrive_whole_and_in_order(ranks: MpiRanks) -> None:
    size, rank, arena = ranks.size, ranks.rank, Arena()
    mailbox, left, right = Mailbox(), (rank - 1) % size, (rank + 1) % size
    receiver = Receiver(ranks.comm, left, 7, FORM, 4, mailbox, arena)
    sender = Sender(ranks.comm, right, 7, FORM, arena)
    spans = [(0, 4), (4, 1), (5, 3), (8, 4), (12, 2)]
    came: list[Message] = []

    async def talk() -> None:
        for first, samples in spans:
            sender.put(message(rank, first, samples))
        for _ in spans:
            came.append(await mailbox.get())

    run([talk()], [sender, receiver, ranks], ranks.settling)
    receiver.close()
    for got, (first, samples) in zip(came, spans, strict=True):
        expected = message(left, first, samples)
        assert got.first == first
        assert np.array_equal(got.times, expected.times)
        assert got.data is not None and np.array_equal(got.data, expected.data)


def test_every_rank_hears_of_all(ranks: MpiRanks) -> None:
    assert ranks.share(ranks.rank**2) == [rank**2 for rank in range(ranks.size)]
    assert ranks.gather(-ranks.rank) == (
        [] if ranks.rank else [-rank for rank in range(ranks.size)]
    )


def test_all_settle_together(ranks: MpiRanks) -> None:
    begun = [0.0]

    async def work() -> None:
        begun[0] = time.monotonic()

    run([work()], [ranks], ranks.settling)
    everyone = ranks.share((begun[0], time.monotonic()))
    assert max(begin for begin, _ in everyone) <= min(end for _, end in everyone), (
        "a rank left before all had begun"
    )


def test_the_first_rank_of_a_machine_goes_first(ranks: MpiRanks) -> None:
    times = []
    ranks.in_turn(lambda: times.append(time.time()))
    everyone = ranks.share(times[0])
    assert everyone[0] == min(everyone)


def test_rank_0_gets_what_others_send(ranks: MpiRanks) -> None:
    heard: list[int] = []
    ranks.on_object = heard.append
    ranks.send_to_root(ranks.rank)
    while ranks.rank == 0 and len(heard) < ranks.size:
        ranks.poll()
    ranks.share(None)
    assert sorted(heard) == ([] if ranks.rank else list(range(ranks.size)))


def gradient_of(rank: int, count: int) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal(count).astype(np.float32) / 64


@pytest.mark.parametrize("exchange", ["ring", "aggregator"])
@pytest.mark.parametrize("codec", ["none", "truncate:16", "inceptionn:-10", "topk:0.25"])
@pytest.mark.parametrize("count", [1, 100, 4097])
def test_replicas_on_ranks_get_the_same_sum(
    ranks: MpiRanks, exchange: str, codec: str, count: int
) -> None:
    of = DataParallel(ranks.size, 1, exchange, parse_codec(codec))  # type: ignore[arg-type]  # one of both words
    wire, arena, pumps, receivers = (
        Interconnect(10_000, 1000),
        Arena(),
        list[Pump](),
        list[Receiver](),
    )
    made: dict[tuple[int, int, int], Channel] = {}

    def channels(phase: int, sender: int, receiver: int) -> Channel:
        """Node N, an aggregator, lives on rank 0."""
        key = phase, sender, receiver
        if key not in made:
            tag, mailbox = (phase * 64 + sender) * 64 + receiver, Mailbox()
            here, there = sender % ranks.size == ranks.rank, receiver % ranks.size == ranks.rank
            outlet: object = mailbox if here and there else None
            if here and not there:
                outlet = Sender(
                    ranks.exchange_comm, receiver % ranks.size, tag, GradientFormat(), arena
                )
                pumps.append(outlet)
            if there and not here:
                most = max(of.codec.largest_bytes(count), 4 * count)
                inlet = Receiver(
                    ranks.exchange_comm,
                    sender % ranks.size,
                    tag,
                    GradientFormat(),
                    most,
                    mailbox,
                    arena,
                )
                receivers.append(inlet)
                pumps.append(inlet)
            made[key] = Channel(outlet, mailbox)
        return made[key]

    nic = Nic(wire, of.codec)
    mine = GradientExchange(of, nic, exchange_parts(of, ranks.rank, nic, channels))
    values, done = gradient_of(ranks.rank, count), [0]

    async def take_part() -> None:
        done[0] = await mine.total(Gradient(count, values), 1000 * ranks.rank)

    programs = [take_part()]
    if exchange == "aggregator" and ranks.rank == 0:
        programs.append(aggregator(of, Nic(wire, of.codec), count, True, channels).serve(1))
    run(programs, [*pumps, ranks], ranks.settling)
    for receiver in receivers:
        receiver.close()
    everyone = ranks.share((values.tobytes(), done[0]))
    assert {held for held, _ in everyone} == {values.tobytes()}, "all replicas stay alike"
    if isinstance(of.codec, NoCodec):
        exact = sum(gradient_of(rank, count).astype(np.float64) for rank in range(ranks.size))
        assert np.abs(values - exact).max() <= 1e-6
        if exchange == "ring":
            ready = 1000 * np.arange(ranks.size, dtype=np.int64)
            assert [ended for _, ended in everyone] == ring_ps(wire, ready, count).tolist()
