"""Layout of a network on a cluster: what each device stores and uses, what links carry, and what limits the rate."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..cluster import Board, Cluster, Resources
from ..common import gbps, gops
from ..mapping import COPIES, Balancing, Buffer, Slice, SliceEngines, SliceMemory, parameter_memory, slice_memory
from ..network import TRAINING_OPERATIONS_PER_MAC, Layer, Network
from ..timing import EngineLoad, LinkLoad, Timing, engine_loads, find_bottleneck, link_loads
from .placement import place
from .resources import bram_bytes, buffer_resources, lut_bytes, transceivers_used

OFF_CHIP_PASSES = 4
"""Passes of a sample over off-chip parameters: FP and EB read them; PG reads, adds to and writes gradients."""


@dataclasses.dataclass(frozen=True)
class SliceLayout:
    """A slice with its engines, its buffers on the device, and the resources of both."""

    part: Slice
    engines: SliceEngines
    memory: SliceMemory
    off_chip_bytes: int
    resources: Resources


@dataclasses.dataclass(frozen=True)
class DeviceLayout:
    """A device: its slices, what it stores for others (BPRAM; BGB has the same size), and the bytes that do not fit."""

    device: int
    board: Board
    in_flight: int
    slices: tuple[SliceLayout, ...]
    loads: tuple[EngineLoad, ...]
    bpram: Buffer
    stored: Resources
    shortfall_bytes: int

    @property
    def buffers(self) -> Buffer:
        """All on-chip buffers, including those that do not fit."""
        return sum((held.memory.total for held in self.slices), self.bpram + self.bpram)

    @property
    def resources(self) -> Resources:
        """Resources of all slices and of what is stored for others."""
        return sum((held.resources for held in self.slices), self.stored)

    @property
    def off_chip_bytes(self) -> int:
        """Bytes of off-chip parameters and gradients."""
        return sum(held.off_chip_bytes for held in self.slices)

    @property
    def slowest(self) -> EngineLoad:
        """Load of the slowest engine."""
        return max(self.loads, key=lambda load: load.sample_ps)


@dataclasses.dataclass(frozen=True)
class LinkLayout:
    """Bytes per sample, including balanced parameters, in each direction between devices `link` and `link + 1`."""

    link: int
    forward_bytes: int
    backward_bytes: int


@dataclasses.dataclass(frozen=True)
class Layout:
    """Layout of all devices and links; the steady pipeline finishes a sample every `interval_ps`, set by `limit`."""

    network: Network
    cluster: Cluster
    devices: tuple[DeviceLayout, ...]
    links: tuple[LinkLayout, ...]
    balancing: Balancing
    interval_ps: int
    limit: str

    @property
    def images_per_s(self) -> float:
        """Throughput of the steady pipeline."""
        return 1e12 / self.interval_ps

    @property
    def gops_per_fpga(self) -> float:
        """GOPS of all layers, per device."""
        return self._gops(self.network.layers, len(self.devices))

    @property
    def conv_gops_per_fpga(self) -> float:
        """GOPS of convolutions, per device that holds any."""
        convolutions = [layer for layer in self.network.layers if layer.convolves]
        return self._gops(
            convolutions, sum(any(held.part.layer.convolves for held in device.slices) for device in self.devices)
        )

    @property
    def storage_bytes(self) -> int:
        """S of equation (12): what the fullest device holds on chip, in block RAM (f6) and in LUTs (f7)."""
        beta = self.cluster.beta
        return max(bram_bytes(device.buffers, beta) + lut_bytes(device.buffers, beta) for device in self.devices)

    def utilisation(self, device: DeviceLayout) -> dict[str, float | None]:
        """Return the used shares of the board's resources; None where the board's limit is unknown."""
        board, taken = device.board, device.resources
        transceivers = None
        if board.transceivers and board.transceiver_gbps:
            needed = transceivers_used(self.cluster.link.bandwidth_gbps, board.transceiver_gbps)
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
        }

    def exceeded(self) -> dict[str, list[int]]:
        """Return for each exceeded resource the devices that need more than their boards have; BRAM in whole banks."""
        utilisation = [self.utilisation(device) for device in self.devices]
        over = {
            kind: [device for device, shares in enumerate(utilisation) if (shares[f"{kind}_share"] or 0) > 1]
            for kind in ("dsp", "lut", "ff", "bram", "transceiver")
        }
        return {kind: devices for kind, devices in over.items() if devices}

    def gbps(self, sample_bytes: int) -> float:
        """Return the bandwidth of `sample_bytes` bytes per sample, in Gbit/s."""
        return gbps(sample_bytes, self.interval_ps)

    def off_chip_gbytes_per_s(self, device: int) -> float:
        """Return the off-chip memory bandwidth that a device needs, in GB/s."""
        one_copy = self.devices[device].off_chip_bytes / COPIES
        return OFF_CHIP_PASSES * one_copy * self.images_per_s / 1e9

    def _gops(self, layers: Sequence[Layer], devices: int) -> float:
        operations = TRAINING_OPERATIONS_PER_MAC * sum(layer.macs for layer in layers)
        return gops(operations, self.interval_ps) / max(1, devices)


def lay_out(timing: Timing, in_flight: Sequence[int]) -> Layout:
    """Size all buffers, balance parameters, and add up the resources.

    Where parameters do not fit even when balanced, none move, and rates are those of devices with enough memory.

    Args:
        timing: engines and links; its balanced parameters are kept, and if it has none, the best ones are found.
        in_flight: number of samples whose activations each device's Act-RAM holds at once.
    """
    mapping, cluster = timing.mapping, timing.cluster
    on_chip, balancing = place(mapping, cluster, in_flight)
    if timing.blocks:
        balancing = Balancing(timing.blocks, (0,) * len(mapping.devices))
    else:
        timing = Timing.of(mapping, cluster, balancing.blocks)
    loads: list[list[EngineLoad]] = [[] for _ in mapping.devices]
    for load in engine_loads(timing):
        loads[load.device].append(load)
    devices = tuple(
        _device(timing, device, in_flight[device], on_chip[device], balancing, tuple(loads[device]))
        for device in range(len(mapping.devices))
    )
    directions = link_loads(timing)
    links = tuple(
        LinkLayout(right.sender, right.sample_bytes, left.sample_bytes)
        for right, left in zip(directions[::2], directions[1::2], strict=True)
    )
    slowest = find_bottleneck(timing).slowest
    limit = slowest.link if isinstance(slowest, LinkLoad) else slowest.name
    return Layout(mapping.network, cluster, devices, links, balancing, timing.interval_ps, limit)


def _device(
    timing: Timing,
    device: int,
    in_flight: int,
    on_chip: list[Slice],
    balancing: Balancing,
    loads: tuple[EngineLoad, ...],
) -> DeviceLayout:
    board, beta = timing.cluster.board(device), timing.cluster.beta
    engines_of = timing.engines[device]
    built = board.engine_resources([sum(e.multipliers for e in engines.built) for engines in engines_of])
    slices = []
    for part, engines, taken in zip(timing.mapping.devices[device], engines_of, built, strict=True):
        memory = slice_memory(part, in_flight, part.channels - balancing.balanced_channels(part, device))
        off_chip = 0
        if part not in on_chip:
            off_chip = COPIES * memory.lpram.bytes
            memory = dataclasses.replace(memory, lpram=Buffer(), lgb=Buffer())
        resources = taken + buffer_resources(memory.total, beta)
        slices.append(SliceLayout(part, engines, memory, off_chip, resources))
    stored = (block for block in balancing.blocks if block.store_device == device)
    bpram = sum((parameter_memory(block.part, block.part.channels) for block in stored), Buffer())
    return DeviceLayout(
        device,
        board,
        in_flight,
        tuple(slices),
        loads,
        bpram,
        buffer_resources(bpram + bpram, beta),
        balancing.shortfall_bytes[device],
    )
