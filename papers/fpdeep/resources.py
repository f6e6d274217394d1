"""Resources and memory (FPDeep, sections 3.4, 5.2.2 and 6.3.1, Figs. 6 and 14): the sums of
`emuchain plan` on 15 VC709, the memory subsystem, and the balancing of parameters.

Balanced parameters are measured where parameters fit only when balanced: vgg16-cifar on 24 VC709.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

from ...emulator.cluster import Fpga, lut_multipliers
from ...emulator.mapping import DataPath, memories, parameter_memory, slice_memory, weight_memories
from ...emulator.number import Storage
from ...emulator.plan import (
    OFF_CHIP_PASSES,
    DeviceLayout,
    Layout,
    SliceLayout,
    lay_out_on_chip,
    place_on_chip,
)
from ...emulator.timing import Timing
from ...kernels.number import FP16, FP32, NumberFormat
from ..claim import Measured
from .evidence import BALANCED, NETWORKS, cluster, layout, mapping, plan


def _conv_devices(laid_out: Layout) -> list[DeviceLayout]:
    def convolves(device: DeviceLayout) -> bool:
        return any(held.part.layer.convolves for held in device.slices)

    return list(filter(convolves, laid_out.devices))


def _shares(name: str, kind: str) -> list[float]:
    """Return the shares of their boards, in percent, that devices with convolutions use."""
    laid_out = layout(name)
    return [
        100 * (laid_out.utilisation(device)[f"{kind}_share"] or 0)
        for device in _conv_devices(laid_out)
    ]


def dsp() -> Measured:
    """Measure the share of DSPs that each network uses, in percent."""
    means = [sum(_shares(name, "dsp")) / len(_shares(name, "dsp")) for name in NETWORKS]
    return Measured(
        means, "means over 14 FPGAs; engines may take `dsp_share` of a board, which is data"
    )


def dsp_balance() -> Measured:
    """Measure the least share of DSPs over the most."""
    return Measured(
        [min(_shares(name, "dsp")) / max(_shares(name, "dsp")) for name in NETWORKS],
        "least over most",
    )


def bram() -> Measured:
    """Measure the share of BRAM that each network uses at most, in percent."""
    plain = ", ".join(f"{max(_shares(name, 'on_chip_bytes')):.0f}" for name in NETWORKS)
    most = [max(_shares(name, "bram")) for name in NETWORKS]
    return Measured(
        most,
        f"most of 14 FPGAs, in banks of 18 kbit; {plain} in plain bytes; AlexNet {_of_tiles()}",
    )


def _tile_banks(device: DeviceLayout) -> int:
    """Count the banks of a device whose LPRAM and LGB have T * K * K banks for T tiles, as many as
    work at once.

    Section 5.2.2 has SF * K * K, also where fewer tiles take the SF input channels in turn.
    """
    banks = device.buffers.banks
    for held in (held for held in device.slices if held.part.layer.convolves):
        weights = weight_memories(held.part, held.part.channels)
        forward, backward, gradient = held.engines.multipliers
        for at_once in (max(forward, backward), gradient):
            shared = memories(at_once, -(-math.prod(weights) // at_once))
            banks += shared.banks - memories(*weights).banks
    return banks


def _of_tiles() -> str:
    """Say what AlexNet takes with banks for tiles, on its fullest FPGA."""
    board = cluster().board(0)
    assert isinstance(board, Fpga), "the paper's is one"
    most = max(_tile_banks(device) for device in _conv_devices(layout("alexnet")))
    return f"{100 * most / board.banks:.0f} with T * K * K banks for T tiles"


def _fits(device: DeviceLayout) -> bool:
    """Return whether a device has all its buffers on chip, in whole banks."""
    banks = device.board.limits["bram_banks"]
    return (
        not device.off_chip_bytes
        and not device.shortfall_bytes
        and device.buffers.banks <= (banks or 0)
    )


def on_chip_only() -> Measured:
    """Check that convolutions have all their buffers on chip."""
    fits = [all(map(_fits, _conv_devices(layout(name)))) for name in NETWORKS]
    plain = ", ".join(
        f"{name} {sum(layout(name).balancing.shortfall_bytes) / 1e6:.0f}" for name in NETWORKS
    )
    return Measured(fits, f"in whole banks; MB missing in plain bytes: {plain}")


def on_chip_devices() -> Measured:
    """Count the devices with all their buffers on chip."""
    counts = [sum(map(_fits, layout(name).devices)) for name in NETWORKS]
    return Measured(counts, "FPGAs of 15, in whole banks: AlexNet, VGG-16, VGG-19")


def needs_balancing() -> Measured:
    """Check whether a network has data that do not fit where they are used."""
    needed = [
        bool(layout(name).balancing.blocks) or not all(map(_fits, _conv_devices(layout(name))))
        for name in NETWORKS
    ]
    return Measured(needed, f"in whole banks: AlexNet, VGG-16, VGG-19; AlexNet {_of_tiles()}")


def most_share(kind: str) -> Measured:
    """Measure the fullest device's share of a resource (equations (8) to (11))."""
    shares = []
    for name in NETWORKS:
        laid_out = layout(name)
        shares.append(max(laid_out.utilisation(d)[f"{kind}_share"] or 0 for d in laid_out.devices))
    return Measured(shares, "the fullest FPGA's share: AlexNet, VGG-16, VGG-19")


