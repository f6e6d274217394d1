"""Replicas that exchange gradients among coroutines of this process, message by message or timed at
once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st

from emuchain.comm import Chain, Interconnect, Mailbox, run
from emuchain.comm.exchange import (
    Channel,
    DataParallel,
    Gradient,
    GradientExchange,
    Nic,
    PlayedNode,
    TimedMember,
    aggregator,
    exchange_parts,
)

Kind = Literal["ring", "aggregator"]
SWITCH = Interconnect(10_000, 5_000_000, 1448, 90, 500_000, sum_ps_per_kbyte=120_000)
CHAIN = dataclasses.replace(SWITCH, topology=Chain())
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
    """The exchanges of all replicas, and their aggregator if there is one, among coroutines in this
    process.
    """

    def __init__(
        self, of: DataParallel, interconnect: Interconnect, count: int, with_data: bool
    ) -> None:
        mailboxes: dict[tuple[int, int, int], Mailbox] = {}

        def channels(*ends: Any) -> Channel:
            mailbox = mailboxes.setdefault(ends, Mailbox())
            return Channel(mailbox, mailbox)

        self.nics = [Nic(interconnect, of.codec) for _ in range(of.replicas)]
        self.exchanges = [
            GradientExchange(
                of, nic, exchange_parts(of, replica, nic, channels, count if with_data else 0)
            )
            for replica, nic in enumerate(self.nics)
        ]
        self.aggregator: PlayedNode | None = None
        if of.nodes > of.replicas:
            self.aggregator = aggregator(
                of, Nic(interconnect, of.codec), count, with_data, channels
            )
        self._count, self._mailboxes = count, mailboxes

    def run(self, gradients: Any, turns: Sequence[Sequence[int]]) -> Outcome:
        """Exchange gradients in turns, each of which says when the replicas are ready."""
        outcome = Outcome([None] * len(self.nics), [[] for _ in self.nics], self.nics)

        async def take_part(replica: int, exchange: GradientExchange) -> None:
            values = None if gradients is None else gradients[replica].copy()
            for ready_ps in turns:
                outcome.turns[replica].append(
                    await exchange.total(Gradient(self._count, values), ready_ps[replica])
                )
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
    of: DataParallel,
    interconnect: Interconnect,
    count: int,
    gradients: Any,
    turns: Sequence[Sequence[int]] = (),
) -> Outcome:
    """The exchange of gradients among new replicas; all are ready at time 0, unless `turns` say
    otherwise.
    """
    replicas = Replicas(of, interconnect, count, with_data=gradients is not None)
    return replicas.run(gradients, turns or [[0] * of.replicas])


def gradients_of(replicas: int, count: int, seed: int = 0) -> np.ndarray:
    """Values of very different sizes, so that the order of a sum shows."""
    rng = np.random.default_rng(seed)
    exponents = rng.integers(-12, 0, (replicas, count))
    return (rng.standard_normal((replicas, count)) * 2.0**exponents).astype(np.float32)


def timed(
    members: Sequence[TimedMember], count: int, turns: Sequence[Sequence[int]]
) -> list[list[int]]:
    """When each member has ended each of its exchanges."""
    found: list[list[int]] = [[] for _ in members]

    async def take_part(replica: int, member: TimedMember) -> None:
        for ready_ps in turns:
            found[replica].append(await member.total(Gradient(count, None), ready_ps[replica]))

    run([take_part(replica, member) for replica, member in enumerate(members)])
    return found
