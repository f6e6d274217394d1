"""Layout of a network on a cluster: what fits on each device, what it stores and uses, and what
links carry.

Placement on chip, as FPDeep has it (section 3.4.2), leaves out the time of off-chip memory. Of
LUTs, FFs, block RAM and DSPs, a share alpha of the engines is built from DSPs and the rest from
LUTs and FFs; a share beta of the buffers is built from block RAM and the rest from LUTs. The paper
names the functions f1 to f7 of equations (6) to (12) but does not define them. Here f1 is
`mapping.slice_memory`; the board defines those of engines (`Board.engine_resources`: for FPGAs f5
and the engines' part of f2 and f3); the others are below.

A large cluster aims at speed: with alpha < 1, multipliers built from LUTs are added to the DSPs
(`cluster.lut_multipliers`), and the engines share all of them so that the slowest is as fast as
possible, which is equation (7). A small cluster must first hold the network: equation (12), where
parameters move to devices with room (`mapping.balance`).
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Sequence

from ..cluster import BANK_BYTES, Board, Cluster, Resources
from ..common import InputError
from ..mapping import (
    LUT_RAM_BITS,
    Balancing,
    Buffer,
    DataPath,
    Mapping,
    OffChip,
    Slice,
    SliceEngines,
    SliceMemory,
    WeightBanks,
    balance,
    balance_evenly,
    blocks_of,
    cut_channels,
    multiplier_counts,
    parameter_memories,
    partition_with_memory,
    port_bytes,
    slice_memory,
    slice_needs,
    storage_of,
    stored_bytes,
)
from ..network import Arithmetic, Network
from ..number import Storage
from ..timing import EngineLoad, Timing, engine_loads, link_loads
from .steady import find_steady


def on_chip_banks(timing: Timing, device: int, in_flight: int) -> int:
    """Return the banks of all that is on chip on a device with `in_flight` samples in flight."""
    storage = timing.cluster.storage
    total = sum(
        WeightBanks.of(block.part, storage).of_channels(block.part.channels)
        for block in timing.blocks
        if block.store_device == device
    )
    for part, off in timing.slices_off_chip(device):
        balanced = sum(block.part.channels for _, block in blocks_of(timing.blocks, part, device))
        total += slice_needs(part, in_flight, storage).banks_with(
            # What another device stores takes no banks here, as if it were off chip.
            OffChip(off.channels + balanced, off.activations)
        )
    return total


def stored_on_board_bytes(timing: Timing, device: int, in_flight: int) -> int:
    """Return the bytes that a device keeps with `in_flight` samples in flight, on chip in whole
    banks, and off chip.
    """
    on_chip = BANK_BYTES * on_chip_banks(timing, device, in_flight)
    return on_chip + off_chip_bytes(timing, device, in_flight)


def off_chip_bytes(timing: Timing, device: int, in_flight: int) -> int:
    """Return the bytes of a device's off-chip data: weights, their gradients, and activations of
    samples in flight.
    """
    storage = timing.cluster.storage
    return sum(
        stored_bytes(part, off, in_flight, storage) for part, off in timing.slices_off_chip(device)
    )


def missing_bytes(timing: Timing, in_flight: Sequence[int]) -> tuple[int, ...]:
    """Return for each device the bytes that are missing, on chip in whole banks, and that times
    ignore.
    """
    missing = []
    for device, count in enumerate(in_flight):
        board = timing.cluster.board(device)
        on_chip = BANK_BYTES * (
            on_chip_banks(timing, device, count) - timing.cluster.banks_for_buffers(board)
        )
        off_chip = off_chip_bytes(timing, device, count) - (board.off_chip_memory_bytes or math.inf)
        missing.append(max(0, on_chip) + int(max(0, off_chip)))
    return tuple(missing)


def buffer_resources(buffers: Buffer, beta: float = 1.0) -> Resources:
    """Return the resources of buffers: f4, equation (10), 18-kbit banks; and their part of f2,
    equation (8), LUTs.

    LUTs hold shallow memories, and buffers that are not in block RAM. Buffers use no FFs.
    """
    lut = buffers.lut + math.ceil(lut_bytes(buffers, beta) * 8 / LUT_RAM_BITS)
    return Resources(lut=lut, bram_banks=math.ceil(beta * buffers.banks))


def function_resources(
    part: Slice, engines: SliceEngines, board: Board, paces_ps: dict[int, int] | None = None
) -> Resources:
    """Return the resources of a slice's special functions: those within its layer, of its own
    channels, and at the layer's end those of the whole layer's outputs.

    They take no time, so there are as many as keep up with FP's results, or with those of the
    tensors in `paces_ps`, the time of a sample of each.
    """
    layer = part.layer
    of_layer = layer.operation.arithmetic(layer.input, layer.output)
    share = part.channels / cut_channels(layer)
    own_ps, known = engines.fp.sample_ps, paces_ps or {}
    works = [(Arithmetic(*(math.ceil(share * count) for count in of_layer)), own_ps)]
    for step in layer.sfu if part.is_last else ():
        work = step.operation.arithmetic(step.input, step.output)
        works.append((work, known.get(step.makes.number, own_ps)))
    taken = (board.function_resources(work, time_ps) for work, time_ps in works if any(work))
    return sum(taken, Resources())


def _paces_ps(timing: Timing) -> dict[int, int]:
    """Return the times of a sample of what factors of channels multiply, and of what follows in the
    same special function unit: its rows come no faster than the map that the factors wait for.
    """
    of_layers: dict[int, int] = {}
    for parts, engines_of in zip(timing.mapping.devices, timing.engines, strict=True):
        for part, engines in zip(parts, engines_of, strict=True):
            index = part.layer.index
            of_layers[index] = max(of_layers.get(index, 0), engines.fp.sample_ps)
    made_ps, paces_ps = {0: 0}, dict[int, int]()
    for layer in timing.mapping.network.layers:
        own_ps = made_ps[layer.makes.number] = of_layers.get(layer.index, 0)
        for step in layer.sfu:
            spreads = step.operation.joins and any(rows is not None for rows in step.row_maps)
            times_ps = made_ps if spreads else paces_ps
            slow_ps = [times_ps.get(tensor.number, 0) for tensor in step.reads]
            made_ps[step.makes.number] = max(own_ps, *slow_ps)
            if any(slow_ps):
                paces_ps[step.makes.number] = made_ps[step.makes.number]
    return paces_ps


def bram_bytes(buffers: Buffer, beta: float = 1.0) -> int:
    """Return f6, equation (12): plain bytes in block RAM."""
    return math.ceil(beta * buffers.bytes)


def lut_bytes(buffers: Buffer, beta: float = 1.0) -> int:
    """Return f7, equation (12): plain bytes that beta places in LUTs."""
    return buffers.bytes - bram_bytes(buffers, beta)


def transceivers_used(link_gbps: float, transceiver_gbps: float) -> int:
    """Return the number of transceivers for a link to one neighbour; each sends and receives (Table
    3: Trans_max).
    """
    return math.ceil(link_gbps / transceiver_gbps)


MOST_DEVICES = 1024
"""Largest number of devices that `smallest_cluster` tries."""

_STEADY_BATCH = 16


def place_on_chip(
    mapping: Mapping, cluster: Cluster, in_flight: Sequence[int], storage: Storage | None = None
) -> tuple[list[list[Slice]], Balancing]:
    """Return the slices of each device whose parameters are on chip, and where their channels are
    stored, by bytes.

    The formats of what is stored are the cluster's, unless there are others.

    Fully connected slices that would not fit on their board even alone have their parameters off
    chip (FPDeep, sections 6.3.1 and 7); those of convolutions never are.
    """
    on_chip, rooms, capacities = [], [], []
    storage = storage or cluster.storage
    for device, slices in enumerate(mapping.devices):
        room = int(cluster.board(device).on_chip_memory_bytes / cluster.beta)
        capacities.append(room)
        held = [(part, slice_memory(part, in_flight[device], None, storage)) for part in slices]
        if (
            sum(memory.total.bytes for part, memory in held if part.layer.operation.may_be_off_chip)
            > room
        ):
            on_chip.append([part for part in slices if not part.layer.operation.may_be_off_chip])
        else:
            on_chip.append(list(slices))
        for part, memory in held:
            biases = part.sfu_parameters if part in on_chip[-1] else 0
            room -= memory.working.bytes + storage_of(part, storage).bias_bytes(biases)
        rooms.append(room)
    if cluster.aim == "storage":
        return on_chip, balance_evenly(on_chip, rooms, capacities, storage)
    return on_chip, balance(on_chip, rooms, storage)


def smallest_cluster(
    network: Network, cluster: Cluster, above: int, most: int = MOST_DEVICES
) -> int | None:
    """Return the fewest devices, more than `above` and at most `most`, that hold all on chip where
    it is used, or None.

    Tries counts an eighth apart until one fits, then bisects the gap below it. With unlucky cuts a
    larger cluster may fit worse than a smaller one, so the search may miss a smaller count that
    fits.
    """

    def is_on_chip(timing: Timing, in_flight: Sequence[int]) -> bool:
        return not any(missing_bytes(timing, in_flight))

    def fits(devices: int) -> bool:
        try:
            timing = Timing.of(
                partition_with_memory(network, cluster, devices, None, balanced=False), cluster
            )
        except InputError:
            return False
        # Finding the samples in flight takes long, and is useless where not even one fits.
        return is_on_chip(timing, [1] * devices) and is_on_chip(
            timing, find_steady(timing, _STEADY_BATCH).in_flight
        )

    counts = [above]
    while counts[-1] < most:
        counts.append(min(most, counts[-1] + max(1, counts[-1] // 8)))
    for low, high in itertools.pairwise(counts):
        if fits(high):
            between = range(low + 1, high)
            return (*between, high)[bisect.bisect_left(between, True, key=fits)]
    return None


OFF_CHIP_PASSES = 4
"""Passes of a sample over off-chip parameters: FP and EB read them; PG reads, adds to and writes
gradients.
"""


@dataclasses.dataclass(frozen=True)
class SliceLayout:
    """A slice with its engines, its buffers on the device, its special functions, and the resources
    of all three; and what of it is off chip.

    `functions` are the resources of its special functions alone. `off_chip_bytes` is the size of
    off-chip data, `port_bytes` what they move over the memory port for a sample.
    """

    part: Slice
    engines: SliceEngines
    memory: SliceMemory
    off_chip: OffChip
    off_chip_bytes: int
    port_bytes: int
    functions: Resources
    resources: Resources


@dataclasses.dataclass(frozen=True)
class DeviceLayout:
    """A device: its slices, its slowest engine, what it stores for others (BPRAM, BGB), and what is
    missing on chip.

    `missing_bytes` are of whole banks, and times ignore them. `port_ps` is the time of a sample on
    the memory port, 0 if nothing is off chip or that costs no time.
    """

    device: int
    board: Board
    in_flight: int
    slices: tuple[SliceLayout, ...]
    slowest: EngineLoad
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
    def engines(self) -> Resources:
        """Resources of its engines alone."""
        counts = [multiplier_counts(held.part, held.engines) for held in self.slices]
        return sum(self.board.slice_resources(counts), Resources())

    @property
    def functions(self) -> Resources:
        """Resources of its special functions alone, of which slower engines need fewer."""
        return sum((held.functions for held in self.slices), Resources())

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


@dataclasses.dataclass(frozen=True)
class LinkLayout:
    """Bytes per sample in each direction between devices `link` and `other`, mostly the next one.

    `balanced_bytes` of them are balanced parameters, in whichever direction, and as many are their
    gradients.
    """

    link: int
    forward_bytes: int
    backward_bytes: int
    other: int
    balanced_bytes: int


@dataclasses.dataclass(frozen=True)
class Layout:
    """Layout of all devices and links of a chain, which a sample can enter every `interval_ps`.

    That is the interval of the plan's timing; the rate of a run, which may drain or wait for an
    exchange, is that of its steady state.
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
        """S of equation (12): what the fullest device holds on chip, in block RAM (f6) and in LUTs
        (f7).
        """
        beta = self.cluster.beta
        return max(
            bram_bytes(device.buffers, beta) + lut_bytes(device.buffers, beta)
            for device in self.devices
        )

    def room(self, device: DeviceLayout) -> int:
        """Return the bytes that buffers may take in block RAM; those of memories built of LUTs are
        beside them.
        """
        return max(
            BANK_BYTES * self.cluster.banks_for_buffers(device.board),
            device.board.on_chip_memory_bytes,
        )

    def utilisation(self, device: DeviceLayout) -> dict[str, float | None]:
        """Return the used shares of the board's resources; None where the board's limit is
        unknown.
        """
        board, taken = device.board, device.resources
        transceivers = None
        if board.transceivers and board.transceiver_gbps:
            links = [
                self.cluster.link_at(max(0, device.device - 1)),
                self.cluster.link_at(device.device),
            ]
            needed = sum(
                transceivers_used(link.bandwidth_gbps, board.transceiver_gbps) for link in links
            )
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
        """Return for each exceeded resource the devices that need more than their boards have; BRAM
        in whole banks.
        """
        utilisation = [self.utilisation(device) for device in self.devices]
        over = {}
        for kind in ("dsp", "lut", "ff", "bram", "transceiver"):
            shares = (of_device[f"{kind}_share"] or 0 for of_device in utilisation)
            over[kind] = [device for device, share in enumerate(shares) if share > 1]
        return {kind: devices for kind, devices in over.items() if devices}


