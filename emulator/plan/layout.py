"""The layout of a network on a cluster: what every device holds and takes, what its links carry, and what limits it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..cluster.board import Board, Cluster
from ..common.units import gbps, gops
from ..mapping.balancing import COPIES, Balancing
from ..mapping.engines import SliceEngines
from ..mapping.memory import Buffer, SliceMemory, parameter_memory, slice_memory
from ..mapping.slices import Slice
from ..network.layers import Network
from ..network.operator_graph import TRAINING_OPERATIONS_PER_MAC
from ..timing.bottleneck import EngineServer, LinkServer, engine_servers, find_bottleneck, link_servers
from ..timing.timing import Timing
from .placement import place
from .resources import Resources, bram_bytes, lut_bytes, resources, transceivers_used

OFF_CHIP_PASSES = 4
"""How often a sample goes through parameters off chip: FP and EB read them; PG reads, adds to and writes gradients."""


@dataclasses.dataclass(frozen=True)
class SliceLayout:
    """A slice with its engines, the buffers that it has on its device, and the resources of both."""

    part: Slice
    engines: SliceEngines
    memory: SliceMemory
    off_chip_bytes: int
    resources: Resources


@dataclasses.dataclass(frozen=True)
class DeviceLayout:
    """A device: its slices, what it stores for others (BPRAM; BGB is as large), and the bytes that have no place."""

    device: int
    board: Board
    in_flight: int
    slices: tuple[SliceLayout, ...]
    servers: tuple[EngineServer, ...]
    bpram: Buffer
    stored: Resources
    shortfall_bytes: int

    @property
    def buffers(self) -> Buffer:
        """All that is on chip, what has no place included."""
        return sum((held.memory.total for held in self.slices), self.bpram + self.bpram)

    @property
    def resources(self) -> Resources:
        """All that is taken."""
        return sum((held.resources for held in self.slices), self.stored)

    @property
    def off_chip_bytes(self) -> int:
        """Parameters and gradients off chip."""
        return sum(held.off_chip_bytes for held in self.slices)

    def slowest(self) -> tuple[str, int]:
        """The slowest engine's name, and its time for a sample in picoseconds."""
        slowest = max(self.servers, key=lambda server: server.sample_ps)
        return slowest.engine, slowest.sample_ps


@dataclasses.dataclass(frozen=True)
class LinkLayout:
    """Bytes a sample, balanced parameters included, in each direction between devices `link` and `link + 1`."""

    link: int
    forward_bytes: int
    backward_bytes: int


@dataclasses.dataclass(frozen=True)
class Layout:
    """The whole; `interval_ps` is what a sample takes in the steady pipeline, and `limit` the server that sets it."""

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
        """Operations of all layers, over all devices."""
        return self._gops(self.network.macs, len(self.devices))

    @property
    def conv_gops_per_fpga(self) -> float:
        """Operations of convolutions, over the devices that have any."""
        macs = sum(layer.macs for layer in self.network.layers if not layer.is_fc)
        return self._gops(macs, sum(any(not s.part.layer.is_fc for s in d.slices) for d in self.devices))

    @property
    def storage_bytes(self) -> int:
        """S of equation (12): what the fullest device holds on chip, in block RAM (f6) and in LUTs (f7)."""
        beta = self.cluster.beta
        return max(bram_bytes(device.buffers, beta) + lut_bytes(device.buffers, beta) for device in self.devices)

    def utilisation(self, device: DeviceLayout) -> dict[str, float | None]:
        """Shares of what the board has; None where that is not known."""
        board, taken = device.board, device.resources
        transceivers = None
        if board.transceivers and board.transceiver_gbps:
            needed = transceivers_used(self.cluster.link.bandwidth_gbps, board.transceiver_gbps)
            transceivers = needed / board.transceivers
        return {
            "dsp_share": taken.dsp / board.dsp,
            "lut_share": taken.lut / board.lut if board.lut else None,
            "ff_share": taken.ff / board.ff if board.ff else None,
            "bram_share": taken.bram_banks / board.banks if board.banks else None,
            "transceiver_share": transceivers,
            "on_chip_bytes_share": device.buffers.bytes / board.on_chip_memory_bytes,
        }

    def exceeded(self) -> dict[str, list[int]]:
        """For each resource the devices that would need more than their boards have; BRAM counts in whole banks."""
        utilisation = [self.utilisation(device) for device in self.devices]
        over = {
            kind: [device for device, shares in enumerate(utilisation) if (shares[f"{kind}_share"] or 0) > 1]
            for kind in ("dsp", "lut", "ff", "bram", "transceiver")
        }
        return {kind: devices for kind, devices in over.items() if devices}

    def _gops(self, macs: int, devices: int) -> float:
        return gops(TRAINING_OPERATIONS_PER_MAC * macs, self.interval_ps) / max(1, devices)

    def gbps(self, sample_bytes: int) -> float:
        """The bandwidth that so many bytes a sample take."""
        return gbps(sample_bytes, self.interval_ps)

    def off_chip_gbytes_per_s(self, device: int) -> float:
        """The bandwidth of off-chip memory that a device would need."""
        one_copy = self.devices[device].off_chip_bytes / COPIES
        return OFF_CHIP_PASSES * one_copy * self.images_per_s / 1e9


