"""`emuchain plan`: a network's layout on a cluster, as tables, as JSON, and as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..common import format_bytes, format_time_ps
from ..config import Config
from ..inputs import validate
from ..plan import DeviceLayout, Layout, Plan, SliceLayout, make_plan, place_on_chip, smallest_cluster
from ..report import layout_as_json, percent, table

_MOST_BLOCKS_SHOWN = 20
_SPELT = {
    "dsp": "DSPs",
    "lut": "LUTs",
    "ff": "FFs",
    "bram": "BRAM, in banks of 18 kbit,",
    "transceiver": "transceivers",
}


def show_plan(flags: dict[str, Any], as_json: bool, picture: str | None) -> None:
    """Lay a network out on a cluster and print tables, or JSON; draw the layout into the file `picture`, if given.

    Raises:
        InputError: the network or cluster is unknown, there are too many devices, or a board is too small.
    """
    plan = make_plan(validate(Config, flags, "command line"), 1)
    layout = plan.layout()
    smallest = None
    if not layout.balancing.fits:
        smallest = smallest_cluster(plan.network, plan.cluster, plan.devices)
    if picture is not None:
        from ..report import draw_layout

        draw_layout(layout, picture)
    if as_json:
        print(json.dumps(layout_as_json(layout, smallest), indent=2))
        return
    _print(layout)
    for kind, over in layout.exceeded().items():
        print(f"more {_SPELT[kind]} than the board has on device {_listed(over)}")
    print(_verdict(layout, smallest))
    if not layout.balancing.fits:
        print(_remedies(plan))


def _print(layout: Layout) -> None:
    network, devices = layout.network, layout.devices
    print(f"{network.name} on {len(devices)} x {devices[0].board.name} ({layout.cluster.name})")
    rows = [_engine_row(device, held) for device in devices for held in device.slices]
    columns = ["device", "slice", "tile", "FP", "EB", "PG", "LPRAM", "Act-RAM", "line buffers", "off chip"]
    table("Engines (DSPs) and buffers", columns, rows, left=("slice",))
    columns = ["device", "board", "in flight", "DSP", "LUT", "FF", "BRAM", "on chip", "of board", "BPRAM", "slowest"]
    columns += ["of interval"]
    table("Devices", columns, [_device_row(layout, device) for device in devices], left=("board", "slowest"))
    if layout.links:
        rows = [
            [
                f"{link.link} - {link.link + 1}",
                f"{layout.gbps(link.forward_bytes):.2f}",
                f"{layout.gbps(link.backward_bytes):.2f}",
                format_bytes(layout.balancing.link_bytes(link.link)),
            ]
            for link in layout.links
        ]
        table("Links", ["link", "right, Gb/s", "left, Gb/s", "paths 5 and 6 each, a sample"], rows)
    _print_balanced(layout)
    for device in devices:
        if device.off_chip_bytes:
            print(_off_chip(layout, device))
    print(f"a sample enters every {format_time_ps(layout.interval_ps)}: {layout.images_per_s:.1f} images/s")
    print(
        f"{layout.gops_per_fpga:.0f} GOPS for each FPGA; convolutions alone,"
        f" on the devices that have any: {layout.conv_gops_per_fpga:.0f}"
    )
    print(f"bottleneck: {layout.limit}")
    print(f"the fullest device holds {format_bytes(layout.storage_bytes)} on chip")


def _engine_row(device: DeviceLayout, held: SliceLayout) -> list[str]:
    layer = held.part.layer
    kernel = "x".join(map(str, layer.kernel)) if layer.convolves else "1x1"
    engines = (held.engines.fp, held.engines.eb, held.engines.pg)
    return [
        str(device.device),
        str(held.part),
        kernel,
        *(str(engine.multipliers) if engine else "-" for engine in engines),
        format_bytes(held.memory.lpram.bytes),
        format_bytes(held.memory.act_ram.bytes),
        format_bytes(held.memory.line_buffers.bytes),
        format_bytes(held.off_chip_bytes) if held.off_chip_bytes else "-",
    ]


def _device_row(layout: Layout, device: DeviceLayout) -> list[str]:
    shares = layout.utilisation(device)
    return [
        str(device.device),
        device.board.name,
        str(device.in_flight),
        *(_share(shares[f"{kind}_share"]) for kind in ("dsp", "lut", "ff", "bram")),
        format_bytes(device.buffers.bytes),
        _share(shares["on_chip_bytes_share"]),
        format_bytes(device.bpram.bytes) if device.bpram.bytes else "-",
        device.slowest.title,
        percent(device.slowest.sample_ps / layout.interval_ps),
    ]


def _share(share: float | None) -> str:
    return "-" if share is None else percent(share)


def _print_balanced(layout: Layout) -> None:
    blocks = layout.balancing.blocks
    if not blocks:
        return
    rows = [
        [str(block), str(block.user_device), str(block.store_device), format_bytes(block.parameter_bytes)]
        for block in blocks[:_MOST_BLOCKS_SHOWN]
    ]
    table("Balanced parameters", ["channels", "used on", "stored on", "parameters"], rows, left=("channels",))
    if len(blocks) > _MOST_BLOCKS_SHOWN:
        print(f"and {len(blocks) - _MOST_BLOCKS_SHOWN} more")


def _off_chip(layout: Layout, device: DeviceLayout) -> str:
    needed = layout.off_chip_gbytes_per_s(device.device)
    there = device.board.off_chip_gbytes_per_s
    has = f"the board has {there:g}" if there else "the board's bandwidth is not known"
    return (
        f"device {device.device}: {format_bytes(device.off_chip_bytes)} of fully connected parameters and gradients off"
        f" chip; at full rate {needed:.0f} GB/s, {has}; this costs no time here"
    )


def _verdict(layout: Layout, smallest: int | None) -> str:
    if layout.balancing.fits:
        return f"fits on chip{', with balanced parameters' if layout.balancing.blocks else ''}, in plain bytes"
    short = layout.balancing.shortfall_bytes
    worst = max(range(len(short)), key=lambda device: short[device])
    count = sum(missing > 0 for missing in short)
    enough = (
        f"{smallest} such boards would be enough"
        if smallest
        else "no number of such boards up to 1,024 would be enough"
    )
    return (
        f"does not fit on chip: {format_bytes(sum(short))} missing on {count} of {len(short)} devices, most on device"
        f" {worst} ({format_bytes(short[worst])}); {enough};"
        " the rates above assume enough memory on each device"
    )


def _remedies(plan: Plan) -> str:
    """Return what would still be missing with less to store, as text."""

    def missing(in_flight: Sequence[int], value_bytes: int) -> str:
        short = sum(place_on_chip(plan.mapping, plan.cluster, in_flight, value_bytes)[1].shortfall_bytes)
        return format_bytes(short) if short else "nothing"

    held, one = plan.steady.in_flight, [1] * plan.devices
    return (
        f"missing with values of 2 bytes: {missing(held, 2)}; with one sample in flight: {missing(one, 4)};"
        f" with both: {missing(one, 2)}"
    )


def _listed(devices: list[int]) -> str:
    return ", ".join(map(str, devices[:8])) + (" ..." if len(devices) > 8 else "")