def lay_out(timing: Timing, in_flight: Sequence[int]) -> Layout:
    """Size all buffers and add up the resources, for a timing that has a place for all data.

    `in_flight` is the number of samples whose activations each device's Act-RAM holds at once.
    """
    missing = missing_bytes(timing, in_flight)
    off_chip = []
    for device in range(len(timing.mapping.devices)):
        off_chip.append([off for _, off in timing.slices_off_chip(device)])
    return _layout(timing, in_flight, off_chip, Balancing(timing.blocks, missing), missing)


def lay_out_on_chip(timing: Timing, in_flight: Sequence[int]) -> Layout:
    """Size all buffers and add up the resources, as FPDeep does: off-chip memory costs no time.

    Only the timing's balanced parameters have moved. Where parameters do not fit even when
    balanced, it has none, and rates are those of devices with enough memory.

    Args:
        timing: engines, links and balanced parameters.
        in_flight: number of samples whose activations each device's Act-RAM holds at once.
    """
    mapping, cluster = timing.mapping, timing.cluster
    on_chip, best = place_on_chip(mapping, cluster, in_flight)
    fits = (0,) * len(mapping.devices)
    balancing = Balancing(timing.blocks, fits if timing.blocks else best.shortfall_bytes)
    off_chip = []
    for slices, kept in zip(mapping.devices, on_chip, strict=True):
        off_chip.append([OffChip(0 if part in kept else part.channels) for part in slices])
    return _layout(timing, in_flight, off_chip, balancing, missing_bytes(timing, in_flight))


