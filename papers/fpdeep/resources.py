"""Resources (FPDeep, sections 3.4 and 6.3.1, Fig. 14): the sums of `emuchain plan` on 15 VC709."""

from __future__ import annotations

import math

from ...emulator.cluster import Fpga, lut_multipliers
from ...emulator.mapping import memories, weight_memories
from ...emulator.plan import DeviceLayout, Layout
from ...kernels.number import FP32
from ..claim import Measure, Measured
from .evidence import NETWORKS, cluster, layout


def _conv_devices(laid_out: Layout) -> list[DeviceLayout]:
    return [device for device in laid_out.devices if any(held.part.layer.convolves for held in device.slices)]


def _shares(name: str, kind: str) -> list[float]:
    """Return the shares of their boards, in percent, that devices with convolutions use."""
    laid_out = layout(name)
    return [100 * (laid_out.utilisation(device)[f"{kind}_share"] or 0) for device in _conv_devices(laid_out)]


def _dsp() -> Measured:
    means = [sum(_shares(name, "dsp")) / len(_shares(name, "dsp")) for name in NETWORKS]
    return Measured(means, "means over 14 FPGAs; engines may take `dsp_share` of a board, which is data")


def _dsp_balance() -> Measured:
    return Measured([min(_shares(name, "dsp")) / max(_shares(name, "dsp")) for name in NETWORKS], "least over most")


def _bram() -> Measured:
    plain = ", ".join(f"{max(_shares(name, 'on_chip_bytes')):.0f}" for name in NETWORKS)
    most = [max(_shares(name, "bram")) for name in NETWORKS]
    return Measured(most, f"most of 14 FPGAs, in banks of 18 kbit; {plain} in plain bytes; AlexNet {_of_tiles()}")


def _tile_banks(device: DeviceLayout) -> int:
    """Count the banks of a device whose LPRAM and LGB have T * K * K banks for T tiles, as many as work at once.

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
    return not device.off_chip_bytes and not device.shortfall_bytes and device.buffers.banks <= (banks or 0)


def _on_chip_only() -> Measured:
    fits = [all(map(_fits, _conv_devices(layout(name)))) for name in NETWORKS]
    plain = ", ".join(f"{name} {sum(layout(name).balancing.shortfall_bytes) / 1e6:.0f}" for name in NETWORKS)
    return Measured(fits, f"in whole banks; MB missing in plain bytes: {plain}")


def _on_chip_devices() -> Measured:
    """Count the devices with all their buffers on chip."""
    counts = [sum(map(_fits, layout(name).devices)) for name in NETWORKS]
    return Measured(counts, "FPGAs of 15, in whole banks: AlexNet, VGG-16, VGG-19")


def _needs_balancing() -> Measured:
    """Check whether a network has data that do not fit where they are used."""
    needed = [
        bool(layout(name).balancing.blocks) or not all(map(_fits, _conv_devices(layout(name)))) for name in NETWORKS
    ]
    return Measured(needed, f"in whole banks: AlexNet, VGG-16, VGG-19; AlexNet {_of_tiles()}")


def _most_share(kind: str) -> Measured:
    """Measure the fullest device's share of a resource (equations (8) to (11))."""
    shares = [max(layout(name).utilisation(d)[f"{kind}_share"] or 0 for d in layout(name).devices) for name in NETWORKS]
    return Measured(shares, "the fullest FPGA's share: AlexNet, VGG-16, VGG-19")


def _buffers() -> Measured:
    """Measure the layout's bytes of buffers over equation (6)'s, from S, K, OC and the maps' sizes alone."""
    laid_out, by_hand, counted = layout("alexnet"), 0, 0
    for device in _conv_devices(laid_out):
        for held in (held for held in device.slices if held.part.layer.convolves):
            part, layer = held.part, held.part.layer
            ins, outs = len(part.in_channels), len(part.out_channels)
            (_, rows, columns), (_, _, out_columns) = layer.input, layer.output
            kernel_rows, kernel_columns = layer.kernel
            values = ins * rows * columns * device.in_flight  # Act-RAM
            values += 2 * (ins * kernel_rows * kernel_columns * outs + part.is_last * layer.channels)  # LPRAM, LGB
            values += ins * kernel_rows * columns + outs * out_columns  # line buffer of FP, PAB
            if layer.needs_errors:
                values += outs * kernel_rows * out_columns + ins * columns  # line buffer of EB, error buffer
            by_hand += FP32.bytes_of(values)
            counted += held.memory.total.bytes
    return Measured(counted / by_hand, "AlexNet's convolutions on 15 FPGAs")


def _limits() -> Measured:
    laid_out = layout("alexnet")
    kinds = [key.removesuffix("_share") for key, share in laid_out.utilisation(laid_out.devices[0]).items() if share]
    return Measured(sorted(set(kinds) & {"lut", "ff", "bram", "dsp", "transceiver"}))


def _engine_mix() -> Measured:
    """Measure the multipliers of DSPs and of LUTs on a VC709 with nine engines of ten built of DSPs."""
    board = cluster().board(0)
    assert isinstance(board, Fpga), "the paper's is one"
    return Measured([board.dsp_multipliers, lut_multipliers(board, 0.9)], "multipliers of DSPs and of LUTs, alpha 0.9")


FUNCTIONS = {"most_share": _most_share}
MEASURES: dict[str, Measure] = {
    "fpdeep-dsp-util-15": _dsp,
    "fpdeep-dsp-balanced": _dsp_balance,
    "fpdeep-bram-util-15": _bram,
    "fpdeep-bram-fpgas": _on_chip_devices,
    "fpdeep-conv-onchip-only": _on_chip_only,
    "fpdeep-alexnet-no-balancing": _needs_balancing,
    "fpdeep-eq6-buffers": _buffers,
    "fpdeep-hw-constraints": _limits,
    "fpdeep-ce-mix": _engine_mix,
}
