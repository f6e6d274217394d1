"""The fleet: all replicas of a plan, as far as their devices live on this rank, and the lines between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...comm.exchange.aggregator import Aggregator
from ...comm.exchange.broadcast import Outlet
from ...comm.exchange.groups import Exchange, Leg, Line, aggregator, parts
from ...comm.exchange.histogram import BINS, histogram
from ...comm.exchange.message import Parcel, ParcelFormat
from ...comm.exchange.nic import Port, Traffic
from ...comm.exchange.timed import Attendance, Meeting
from ...comm.host import Mailbox, Pump
from ...comm.mpi import Receiver, Sender
from ...comm.throttle import Gate
from ...kernels.arena import Arena
from ..plan.plan import Plan
from .chain import Chain, MakeNumerics, Placement, Wiring, build

_BURST_VALUES, _BURST_BYTES = 8, 34
"""No codec makes more bytes of so many values."""


@dataclasses.dataclass(frozen=True)
class Exchanged:
    """What was exchanged: traffic, the time that devices spent on it, and how gradients were distributed."""

    traffic: Traffic = dataclasses.field(default_factory=Traffic)
    spent_ps: int = 0
    histogram: NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.zeros((2, BINS), np.int64))

    def __add__(self, other: Exchanged) -> Exchanged:
        return Exchanged(self.traffic + other.traffic, self.spent_ps + other.spent_ps, self.histogram + other.histogram)

    def since(self, before: Exchanged) -> Exchanged:
        """What came since then; gradients are the last ones."""
        return Exchanged(self.traffic - before.traffic, self.spent_ps - before.spent_ps, self.histogram)


@dataclasses.dataclass
class Fleet:
    """Chains by replica, those without a device here empty; aggregators; and what moves messages."""

    chains: list[Chain]
    aggregators: list[Aggregator] = dataclasses.field(default_factory=list)
    pumps: list[Pump] = dataclasses.field(default_factory=list)
    receivers: list[Receiver] = dataclasses.field(default_factory=list)

    @property
    def exchanges(self) -> list[Exchange]:
        """Of all devices here that exchange with other replicas."""
        devices = (device for chain in self.chains for device in chain.devices)
        return [device.exchange for device in devices if isinstance(device.exchange, Exchange)]

    def serve(self, steps: int) -> list[Coroutine[Any, Any, None]]:
        """What aggregators do in an epoch of so many mini-batches."""
        return [node.serve(steps) for node in self.aggregators]

    def exchanged(self) -> Exchanged:
        """What devices here have exchanged with other replicas so far, and the first replica's last gradients."""
        found = Exchanged()
        for exchange in self.exchanges:
            found += Exchanged(exchange.port.traffic, exchange.spent_ps)
        first = (device.exchange for device in self.chains[0].devices if isinstance(device.exchange, Exchange))
        for last in (exchange.last for exchange in first if exchange.last is not None):
            found += Exchanged(histogram=histogram(last))
        return found

    def close(self) -> None:
        """Withdraw the receives that stand open."""
        for receiver in [*self.receivers, *(each for chain in self.chains for each in chain.receivers)]:
            receiver.close()


def build_fleet(
    plan: Plan, rank: int, ranks: int, comms: tuple[Any, Any], most: int, make: MakeNumerics | None
) -> Fleet:
    """Make this rank's devices of all replicas, and connect them.

    `comms` are the communicators of chains and of the exchange, None in one process; a message between devices has at
    most `most` samples. Without `make`, for timing alone.
    """
    of = plan.data_parallel
    placement = Placement(plan.devices * of.replicas, ranks)
    throttled, with_data = make is not None and plan.config.throttle == "wall", make is not None
    fleet = Fleet([])
    for replica in range(of.replicas):
        first = replica * plan.devices
        wiring = Wiring(placement, rank, comms[0], throttled, most, with_data, first, of.codec)
        chain = build(plan.timing, wiring, make)
        fleet.chains.append(chain)
        fleet.pumps.extend(chain.pumps)
    if of.replicas > 1 and make is None:
        _meet(fleet, plan)
    elif of.replicas > 1:
        for device in range(plan.devices):
            lines = _Lines(fleet, plan, placement, rank, comms[1], device, throttled)
            _connect(fleet, plan, lines)
    return fleet