def _layout(
    timing: Timing,
    in_flight: Sequence[int],
    off_chip: Sequence[Sequence[OffChip]],
    balancing: Balancing,
    missing: Sequence[int],
) -> Layout:
    mapping, cluster = timing.mapping, timing.cluster
    slowest: dict[int, EngineLoad] = {}
    for load in engine_loads(timing):
        slowest[load.device] = max(
            slowest.get(load.device, load), load, key=lambda load: load.sample_ps
        )
    paces_ps = _paces_ps(timing)
    devices = tuple(
        _device(
            timing,
            device,
            in_flight[device],
            off_chip[device],
            balancing,
            slowest[device],
            missing[device],
            paces_ps,
        )
        for device in range(len(mapping.devices))
    )
    return Layout(mapping.network, cluster, devices, _links(timing), balancing, timing.interval_ps)


def _links(timing: Timing) -> tuple[LinkLayout, ...]:
    loads = {load.hop: load for load in link_loads(timing)}
    links = []
    for left, right in dict.fromkeys((min(hop), max(hop)) for hop in loads):
        sides = [loads[hop] for hop in ((left, right), (right, left)) if hop in loads]
        forward = sum(load.sample_bytes for load in sides if load.device == left)
        backward = sum(load.sample_bytes for load in sides if load.device == right)
        moved = (
            stream
            for load in sides
            for stream in load.streams
            if stream.path is DataPath.PARAMETERS
        )
        balanced = sum(timing.blocks[stream.number].parameter_bytes for stream in moved)
        links.append(LinkLayout(left, forward, backward, right, balanced))
    return tuple(links)


