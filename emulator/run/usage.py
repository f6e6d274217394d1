"""Counts of a run's clocks: busy shares of engines, bytes on links, memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ..mapping import DataPath, StreamKey, blocks_of, slice_memory
from ..network import Phase
from ..timing import DeviceClock, Timing

PHASES = tuple(phase.value for phase in Phase)


@dataclasses.dataclass(frozen=True)
class DeviceCounters:
    """Raw counters of one device: busy time times multipliers, and multipliers, of FP, EB and PG; rows sent."""

    device: int
    busy_ps: tuple[int, int, int]
    multipliers: tuple[int, int, int]
    sent_rows: Mapping[StreamKey, float]
    updated_ps: int

    @classmethod
    def of(cls, clock: DeviceClock, timing: Timing) -> DeviceCounters:
        """Return the counters of a device up to now."""
        device = clock.streams.device
        busy, multipliers = dict.fromkeys(Phase, 0), dict.fromkeys(Phase, 0)
        for part, engines in zip(clock.slices, timing.engines[device], strict=True):
            for (phase, resource), engine in zip(part.engines(), engines.built, strict=True):
                busy[phase] += resource.busy_ps * engine.multipliers
                multipliers[phase] += engine.multipliers
        sent = {key: resource.served_rows - resource.spared_rows for key, resource in clock.links.items()}
        return cls(device, _three(busy), _three(multipliers), sent, clock.updated_ps)


def _three(counts: Mapping[Phase, int]) -> tuple[int, int, int]:
    return counts[Phase.FP], counts[Phase.EB], counts[Phase.PG]


@dataclasses.dataclass(frozen=True)
class MemoryUsage:
    """On-chip memory that a device needs, in bytes, and what its board has (FPDeep, section 5.2.2)."""

    lpram: int
    lgb: int
    act_ram: int
    board: int
    bpram: int = 0
    bgb: int = 0

    @property
    def share(self) -> float:
        """Memory needed over memory available."""
        return (self.lpram + self.lgb + self.act_ram + self.bpram + self.bgb) / self.board


@dataclasses.dataclass(frozen=True)
class DeviceUsage:
    """One device: its slices, the busy share of FP, EB and PG weighted by multipliers, and its memory."""

    device: int
    board: str
    slices: tuple[str, ...]
    busy: dict[str, float]
    multipliers: int
    memory: MemoryUsage


@dataclasses.dataclass(frozen=True)
class LinkUsage:
    """One direction of one link: bytes of each data path, and the share of its bandwidth that they took."""

    sender: int
    receiver: int
    path_bytes: dict[DataPath, int]
    utilisation: float


@dataclasses.dataclass(frozen=True)
class Usage:
    """A run's virtual time, and the usage of devices and links in it."""

    virtual_time_ps: int
    devices: tuple[DeviceUsage, ...]
    links: tuple[LinkUsage, ...]

    def __repr__(self) -> str:
        return f"<Usage of {len(self.devices)} devices in {self.virtual_time_ps} ps>"


def usage_of(timing: Timing, counters: Sequence[DeviceCounters], in_flight: Sequence[int], total_ps: int) -> Usage:
    """Return the usage of a chain from the counters of all its devices, in a run of `total_ps`."""
    by_number = {counted.device: counted for counted in counters}
    devices = tuple(
        _device(timing, by_number[number], in_flight[number], total_ps) for number in range(len(timing.mapping.devices))
    )
    links = tuple(
        _link(timing, link, sender, receiver, by_number[sender].sent_rows, total_ps)
        for link in range(len(timing.links))
        for sender, receiver in ((link, link + 1), (link + 1, link))
    )
    return Usage(total_ps, devices, links)


def _device(timing: Timing, counted: DeviceCounters, in_flight: int, total_ps: int) -> DeviceUsage:
    number = counted.device
    busy = {
        phase: busy_ps / (multipliers * total_ps)
        for phase, busy_ps, multipliers in zip(PHASES, counted.busy_ps, counted.multipliers, strict=True)
        if multipliers and total_ps
    }
    names = tuple(str(part) for part in timing.mapping.devices[number])
    board = timing.cluster.board(number).name
    return DeviceUsage(number, board, names, busy, sum(counted.multipliers), _memory(timing, number, in_flight))


def _link(
    timing: Timing, link: int, sender: int, receiver: int, sent_rows: Mapping[StreamKey, float], total_ps: int
) -> LinkUsage:
    path_bytes: dict[DataPath, int] = {}
    for stream in timing.links[link]:
        if stream.path.is_forward == (receiver > sender):
            sent = round(sent_rows[stream.key] * stream.row_bytes)
            path_bytes[stream.path] = path_bytes.get(stream.path, 0) + sent
    carried_ps = sum(path_bytes.values()) * 8 * 1_000_000 / timing.cluster.link.bandwidth_mbps
    return LinkUsage(sender, receiver, path_bytes, carried_ps / total_ps if total_ps else 0.0)


def _memory(timing: Timing, device: int, in_flight: int) -> MemoryUsage:
    held = []
    for part in timing.mapping.devices[device]:
        balanced = sum(block.part.channels for _, block in blocks_of(timing.blocks, part, device))
        held.append(slice_memory(part, in_flight, part.channels - balanced))
    lpram, lgb, act_ram = (sum(getattr(memory, name).bytes for memory in held) for name in ("lpram", "lgb", "act_ram"))
    stored = sum(block.parameter_bytes for block in timing.blocks if block.store_device == device)
    return MemoryUsage(lpram, lgb, act_ram, timing.cluster.board(device).on_chip_memory_bytes, stored, stored)
