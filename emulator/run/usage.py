"""What a run's clocks have counted, as figures for people: busy shares of engines, bytes on links, memory."""

from __future__ import annotations

import dataclasses

from ..device.device import Device
from ..mapping.balancing import loans_of
from ..mapping.memory import slice_memory
from ..mapping.traffic import DataPath, Lane
from ..network.operator_graph import Phase
from ..timing.timing import Timing

PHASES = tuple(phase.value for phase in Phase)


@dataclasses.dataclass(frozen=True)
class DeviceCounts:
    """Raw counts of one device: busy time times multipliers, and multipliers, of FP, EB and PG; rows sent."""

    device: int
    busy_ps: tuple[int, int, int]
    multipliers: tuple[int, int, int]
    sent_rows: dict[Lane, float]
    updated_ps: int


def count(device: Device, timing: Timing) -> DeviceCounts:
    """The counts of a device up to now."""
    busy, multipliers = [0, 0, 0], [0, 0, 0]
    for clock, engines in zip(device.clock.slices, timing.engines[device.number], strict=True):
        phases = ((clock.fp, engines.fp), (clock.eb, engines.eb), (clock.pg, engines.pg))
        for phase, (server, engine) in enumerate(phases):
            if server is not None and engine is not None:
                busy[phase] += server.busy_ps * engine.multipliers
                multipliers[phase] += engine.multipliers
    sent = {lane: server.served_rows - server.spared_rows for lane, server in device.clock.paths.items()}
    return DeviceCounts(device.number, tuple(busy), tuple(multipliers), sent, device.clock.updated_ps)  # type: ignore[arg-type]  # three phases each


@dataclasses.dataclass(frozen=True)
class Memory:
    """On-chip memory that a device needs, in bytes, and what its board has (FPDeep, section 5.2.2)."""

    lpram: int
    lgb: int
    act_ram: int
    board: int
    bpram: int = 0
    bgb: int = 0

    @property
    def share(self) -> float:
        """Needed over available."""
        return (self.lpram + self.lgb + self.act_ram + self.bpram + self.bgb) / self.board


@dataclasses.dataclass(frozen=True)
class DeviceFigures:
    """One device: what it holds, the busy share of FP, EB and PG weighted by multipliers, and its memory."""

    device: int
    board: str
    slices: tuple[str, ...]
    busy: dict[str, float]
    multipliers: int
    memory: Memory


@dataclasses.dataclass(frozen=True)
class LinkFigures:
    """One direction of one link: bytes of each data path, and the share of its bandwidth that they took."""

    sender: int
    receiver: int
    path_bytes: dict[DataPath, int]
    utilisation: float


@dataclasses.dataclass(frozen=True)
class Figures:
    """A run's virtual time, and what devices and links did in it."""

    virtual_time_ps: int
    devices: tuple[DeviceFigures, ...]
    links: tuple[LinkFigures, ...]


def figures(timing: Timing, counts: list[DeviceCounts], in_flight: tuple[int, ...], total_ps: int) -> Figures:
    """Figures from the counts of all devices of a chain, in a run that took so long."""
    devices, links = [], []
    for counted in sorted(counts, key=lambda c: c.device):
        number = counted.device
        board = timing.cluster.board(number)
        slices = timing.mapping.devices[number]
        busy = {
            phase: busy_ps / (multipliers * total_ps)
            for phase, busy_ps, multipliers in zip(PHASES, counted.busy_ps, counted.multipliers, strict=True)
            if multipliers and total_ps
        }
        memory = _memory(timing, number, in_flight[number])
        names = tuple(str(part) for part in slices)
        devices.append(DeviceFigures(number, board.name, names, busy, sum(counted.multipliers), memory))
    by_number = {counted.device: counted for counted in counts}
    for link in range(len(timing.links)):
        for sender, receiver in ((link, link + 1), (link + 1, link)):
            links.append(_link(timing, link, sender, receiver, by_number[sender].sent_rows, total_ps))
    return Figures(total_ps, tuple(devices), tuple(links))


def _link(
    timing: Timing, link: int, sender: int, receiver: int, sent_rows: dict[Lane, float], total_ps: int
) -> LinkFigures:
    path_bytes: dict[DataPath, int] = {}
    for stream in timing.links[link]:
        if stream.path.is_forward == (receiver > sender):
            sent = round(sent_rows[stream.lane] * stream.row_bytes)
            path_bytes[stream.path] = path_bytes.get(stream.path, 0) + sent
    carried_ps = sum(path_bytes.values()) * 8 * 1_000_000 / timing.cluster.link.bandwidth_mbps
    return LinkFigures(sender, receiver, path_bytes, carried_ps / total_ps if total_ps else 0.0)


def _memory(timing: Timing, device: int, in_flight: int) -> Memory:
    held = []
    for part in timing.mapping.devices[device]:
        lent = sum(loan.end - loan.begin for _, loan in loans_of(timing.loans, part, device))
        kept = part.end - part.begin - lent
        held.append(slice_memory(part, in_flight, kept))
    lpram, lgb, act_ram = (sum(getattr(memory, name).bytes for memory in held) for name in ("lpram", "lgb", "act_ram"))
    stored = sum(loan.parameter_bytes for loan in timing.loans if loan.store_device == device)
    return Memory(lpram, lgb, act_ram, timing.cluster.board(device).on_chip_memory_bytes, stored, stored)
