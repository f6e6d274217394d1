"""Counts of a run's clocks: busy shares of engines, bytes on links and memory ports, memory."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from ...cluster import OnBoard
from ...common import plural
from ...mapping import (
    Crossing,
    DataPath,
    StreamKey,
    blocks_of,
    formats_of,
    slice_memory,
    stored_bytes,
)
from ...network import Phase
from ...timing import DeviceClock, Hop, StageClock, Timing

PHASES = tuple(phase.value for phase in Phase)


@dataclasses.dataclass(frozen=True)
class DeviceCounters:
    """Raw counters of one device: busy time times multipliers, and multipliers, of FP, EB and PG;
    rows sent.

    `port_bytes` have moved over its memory port.
    """

    device: int
    busy_ps: tuple[int, int, int]
    multipliers: tuple[int, int, int]
    sent_rows: Mapping[StreamKey, float]
    updated_ps: int
    port_bytes: int = 0

    @classmethod
    def of(cls, clock: DeviceClock | StageClock, timing: Timing) -> DeviceCounters:
        """Return the counters of a device up to now."""
        device = clock.streams.device
        if isinstance(clock, StageClock):
            count = timing.cluster.board(device).multipliers
            busy_ps = {phase: busy * count for phase, busy in clock.busy_ps.items()}
            sent = {
                **clock.sent_rows,
                **{key: burst.served_rows for key, burst in clock.bursts.items()},
            }
            return cls(
                device,
                _three(busy_ps),
                (count, count, count),
                sent,
                clock.updated_ps,
                clock.port_bytes,
            )
        busy, multipliers = dict.fromkeys(Phase, 0), dict.fromkeys(Phase, 0)
        for part, engines in zip(clock.slices, timing.engines[device], strict=True):
            for (phase, resource), engine in zip(part.engines(), engines.built, strict=True):
                busy[phase] += resource.busy_ps * engine.multipliers
                multipliers[phase] += engine.multipliers
        links = {**clock.links, **clock.bursts}
        sent = {key: resource.served_rows - resource.spared_rows for key, resource in links.items()}
        moved = sum(
            part.ports[stream.phase].served_rows * stream.sample_bytes // stream.rows
            for part, streams in zip(clock.slices, timing.memory(device), strict=True)
            for stream in streams
        )
        return cls(device, _three(busy), _three(multipliers), sent, clock.updated_ps, moved)


def _three(counts: Mapping[Phase, int]) -> tuple[int, int, int]:
    return counts[Phase.FP], counts[Phase.EB], counts[Phase.PG]


@dataclasses.dataclass(frozen=True)
class MemoryUsage:
    """On-chip memory that a device needs, in bytes, and what its board has (FPDeep, section 5.2.2).

    `off_chip` are bytes of data in the board's off-chip memory, which are not in the others.
    """

    lpram: int
    lgb: int
    act_ram: int
    board: int
    bpram: int = 0
    bgb: int = 0
    off_chip: int = 0

    @property
    def share(self) -> float:
        """Memory needed over memory available."""
        return (self.lpram + self.lgb + self.act_ram + self.bpram + self.bgb) / self.board


@dataclasses.dataclass(frozen=True)
class DeviceUsage:
    """One device: its slices, the busy share of FP, EB and PG weighted by multipliers, and its
    memory.

    `port_bytes` moved over the memory port, which took the share `port_utilisation` of its
    bandwidth.
    """

    device: int
    board: str
    slices: tuple[str, ...]
    busy: dict[str, float]
    multipliers: int
    memory: MemoryUsage
    port_bytes: int = 0
    port_utilisation: float = 0.0


@dataclasses.dataclass(frozen=True)
class LinkUsage:
    """One direction of one link: bytes of each data path, and the share of its bandwidth that they
    took.
    """

    sender: int
    receiver: int
    path_bytes: dict[DataPath, int]
    utilisation: float


@dataclasses.dataclass(frozen=True)
class ResourceUse:
    """A resource of a pair, up to now: its busy time, and of a link the bytes that it has really
    carried.

    `longest` is the task that keeps it busy longest in a mini-batch.
    """

    name: str
    busy_ps: int
    carried_bytes: int
    longest: str


@dataclasses.dataclass(frozen=True)
class Usage:
    """A run's virtual time, and the usage of devices and links in it."""

    virtual_time_ps: int
    devices: tuple[DeviceUsage, ...]
    links: tuple[LinkUsage, ...]

    def __repr__(self) -> str:
        return f"<Usage of {plural(len(self.devices), 'device')} in {self.virtual_time_ps} ps>"


