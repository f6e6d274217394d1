"""This rank's devices of all replicas of a plan, and the channels between replicas."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...comm import Awaited, Gate, Mailbox, Observer
from ...comm.collective import piece_bounds
from ...comm.exchange import (
    Channel,
    GradientExchange,
    GradientFormat,
    GradientMessage,
    Nic,
    Outlet,
    PlayedNode,
    TimedExchange,
    TimedMember,
    aggregator,
    exchange_parts,
    histogram,
)
from ...kernels import Arena
from ...kernels.number import FP32
from ..device import LIMBS, is_of_scales, merged_scales
from ..plan import ChainPlan
from ..timing import FaultyTiming
from .chain import Carriers, Chain, MakeNumerics, Wiring, build_chain
from .placement import Placement
from .results import EpochSizes, Exchanged, GivenSizes, SentBy
from .segments import Segment, nic_of


@dataclasses.dataclass
class Replicas:
    """Chains by replica, empty without a device here; aggregators by device; what carries
    messages.
    """

    chains: list[Chain]
    aggregators: dict[int, PlayedNode] = dataclasses.field(default_factory=dict)
    carriers: Carriers = dataclasses.field(default_factory=Carriers)

    def serve(self, steps: int) -> list[Coroutine[Any, Any, None]]:
        """Return the programs of aggregators for `steps` mini-batches."""
        return [node.serve(steps) for node in self.aggregators.values()]

    def exchanged(self) -> Exchanged:
        """Return what devices here have exchanged with other replicas so far, and the distribution
        of gradients.
        """
        total = Exchanged()
        for replica, chain in enumerate(self.chains):
            for device in chain.devices:
                exchange = device.exchange
                if isinstance(exchange, GradientExchange):
                    total += Exchanged(exchange.nic.traffic, exchange.spent_ps)
                    if replica == 0 and exchange.last is not None:
                        total += Exchanged(histogram=histogram(exchange.last))
        return total

    def take_sizes(self) -> EpochSizes:
        """Return the sizes of what devices here have sent through a codec since the last call."""
        logs = {}
        for replica, chain in enumerate(self.chains):
            for device in chain.devices:
                if isinstance(device.exchange, GradientExchange):
                    logs[SentBy(replica, device.number)] = device.exchange.nic.sizes
                logs |= {
                    SentBy(replica, device.number, block): log
                    for block, log in device.balanced.sizes.items()
                }
        taken = {source: log.take() for source, log in logs.items()}
        return {source: sizes for source, sizes in taken.items() if len(sizes)}

    def give_sizes(self, given: GivenSizes) -> None:
        """Give devices, which have no numerics, an epoch's sizes of what they send through a
        codec.
        """
        for replica, chain in enumerate(self.chains):
            for device in chain.devices:
                if isinstance(device.exchange, GradientExchange):
                    device.exchange.nic.given = given.bytes_of(SentBy(replica, device.number))
                blocks = device.balanced.sizes
                device.balanced.shares = {
                    block: given.shares_of(SentBy(replica, device.number, block))
                    for block in blocks
                }

    def observe(self, observer: Observer) -> None:
        """Call `observer` with what the first replica's engines, links and exchanges here serve
        from now on.
        """
        self.chains[0].observe(observer)

    def clocks(self) -> dict[str, Any]:
        """Return the clocks and counters of what is here, by name; call only when no sample is in
        flight.
        """
        clocks: dict[str, Any] = {
            f"aggregator {device}": node.state() for device, node in self.aggregators.items()
        }
        for replica, chain in enumerate(self.chains):
            clocks |= {
                f"replica {replica} device {device.number}": device.clocks()
                for device in chain.devices
            }
        return clocks

    def residuals(self) -> dict[str, NDArray[np.float32]]:
        """Return what codecs have dropped of gradients sent from here, by replica, device and
        phase.
        """
        return {
            f"{replica}/{device.number}/{phase}": row.values
            for replica, chain in enumerate(self.chains)
            for device in chain.devices
            if isinstance(device.exchange, GradientExchange)
            for phase, row in enumerate(device.exchange.nic.residuals)
            if row.values is not None
        }

    def take_loss_scale(self, state: Mapping[str, Any], *, differ: bool) -> None:
        """Restore the loss scale of all devices, which have the same, and the scales of maps, which
        each chain has of its own, from the counts of devices in what all ranks' `clocks` returned,
        on any boards; those of weights are of all replicas together, unless these `differ`.
        """
        by_name = {name: one["counts"] for name, one in state.items()}
        first = next(iter(by_name.values())).items()
        loss_scale = {name: count for name, count in first if not is_of_scales(name)}
        for replica, chain in enumerate(self.chains):
            of_chain = f"replica {replica} "
            own = [counts for name, counts in by_name.items() if name.startswith(of_chain)]
            others = () if differ else by_name.values()
            scales = {**loss_scale, **merged_scales(own, others)}
            for device in chain.devices:
                if device.numerics is not None:
                    device.numerics.take_scales(scales)

    def restore_clocks(self, state: Mapping[str, Any]) -> None:
        """Restore what all ranks' `clocks` returned."""
        for number, node in self.aggregators.items():
            node.restore(state[f"aggregator {number}"])
        for replica, chain in enumerate(self.chains):
            for board in chain.action_boards:  # those of other ranks, too
                clock = state[f"replica {replica} device {board.number}"]["clock"]
                board.restore(clock["device"])
                if clock.get(
                    "next_ps"
                ):  # of an older checkpoint: shared engines all rested until then
                    board.rest_from(clock["next_ps"])
            for device in chain.devices:
                device.restore_clocks(state[f"replica {replica} device {device.number}"])


