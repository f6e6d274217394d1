"""A mapping, its layout on boards or its stages as JSON, whose keys name units; a picture like
FPDeep's Fig. 14.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from ..cluster import Board, Engine
from ..common import gbps
from ..mapping import BalancedParameters, OffChip, Slice, SliceEngines, slice_works
from ..plan import DeviceLayout, Layout, PlannedStages, SliceLayout
from ..run import SteadyState
from ..timing import Course, Timing
from .picture import new_figure, save_figure, whole_ticks
from .timeline.spans import draw_courses

_KINDS = {"DSP": "dsp", "BRAM": "bram_banks", "LUT": "lut"}
"""Fields of `Resources` by title."""


def layout_as_json(layout: Layout, state: SteadyState, smallest: int | None) -> dict[str, Any]:
    """Return the layout, with the rates of the steady state.

    `smallest` is the least number of devices that fits, if this cluster does not.
    """
    convolutions = state.convolutions
    devices = [_device_json(layout, device, state.period_ps) for device in layout.devices]
    links = [
        {
            "left_device": link.link,
            "right_device": link.other,
            "forward_bytes_per_sample": link.forward_bytes,
            "backward_bytes_per_sample": link.backward_bytes,
            "forward_gbps": gbps(link.forward_bytes, state.period_ps),
            "backward_gbps": gbps(link.backward_bytes, state.period_ps),
            "balanced_parameter_bytes_per_sample": link.balanced_bytes,
        }
        for link in layout.links
    ]
    return {
        "network": layout.network.name,
        "cluster": layout.cluster.name,
        "devices": devices,
        "links": links,
        "balanced_parameters": [*map(block_as_json, layout.balancing.blocks)],
        "interval_ps": layout.interval_ps,
        "images_per_s": state.images_per_s,
        "gops_per_fpga": state.all_layers.gops_per_fpga,
        "conv_gops_per_fpga": 0.0 if convolutions is None else convolutions.gops_per_fpga,
        "limit": state.bottleneck.slowest.name,
        "storage_bytes": layout.storage_bytes,
        "fits_in_bytes": layout.fits,
        "exceeded_on_devices": layout.exceeded(),
        "shortfall_bytes": layout.missing_bytes,
        "off_chip_bytes": layout.off_chip_bytes,
        "smallest_cluster_devices": smallest
        if layout.off_chip_bytes or not layout.fits
        else len(layout.devices),
    }


def _device_json(layout: Layout, device: DeviceLayout, period_ps: float) -> dict[str, Any]:
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
        "off_chip_gbytes_per_s": 1000 * device.port_bytes / period_ps,
        "off_chip_bytes_per_sample": device.port_bytes,
        "off_chip_ps_per_sample": device.port_ps,
        "shortfall_bytes": device.missing_bytes,
        "slowest_engine": slowest.title,
        "slowest_engine_ps_per_sample": slowest.sample_ps,
    }


def _slice_json(held: SliceLayout, board: Board) -> dict[str, Any]:
    engines = engines_by_phase(held.engines)
    memory = held.memory
    cycles = {
        phase: engine.sample_ps // board.period_ps for phase, engine in engines.items() if engine
    }
    return {
        **slice_as_json(held.part, held.engines, board),
        "multipliers": {phase: engine.multipliers for phase, engine in engines.items()},
        "cycles_per_sample": cycles,
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


def mapping_as_json(timing: Timing) -> dict[str, Any]:
    """Return the devices of a chain with their slices, and balanced parameters: all that times of
    rows follow from.

    Boards that take actions as a whole have no tiles, and what of their data is off chip is said by
    stage.
    """
    devices = [
        {
            "device": device,
            "board": timing.cluster.board(device).name,
            "slices": _slices(timing, device),
        }
        for device in range(len(timing.mapping.devices))
    ]
    return {"devices": devices, "balanced_parameters": [*map(block_as_json, timing.blocks)]}


def _slices(timing: Timing, device: int) -> list[dict[str, Any]]:
    if timing.stages is not None:
        return [_place(part) for part in timing.mapping.devices[device]]
    held = zip(timing.engines[device], timing.slices_off_chip(device), strict=True)
    return [
        {
            **slice_as_json(part, engines, timing.cluster.board(device)),
            **off_chip_as_json(off_chip),
        }
        for engines, (part, off_chip) in held
    ]


def _place(part: Slice) -> dict[str, Any]:
    return {
        "layer": part.layer.name,
        "cut": part.cut.value,
        "begin_channel": part.begin,
        "end_channel": part.end,
    }


def slice_as_json(part: Slice, engines: SliceEngines, board: Board) -> dict[str, Any]:
    """Return a slice, with the number of tiles of its engines; an array's tile is the array."""
    tile = board.tile_multipliers(slice_works(part)[0])
    return {
        **_place(part),
        "tile_multipliers": tile,
        "tiles": {
            phase: engine.multipliers // tile for phase, engine in engines_by_phase(engines).items()
        },
    }


