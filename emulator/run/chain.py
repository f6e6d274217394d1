"""This rank's part of the chain of devices, its links to neighbouring ranks, and what carries
messages on them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...comm import Awaited, Format, Gate, Mailbox, Message, Observer, Pump, Receiver, Sender, drain
from ...comm.exchange import GradientFormat
from ...kernels import Arena
from ...kernels.codec import Codec, NoCodec
from ..cluster import Link
from ..device import (
    LIMBS,
    SCALED_ARRAYS,
    Device,
    Epoch,
    NormSums,
    OnStep,
    Outlet,
    Ports,
    train_programs,
)
from ..mapping import (
    BalancedParameters,
    Crossing,
    DataPath,
    DeviceStreams,
    LargestNumbers,
    Mapping,
    Stream,
    StreamKey,
    TiedWeights,
    largest_numbers,
)
from ..schedule import Action, Engines, Fold, MicroBatch, Schedule
from ..timing import (
    ActionBoard,
    DeviceClock,
    FaultyTiming,
    StageClock,
    Timeline,
    Timing,
    timeline_of,
)
from .placement import Placement

if TYPE_CHECKING:  # without numbers, none of the kernels are imported
    from ..device import DeviceNumerics, ImageSource, SoftmaxHead

Programs = list[Coroutine[Any, Any, None]]
_TENSORS = 512
"""More than any network's tensors and blocks, where a device has several stages."""

MakeNumerics = Callable[[DeviceStreams, Sequence[BalancedParameters], Arena], "DeviceNumerics"]
"""Factory of a device's numerics."""


@dataclasses.dataclass(frozen=True)
class Wiring:
    """How messages travel: the ranks, their communicator (None in one process), and whether links
    are throttled.

    `placement` covers the devices of all replicas, one chain after another; this chain's `devices`
    begin at `first`. By default it is alone, with one stage on each. `codec` compresses gradients
    of balanced parameters.
    """

    placement: Placement
    rank: int
    comm: Any
    throttled: bool
    most_samples: int
    first: int = 0
    codec: Codec = dataclasses.field(default_factory=NoCodec)
    stages: Fold | None = None

    @property
    def fold(self) -> Fold:
        """How the chain's stages lie on its devices."""
        return Fold(self.placement.devices) if self.stages is None else self.stages

    def device(self, stage: int) -> int:
        """Return the device of one of the chain's stages, counted over all replicas."""
        return self.first + self.fold.device(stage)

    def host(self, stage: int) -> int:
        """Return the rank of one of the chain's stages, which is that of its device."""
        return self.placement.host(self.device(stage))

    def hosted(self, stages: int) -> list[int]:
        """Return the chain's stages on this rank."""
        return [stage for stage in range(stages) if self.host(stage) == self.rank]


@dataclasses.dataclass
class Carriers:
    """The pumps and receivers of a rank's messages: MPI reads and writes their buffers until they
    are closed.
    """

    pumps: list[Pump] = dataclasses.field(default_factory=list)
    receivers: list[Receiver] = dataclasses.field(default_factory=list)

    def connect(
        self,
        comm: Any,
        rank: int,
        ends: tuple[int, int],
        tag: int,
        form: Format | GradientFormat,
        most: int,
        mailbox: Mailbox,
        arena: Arena,
    ) -> Sender | Mailbox | None:
        """Return where the sender puts a stream's messages, if it is on this rank; they arrive in
        the mailbox.

        `ends` are the ranks of sender and receiver; a message has at most `most` samples or bytes.
        """
        from_rank, to_rank = ends
        if from_rank == to_rank:
            return mailbox if rank == to_rank else None
        if rank == to_rank:
            inlet = Receiver(comm, from_rank, tag, form, most, mailbox, arena)
            self.receivers.append(inlet)
            self.pumps.append(inlet)
        if rank != from_rank:
            return None
        outlet = Sender(comm, to_rank, tag, form, arena)
        self.pumps.append(outlet)
        return outlet

    def drain(self) -> bool:
        """Take what has arrived, for a run that has failed; return whether all that was sent from
        here has left.
        """
        return drain(self.pumps)

    def close(self) -> None:
        """Cancel the receives that are still posted."""
        for receiver in self.receivers:
            receiver.close()


