"""A layout as JSON has it: every figure's unit stands in its key."""

from __future__ import annotations

from typing import Any

from ..plan.layout import DeviceLayout, Layout, SliceLayout


def layout_as_json(layout: Layout, smallest: int | None) -> dict[str, Any]:
    """The layout; `smallest` is the smallest cluster that fits, if this one does not."""
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
        "loans": [
            {
                "layer": loan.layer.name,
                "begin_channel": loan.begin,
                "end_channel": loan.end,
                "user_device": loan.user_device,
                "store_device": loan.store_device,
                "parameter_bytes": loan.parameter_bytes,
            }
            for loan in balancing.loans
        ],
        "interval_ps": layout.interval_ps,
        "images_per_s": layout.images_per_s,
        "gops_per_fpga": layout.gops_per_fpga,
        "conv_gops_per_fpga": layout.conv_gops_per_fpga,
        "limit": layout.limit,
        "storage_bytes": layout.storage_bytes,
        "fits_in_bytes": balancing.fits,
        "exceeded_on_devices": layout.exceeded(),
        "shortfall_bytes": sum(balancing.shortfall_bytes),
        "smallest_cluster_devices": len(layout.devices) if balancing.fits else smallest,
    }


def _device_json(layout: Layout, device: DeviceLayout) -> dict[str, Any]:
    name, time_ps = device.slowest()
    return {
        "device": device.device,
        "board": device.board.name,
        "in_flight_samples": device.in_flight,
        "slices": [_slice_json(held) for held in device.slices],
        "utilisation": layout.utilisation(device),
        "on_chip_bytes": device.buffers.bytes,
        "board_on_chip_bytes": device.board.on_chip_memory_bytes,
        "bpram_bytes": device.bpram.bytes,
        "bgb_bytes": device.bpram.bytes,
        "off_chip_bytes": device.off_chip_bytes,
        "off_chip_gbytes_per_s": layout.off_chip_gbytes_per_s(device.device),
        "shortfall_bytes": device.shortfall_bytes,
        "slowest_engine": name,
        "slowest_engine_ps_per_sample": time_ps,
    }


def _slice_json(held: SliceLayout) -> dict[str, Any]:
    engines = {"fp": held.engines.fp, "eb": held.engines.eb, "pg": held.engines.pg}
    memory = held.memory
    return {
        "layer": held.part.layer.name,
        "cut": held.part.cut.value,
        "begin_channel": held.part.begin,
        "end_channel": held.part.end,
        "tile_multipliers": _tile(held),
        "tiles": {phase: engine.multipliers // _tile(held) for phase, engine in engines.items() if engine},
        "multipliers": {phase: engine.multipliers for phase, engine in engines.items() if engine},
        "cycles_per_sample": {phase: engine.sample_cycles for phase, engine in engines.items() if engine},
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
        "off_chip_bytes": held.off_chip_bytes,
    }


def _tile(held: SliceLayout) -> int:
    """Multipliers of a tile; a fully connected layer counts as a 1x1 convolution."""
    kernel_rows, kernel_columns = held.part.layer.kernel
    return 1 if held.part.layer.is_fc else kernel_rows * kernel_columns
