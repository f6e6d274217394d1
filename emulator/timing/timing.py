"""All constants of a chain's virtual time: the time of a row on each engine and each stream.

Data paths share a link's direction in fixed parts, and engines their board's memory port in
proportion to the bytes that they move for each sample. Samples enter the chain at the rate of its
slowest resource, so no queue grows. These are pure functions of network, mapping, cluster and
placement.

Steps of recurrent layers: a row is a time step, and needs the results of the step before. So
between two rows, FP waits for the activations of the first (`Board.activation_ps`), and EB
likewise. A layer that is cut by units over several devices steps in lockstep: a step takes as long
as on its slowest device, and then all devices gather the states. In FP, states of earlier units
travel right on path 2, and those of later ones left on path 7; the step waits for the slower
direction. In EB, errors of states are summed to the left on path 4, and the sums then travel right
on path 8; the step waits for both. Each hop takes a row's time on its path, and the link's latency.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ...comm import Chain, FifoResource, Topology
from ..cluster import Board, Cluster, Engine, Link
from ..mapping import (
    BalancedParameters,
    Crossing,
    DataPath,
    DeviceStreams,
    Mapping,
    MemoryStream,
    NormSum,
    OffChip,
    Slice,
    SliceEngines,
    Stream,
    StreamKey,
    TiedWeights,
    allocate_all,
    balanced_streams,
    block_rows,
    memory_streams,
    steps_before_sending,
    streams,
    tied_weights,
    update_bytes,
)
from ..network import Layer, Phase
from ..schedule import Fold, Kind
from .board import ActionBoard, Message, StageLoads, Wire
from .device_clock import DeviceClock, SliceClock, engine_name, port_name
from .routes import Burst, Hop, Routes, UpdateWaits, Ways, hop_name
from .stage_clock import StageClock, StageTimes

HopTime = Callable[[int, DataPath, int], int]
"""Returns the time in ps of a row's hop over a link on a path, for the stream of a tensor's number.
"""


def step_waits(layer: Layer, links: Sequence[int], hop_ps: HopTime) -> tuple[tuple[int, int], int]:
    """Return in ps how long FP of a step waits for states from either side over links, and EB for
    sums of errors.
    """

    def sweep_ps(path: DataPath) -> int:
        return sum(hop_ps(link, path, layer.makes.number) for link in links)

    gathers_ps = sweep_ps(DataPath.PARTIAL_ACTIVATIONS), sweep_ps(DataPath.STATES)
    return gathers_ps, (
        sweep_ps(DataPath.INPUT_ERRORS) + sweep_ps(DataPath.STATE_ERRORS) if layer.has_eb else 0
    )


def lockstep(
    mapping: Mapping, cluster: Cluster, engines: Sequence[Sequence[SliceEngines]], hop_ps: HopTime
) -> tuple[tuple[SliceEngines, ...], ...]:
    """Return the engines with the waits of recurrent layers in the times of their rows."""
    slowed = [list(held) for held in engines]
    for layer in mapping.network.layers:
        if not layer.operation.recurs:
            continue
        places = [
            (device, place)
            for device, slices in enumerate(mapping.devices)
            for place, part in enumerate(slices)
            if part.layer.index == layer.index
        ]
        # A link has the number of the device in front of it: one less than there are devices.
        gathers_ps, errors_ps = step_waits(layer, [device for device, _ in places][:-1], hop_ps)
        steps = [slowed[device][place] for device, place in places]
        activation_ps = [cluster.board(device).activation_ps for device, _ in places]
        fp_ps = max(gathers_ps) + max(
            step.fp.row_ps + more for step, more in zip(steps, activation_ps, strict=True)
        )
        own_ps = (
            step.eb.row_ps + more
            for step, more in zip(steps, activation_ps, strict=True)
            if step.eb is not None
        )
        eb_ps = errors_ps + max(own_ps, default=0)
        for (device, place), step in zip(places, steps, strict=True):
            eb = None if step.eb is None else step.eb.waiting(eb_ps - step.eb.row_ps)
            slowed[device][place] = dataclasses.replace(
                step, fp=step.fp.waiting(fp_ps - step.fp.row_ps), eb=eb
            )
    return tuple(map(tuple, slowed))


def port_row_ps(board: Board, stream: MemoryStream, device_bytes: int) -> int:
    """Return the time in ps of an engine's row on its memory port, which moves `device_bytes` for a
    sample.

    A stream's share of the port is its share of these bytes, so a sample takes all streams the same
    time.
    """
    # A byte at 1 MB/s takes 1 us, a million ps.
    return -(-device_bytes * 1_000_000 // (board.off_chip_mbytes_per_s * stream.rows))


def _waiting_for(
    board: Board, engines: SliceEngines, moved: Sequence[MemoryStream]
) -> SliceEngines:
    """Return a slice's engines that wait for what is exposed of their own loads."""
    waits_ps = {}
    for stream in moved:
        load_ps = port_row_ps(board, stream, stream.sample_bytes)
        waits_ps[stream.phase] = round(board.load_exposed * load_ps)

    def waiting(engine: Engine | None, phase: Phase) -> Engine | None:
        return None if engine is None else engine.waiting(waits_ps.get(phase, 0))

    fp = waiting(engines.fp, Phase.FP)
    assert fp is not None
    return SliceEngines(fp, waiting(engines.eb, Phase.EB), waiting(engines.pg, Phase.PG))