@dataclasses.dataclass
class Chain:
    """The stages of this rank, in chain order, and what carries their messages.

    Each device has one stage, or several, as `fold` says of the whole chain. Maps and messages of
    micro-batches come from the arena. Boards that take actions as a whole are all in
    `action_boards`, also those of other ranks.
    """

    fold: Fold
    timing: Timing
    action_boards: list[ActionBoard]
    devices: list[Device] = dataclasses.field(default_factory=list)
    carriers: Carriers = dataclasses.field(default_factory=Carriers)
    arena: Arena = dataclasses.field(default_factory=Arena)

    @property
    def numerics(self) -> list[DeviceNumerics]:
        """See `Hosted`."""
        return [device.numerics for device in self.devices if device.numerics is not None]

    @property
    def starts_here(self) -> bool:
        """Whether the chain's first device is on this rank."""
        return any(device.clock.streams.is_chain_start for device in self.devices)

    @property
    def ends_here(self) -> bool:
        """Whether the chain's last device is on this rank, or another that computes a part of the
        loss.
        """
        return any(device.clock.streams.has_loss for device in self.devices)

    def attach(
        self,
        source: ImageSource | None,
        head: SoftmaxHead | None,
        lengths: NDArray[np.int64] | None = None,
    ) -> None:
        """Attach the image source and the head to the chain's first and last device, where these
        are on this rank.

        Slices that compute a part of the loss take the head's labels.

        `lengths` are the time steps of each sample by its place in the epoch, where they differ.
        """
        for numerics in self.numerics:
            numerics.source = source if numerics.streams.is_chain_start else None
            numerics.head = head if numerics.streams.is_chain_end else None
            numerics.take_labels(head)
            numerics.lengths = lengths

    def evaluate(self, batches: Sequence[MicroBatch]) -> Programs:
        """See `Hosted`."""
        return [device.evaluate(batches) for device in self.devices]

    def train(
        self,
        programs: dict[int, Iterator[Action]],
        epoch: Epoch,
        on_step: OnStep | None = None,
        *,
        ahead: bool = False,
    ) -> Programs:
        """Return the programs of all devices for an epoch, with F `ahead` where it can be.

        The chain's last device reports its steps to `on_step`.
        """
        programs_here: Programs = []
        for number, stages in self.by_device.items():
            reports = on_step if stages[-1].clock.streams.is_chain_end else None
            programs_here += train_programs(stages, programs[number], epoch, reports, ahead=ahead)
        return programs_here + [relay for device in self.devices for relay in device.relays(epoch)]

    @property
    def by_device(self) -> dict[int, list[Device]]:
        """The stages of each device on this rank, in the order of their chunks."""
        stages: dict[int, list[Device]] = {}
        for stage in self.devices:
            stages.setdefault(self.fold.device(stage.number), []).append(stage)
        return stages

    def timeline(self, schedule: Schedule) -> Timeline | None:
        """Return when the actions of an epoch run, where F and B share a pool; None where devices
        find that out.
        """
        if (
            not self.action_boards
            or not self.devices
            or self.timing.loads.machine.engines is not Engines.SHARED
        ):
            return None
        clock = self.devices[0].clock
        assert isinstance(clock, StageClock)
        waits = self.timing.update_waits() if self.timing.crossing else None
        return timeline_of(schedule, self.timing.loads, self.action_boards, clock.samples, waits)

    def observe(self, observer: Observer) -> None:
        """Call `observer` with what engines, links and exchanges of these devices serve from now
        on.
        """
        for device in self.devices:
            device.observe(observer)


