"""Times of collectives beside an event simulation on SimPy, which knows neither rounds that are
gone through in order nor maxima: ports, kernels and messages are processes that wait for events.

    sender      data there? [send][== transfer ==]          next message
    in port               sent?  . latency . [== transfer ==]   next one
    kernel                                     arrived? [receive, copy]   next one
    piece                                                 received, own there? [sum]
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emuchain.comm import EndCosts, Interconnect, TopologyError, topologies
from emuchain.comm.collective import (
    CollectiveError,
    LaidPhase,
    Step,
    Way,
    check,
    collective_ends_ps,
    collective_of,
    collectives,
    laid,
    piece_bounds,
)

simpy = pytest.importorskip("simpy")

PLAIN = [
    name
    for name in collectives()
    if all(
        step.way in (Way.PLAIN, Way.AT_A_PORT_OF_ITS_OWN)
        for phase in collective_of(name).phases(4)
        for steps in phase.rounds
        for step in steps
    )
]
"""Collectives whose steps have no way of INCEPTIONN's own; test_player.py has the others."""


@dataclasses.dataclass(eq=False)
class Message:
    """A step on its way: events of when it is sent, has arrived, is received, and is added."""

    step: Step
    size: int
    share: int
    phase: int
    needs: list[Message] = dataclasses.field(default_factory=list)
    """What its sender must have received: the last one of each of its pieces, of rounds before."""
    after: list[Message] = dataclasses.field(default_factory=list)
    """What its receiver must have stored or added before, of the same pieces."""
    events: dict[str, simpy.Event] = dataclasses.field(default_factory=dict)


def messages_of(
    phases: Sequence[LaidPhase], bounds_of: Callable[[int], Sequence[int]]
) -> list[Message]:
    """Return all messages in the order of steps, with what each needs."""
    messages: list[Message] = []
    for number, (phase, shared) in enumerate(phases):
        bounds = bounds_of(phase.pieces)
        last: dict[tuple[int, int], Message] = {}
        for steps, shares in zip(phase.rounds, shared, strict=True):
            now = dict(last)
            for step, share in zip(steps, shares, strict=True):
                size = bounds[step.stop] - bounds[step.first]
                message = Message(step, size, share, number)
                for piece in range(step.first, step.stop):
                    sent, received = (step.sender, piece), (step.receiver, piece)
                    message.needs += [last[sent]] if sent in last else []
                    message.after += [now[received]] if received in now else []
                    now[received] = message
                messages.append(message)
            last = now
    return messages