def _device(
    timing: Timing,
    device: int,
    in_flight: int,
    off_chip: Sequence[OffChip],
    balancing: Balancing,
    slowest: EngineLoad,
    missing: int,
    paces_ps: dict[int, int],
) -> DeviceLayout:
    board, beta, storage = timing.cluster.board(device), timing.cluster.beta, timing.cluster.storage
    parts, engines_of = timing.mapping.devices[device], timing.engines[device]
    built = board.slice_resources([*map(multiplier_counts, parts, engines_of)])
    slices = []
    for part, off, engines, taken in zip(parts, off_chip, engines_of, built, strict=True):
        kept = part.channels - balancing.balanced_channels(part, device) - off.channels
        memory = slice_memory(part, in_flight, kept, storage)
        size = stored_bytes(part, off, in_flight, storage)
        if off.activations:
            memory = dataclasses.replace(memory, act_ram=Buffer())
        functions = function_resources(part, engines, board, paces_ps)
        resources = taken + buffer_resources(memory.total, beta) + functions
        moved = port_bytes(part, off, storage)
        slices.append(SliceLayout(part, engines, memory, off, size, moved, functions, resources))
    stored = (block for block in balancing.blocks if block.store_device == device)
    memories = [parameter_memories(block.part, block.part.channels, storage) for block in stored]
    bpram, bgb = (
        sum(buffers, Buffer()) for buffers in zip((Buffer(), Buffer()), *memories, strict=True)
    )
    return DeviceLayout(
        device,
        board,
        in_flight,
        tuple(slices),
        slowest,
        bpram,
        bgb,
        buffer_resources(bpram + bgb, beta),
        balancing.shortfall_bytes[device],
        missing,
        timing.port_sample_ps(device),
    )