def build_chain(
    timing: Timing,
    wiring: Wiring,
    make: MakeNumerics | None,
    faulty: FaultyTiming | None = None,
    carriers: Carriers | None = None,
) -> Chain:
    """Make this rank's devices and connect them; without `make`, for timing only. `faulty` has
    faults that cost time.

    `carriers` are those that all replicas share.
    """
    boards = timing.action_boards() if timing.stages is not None else []
    chain = Chain(wiring.fold, timing, boards, carriers=carriers or Carriers())
    hosted = wiring.hosted(len(timing.mapping.devices))
    inlets: dict[int, dict[StreamKey, Mailbox]] = {device: {} for device in hosted}
    outlets: dict[int, dict[StreamKey, Outlet]] = {device: {} for device in hosted}
    for link, streams in enumerate(timing.links):
        if link not in inlets and link + 1 not in inlets:
            continue  # both its devices are on other ranks
        over = timing.cluster.link_at(link)
        gates = {
            forward: Gate(over.bandwidth_mbps, over.latency_ps)
            for forward in (True, False)
            if wiring.throttled
        }
        chain.carriers.pumps.extend(gates.values())
        states = _states_across(timing.mapping, link)
        for stream in streams:
            sender, receiver = (link, link + 1) if stream.path.is_forward else (link + 1, link)
            for key, with_data in _keys(stream, states, make is not None):
                rows = 1 if key.values and _is_gathered(stream, states) else stream.rows
                form = Format(stream.message_channels, rows, stream.columns, with_data)
                outlet = _connect(chain, wiring, key, link, sender, receiver, form, inlets)
                if outlet is not None:
                    # The throttle holds up what crosses a link; values that travel apart stand for
                    # nothing on it.
                    gate = None if key.values else gates.get(key.path.is_forward)
                    outlets[sender][key] = (
                        outlet if gate is None else _ThrottledOutlet(gate, outlet, stream, over)
                    )
    crossing = timing.crossing
    first = len(timing.blocks) + len(crossing)
    largest = (
        tuple(largest_numbers(timing.mapping, timing.cluster.precision, first)) if make else ()
    )
    _connect_crossing(chain, wiring, (*crossing, *largest), make is not None, inlets, outlets)
    if faulty is not None:
        for board in chain.action_boards:
            faulty.board(board)
    for number in hosted:
        clock = (
            timing.stage_clock(number, chain.action_boards)
            if chain.action_boards
            else timing.clock(number)
        )
        if faulty is not None and isinstance(clock, DeviceClock):
            faulty.clock(clock, timing)
        numerics = make(clock.streams, timing.blocks, chain.arena) if make else None
        ports = Ports(number, inlets[number], outlets[number], chain.arena)
        norm = NormSums(clock, ports, timing.norm) if timing.cluster.clips else None
        tied = timing.tied
        chain.devices.append(Device(clock, numerics, ports, wiring.codec, tied, norm, largest))
    return chain


def _connect_crossing(
    chain: Chain,
    wiring: Wiring,
    all_crossing: Sequence[Crossing],
    with_data: bool,
    inlets: dict[int, dict[StreamKey, Mailbox]],
    outlets: dict[int, dict[StreamKey, Outlet]],
) -> None:
    """Connect the devices between which tables of tied weights, sums of squares, and the largest
    numbers pass: times, and numbers.
    """
    for crossing, forward in itertools.product(all_crossing, (True, False)):
        key = crossing.key(forward=forward)
        table = Format(LIMBS, 1, 1, with_data)
        if isinstance(crossing, TiedWeights):
            table = Format(crossing.features, 1, crossing.rows, with_data)
        elif isinstance(crossing, LargestNumbers):
            table = Format(SCALED_ARRAYS, 1, 1, with_data)
        for link in range(crossing.first, crossing.last):
            sender, receiver = (link, link + 1) if forward else (link + 1, link)
            if sender not in outlets and receiver not in inlets:
                continue
            # Times of the first and the last row say when all arrive: rows follow one another
            # (`timing/routes.py`).
            for message, form in (
                (key, Format(1, 2, 1, False)),
                (key._replace(values=True), table),
            ):
                outlet = _connect(
                    chain, wiring, message, link, sender, receiver, form, inlets, most_samples=1
                )
                if outlet is not None:
                    outlets[sender][message] = outlet