def usage_of(
    timing: Timing, counters: Sequence[DeviceCounters], in_flight: Sequence[int], total_ps: int
) -> Usage:
    """Return the usage of a chain from the counters of all its devices, in a run of `total_ps`."""
    by_number = {counted.device: counted for counted in counters}
    devices = tuple(
        _device(timing, by_number[number], in_flight[number], total_ps)
        for number in range(len(timing.mapping.devices))
    )
    tables = _crossing(timing)
    hops = dict.fromkeys([*timing.routes.carried, *tables])
    links = tuple(_link(timing, hop, tables.get(hop, []), by_number, total_ps) for hop in hops)
    return Usage(total_ps, devices, links)


def _crossing(timing: Timing) -> dict[Hop, list[tuple[int, Crossing, StreamKey]]]:
    """Return by link what crosses the chain before updates, with the device that sends it there."""
    tables: dict[Hop, list[tuple[int, Crossing, StreamKey]]] = {}
    for device, table, forward in itertools.product(
        range(len(timing.mapping.devices)), timing.crossing, (True, False)
    ):
        hop = timing.ways.hop(device, table, forward=forward)
        if hop is not None:
            tables.setdefault(hop, []).append((device, table, table.key(forward=forward)))
    return tables


def _device(timing: Timing, counted: DeviceCounters, in_flight: int, total_ps: int) -> DeviceUsage:
    number = counted.device
    busy = {
        phase: busy_ps / (multipliers * total_ps)
        for phase, busy_ps, multipliers in zip(
            PHASES, counted.busy_ps, counted.multipliers, strict=True
        )
        if multipliers and total_ps
    }
    names = tuple(str(part) for part in timing.mapping.devices[number])
    board, utilisation = timing.cluster.board(number), 0.0
    if counted.port_bytes and total_ps:
        utilisation = counted.port_bytes * 1_000_000 / board.off_chip_mbytes_per_s / total_ps
    memory = _memory(timing, number, in_flight)
    multipliers = board.multipliers if timing.stages is not None else sum(counted.multipliers)
    return DeviceUsage(
        number, board.name, names, busy, multipliers, memory, counted.port_bytes, utilisation
    )


def _link(
    timing: Timing,
    hop: Hop,
    tables: Sequence[tuple[int, Crossing, StreamKey]],
    counters: Mapping[int, DeviceCounters],
    total_ps: int,
) -> LinkUsage:
    path_bytes: dict[DataPath, int] = {}
    over, headers = timing.routes.link_of(hop), 0.0
    if isinstance(over, OnBoard):
        return LinkUsage(*hop, path_bytes, 0.0)
    for device, stream in timing.routes.carried.get(hop, ()):
        sent_rows = counters[device].sent_rows[stream.key]
        sent = round(sent_rows * stream.row_bytes)
        if timing.stages is not None:
            sent = timing.stages.message_bytes([stream], round(sent_rows / stream.rows))
            # As if it were one message: those of whole messages fill their packets.
            headers += over.overhead_bytes(sent)
        else:
            headers += sent_rows * over.overhead_bytes(stream.row_bytes)
        path_bytes[stream.path] = path_bytes.get(stream.path, 0) + sent
    for device, table, key in tables:
        if rows := counters[device].sent_rows.get(key):
            path_bytes[key.path] = path_bytes.get(key.path, 0) + round(rows * table.row_bytes)
            headers += rows * over.overhead_bytes(table.row_bytes)
    carried_ps = (sum(path_bytes.values()) + headers) * 8 * 1_000_000 / over.bandwidth_mbps
    return LinkUsage(*hop, path_bytes, carried_ps / total_ps if total_ps else 0.0)


def _memory(timing: Timing, device: int, in_flight: int) -> MemoryUsage:
    if timing.stages is not None:
        (weights, gradients, features), stored = timing.stages.memory_bytes(device)
        capacity = timing.cluster.board(device).on_chip_memory_bytes
        return MemoryUsage(weights, gradients, features, capacity, off_chip=stored)
    lpram = lgb = act_ram = off_chip = 0
    storage = timing.cluster.storage
    for part, off in timing.slices_off_chip(device):
        balanced = sum(block.part.channels for _, block in blocks_of(timing.blocks, part, device))
        memory = slice_memory(part, in_flight, part.channels - balanced - off.channels, storage)
        lpram, lgb = lpram + memory.lpram.bytes, lgb + memory.lgb.bytes
        act_ram += 0 if off.activations else memory.act_ram.bytes
        off_chip += stored_bytes(part, off, in_flight, storage)
    blocks = [block for block in timing.blocks if block.store_device == device]
    stored = sum(block.parameter_bytes for block in blocks)
    with_all = sum(formats_of(block.part, storage).weight_bytes(block.weights) for block in blocks)
    board = timing.cluster.board(device).on_chip_memory_bytes
    return MemoryUsage(lpram, lgb, act_ram, board, stored, with_all - stored, off_chip)