def build_replicas(
    segment: Segment,
    rank: int,
    ranks: int,
    comms: tuple[Any, Any],
    most: int,
    make: Callable[[int], MakeNumerics] | None,
    *,
    by_message: bool = True,
) -> Replicas:
    """Make this rank's devices of all replicas of a segment's plan, and connect them.

    `comms` are the communicators of chains and of the exchange, None in one process; a message
    between devices has at most `most` samples. `make` gives a replica's factory of numerics.
    Without it, for timing only; then, unless `by_message`, exchanges are timed as a whole, all
    messages of the size that the codec expects.
    """
    plan, parallel = segment.plan, segment.plan.data_parallel
    placement = Placement.of(plan.work, ranks)
    throttled = make is not None and plan.config.throttle == "wall"
    replicas = Replicas([])
    for replica in range(parallel.replicas):
        wiring = Wiring(
            placement,
            rank,
            comms[0],
            throttled,
            most,
            replica * plan.devices,
            parallel.codec,
            plan.fold,
        )
        faulty, numerics = _faulty(segment, replica), None if make is None else make(replica)
        replicas.chains.append(
            build_chain(plan.timing, wiring, numerics, faulty, replicas.carriers)
        )
    if parallel.replicas > 1:
        for device in plan.timing.exchanging:
            if not by_message:
                _time_exchange(replicas, plan, device)
            else:
                channels = _Channels(replicas, plan, placement, rank, comms[1], device, throttled)
                _connect(replicas, segment, channels, with_data=make is not None)
    return replicas


def _faulty(segment: Segment, replica: int) -> FaultyTiming | None:
    """Return what faults do to the clocks of a replica; None where they slow nothing down."""
    plan = segment.plan
    if not plan.faults.slowing:
        return None
    return FaultyTiming(
        plan.faults, plan.config.seed, replica * plan.devices, plan.fold, segment.begun(replica)
    )


def _time_exchange(replicas: Replicas, plan: ChainPlan, device: int) -> None:
    """Give the devices numbered `device` a timed exchange; all of them are on this rank."""
    count = plan.timing.streams(device).gradient_values
    exchange = TimedExchange(plan.data_parallel, plan.interconnect, count)
    for replica, chain in enumerate(replicas.chains):
        chain.devices[device].exchange = TimedMember(exchange, replica)