class _ThrottledOutlet:
    """An outlet behind a gate."""

    def __init__(self, gate: Gate, outlet: Outlet, stream: Stream, link: Link) -> None:
        self._gate, self._outlet, self._stream, self._link = gate, outlet, stream, link

    def put(self, message: Message) -> None:
        """Hold the message until its bytes and the headers of its packets have crossed the link."""
        size = len(message.times) * self._stream.sample_bytes
        self._gate.pass_through(self._link.wire_bytes(size), lambda: self._outlet.put(message))


def _connect(
    chain: Chain,
    wiring: Wiring,
    key: StreamKey,
    link: int,
    sender: int,
    receiver: int,
    form: Format,
    inlets: dict[int, dict[StreamKey, Mailbox]],
    most_samples: int | None = None,
) -> Outlet | None:
    """Return the sender's outlet if it is on this rank; add the receiver's mailbox to `inlets` if
    that is.
    """
    from_rank, to_rank = wiring.host(sender), wiring.host(receiver)
    mailbox = Mailbox(None if from_rank == to_rank else _awaited(wiring, key, sender, receiver))
    if receiver in inlets:
        inlets[receiver][key] = mailbox
    ends, tag = (from_rank, to_rank), _tag(key, wiring.fold.chunk(link))
    most = wiring.most_samples if most_samples is None else most_samples
    return chain.carriers.connect(
        wiring.comm, wiring.rank, ends, tag, form, most, mailbox, chain.arena
    )


def _awaited(wiring: Wiring, key: StreamKey, sender: int, receiver: int) -> Awaited:
    """Return what a device waits for that takes from a stream; devices are counted over all
    replicas.
    """
    to, at = wiring.device(receiver), wiring.device(sender)
    what, rank = key.path.name.lower().replace("_", " "), wiring.host(sender)
    return Awaited(
        f"path {key.path.value} ({what}) of device {at} on rank {rank}, for device {to}", rank
    )


def _states_across(mapping: Mapping, link: int) -> int | None:
    """Return the number of the outputs of the recurrent layer that a link's two devices share, if
    they do.
    """
    left, right = mapping.devices[link][-1].layer, mapping.devices[link + 1][0].layer
    return right.makes.number if left.index == right.index and right.operation.recurs else None


def _keys(stream: Stream, states: int | None, with_data: bool) -> list[tuple[StreamKey, bool]]:
    """Return a stream's keys, and which have data: for balanced parameters, one for times and one
    for values.

    So do all streams between devices that share a recurrent layer, whose outputs are the tensor
    `states`.
    """
    values = stream.key._replace(values=True), with_data
    if stream.path.is_balanced:
        return [(stream.key, False), values]
    if states is None:
        return [(stream.key, with_data)]
    if _is_gathered(stream, states) and stream.path is not DataPath.PARTIAL_ACTIVATIONS:
        return [values]
    return [(stream.key, False), values]


def _is_gathered(stream: Stream, states: int | None) -> bool:
    """Return whether a stream's values travel at each step."""
    return stream.number == states and stream.path is not DataPath.OUTPUT_ERRORS


def _tag(key: StreamKey, chunk: int) -> int:
    """Return the MPI tag of a stream; two ranks share at most one link of each chunk, so it is
    unique between them.
    """
    return ((chunk * _TENSORS + key.number) * (len(DataPath) + 1) + key.path) * 2 + key.values