def buffers() -> Measured:
    """Measure the layout's bytes of buffers over equation (6)'s, from S, K, OC and the maps' sizes
    alone.
    """
    laid_out, by_hand, counted = layout("alexnet"), 0, 0
    for device in _conv_devices(laid_out):
        for held in (held for held in device.slices if held.part.layer.convolves):
            part, layer = held.part, held.part.layer
            ins, outs = len(part.in_channels), len(part.out_channels)
            (_, rows, columns), (_, _, out_columns) = layer.input, layer.output
            kernel_rows, kernel_columns = layer.kernel
            values = ins * rows * columns * device.in_flight  # Act-RAM
            values += 2 * (
                ins * kernel_rows * kernel_columns * outs + part.is_last * layer.channels
            )  # LPRAM, LGB
            values += ins * kernel_rows * columns + outs * out_columns  # line buffer of FP, PAB
            if layer.needs_errors:
                values += (
                    outs * kernel_rows * out_columns + ins * columns
                )  # line buffer of EB, error buffer
            by_hand += FP32.bytes_of(values)
            counted += held.memory.total.bytes
    return Measured(counted / by_hand, "AlexNet's convolutions on 15 FPGAs")


def limits() -> Measured:
    """Return the resources that limit a layout."""
    laid_out = layout("alexnet")
    kinds = [
        key.removesuffix("_share")
        for key, share in laid_out.utilisation(laid_out.devices[0]).items()
        if share
    ]
    return Measured(sorted(set(kinds) & {"lut", "ff", "bram", "dsp", "transceiver"}))


def engine_mix() -> Measured:
    """Measure the multipliers of DSPs and of LUTs on a VC709 with nine engines of ten built of
    DSPs.
    """
    board = cluster().board(0)
    assert isinstance(board, Fpga), "the paper's is one"
    return Measured(
        [board.dsp_multipliers, lut_multipliers(board, 0.9)],
        "multipliers of DSPs and of LUTs, alpha 0.9",
    )


def storage_aim() -> Measured:
    """Measure S of equation (12), the fullest device's bytes, with the aim `storage` over S
    without.
    """
    name, devices = BALANCED
    planned = plan(name, devices)
    even, in_flight = dataclasses.replace(planned.cluster, aim="storage"), planned.steady.in_flight
    _, balancing = place_on_chip(planned.mapping, even, in_flight)
    aimed = lay_out_on_chip(Timing.of(planned.mapping, even, balancing.blocks), in_flight)
    return Measured(
        aimed.storage_bytes / layout(name, devices).storage_bytes, f"{name} on {devices} FPGAs"
    )


def off_chip_instead() -> Measured:
    """Measure images a second with the excess parameters at neighbours, over those with them in the
    board's DRAM.
    """
    name, devices = BALANCED
    laid_out = layout(name, devices)
    balanced = [0] * devices
    for block in laid_out.balancing.blocks:
        balanced[block.user_device] += block.parameter_bytes
    board = laid_out.devices[0].board
    off_chip = 1e9 * (board.off_chip_gbytes_per_s or math.inf) / (OFF_CHIP_PASSES * max(balanced))
    alone = 1e12 / Timing.of(mapping(name, devices), cluster()).interval_ps
    rate, other = 1e12 / laid_out.interval_ps, min(alone, off_chip)
    return Measured(
        rate / other, f"{name} on {devices} FPGAs: {rate:.0f} images/s against {other:.0f}"
    )


def peak_with_balancing() -> Measured:
    """Measure the busiest direction of a link with balanced parameters over that without."""
    halved = _peak_of_vgg16()
    name, devices = BALANCED
    links = [max(link.forward_bytes, link.backward_bytes) for link in layout(name, devices).links]
    small = max(links) / max(map(max, _directions(Timing.of(mapping(name, devices), cluster()))))
    how = f"VGG-16 on 15 FPGAs, with 2-byte values and one sample in flight; {name} on {devices}"
    return Measured([halved, small], how)


def _peak_of_vgg16() -> float:
    """Return the same for VGG-16 as it fits 15 FPGAs: with values of 2 bytes and Act-RAMs for one
    sample.
    """
    mapped = mapping("vgg16")
    _, balancing = place_on_chip(mapped, cluster(), [1] * len(mapped.devices), Storage.all_in(FP16))
    assert balancing.fits and balancing.blocks, "so it does, with balanced parameters"
    plain = _directions(Timing.of(mapped, cluster()), FP16)
    return max(max(both) + balancing.link_bytes(link) for link, both in enumerate(plain)) / max(
        map(max, plain)
    )


