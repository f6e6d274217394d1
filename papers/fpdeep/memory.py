"""The memory subsystem and the balancing of parameters: FPDeep's sections 3.4.2 and 5.2.2, Fig. 6.

Balanced parameters are measured where parameters fit only when balanced: vgg16-cifar on 24 VC709.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

from ...emulator.mapping import DataPath, parameter_memory, slice_memory
from ...emulator.number import Storage
from ...emulator.plan import OFF_CHIP_PASSES, DeviceLayout, SliceLayout, lay_out_on_chip, place_on_chip
from ...emulator.timing import Timing
from ...kernels.number import FP16, FP32, NumberFormat
from ..claim import Measure, Measured
from .evidence import BALANCED, NETWORKS, cluster, layout, mapping, plan


def _storage_aim() -> Measured:
    """Measure S of equation (12), the fullest device's bytes, with the aim `storage` over S without."""
    name, devices = BALANCED
    planned = plan(name, devices)
    even, in_flight = dataclasses.replace(planned.cluster, aim="storage"), planned.steady.in_flight
    _, balancing = place_on_chip(planned.mapping, even, in_flight)
    aimed = lay_out_on_chip(Timing.of(planned.mapping, even, balancing.blocks), in_flight)
    return Measured(aimed.storage_bytes / layout(name, devices).storage_bytes, f"{name} on {devices} FPGAs")


def _off_chip_instead() -> Measured:
    """Measure images a second with the excess parameters at neighbours, over those with them in the board's DRAM."""
    name, devices = BALANCED
    laid_out = layout(name, devices)
    balanced = [0] * devices
    for block in laid_out.balancing.blocks:
        balanced[block.user_device] += block.parameter_bytes
    board = laid_out.devices[0].board
    off_chip = 1e9 * (board.off_chip_gbytes_per_s or math.inf) / (OFF_CHIP_PASSES * max(balanced))
    alone = 1e12 / Timing.of(mapping(name, devices), cluster()).interval_ps
    rate, other = 1e12 / laid_out.interval_ps, min(alone, off_chip)
    return Measured(rate / other, f"{name} on {devices} FPGAs: {rate:.0f} images/s against {other:.0f}")


def _peak_with_balancing() -> Measured:
    """Measure the busiest direction of a link with balanced parameters over that without."""
    halved = _peak_of_vgg16()
    name, devices = BALANCED
    links = [max(link.forward_bytes, link.backward_bytes) for link in layout(name, devices).links]
    small = max(links) / max(map(max, _directions(Timing.of(mapping(name, devices), cluster()))))
    how = f"VGG-16 on 15 FPGAs, with 2-byte values and one sample in flight; {name} on {devices}"
    return Measured([halved, small], how)


def _peak_of_vgg16() -> float:
    """Return the same for VGG-16 as it fits 15 FPGAs: with values of 2 bytes and Act-RAMs for one sample."""
    mapped = mapping("vgg16")
    _, balancing = place_on_chip(mapped, cluster(), [1] * len(mapped.devices), Storage.all_in(FP16))
    assert balancing.fits and balancing.blocks, "so it does, with balanced parameters"
    plain = _directions(Timing.of(mapped, cluster()), FP16)
    return max(max(both) + balancing.link_bytes(link) for link, both in enumerate(plain)) / max(map(max, plain))


def _directions(timed: Timing, number: NumberFormat = FP32) -> list[tuple[int, int]]:
    """Return the bytes of a sample to the right and to the left over each link, with values of a format."""
    return [
        (
            number.bytes_of(sum(stream.sample_values for stream in link if stream.path.is_forward)),
            number.bytes_of(sum(stream.sample_values for stream in link if not stream.path.is_forward)),
        )
        for link in timed.links
    ]


def _conv_slices() -> list[tuple[DeviceLayout, SliceLayout]]:
    return [
        (device, held)
        for name in NETWORKS
        for device in layout(name).devices
        for held in device.slices
        if held.part.layer.convolves
    ]


def _lpram(what: str) -> Measured:
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


def _lgb() -> Measured:
    ratios = [held.memory.lgb.bytes / held.memory.lpram.bytes for _, held in _conv_slices() if held.memory.lpram.bytes]
    return Measured([min(ratios), max(ratios)], "LGB over LPRAM: least, most")


def _balanced_on(number: int) -> Measured:
    """Measure the most bytes of a data path missing on a device: received and stored, less sent on and used."""
    path, (name, devices) = DataPath(number), BALANCED
    laid_out, timing_ = layout(name, devices), plan(name, devices).timing
    carried = [0, *(sum(s.sample_bytes for s in link if s.path is path) for link in timing_.links), 0]
    missing = 0
    for number, device in enumerate(laid_out.devices):
        used = sum(_balanced_bytes(device, held) for held in device.slices)
        missing = max(missing, abs(carried[number] + device.bpram.bytes - carried[number + 1] - used))
    return Measured(missing, f"bytes, most of {devices} FPGAs; {max(carried)} on the busiest link ({name})")


def _balanced_bytes(device: DeviceLayout, held: SliceLayout) -> int:
    return slice_memory(held.part, device.in_flight).lpram.bytes - held.memory.lpram.bytes


def _bpram() -> Measured:
    """Measure the BPRAM of all devices over the parameters that devices use and do not hold."""
    laid_out = layout(*BALANCED)
    balanced = sum(_balanced_bytes(device, held) for device in laid_out.devices for held in device.slices)
    stored = sum(device.bpram.bytes for device in laid_out.devices)
    return Measured(stored / balanced, f"{stored / 1e6:.1f} MB, {BALANCED[0]} on {BALANCED[1]} FPGAs")


def _bgb() -> Measured:
    laid_out = layout(*BALANCED)
    ratios = []
    for device in laid_out.devices:
        if device.bpram.bytes:
            both = device.buffers.bytes - sum(held.memory.total.bytes for held in device.slices)
            ratios.append(both / device.bpram.bytes - 1)
    return Measured([min(ratios), max(ratios)], f"BGB over BPRAM, {len(ratios)} FPGAs: least, most")


def _gradients_to_both() -> Measured:
    """Measure the bytes of gradients that reach BPRAMs over those of parameters that BPRAMs send out."""
    carried = {path: 0 for path in (DataPath.PARAMETERS, DataPath.PARAMETER_GRADIENTS)}
    for link in plan(*BALANCED).timing.links:
        for stream in link:
            if stream.path in carried:
                carried[stream.path] += stream.sample_bytes
    return Measured(carried[DataPath.PARAMETER_GRADIENTS] / carried[DataPath.PARAMETERS], "bytes on path 6 over path 5")


def _act_ram() -> Measured:
    """Count the rises along the chain in the number of samples whose activations wait for PG."""
    in_flight = plan("vgg16").steady.in_flight
    rises = sum(after > before for before, after in itertools.pairwise(in_flight))
    return Measured(rises, f"rises along the chain: {', '.join(map(str, in_flight))} samples")


FUNCTIONS = {"lpram": _lpram, "balanced_on": _balanced_on}
MEASURES: dict[str, Measure] = {
    "fpdeep-eq12-storage": _storage_aim,
    "fpdeep-excess-weights-neighbour": _off_chip_instead,
    "fpdeep-param-transfer-no-tighten": _peak_with_balancing,
    "fpdeep-lgb": _lgb,
    "fpdeep-bpram": _bpram,
    "fpdeep-bgb": _bgb,
    "fpdeep-ram-update": _gradients_to_both,
    "fpdeep-actram": _act_ram,
}