class _Channels:
    """Channels between all replicas' devices of one number, and their aggregator, which is on the
    first one's rank.
    """

    def __init__(
        self,
        replicas: Replicas,
        plan: ChainPlan,
        placement: Placement,
        rank: int,
        comm: Any,
        device: int,
        throttled: bool,
    ) -> None:
        self.device, self.rank = device, rank
        self._on_board = plan.fold.device(device)
        self.count = plan.timing.streams(device).gradient_values
        self._throttled = throttled
        self._phases = plan.data_parallel.laid_out(plan.interconnect.topology)
        self._replicas, self._plan, self._placement, self._comm = replicas, plan, placement, comm
        self._channels: dict[tuple[int, int, int], Channel] = {}
        self._gates: dict[int, Gate] = {}
        self._arena = Arena()

    def host(self, node: int) -> int:
        """Return the rank of a replica's device, or of the aggregator."""
        return self._placement.host(
            node % self._plan.data_parallel.replicas * self._plan.devices + self._on_board
        )

    def __call__(self, phase: int, sender: int, receiver: int) -> Channel:
        """Return the channel of a phase from one node to another; created at first use, at either
        end.
        """
        key = phase, sender, receiver
        if key not in self._channels:
            self._channels[key] = self._make(*key)
        return self._channels[key]

    def _make(self, phase: int, sender: int, receiver: int) -> Channel:
        from_rank, to_rank = self.host(sender), self.host(receiver)
        mailbox = Mailbox(
            Awaited(
                f"gradients of device {self.device} of another replica on rank {from_rank}",
                from_rank,
            )
        )
        nodes = self._plan.data_parallel.replicas + 1  # with the aggregator
        tag = ((self.device * len(self._phases) + phase) * nodes + sender) * nodes + receiver
        most, ends = self._most_bytes(phase), (from_rank, to_rank)
        outlet = self._replicas.carriers.connect(
            self._comm, self.rank, ends, tag, GradientFormat(), most, mailbox, self._arena
        )
        gated = None if outlet is None else self._gated(sender, outlet)
        return Channel(gated, mailbox if self.rank == to_rank else None)

    def _most_bytes(self, phase: int) -> int:
        """Return the size of a phase's largest message, of which some are not compressed."""
        codec, exchange = self._plan.data_parallel.codec, self._phases[phase].phase
        pieces, rounds, of_weights = exchange
        bounds = piece_bounds(self.count, pieces)
        steps = [*itertools.chain(*rounds)]
        values = max(bounds[step.stop] - bounds[step.first] for step in steps)
        if of_weights and self._plan.data_parallel.in_halves:  # as sums of squares go, too
            values = max(values, LIMBS * max(step.stop - step.first for step in steps))
        return max(codec.largest_bytes(values), FP32.bytes_of(values))

    def _gated(self, sender: int, outlet: Outlet) -> Outlet:
        """Return the outlet; with the throttle, one that delays messages as the sender's link
        would.
        """
        if not self._throttled:
            return outlet
        if sender not in self._gates:
            interconnect = self._plan.interconnect
            self._gates[sender] = Gate(interconnect.bandwidth_mbps, interconnect.latency_ps)
            self._replicas.carriers.pumps.append(self._gates[sender])
        return _GatedOutlet(self._gates[sender], outlet)


class _GatedOutlet:
    """An outlet of gradient messages behind a gate."""

    def __init__(self, gate: Gate, outlet: Outlet) -> None:
        self._gate, self._outlet = gate, outlet

    def put(self, message: GradientMessage) -> None:
        """Hold a message for as long as it occupies the link."""
        self._gate.hold(message.transfer_ps * 1e-12, lambda: self._outlet.put(message))


def _connect(replicas: Replicas, segment: Segment, channels: _Channels, with_data: bool) -> None:
    """Give the devices of one number their exchange, and add their aggregator if it is on this
    rank.
    """
    parallel, interconnect = segment.plan.data_parallel, segment.plan.interconnect
    pieces = [0] * parallel.replicas
    if parallel.in_halves:
        pieces = parallel.pieces(interconnect.topology)
    streams = segment.plan.timing.streams(channels.device)
    rows = streams.exchanged_rows(by_layer=parallel.shares_weights)
    for replica, chain in enumerate(replicas.chains):
        piece = pieces[replica]
        for device in chain.devices:
            if device.number == channels.device:
                nic = nic_of(segment, replica, device.number)
                parts = exchange_parts(
                    parallel, replica, nic, channels, channels.count if with_data else 0
                )
                device.exchange = GradientExchange(parallel, nic, parts, piece)
                if parallel.in_halves and device.numerics is not None:
                    device.numerics.share_out(parallel.shares(piece, rows))
    if parallel.nodes > parallel.replicas and channels.host(parallel.aggregator) == channels.rank:
        nic = Nic(interconnect, parallel.codec)
        replicas.aggregators[channels.device] = aggregator(
            parallel, nic, channels.count, with_data, channels
        )
