"""The chain of devices, as far as it lives on this rank, and its links to the ranks beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ...comm.host import Mailbox, Pump
from ...comm.message import Format, Message
from ...comm.mpi import Receiver, Sender
from ...comm.throttle import Gate
from ...kernels.arena import Arena
from ...kernels.codec.codec import Codec, NoCodec
from ..device.balanced import NoBpram, Stored
from ..device.device import Device, Epoch
from ..device.ends import Head, NoHead, NoImages, Source, Tally
from ..device.numerics import NoNumerics, Numerics
from ..device.ports import Outlet
from ..mapping.balancing import Loan
from ..mapping.traffic import DataPath, Lane, Stream
from ..schedule.action import Action
from ..timing.timing import Timing

OnStep = Callable[[int, Tally, int], None]
Programs = list[Coroutine[Any, Any, None]]


class MakeNumerics(Protocol):
    """Makes what computes: for a device's slices, and for a loan where it is stored."""

    def slices(self, device: int, arena: Arena) -> Sequence[Numerics]:
        """For each slice of a device."""

    def stored(self, loan: Loan) -> Stored:
        """For one loan."""


@dataclasses.dataclass(frozen=True)
class Placement:
    """Which rank hosts which devices: consecutive ones, as evenly as may be; further ranks host none."""

    devices: int
    ranks: int

    def host(self, device: int) -> int:
        """The rank of a device."""
        return device * min(self.ranks, self.devices) // self.devices

    def hosted(self, rank: int) -> list[int]:
        """The devices of a rank."""
        return [device for device in range(self.devices) if self.host(device) == rank]

    def __str__(self) -> str:
        return "; ".join(f"rank {rank}: devices {self.hosted(rank)}" for rank in range(self.ranks))


@dataclasses.dataclass(frozen=True)
class Wiring:
    """How messages travel: the ranks, their communicator (None in one process), and whether links are slowed.

    The placement is of all replicas' devices, one chain after another; this one's begin at `first`. What travels back
    of balanced parameters' gradients goes through the codec.
    """

    placement: Placement
    rank: int
    comm: Any
    throttled: bool
    most_samples: int
    with_data: bool
    first: int = 0
    codec: Codec = dataclasses.field(default_factory=NoCodec)

    def host(self, device: int) -> int:
        """The rank of one of the chain's devices."""
        return self.placement.host(self.first + device)

    def hosted(self, devices: int) -> list[int]:
        """Those of the chain's devices that live here."""
        return [device for device in range(devices) if self.host(device) == self.rank]


@dataclasses.dataclass
class Chain:
    """The devices of this rank, in the order of the chain, and what moves their messages.

    All that is made for a micro-batch, maps and messages, comes from the arena.
    """

    devices: list[Device] = dataclasses.field(default_factory=list)
    pumps: list[Pump] = dataclasses.field(default_factory=list)
    receivers: list[Receiver] = dataclasses.field(default_factory=list)
    arena: Arena = dataclasses.field(default_factory=Arena)

    @property
    def starts_here(self) -> bool:
        """Whether the chain's first device is one of these."""
        return any(device.is_chain_start for device in self.devices)

    @property
    def ends_here(self) -> bool:
        """Whether the chain's last device is one of these."""
        return any(device.is_chain_end for device in self.devices)

    def attach(self, source: Source, head: Head) -> None:
        """Set what the chain's first and last device work with, where they live here."""
        for device in self.devices:
            device.source = source if device.is_chain_start else NoImages()
            device.head = head if device.is_chain_end else NoHead()

    def train(self, programs: Mapping[int, Iterator[Action]], epoch: Epoch, on_step: OnStep | None = None) -> Programs:
        """What all devices do in an epoch; the chain's last one tells of its steps."""
        own = [
            device.train(programs[device.number], epoch, on_step if device.is_chain_end else None)
            for device in self.devices
        ]
        return [*own, *(relay for device in self.devices for relay in device.relays(epoch))]

    def close(self) -> None:
        """Withdraw the receives that stand open."""
        for receiver in self.receivers:
            receiver.close()


