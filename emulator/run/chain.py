"""This rank's part of the chain of devices, and its links to neighbouring ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...comm import Format, Gate, Mailbox, Message, Observer, Pump, Receiver, Sender
from ...kernels import Arena
from ...kernels.codec import Codec, NoCodec
from ..device import Device, Epoch, OnStep, Outlet, Ports
from ..mapping import BalancedParameters, DataPath, DeviceStreams, Stream, StreamKey
from ..schedule import Action
from ..timing import Timing
from .placement import Placement

if TYPE_CHECKING:  # without numbers, none of the kernels are imported
    from ..device import DeviceNumerics, ImageSource, SoftmaxHead

Programs = list[Coroutine[Any, Any, None]]
MakeNumerics = Callable[[DeviceStreams, Sequence[BalancedParameters], Arena], "DeviceNumerics"]
"""Factory of a device's numerics."""


@dataclasses.dataclass(frozen=True)
class Wiring:
    """How messages travel: the ranks, their communicator (None in one process), and whether links are throttled.

    `placement` covers the devices of all replicas, one chain after another; this chain's begin at `first`. `codec`
    compresses gradients of balanced parameters.
    """

    placement: Placement
    rank: int
    comm: Any
    throttled: bool
    most_samples: int
    first: int = 0
    codec: Codec = dataclasses.field(default_factory=NoCodec)

    def host(self, device: int) -> int:
        """Return the rank of one of the chain's devices."""
        return self.placement.host(self.first + device)

    def hosted(self, devices: int) -> list[int]:
        """Return the chain's devices on this rank."""
        return [device for device in range(devices) if self.host(device) == self.rank]


@dataclasses.dataclass
class Chain:
    """The devices of this rank, in chain order, and the pumps and receivers of their messages.

    Maps and messages of micro-batches come from the arena.
    """

    devices: list[Device] = dataclasses.field(default_factory=list)
    pumps: list[Pump] = dataclasses.field(default_factory=list)
    receivers: list[Receiver] = dataclasses.field(default_factory=list)
    arena: Arena = dataclasses.field(default_factory=Arena)

    @property
    def starts_here(self) -> bool:
        """Whether the chain's first device is on this rank."""
        return any(device.clock.streams.is_chain_start for device in self.devices)

    @property
    def ends_here(self) -> bool:
        """Whether the chain's last device is on this rank."""
        return any(device.clock.streams.is_chain_end for device in self.devices)

    def attach(self, source: ImageSource | None, head: SoftmaxHead | None) -> None:
        """Attach the image source and the head to the chain's first and last device, where these are on this rank."""
        for device in self.devices:
            if device.numerics is not None:
                device.numerics.source = source if device.clock.streams.is_chain_start else None
                device.numerics.head = head if device.clock.streams.is_chain_end else None

    def train(self, programs: Mapping[int, Iterator[Action]], epoch: Epoch, on_step: OnStep | None = None) -> Programs:
        """Return the programs of all devices for an epoch; the chain's last device reports its steps to `on_step`."""
        own = [
            device.train(programs[device.number], epoch, on_step if device.clock.streams.is_chain_end else None)
            for device in self.devices
        ]
        return [*own, *(relay for device in self.devices for relay in device.relays(epoch))]

    def observe(self, observer: Observer) -> None:
        """Call `observer` with what engines, links and exchanges of these devices serve from now on."""
        for device in self.devices:
            device.observe(observer)

    def state(self) -> dict[int, Any]:
        """Return the training state by device; call between epochs only."""
        return {device.number: device.state() for device in self.devices}

    def restore(self, state: Mapping[int, Any]) -> None:
        """Restore what `state` returned."""
        for device in self.devices:
            device.restore(state[device.number])


def build_chain(timing: Timing, wiring: Wiring, make: MakeNumerics | None) -> Chain:
    """Make this rank's devices and connect them; without `make`, for timing only."""
    chain = Chain()
    hosted = wiring.hosted(len(timing.mapping.devices))
    inlets: dict[int, dict[StreamKey, Mailbox]] = {device: {} for device in hosted}
    outlets: dict[int, dict[StreamKey, Outlet]] = {device: {} for device in hosted}
    for link, streams in enumerate(timing.links):
        if link not in inlets and link + 1 not in inlets:
            continue
        gates = {True: _gate(timing, link), False: _gate(timing, link)} if wiring.throttled else {}
        chain.pumps.extend(gates.values())
        for stream in streams:
            sender, receiver = (link, link + 1) if stream.path.is_forward else (link + 1, link)
            for key, with_data in _keys(stream, make is not None):
                form = Format(stream.channels, stream.rows, stream.columns, with_data)
                outlet = _connect(chain, wiring, key, sender, receiver, form, inlets)
                if outlet is not None:
                    gate = None if key.values else gates.get(key.path.is_forward)
                    outlets[sender][key] = outlet if gate is None else _ThrottledOutlet(gate, outlet, form)
    for number in hosted:
        clock = timing.clock(number)
        numerics = make(clock.streams, timing.blocks, chain.arena) if make else None
        ports = Ports(number, inlets[number], outlets[number], chain.arena)
        chain.devices.append(Device(clock, numerics, ports, wiring.codec))
    return chain


class _ThrottledOutlet:
    """An outlet behind a gate."""

    def __init__(self, gate: Gate, outlet: Outlet, form: Format) -> None:
        self._gate, self._outlet, self._form = gate, outlet, form

    def put(self, message: Message) -> None:
        """Hold the message until its bytes have crossed the link."""
        size = len(message.times) * self._form.payload_bytes
        self._gate.pass_through(size, lambda: self._outlet.put(message))


def _gate(timing: Timing, link: int) -> Gate:
    over = timing.cluster.link_at(link)
    return Gate(over.bandwidth_mbps, over.latency_ps)


def _connect(
    chain: Chain,
    wiring: Wiring,
    key: StreamKey,
    sender: int,
    receiver: int,
    form: Format,
    inlets: dict[int, dict[StreamKey, Mailbox]],
) -> Outlet | None:
    """Return the sender's outlet if it is on this rank; add the receiver's mailbox to `inlets` if that is."""
    mailbox = Mailbox()
    if receiver in inlets:
        inlets[receiver][key] = mailbox
    from_rank, to_rank = wiring.host(sender), wiring.host(receiver)
    if from_rank == to_rank:
        return mailbox
    if wiring.rank == to_rank:
        inlet = Receiver(wiring.comm, from_rank, _tag(key), form, wiring.most_samples, mailbox, chain.arena)
        chain.receivers.append(inlet)
        chain.pumps.append(inlet)
        return None
    outlet = Sender(wiring.comm, to_rank, _tag(key), form, chain.arena)
    chain.pumps.append(outlet)
    return outlet


def _keys(stream: Stream, with_data: bool) -> list[tuple[StreamKey, bool]]:
    """Return a stream's keys, and which have data: for balanced parameters, one for times and one for values."""
    if stream.path in (DataPath.PARAMETERS, DataPath.PARAMETER_GRADIENTS):
        return [(stream.key, False), (stream.key._replace(values=True), with_data)]
    return [(stream.key, with_data)]


def _tag(key: StreamKey) -> int:
    """Return the MPI tag of a stream; two ranks share at most one link, so its key is unique between them."""
    return (key.number * (len(DataPath) + 1) + key.path) * 2 + key.values
