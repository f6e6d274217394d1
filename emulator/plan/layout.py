"""Layout of a network on a cluster: what each device stores and uses, what links carry, and what limits the rate."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..cluster import BANK_BYTES, Board, Cluster, Resources
from ..mapping import (
    Balancing,
    Buffer,
    DataPath,
    OffChip,
    Slice,
    SliceEngines,
    SliceMemory,
    parameter_memories,
    port_bytes,
    slice_memory,
    stored_bytes,
)
from ..network import Network
from ..timing import EngineLoad, Timing, engine_loads, link_loads
from .placement import bram_bytes, buffer_resources, lut_bytes, missing_bytes, place_on_chip, transceivers_used

OFF_CHIP_PASSES = 4
"""Passes of a sample over off-chip parameters: FP and EB read them; PG reads, adds to and writes gradients."""


@dataclasses.dataclass(frozen=True)
class SliceLayout:
    """A slice with its engines, its buffers on the device, and the resources of both; and what of it is off chip.

    `off_chip_bytes` is the size of off-chip data, `port_bytes` what they move over the memory port for a sample.
    """

    part: Slice
    engines: SliceEngines
    memory: SliceMemory
    off_chip: OffChip
    off_chip_bytes: int
    port_bytes: int
    resources: Resources


@dataclasses.dataclass(frozen=True)
class DeviceLayout:
    """A device: its slices, what it stores for others (BPRAM, BGB), and what is missing on chip.

    `missing_bytes` are of whole banks, and times ignore them. `port_ps` is the time of a sample on the memory port, 0
    if nothing is off chip or that costs no time.
    """

    device: int
    board: Board
    in_flight: int
    slices: tuple[SliceLayout, ...]
    loads: tuple[EngineLoad, ...]
    bpram: Buffer
    bgb: Buffer
    stored: Resources
    shortfall_bytes: int
    missing_bytes: int
    port_ps: int

    @property
    def buffers(self) -> Buffer:
        """All on-chip buffers, including those that do not fit."""
        return sum((held.memory.total for held in self.slices), self.bpram + self.bgb)

    @property
    def resources(self) -> Resources:
        """Resources of all slices and of what is stored for others."""
        return sum((held.resources for held in self.slices), self.stored)

    @property
    def off_chip_bytes(self) -> int:
        """Bytes of off-chip parameters, gradients and activations."""
        return sum(held.off_chip_bytes for held in self.slices)

    @property
    def port_bytes(self) -> int:
        """Bytes that off-chip data move over the memory port for a sample."""
        return sum(held.port_bytes for held in self.slices)

    @property
    def slowest(self) -> EngineLoad:
        """Load of the slowest engine."""
        return max(self.loads, key=lambda load: load.sample_ps)


@dataclasses.dataclass(frozen=True)
class LinkLayout:
    """Bytes per sample in each direction between devices `link` and `other`, mostly the next one.

    `balanced_bytes` of them are balanced parameters, in whichever direction, and as many are their gradients.
    """

    link: int
    forward_bytes: int
    backward_bytes: int
    other: int
    balanced_bytes: int


@dataclasses.dataclass(frozen=True)
class Layout:
    """Layout of all devices and links of a chain, which a sample can enter every `interval_ps`.

    That is the interval of the plan's timing; the rate of a run, which may drain or wait for an exchange, is that of
    its steady state.
    """

    network: Network
    cluster: Cluster
    devices: tuple[DeviceLayout, ...]
    links: tuple[LinkLayout, ...]
    balancing: Balancing
    interval_ps: int

    @property
    def missing_bytes(self) -> int:
        """Bytes of whole banks that are missing on all devices, and that times ignore."""
        return sum(device.missing_bytes for device in self.devices)

    @property
    def fits(self) -> bool:
        """Whether everything has a place, so that times ignore no memory."""
        return not self.missing_bytes

    @property
    def off_chip_bytes(self) -> int:
        """Bytes of off-chip parameters, gradients and activations of all devices."""
        return sum(device.off_chip_bytes for device in self.devices)

    @property
    def storage_bytes(self) -> int:
        """S of equation (12): what the fullest device holds on chip, in block RAM (f6) and in LUTs (f7)."""
        beta = self.cluster.beta
        return max(bram_bytes(device.buffers, beta) + lut_bytes(device.buffers, beta) for device in self.devices)

    def room(self, device: DeviceLayout) -> int:
        """Return the bytes that buffers may take in block RAM; those of memories built of LUTs are beside them."""
        return max(BANK_BYTES * self.cluster.banks_for_buffers(device.board), device.board.on_chip_memory_bytes)

    def utilisation(self, device: DeviceLayout) -> dict[str, float | None]:
        """Return the used shares of the board's resources; None where the board's limit is unknown."""
        board, taken = device.board, device.resources
        transceivers = None
        if board.transceivers and board.transceiver_gbps:
            links = [self.cluster.link_at(max(0, device.device - 1)), self.cluster.link_at(device.device)]
            needed = sum(transceivers_used(link.bandwidth_gbps, board.transceiver_gbps) for link in links)
            transceivers = needed / board.transceivers

        def share(kind: str, count: int) -> float | None:
            limit = board.limits[kind]
            return count / limit if limit else None

        return {
            "dsp_share": share("dsp", taken.dsp),
            "lut_share": share("lut", taken.lut),
            "ff_share": share("ff", taken.ff),
            "bram_share": share("bram_banks", taken.bram_banks),
            "transceiver_share": transceivers,
            "on_chip_bytes_share": device.buffers.bytes / board.on_chip_memory_bytes,
            "block_ram_bytes_share": device.buffers.block_ram_bytes / self.room(device),
        }

    def exceeded(self) -> dict[str, list[int]]:
        """Return for each exceeded resource the devices that need more than their boards have; BRAM in whole banks."""
        utilisation = [self.utilisation(device) for device in self.devices]
        over = {
            kind: [device for device, shares in enumerate(utilisation) if (shares[f"{kind}_share"] or 0) > 1]
            for kind in ("dsp", "lut", "ff", "bram", "transceiver")
        }
        return {kind: devices for kind, devices in over.items() if devices}


def lay_out(timing: Timing, in_flight: Sequence[int]) -> Layout:
    """Size all buffers and add up the resources, for a timing that has a place for all data.

    `in_flight` is the number of samples whose activations each device's Act-RAM holds at once.
    """
    missing = missing_bytes(timing, in_flight)
    devices = range(len(timing.mapping.devices))
    off_chip = [[off for _, off in timing.slices_off_chip(device)] for device in devices]
    return _layout(timing, in_flight, off_chip, Balancing(timing.blocks, missing), missing)


def lay_out_on_chip(timing: Timing, in_flight: Sequence[int]) -> Layout:
    """Size all buffers and add up the resources, as FPDeep does: off-chip memory costs no time.

    Only the timing's balanced parameters have moved. Where parameters do not fit even when balanced, it has none, and
    rates are those of devices with enough memory.

    Args:
        timing: engines, links and balanced parameters.
        in_flight: number of samples whose activations each device's Act-RAM holds at once.
    """
    mapping, cluster = timing.mapping, timing.cluster
    on_chip, best = place_on_chip(mapping, cluster, in_flight)
    fits = (0,) * len(mapping.devices)
    balancing = Balancing(timing.blocks, fits if timing.blocks else best.shortfall_bytes)
    off_chip = tuple(
        tuple(OffChip() if part in kept else OffChip(part.channels) for part in slices)
        for slices, kept in zip(mapping.devices, on_chip, strict=True)
    )
    return _layout(timing, in_flight, off_chip, balancing, missing_bytes(timing, in_flight))


def _layout(
    timing: Timing,
    in_flight: Sequence[int],
    off_chip: Sequence[Sequence[OffChip]],
    balancing: Balancing,
    missing: Sequence[int],
) -> Layout:
    mapping, cluster = timing.mapping, timing.cluster
    loads: list[list[EngineLoad]] = [[] for _ in mapping.devices]
    for load in engine_loads(timing):
        loads[load.device].append(load)
    devices = tuple(
        _device(timing, device, in_flight[device], off_chip[device], balancing, tuple(loads[device]), missing[device])
        for device in range(len(mapping.devices))
    )
    return Layout(mapping.network, cluster, devices, _links(timing), balancing, timing.interval_ps)


def _links(timing: Timing) -> tuple[LinkLayout, ...]:
    loads = {(load.sender, load.receiver): load for load in link_loads(timing)}
    links = []
    for left, right in dict.fromkeys((min(hop), max(hop)) for hop in loads):
        sides = [loads[hop] for hop in ((left, right), (right, left)) if hop in loads]
        forward, backward = (
            sum(load.sample_bytes for load in sides if load.sender == sender) for sender in (left, right)
        )
        moved = (stream for load in sides for stream in load.streams if stream.path is DataPath.PARAMETERS)
        balanced = sum(timing.blocks[stream.number].parameter_bytes for stream in moved)
        links.append(LinkLayout(left, forward, backward, right, balanced))
    return tuple(links)


def _device(
    timing: Timing,
    device: int,
    in_flight: int,
    off_chip: Sequence[OffChip],
    balancing: Balancing,
    loads: tuple[EngineLoad, ...],
    missing: int,
) -> DeviceLayout:
    board, beta, storage = timing.cluster.board(device), timing.cluster.beta, timing.cluster.storage
    engines_of = timing.engines[device]
    built = board.slice_resources([engines.multipliers for engines in engines_of])
    slices = []
    for part, off, engines, taken in zip(timing.mapping.devices[device], off_chip, engines_of, built, strict=True):
        kept = part.channels - balancing.balanced_channels(part, device) - off.channels
        memory = slice_memory(part, in_flight, kept, storage)
        size = stored_bytes(part, off, in_flight, storage)
        if off.activations:
            memory = dataclasses.replace(memory, act_ram=Buffer())
        resources = taken + buffer_resources(memory.total, beta)
        slices.append(SliceLayout(part, engines, memory, off, size, port_bytes(part, off, storage), resources))
    stored = (block for block in balancing.blocks if block.store_device == device)
    memories = [parameter_memories(block.part, block.part.channels, storage) for block in stored]
    bpram, bgb = (sum(buffers, Buffer()) for buffers in zip((Buffer(), Buffer()), *memories, strict=True))
    return DeviceLayout(
        device,
        board,
        in_flight,
        tuple(slices),
        loads,
        bpram,
        bgb,
        buffer_resources(bpram + bgb, beta),
        balancing.shortfall_bytes[device],
        missing,
        timing.port_sample_ps(device),
    )