class Simulation:
    """Nodes on SimPy; times in ps."""

    def __init__(self, over: Interconnect, ready_ps: Sequence[int], messages: list[Message]):
        self.env, self.over = simpy.Environment(), over
        for message in messages:
            names = ("sent", "arrived", "received", "added")
            message.events = {name: self.env.event() for name in names}
        self.ends_ps = [0] * len(ready_ps)
        for node, at_ps in enumerate(ready_ps):
            self.env.process(self.node(node, at_ps, messages))
        self.env.run()

    def until(self, at_ps: int) -> Generator[simpy.Event, None, None]:
        if at_ps > self.env.now:
            yield self.env.timeout(at_ps - self.env.now)

    def node(
        self, node: int, ready_ps: int, messages: list[Message]
    ) -> Generator[simpy.Event, None, None]:
        """Go through the phases; the kernel takes what arrives in any phase, one after another."""
        incoming = [message for message in messages if message.step.receiver == node]
        self.env.process(self.kernel(incoming))
        by_phase: dict[int, list[list[Message]]] = defaultdict(lambda: [[], []])
        for message in messages:
            for kind, end in enumerate((message.step.sender, message.step.receiver)):
                if end == node:
                    by_phase[message.phase][kind].append(message)
        for _, received in by_phase.values():
            for port in self.ports(received):
                self.env.process(self.in_port(port))
        yield from self.until(ready_ps)
        for _, (sent, received) in sorted(by_phase.items()):
            begun = self.env.event()
            for message in received:
                self.env.process(self.piece(message, begun))
            begun.succeed()
            ports = [self.env.process(self.out_port(port)) for port in self.ports(sent)]
            yield self.env.all_of([*ports, *(message.events["added"] for message in received)])
        self.ends_ps[node] = self.env.now

    def ports(self, messages: list[Message]) -> list[list[Message]]:
        """Return what goes through each port: those of a switch have one each."""
        one = [message for message in messages if not message.step.way]
        return [one, *([message] for message in messages if message.step.way)]

    def costs_ps(self, message: Message) -> tuple[int, int]:
        """Return the latency of a message, and how long it is on each port."""
        step, turn_bytes = message.step, self.over.ends.turn_bytes
        latency_ps = self.over.latency_ps * self.over.hops(step.sender, step.receiver)
        transfer_ps = message.share * self.over.transfer_ps(message.size)
        agreed = message.size > turn_bytes
        return (0, transfer_ps + latency_ps) if agreed else (latency_ps, transfer_ps)

    def out_port(self, messages: list[Message]) -> Generator[simpy.Event, None, None]:
        for message in messages:
            yield self.env.all_of([needed.events["added"] for needed in message.needs])
            yield self.env.timeout(self.over.ends.send_ps)
            message.events["sent"].succeed(self.env.now)
            yield self.env.timeout(self.costs_ps(message)[1])

    def in_port(self, messages: list[Message]) -> Generator[simpy.Event, None, None]:
        for message in messages:
            sent_ps = yield message.events["sent"]
            latency_ps, transfer_ps = self.costs_ps(message)
            yield from self.until(sent_ps + latency_ps)
            yield self.env.timeout(transfer_ps)
            message.events["arrived"].succeed()

    def kernel(self, messages: list[Message]) -> Generator[simpy.Event, None, None]:
        for message in messages:
            yield message.events["arrived"]
            yield self.env.timeout(self.over.ends.received_ps(message.size))
            message.events["received"].succeed()

    def piece(self, message: Message, begun: simpy.Event) -> Generator[simpy.Event, None, None]:
        """Store or add a message, once those before it have been, and the phase has begun."""
        before = [earlier.events["added"] for earlier in message.after]
        yield self.env.all_of([message.events["received"], begun, *before])
        if message.step.adds:
            yield self.env.timeout(self.over.ends.sum_ps + self.over.sum_ps(message.size))
        message.events["added"].succeed()


@settings(max_examples=200)
@given(
    name=st.sampled_from(PLAIN),
    ranks=st.integers(2, 9),
    topology=st.sampled_from(["switch", "chain", "ring", "torus"]),
    mbps=st.sampled_from([1_000, 10_000, 100_000]),
    latency_ps=st.integers(0, 10**7),
    size=st.integers(1, 200_000),
    ends=st.builds(
        EndCosts,
        st.integers(0, 10**6),
        st.integers(0, 10**6),
        st.integers(0, 10**5),
        st.integers(0, 10**6),
        st.sampled_from([1000, 50_000, float("inf")]),
    ),
    data=st.data(),
)
def test_as_an_event_simulation_has_it(
    name: str,
    ranks: int,
    topology: str,
    mbps: int,
    latency_ps: int,
    size: int,
    ends: EndCosts,
    data: st.DataObject,
) -> None:
    collective = collective_of(name)
    over = Interconnect(
        mbps, latency_ps, sum_ps_per_kbyte=50, topology=topologies()[topology], ends=ends
    )
    try:
        among = over.among(collective.nodes(ranks))
        phases = laid(check(collective, ranks, among.topology), among.topology)
    except (TopologyError, CollectiveError):
        assume(False)
    ready = data.draw(st.lists(st.integers(0, 10**7), min_size=ranks, max_size=ranks))
    ready += [0] * (collective.nodes(ranks) - ranks)

    def bounds(pieces: int) -> list[int]:
        if collective.goal.is_in_blocks:
            return [size * piece for piece in range(pieces + 1)]
        return piece_bounds(size, pieces)

    ends_ps = collective_ends_ps(phases, among, np.array(ready, np.int64), bounds)
    simulation = Simulation(among, ready, messages_of(phases, bounds))
    assert ends_ps.tolist() == simulation.ends_ps