def engines_by_phase(engines: SliceEngines) -> dict[str, Engine]:
    """Return a slice's engines by the keys that JSON has for them; a layer that takes images has no
    `eb`.
    """
    by_phase = {"fp": engines.fp, "eb": engines.eb, "pg": engines.pg}
    return {phase: engine for phase, engine in by_phase.items() if engine is not None}


def off_chip_as_json(off_chip: OffChip) -> dict[str, Any]:
    """Return what of a slice is off chip."""
    return {"off_chip_channels": off_chip.channels, "off_chip_activations": off_chip.activations}


def block_as_json(block: BalancedParameters) -> dict[str, Any]:
    """Return a block of balanced parameters."""
    return {
        "layer": block.layer.name,
        "begin_channel": block.begin,
        "end_channel": block.end,
        "user_device": block.user_device,
        "store_device": block.store_device,
        "parameter_bytes": block.parameter_bytes,
    }


def stages_as_json(stages: PlannedStages) -> dict[str, Any]:
    """Return machine and stages; times and bytes are those of a micro-batch."""
    planned = [stages.stage(stage, stages.samples) for stage in range(len(stages.mapping.devices))]
    return {
        "engines": stages.machine.engines.value,
        "transport": stages.machine.transport.value,
        "backward": stages.machine.backward.value,
        "chunks": stages.fold.chunks,
        "micro_batch": stages.samples,
        "stages": [
            {
                "forward_ps": stage.costs.forward_ps,
                "backward_ps": stage.costs.backward_ps,
                "pg_ps": stage.costs.pg_ps,
                "feature_bytes": stage.costs.feature_bytes,
                "parameter_bytes": stage.costs.parameter_bytes,
                "kept_samples": kept,
                "weight_copies": copies,
                "on_chip_bytes": stage.on_chip_bytes,
                "off_chip_bytes": stage.off_chip_bytes,
            }
            for stage, kept, copies in zip(
                planned, stages.kept_samples, stages.weight_copies, strict=True
            )
        ],
    }


def courses_as_json(courses: Iterable[Course]) -> list[dict[str, Any]]:
    """Return the bytes of features that each device keeps over time, and the most of them."""
    return [
        {
            "device": device,
            "peak_bytes": course.peak_bytes,
            "times_ps": list(course.times_ps),
            "kept_bytes": list(course.kept_bytes),
        }
        for device, course in enumerate(courses)
    ]


def draw_layout(
    layout: Layout,
    path: str | os.PathLike[str],
    flag: str = "--plot",
    courses: Sequence[Course] = (),
) -> None:
    """Write the picture to `path`, whose extension sets the format: what layers use of each device,
    and below it the `courses` of features that devices keep, if they are given.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    heights = [8 / len(_KINDS)] * len(_KINDS)
    if courses:
        heights.append(min(16.0, 0.16 * len(courses) + 0.8))
    width = min(24.0, 0.35 * len(layout.devices) + 6)
    figure = new_figure(width, sum(heights), flag, layout="constrained")
    from matplotlib import colormaps

    figure.suptitle(
        f"{layout.network.name} on {len(layout.devices)} x {layout.devices[0].board.name}"
    )
    layers = [layer.name for layer in layout.network.layers]
    colours = colormaps["turbo"]
    drawn = figure.subplots(len(heights), 1, height_ratios=heights)
    by_device = drawn[: len(_KINDS)]
    for axes, (title, kind) in zip(by_device, _KINDS.items(), strict=True):
        for device in layout.devices:
            of_board = device.board.limits[kind]
            if not of_board:
                continue
            parts = [
                (held.part.layer.name, getattr(held.resources, kind)) for held in device.slices
            ]
            bottom = 0.0
            for name, count in [*parts, ("BPRAM, BGB", getattr(device.stored, kind))]:
                if not count:
                    continue
                share = 100 * count / of_board
                shade = colours(layers.index(name) / len(layers)) if name in layers else "lightgrey"
                axes.bar(device.device, share, bottom=bottom, color=shade, label=name)
                bottom += share
        axes.axhline(100, color="black", linewidth=0.8)
        axes.set_ylabel(f"{title}, %")
        if axes is not by_device[0]:
            axes.sharex(by_device[0])
        axes.tick_params(labelbottom=axes is by_device[-1])
    by_device[-1].set_xlabel("device")
    whole_ticks(by_device[-1].xaxis)
    if courses:
        end_ps = max((time_ps for course in courses for time_ps in course.times_ps), default=0)
        draw_courses(drawn[-1], courses, end_ps)
        drawn[-1].set_xlabel("virtual time, µs", fontsize=7)
    shown = {
        label: bar
        for axes in figure.axes
        for bar, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(shown.values(), shown.keys(), loc="outside right upper", fontsize="small")
    save_figure(figure, path, flag, dpi=120)