@dataclasses.dataclass(frozen=True)
class Timing:
    """All constants of a chain's virtual time.

    `engines` by device and slice; `links` by link, with their streams in both directions; `blocks`
    of balanced parameters; `off_chip` by device and slice, empty if all is on chip. A sample enters
    every `interval_ps`: the time of the slowest resource for a sample. Where boards take actions as
    a whole, `stages` are the costs of these, and there are no engines and no interval.
    """

    cluster: Cluster
    mapping: Mapping
    engines: tuple[tuple[SliceEngines, ...], ...]
    links: tuple[tuple[Stream, ...], ...]
    interval_ps: int
    blocks: tuple[BalancedParameters, ...] = ()
    off_chip: tuple[tuple[OffChip, ...], ...] = ()
    stages: StageTimes | None = None

    @classmethod
    def of(
        cls,
        mapping: Mapping,
        cluster: Cluster,
        blocks: tuple[BalancedParameters, ...] = (),
        off_chip: tuple[tuple[OffChip, ...], ...] = (),
    ) -> Timing:
        """Allocate engines, lay out links and memory ports, and find the slowest resource.

        Raises:
            InputError: a board has too few multipliers, or the topology is of another number of
                boards.
        """
        devices = range(len(mapping.devices))
        engines = allocate_all(mapping, cluster)
        share = cluster.link.share
        links = tuple(
            (
                *streams(mapping, link, share, cluster.precision),
                *balanced_streams(blocks, link, cluster.precision),
            )
            for link in devices[:-1]
        )
        # Waits in lockstep depend on the hops of links, and these on a timing: so in two steps.
        timing = cls(cluster, mapping, engines, links, 1, blocks, off_chip)
        engines = lockstep(mapping, cluster, timing.exposed(), timing.hop_ps)
        timing = dataclasses.replace(timing, engines=engines)
        times = [
            engine.sample_ps for held in engines for of_slice in held for engine in of_slice.built
        ]
        times += [timing.routes.sample_ps(hop) for hop in timing.routes.carried]
        times += [timing.port_sample_ps(device) for device in devices]
        # At least 1 ps, or samples would not enter one after another.
        return dataclasses.replace(timing, interval_ps=max(1, *times))

    @classmethod
    def of_stages(cls, mapping: Mapping, cluster: Cluster, stages: StageTimes) -> Timing:
        """Lay out the links of boards that take actions as a whole."""
        share, precision = cluster.link.share, cluster.precision
        links = tuple(
            streams(mapping, link, share, precision) for link in range(len(mapping.devices) - 1)
        )
        return cls(cluster, mapping, (), links, 0, stages=stages)

    def sent(self, link: int, *, forward: bool) -> tuple[Stream, ...]:
        """Return the streams of one direction of a link; none if there is no such link."""
        carried = self.links[link] if 0 <= link < len(self.links) else ()
        return tuple(stream for stream in carried if stream.path.is_forward == forward)

    @functools.cached_property
    def _memory(self) -> tuple[tuple[tuple[MemoryStream, ...], ...], ...]:
        by_device = []
        for device in range(len(self.mapping.devices)):
            held = self.slices_off_chip(device)
            by_device.append(tuple(memory_streams(*one, self.cluster.storage) for one in held))
        return tuple(by_device)

    @functools.cached_property
    def _port_bytes(self) -> tuple[int, ...]:
        moved = []
        for held in self._memory:
            streams_moved = itertools.chain.from_iterable(held)
            moved.append(sum(stream.sample_bytes for stream in streams_moved))
        return tuple(moved)

    def slices_off_chip(self, device: int) -> list[tuple[Slice, OffChip]]:
        """Return each slice of a device, and what of it is off chip."""
        slices = self.mapping.devices[device]
        return list(
            zip(
                slices,
                self.off_chip[device] if self.off_chip else (OffChip(),) * len(slices),
                strict=True,
            )
        )

    def memory(self, device: int) -> tuple[tuple[MemoryStream, ...], ...]:
        """Return what each slice of a device moves over the board's memory port."""
        return self._memory[device]

    def port_bytes(self, device: int) -> int:
        """Return the bytes that a device moves over its memory port for a sample."""
        return self._port_bytes[device]

    def port_sample_ps(self, device: int) -> int:
        """Return the time in ps of a sample on a device's memory port; 0 if nothing is off chip."""
        board, total = self.cluster.board(device), self.port_bytes(device)
        moved = (stream for of_slice in self.memory(device) for stream in of_slice)
        return max((stream.rows * port_row_ps(board, stream, total) for stream in moved), default=0)

    def exposed(self) -> tuple[tuple[SliceEngines, ...], ...]:
        """Return the engines with the part of loading that does not hide behind work in the times
        of their rows (`Board.load_exposed`).

            load_exposed = 0.25    port    [ load, row 1 ][ load, row 2 ]
                                   engine      ..[ row 1       ]..[ row 2      ]     .. waits
        """
        waiting = []
        for device, held in enumerate(self.engines):
            board = self.cluster.board(device)
            if not board.load_exposed or not any(self.memory(device)):
                waiting.append(held)
                continue
            pairs = zip(held, self.memory(device), strict=True)
            waiting.append(tuple(_waiting_for(board, *pair) for pair in pairs))
        return tuple(waiting)

    def _states_ps(self, device: int) -> int:
        """Return the time in ps in which the memory port moves what the optimiser keeps off chip,
        for an update.
        """
        storage = self.cluster.storage
        moved = sum(update_bytes(part, off, storage) for part, off in self.slices_off_chip(device))
        return (
            -(-moved * 1_000_000 // self.cluster.board(device).off_chip_mbytes_per_s)
            if moved
            else 0
        )

    def longest_update_ps(self, device: int) -> int:
        """Return the time in ps that an update of a device takes once gradients are there."""
        return 0 if self.stages is not None else max(self.clock(device).updates_ps)

    @property
    def stores(self) -> tuple[tuple[int, int], ...]:
        """Pairs of devices (user, store), of which the first uses parameters that the second
        stores, each once.
        """
        return tuple(sorted({(block.user_device, block.store_device) for block in self.blocks}))

    @functools.cached_property
    def _topology(self) -> Topology:
        """The topology of the boards; where they have several stages each, that of a closed
        chain.
        """
        return self.cluster.topology_of(len(self.mapping.devices))

    @functools.cached_property
    def routes(self) -> Routes:
        """The ways of the streams; whole messages of actions go from neighbour to neighbour in any
        topology.
        """
        topology = self._topology if self.stages is None else Chain()
        return Routes(self.cluster, topology, self.mapping.devices, self.blocks, self.links)

    def hop_ps(self, link: int, path: DataPath, number: int) -> int:
        """Return the time in ps of a row of a stream over a link, with the latency."""
        key = StreamKey(path, number)
        [stream] = (stream for stream in self.links[link] if stream.key == key)
        hop = self.routes.hop(link, key)
        return (
            0
            if hop is None
            else self.routes.row_ps(hop, stream) + self.routes.link_of(hop).latency_ps
        )

    def _paths(self, link: int, *, forward: bool) -> dict[StreamKey, FifoResource]:
        """Return as resources the streams that a device sends to one side, but for those that have
        arrived.
        """
        resources = (
            (stream.key, self.path(link, stream)) for stream in self.sent(link, forward=forward)
        )
        return {key: resource for key, resource in resources if resource is not None}

    @functools.cached_property
    def tied(self) -> tuple[TiedWeights, ...]:
        """The weights that embeddings share with heads."""
        return tuple(tied_weights(self.mapping, len(self.blocks)))

    @functools.cached_property
    def norm(self) -> NormSum | None:
        """The norm of gradients, if they are clipped by it and there are several devices."""
        last = len(self.mapping.devices) - 1
        return (
            NormSum(len(self.blocks) + len(self.tied), 0, last)
            if self.cluster.clips and last
            else None
        )

    @property
    def crossing(self) -> tuple[Crossing, ...]:
        """What crosses the chain before each update."""
        return self.tied if self.norm is None else (*self.tied, self.norm)

    @functools.cached_property
    def ways(self) -> Ways:
        """The ways of what crosses the chain."""
        return Ways(self._fold, self._topology, self.cluster.link_at)

    def bursts(self, device: int) -> dict[StreamKey, Burst]:
        """Return what a device sends before each update, as resources."""
        return self.ways.bursts(self.crossing, device)

    def update_waits(self) -> UpdateWaits:
        """Return what updates of stages wait for beside their own gradients, before the first
        mini-batch.
        """
        count = len(self.mapping.devices)
        return UpdateWaits(
            count, self.tied, self.norm, [self.bursts(stage) for stage in range(count)]
        )

    def slowest_bursts(self) -> Iterator[tuple[TiedWeights, Hop, int]]:
        """Yield the tied weights that cross links, the link that takes longest for their table, and
        this time in ps.
        """
        sent = [
            self.bursts(device) for device in range(len(self.mapping.devices) if self.tied else 0)
        ]
        for tied in self.tied:
            key = tied.key(forward=True)
            times = {
                link: bursts[key].table_ps for link, bursts in enumerate(sent) if key in bursts
            }
            if times:
                slowest = max(times, key=lambda link: times[link])
                hop = self.ways.hop(slowest, tied, forward=True)
                assert hop is not None
                yield tied, hop, times[slowest]

    def path(self, link: int, stream: Stream) -> FifoResource | None:
        """Return a stream's share of the link that stands for `link` on its route, as a resource;
        None if none does.
        """
        hop = self.routes.hop(link, stream.key)
        if hop is None:
            return None
        over, row_ps = self.routes.link_of(hop), self.routes.row_ps(hop, stream)
        header_ps = (
            row_ps
            * over.overhead_bytes(stream.row_bytes)
            // max(1, over.wire_bytes(stream.row_bytes))
        )
        device = link + (not stream.path.is_forward)
        place = "" if device == hop[0] else f", of device {device}"
        return FifoResource(
            f"{hop_name(hop)}, {stream.key}{place}", row_ps, over.latency_ps, header_ps
        )

    def ports(self, device: int) -> list[dict[Phase, FifoResource]]:
        """Return for each slice of a device its engines' shares of the memory port, as
        resources.
        """
        board, total = self.cluster.board(device), self.port_bytes(device)
        by_slice = []
        for part, moved in zip(self.mapping.devices[device], self.memory(device), strict=True):
            shares = {}
            for stream in moved:
                name = f"{port_name(device)}, {engine_name(stream.phase, part)}"
                shares[stream.phase] = FifoResource(name, port_row_ps(board, stream, total))
            by_slice.append(shares)
        return by_slice

    @property
    def _fold(self) -> Fold:
        """How the stages lie on boards; those that take actions as a whole may have several stages
        each.
        """
        return Fold(len(self.mapping.devices)) if self.stages is None else self.stages.fold

    @functools.cached_property
    def _wires(self) -> dict[tuple[int, int], Link]:
        """The link between two boards that take actions as a whole, by sender and receiver."""
        wires, stages, device = (
            dict[tuple[int, int], Link](),
            range(len(self.mapping.devices)),
            self._fold.device,
        )
        for stage in stages:
            for to, link in ((stage + 1, stage), (stage - 1, stage - 1)):
                if to in stages and device(stage) != device(to):
                    wires[device(stage), device(to)] = self.cluster.link_at(link)
        return self._at_ports(wires) if self.cluster.topology.has_ports else wires

    def _at_ports(self, wires: dict[tuple[int, int], Link]) -> dict[tuple[int, int], Link]:
        """Return links of a switch, each with the part of its ports' bandwidth that its part of
        their bytes is.
        """
        assert self.stages is not None
        own = {hop: self.stages.message_bytes(self.routes.streams(hop), 1) for hop in wires}
        ports: Counter[tuple[str, int]] = Counter()
        for (sender, receiver), count in own.items():
            ports["out", sender] += count
            ports["in", receiver] += count

        def at_port(hop: tuple[int, int], link: Link) -> Link:
            most = max(1, ports["out", hop[0]], ports["in", hop[1]])
            return dataclasses.replace(
                link, bandwidth_mbps=max(1, link.bandwidth_mbps * own[hop] // most)
            )

        return {hop: at_port(hop, link) for hop, link in wires.items()}

    @functools.cached_property
    def loads(self) -> StageLoads:
        """What stages take, and their messages, where boards take actions as a whole."""
        stages, device = self.stages, self._fold.device
        assert stages is not None

        @functools.cache
        def message(kind: Kind, stage: int, samples: int) -> Message:
            forward = kind is Kind.FORWARD
            sent = stages.message_bytes(
                self.sent(stage if forward else stage - 1, forward=forward), samples
            )
            link = self._wires[device(stage), device(stage + (1 if forward else -1))]
            return Message(link.transfer_ps(sent), sent)

        return StageLoads(len(self.mapping.devices), stages.machine, stages.costs, message)

    def action_boards(self) -> list[ActionBoard]:
        """Return the boards that take actions as a whole, at time zero, with the links on which
        they send.
        """
        wires: list[dict[int, Wire]] = [{} for _ in range(self._fold.devices)]
        for (sender, receiver), link in self._wires.items():
            wires[sender][receiver] = Wire(f"link {sender} -> {receiver}", link.latency_ps)
        return [
            ActionBoard(number, self.loads.machine, of_board)
            for number, of_board in enumerate(wires)
        ]

    def stage_clock(self, stage: int, boards: Sequence[ActionBoard]) -> StageClock:
        """Return the clock of a stage at time zero, on one of the boards that take actions as a
        whole.
        """
        assert self.stages is not None
        device = self._fold.device
        right, left = self.sent(stage, forward=True), self.sent(stage - 1, forward=False)
        neighbours = device(min(stage + 1, self._fold.count - 1)), device(max(stage - 1, 0))
        board, bursts = boards[device(stage)], self.bursts(stage)
        return StageClock(
            self.streams(stage), self.stages, self.loads, board, right, left, neighbours, bursts
        )

    def streams(self, device: int) -> DeviceStreams:
        """Return the streams that a device takes in."""
        return DeviceStreams.of(self.mapping, device, self.blocks)

    @functools.cached_property
    def exchanging(self) -> tuple[int, ...]:
        """The devices that exchange gradients with other replicas: all but those that hold only
        frozen layers.
        """
        storing = {block.store_device for block in self.blocks}
        held = enumerate(self.mapping.devices)
        exchange = []
        for number, slices in held:
            if number in storing or not all(part.layer.frozen for part in slices):
                exchange.append(number)
        return tuple(exchange)

    def clock(self, device: int) -> DeviceClock:
        """Return the clock of a device at time zero."""
        board, share = self.cluster.board(device), self.cluster.link.share
        held = zip(
            self.slices_off_chip(device), self.engines[device], self.ports(device), strict=True
        )
        states_ps, shares = self._states_ps(device), self.cluster.sharing.states
        sends = {**self._paths(device, forward=True), **self._paths(device - 1, forward=False)}
        stored = (block.part for block in self.blocks if block.store_device == device)
        slices = []
        for (part, off), engines, ports in held:
            first_steps = steps_before_sending(part.layer, share)
            on_board = device, part, engines, board, ports, first_steps, states_ps
            slices.append(SliceClock(*on_board, block_rows(part, off), shares))
        return DeviceClock(
            self.streams(device),
            slices,
            sends,
            self.interval_ps,
            [board.update_ps(len(part.out_channels)) for part in stored],
            self.bursts(device),
        )