def lay_out(timing: Timing, in_flight: Sequence[int]) -> Layout:
    """Size all buffers, balance parameters, and add up what everything takes.

    Where even balanced parameters do not fit, nothing moves, and rates are those of devices with memory enough.

    Args:
        timing: engines and links; its loans, if it has any, else what is found to be best.
        in_flight: for each device the samples whose activations its Act-RAM holds at once.
    """
    mapping, cluster = timing.mapping, timing.cluster
    on_chip, balancing = place(mapping, cluster, in_flight)
    if timing.loans:
        balancing = Balancing(timing.loans, (0,) * len(mapping.devices))
    else:
        timing = Timing.of(mapping, cluster, balancing.loans)
    servers: list[list[EngineServer]] = [[] for _ in mapping.devices]
    for server in engine_servers(timing):
        servers[server.device].append(server)
    devices = tuple(
        _device(timing, device, in_flight[device], on_chip[device], balancing, tuple(servers[device]))
        for device in range(len(mapping.devices))
    )
    directions = link_servers(timing)
    links = tuple(
        LinkLayout(right.sender, right.sample_bytes, left.sample_bytes)
        for right, left in zip(directions[::2], directions[1::2], strict=True)
    )
    slowest = find_bottleneck(timing).slowest
    limit = slowest.link if isinstance(slowest, LinkServer) else slowest.name
    return Layout(mapping.network, cluster, devices, links, balancing, timing.interval_ps, limit)


def _device(
    timing: Timing,
    device: int,
    in_flight: int,
    on_chip: list[Slice],
    balancing: Balancing,
    servers: tuple[EngineServer, ...],
) -> DeviceLayout:
    board, beta = timing.cluster.board(device), timing.cluster.beta
    dsp_left = board.dsp_multipliers
    slices = []
    for part, engines in zip(timing.mapping.devices[device], timing.engines[device], strict=True):
        memory = slice_memory(part, in_flight, part.end - part.begin - balancing.lent_channels(part, device))
        off_chip = 0
        if part not in on_chip:
            off_chip = COPIES * memory.lpram.bytes
            memory = dataclasses.replace(memory, lpram=Buffer(), lgb=Buffer())
        multipliers = sum(engine.multipliers for engine in engines.built)
        of_dsp = min(dsp_left, multipliers)
        dsp_left -= of_dsp
        taken = resources(of_dsp, multipliers - of_dsp, memory.total, beta)
        slices.append(SliceLayout(part, engines, memory, off_chip, taken))
    stored = (loan for loan in balancing.loans if loan.store_device == device)
    bpram = sum((parameter_memory(loan.part, loan.end - loan.begin) for loan in stored), Buffer())
    return DeviceLayout(
        device,
        board,
        in_flight,
        tuple(slices),
        servers,
        bpram,
        resources(0, 0, bpram + bpram, beta),
        balancing.shortfall_bytes[device],
    )