def _directions(timed: Timing, number: NumberFormat = FP32) -> list[tuple[int, int]]:
    """Return the bytes of a sample to the right and to the left over each link, with values of a
    format.
    """
    directions = []
    for link in timed.links:
        right = left = 0
        for stream in link:
            if stream.path.is_forward:
                right += stream.sample_values
            else:
                left += stream.sample_values
        directions.append((number.bytes_of(right), number.bytes_of(left)))
    return directions


def _conv_slices() -> list[tuple[DeviceLayout, SliceLayout]]:
    return [
        (device, held)
        for name in NETWORKS
        for device in layout(name).devices
        for held in device.slices
        if held.part.layer.convolves
    ]


def lpram(what: str) -> Measured:
    """Measure the largest deviation of all slices from SF * K * K banks of OC parameters each."""
    worst, deep = 0.0, [held for _, held in _conv_slices() if len(held.part.out_channels) > 64]
    for held in deep:
        part = held.part
        banks = len(part.in_channels) * math.prod(part.layer.kernel)
        memory = parameter_memory(part, part.end - part.begin)
        shares = {
            "size": FP32.values_in(memory.bytes) / (banks * len(part.out_channels)),
            "banks": memory.banks / banks,
            "depth": FP32.values_in(memory.bytes) / memory.banks / len(part.out_channels),
        }
        worst = max(worst, abs(shares[what] - 1))
    return Measured(worst, f"largest deviation of {len(deep)} slices with over 64 output channels")


def lgb() -> Measured:
    """Measure the bytes of LGB over those of LPRAM."""
    ratios = [
        held.memory.lgb.bytes / held.memory.lpram.bytes
        for _, held in _conv_slices()
        if held.memory.lpram.bytes
    ]
    return Measured([min(ratios), max(ratios)], "LGB over LPRAM: least, most")


def balanced_on(number: int) -> Measured:
    """Measure the most bytes of a data path missing on a device: received and stored, less sent on
    and used.
    """
    path, (name, devices) = DataPath(number), BALANCED
    laid_out, timing_ = layout(name, devices), plan(name, devices).timing
    carried = [0]
    for link in timing_.links:
        carried.append(sum(s.sample_bytes for s in link if s.path is path))
    carried.append(0)
    missing = 0
    for number, device in enumerate(laid_out.devices):
        used = sum(_balanced_bytes(device, held) for held in device.slices)
        missing = max(
            missing, abs(carried[number] + device.bpram.bytes - carried[number + 1] - used)
        )
    return Measured(
        missing, f"bytes, most of {devices} FPGAs; {max(carried)} on the busiest link ({name})"
    )


def _balanced_bytes(device: DeviceLayout, held: SliceLayout) -> int:
    return slice_memory(held.part, device.in_flight).lpram.bytes - held.memory.lpram.bytes


def bpram() -> Measured:
    """Measure the BPRAM of all devices over the parameters that devices use and do not hold."""
    laid_out = layout(*BALANCED)
    balanced = sum(
        _balanced_bytes(device, held) for device in laid_out.devices for held in device.slices
    )
    stored = sum(device.bpram.bytes for device in laid_out.devices)
    return Measured(
        stored / balanced, f"{stored / 1e6:.1f} MB, {BALANCED[0]} on {BALANCED[1]} FPGAs"
    )


def bgb() -> Measured:
    """Measure the bytes of BGB over those of BPRAM."""
    laid_out = layout(*BALANCED)
    ratios = []
    for device in laid_out.devices:
        if device.bpram.bytes:
            both = device.buffers.bytes - sum(held.memory.total.bytes for held in device.slices)
            ratios.append(both / device.bpram.bytes - 1)
    return Measured([min(ratios), max(ratios)], f"BGB over BPRAM, {len(ratios)} FPGAs: least, most")


def gradients_to_both() -> Measured:
    """Measure the bytes of gradients that reach BPRAMs over those of parameters that BPRAMs send
    out.
    """
    carried = {path: 0 for path in (DataPath.PARAMETERS, DataPath.PARAMETER_GRADIENTS)}
    for link in plan(*BALANCED).timing.links:
        for stream in link:
            if stream.path in carried:
                carried[stream.path] += stream.sample_bytes
    return Measured(
        carried[DataPath.PARAMETER_GRADIENTS] / carried[DataPath.PARAMETERS],
        "bytes on path 6 over path 5",
    )


def act_ram() -> Measured:
    """Count the rises along the chain in the number of samples whose activations wait for PG."""
    in_flight = plan("vgg16").steady.in_flight
    rises = sum(after > before for before, after in itertools.pairwise(in_flight))
    return Measured(rises, f"rises along the chain: {', '.join(map(str, in_flight))} samples")
