"""A layout as JSON; every key names the unit of its figure."""

from __future__ import annotations

from typing import Any

from ..cluster import Board
from ..plan import DeviceLayout, Layout, SliceLayout
from .mapping_json import block_as_json, engines_by_phase, off_chip_as_json, slice_as_json


def layout_as_json(layout: Layout, smallest: int | None) -> dict[str, Any]:
    """Return the layout; `smallest` is the least number of devices that fits, if this cluster does not."""
    balancing = layout.balancing
    return {
        "network": layout.network.name,
        "cluster": layout.cluster.name,
        "devices": [_device_json(layout, device) for device in layout.devices],
        "links": [
            {
                "left_device": link.link,
                "right_device": link.link + 1,
                "forward_bytes_per_sample": link.forward_bytes,
                "backward_bytes_per_sample": link.backward_bytes,
                "forward_gbps": layout.gbps(link.forward_bytes),
                "backward_gbps": layout.gbps(link.backward_bytes),
                "balanced_parameter_bytes_per_sample": balancing.link_bytes(link.link),
            }
            for link in layout.links
        ],
        "balanced_parameters": [block_as_json(block) for block in balancing.blocks],
        "interval_ps": layout.interval_ps,
        "images_per_s": layout.images_per_s,
        "gops_per_fpga": layout.gops_per_fpga,
        "conv_gops_per_fpga": layout.conv_gops_per_fpga,
        "limit": layout.limit,
        "storage_bytes": layout.storage_bytes,
        "fits_in_bytes": layout.fits,
        "exceeded_on_devices": layout.exceeded(),
        "shortfall_bytes": layout.missing_bytes,
        "off_chip_bytes": layout.off_chip_bytes,
        "smallest_cluster_devices": smallest if layout.off_chip_bytes or not layout.fits else len(layout.devices),
    }


def _device_json(layout: Layout, device: DeviceLayout) -> dict[str, Any]:
    slowest = device.slowest
    return {
        "device": device.device,
        "board": device.board.name,
        "in_flight_samples": device.in_flight,
        "slices": [_slice_json(held, device.board) for held in device.slices],
        "utilisation": layout.utilisation(device),
        "on_chip_bytes": device.buffers.bytes,
        "board_on_chip_bytes": device.board.on_chip_memory_bytes,
        "bpram_bytes": device.bpram.bytes,
        "bgb_bytes": device.bgb.bytes,
        "off_chip_bytes": device.off_chip_bytes,
        "off_chip_gbytes_per_s": layout.off_chip_gbytes_per_s(device.device),
        "off_chip_bytes_per_sample": device.port_bytes,
        "off_chip_ps_per_sample": device.port_ps,
        "shortfall_bytes": device.missing_bytes,
        "slowest_engine": slowest.title,
        "slowest_engine_ps_per_sample": slowest.sample_ps,
    }


def _slice_json(held: SliceLayout, board: Board) -> dict[str, Any]:
    engines = engines_by_phase(held.engines)
    memory = held.memory
    return {
        **slice_as_json(held.part, held.engines),
        "multipliers": {phase: engine.multipliers for phase, engine in engines.items()},
        "cycles_per_sample": {
            phase: engine.sample_ps // board.period_ps for phase, engine in engines.items() if engine
        },
        "dsp_count": held.resources.dsp,
        "lut_count": held.resources.lut,
        "ff_count": held.resources.ff,
        "bram_18kbit_count": held.resources.bram_banks,
        "act_ram_bytes": memory.act_ram.bytes,
        "lpram_bytes": memory.lpram.bytes,
        "lgb_bytes": memory.lgb.bytes,
        "line_buffers_bytes": memory.line_buffers.bytes,
        "error_buffer_bytes": memory.error_buffer.bytes,
        "pab_bytes": memory.pab.bytes,
        **off_chip_as_json(held.off_chip),
        "off_chip_bytes": held.off_chip_bytes,
    }