def _meet(fleet: Fleet, plan: Plan) -> None:
    """Give all devices their exchange, which is worked out: all of them live here."""
    for devices in zip(*(chain.devices for chain in fleet.chains), strict=True):
        meeting = Meeting(plan.data_parallel, plan.cluster.network, devices[0].gradient_row.count)
        for replica, device in enumerate(devices):
            device.exchange = Attendance(meeting, replica)


class _Lines:
    """The lines between all replicas' devices of one number, and their aggregator, which lives with the first."""

    def __init__(
        self, fleet: Fleet, plan: Plan, placement: Placement, rank: int, comm: Any, device: int, throttled: bool
    ) -> None:
        self.device, self.rank = device, rank
        self._throttled = throttled
        self.count = next(
            (each.gradient_row.count for chain in fleet.chains for each in chain.devices if each.number == device), 0
        )
        self._fleet, self._plan, self._placement, self._comm = fleet, plan, placement, comm
        self._lines: dict[tuple[Leg, int, int], Line] = {}
        self._gates: dict[int, Gate] = {}
        self._arena = Arena()

    def host(self, node: int) -> int:
        """The rank of a replica's device, or of the aggregator."""
        return self._placement.host(node % self._plan.data_parallel.replicas * self._plan.devices + self.device)

    def __call__(self, leg: Leg, sender: int, receiver: int) -> Line:
        """The line of a leg from one node to another; made when it is first asked for, at either end."""
        key = leg, sender, receiver
        if key not in self._lines:
            self._lines[key] = self._make(*key)
        return self._lines[key]

    def _make(self, leg: Leg, sender: int, receiver: int) -> Line:
        mailbox, from_rank, to_rank = Mailbox(), self.host(sender), self.host(receiver)
        if from_rank == to_rank:
            return Line(self._gated(sender, mailbox), mailbox)
        nodes = self._plan.data_parallel.replicas + 1
        tag = ((self.device * len(Leg) + leg) * nodes + sender) * nodes + receiver
        form = ParcelFormat()
        if self.rank == from_rank:
            outlet = Sender(self._comm, to_rank, tag, form, self._arena)
            self._fleet.pumps.append(outlet)
            return Line(self._gated(sender, outlet), None)
        inlet = Receiver(self._comm, from_rank, tag, form, self._most_bytes(leg), mailbox, self._arena)
        self._fleet.pumps.append(inlet)
        self._fleet.receivers.append(inlet)
        return Line(None, mailbox)

    def _most_bytes(self, leg: Leg) -> int:
        """The largest message of a leg: rings send blocks, all others the whole row."""
        of = self._plan.data_parallel
        ring_of = {Leg.GROUP: of.members, Leg.TOP: len(of.top) if of.exchange == "ring" else 1}
        values = -(-self.count // ring_of.get(leg, 1))
        return -(-values // _BURST_VALUES) * _BURST_BYTES

    def _gated(self, sender: int, outlet: Outlet) -> Outlet:
        """An outlet; with the throttle, one that holds back what a node sends as its link would."""
        if not self._throttled:
            return outlet
        if sender not in self._gates:
            network = self._plan.cluster.network
            self._gates[sender] = Gate(network.bandwidth_mbps, network.latency_ps)
            self._fleet.pumps.append(self._gates[sender])
        return _Gated(self._gates[sender], outlet)


class _Gated:
    """Sends parcels through a gate."""

    def __init__(self, gate: Gate, outlet: Outlet) -> None:
        self._gate, self._outlet = gate, outlet

    def put(self, parcel: Parcel) -> None:
        """Hold a parcel for as long as it occupies the link."""
        self._gate.hold(parcel.transfer_ps * 1e-12, lambda: self._outlet.put(parcel))


def _connect(fleet: Fleet, plan: Plan, lines: _Lines) -> None:
    """Give the devices of one number their exchange, and where it belongs their aggregator."""
    of, network = plan.data_parallel, plan.cluster.network
    for replica, chain in enumerate(fleet.chains):
        for device in chain.devices:
            if device.number == lines.device:
                port = Port(network, of.codec)
                device.exchange = Exchange(of, port, parts(of, replica, port, lines))
    if of.exchange == "aggregator" and lines.host(of.aggregator) == lines.rank:
        port = Port(network, of.codec)
        fleet.aggregators.append(aggregator(of, port, lines.count, True, lines))