class _ThrottledOutlet:
    """Sends through a gate."""

    def __init__(self, gate: Gate, outlet: Outlet, form: Format) -> None:
        self._gate, self._outlet, self._form = gate, outlet, form

    def put(self, message: Message) -> None:
        """Hold the message until its bytes have crossed the link."""
        size = len(message.times) * self._form.payload_bytes
        self._gate.pass_through(size, lambda: self._outlet.put(message))


def build(timing: Timing, wiring: Wiring, make: MakeNumerics | None) -> Chain:
    """Make this rank's devices and connect them; without `make`, for timing alone."""
    chain = Chain()
    hosted = wiring.hosted(len(timing.mapping.devices))
    inlets: dict[int, dict[Lane, Mailbox]] = {device: {} for device in hosted}
    outlets: dict[int, dict[Lane, Outlet]] = {device: {} for device in hosted}
    for link, streams in enumerate(timing.links):
        if link not in inlets and link + 1 not in inlets:
            continue
        gates = {True: _gate(timing), False: _gate(timing)} if wiring.throttled else {}
        chain.pumps.extend(gates.values())
        for stream in streams:
            sender, receiver = (link, link + 1) if stream.path.is_forward else (link + 1, link)
            for lane, with_data in _lanes(stream, wiring.with_data):
                form = Format(stream.channels, stream.rows, stream.columns, with_data)
                outlet = _connect(chain, wiring, lane, sender, receiver, form, inlets)
                if outlet is not None:
                    gate = None if lane.values else gates.get(lane.path.is_forward)
                    outlets[sender][lane] = outlet if gate is None else _ThrottledOutlet(gate, outlet, form)
    for number in hosted:
        slices = timing.mapping.devices[number]
        chain.devices.append(
            Device(
                number,
                slices,
                make.slices(number, chain.arena) if make else [NoNumerics() for _ in slices],
                timing.clock(number),
                inlets[number],
                outlets[number],
                chain.arena,
                timing.loans,
                {
                    n: make.stored(loan) if make else NoBpram()
                    for n, loan in enumerate(timing.loans)
                    if loan.store_device == number
                },
                wiring.codec,
            )
        )
    return chain


def _gate(timing: Timing) -> Gate:
    return Gate(timing.cluster.link.bandwidth_mbps, timing.cluster.link.latency_ps)


def _connect(
    chain: Chain,
    wiring: Wiring,
    lane: Lane,
    sender: int,
    receiver: int,
    form: Format,
    inlets: dict[int, dict[Lane, Mailbox]],
) -> Outlet | None:
    """The sender's outlet, if it lives here; the receiver's mailbox is put among `inlets`, if it lives here."""
    mailbox = Mailbox()
    if receiver in inlets:
        inlets[receiver][lane] = mailbox
    from_rank, to_rank = wiring.host(sender), wiring.host(receiver)
    if from_rank == to_rank:
        return mailbox
    if wiring.rank == to_rank:
        inlet = Receiver(wiring.comm, from_rank, _tag(lane), form, wiring.most_samples, mailbox, chain.arena)
        chain.receivers.append(inlet)
        chain.pumps.append(inlet)
        return None
    outlet = Sender(wiring.comm, to_rank, _tag(lane), form, chain.arena)
    chain.pumps.append(outlet)
    return outlet


def _lanes(stream: Stream, with_data: bool) -> list[tuple[Lane, bool]]:
    """A stream's lanes, and which have data: of balanced parameters one has times, and one values."""
    if stream.path in (DataPath.PARAMETERS, DataPath.PARAMETER_GRADIENTS):
        return [(stream.lane, False), (stream.lane._replace(values=True), with_data)]
    return [(stream.lane, with_data)]


def _tag(lane: Lane) -> int:
    """Two ranks share one link at most, so that a lane tells its messages apart."""
    return (lane.number * (len(DataPath) + 1) + lane.path) * 2 + lane.values
