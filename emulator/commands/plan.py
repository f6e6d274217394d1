"""`emuchain plan`: what a network takes on a cluster, for people, for scripts, and as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..common.units import format_bytes, format_time_ps
from ..config.config import Config
from ..inputs.validation import validate
from ..plan.layout import DeviceLayout, Layout, SliceLayout, lay_out
from ..plan.placement import place, smallest_cluster
from ..plan.plan import Plan, make_plan
from ..report.layout_json import layout_as_json
from ..report.tables import percent, table

_MOST_LOANS_SHOWN = 20
_SPELT = {
    "dsp": "DSPs",
    "lut": "LUTs",
    "ff": "FFs",
    "bram": "BRAM, in banks of 18 kbit,",
    "transceiver": "transceivers",
}


def show_plan(flags: dict[str, Any], as_json: bool, picture: str | None) -> None:
    """Lay a network out on a cluster and print tables, or JSON; draw the picture if one is asked for.

    Raises:
        InputError: unknown network or cluster, too many devices, or a board that is too small.
    """
    plan = make_plan(validate(Config, flags, "command line"), 1)
    layout = lay_out(plan.timing, plan.steady.in_flight)
    smallest = None
    if not layout.balancing.fits:
        smallest = smallest_cluster(plan.network, plan.cluster, plan.devices)
    if picture is not None:
        from ..report.layout_picture import draw

        draw(layout, picture)
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
    _print_loans(layout)
    for device in devices:
        if device.off_chip_bytes:
            print(_off_chip(layout, device))
    print(f"a sample enters every {format_time_ps(layout.interval_ps)}: {layout.images_per_s:.1f} images/s")
    print(
        f"{layout.gops_per_fpga:.0f} GOPS for each FPGA; convolutions alone,"
        f" on the devices that have any: {layout.conv_gops_per_fpga:.0f}"
    )
    print(f"what limits: {layout.limit}")
    print(f"the fullest device holds {format_bytes(layout.storage_bytes)} on chip")


def _engine_row(device: DeviceLayout, held: SliceLayout) -> list[str]:
    kernel = "1x1" if held.part.layer.is_fc else "x".join(map(str, held.part.layer.kernel))
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
    name, time_ps = device.slowest()
    return [
        str(device.device),
        device.board.name,
        str(device.in_flight),
        *(_share(shares[f"{kind}_share"]) for kind in ("dsp", "lut", "ff", "bram")),
        format_bytes(device.buffers.bytes),
        _share(shares["on_chip_bytes_share"]),
        format_bytes(device.bpram.bytes) if device.bpram.bytes else "-",
        name,
        percent(time_ps / layout.interval_ps),
    ]


def _share(share: float | None) -> str:
    return "-" if share is None else percent(share)


def _print_loans(layout: Layout) -> None:
    loans = layout.balancing.loans
    if not loans:
        return
    rows = [
        [str(loan), str(loan.user_device), str(loan.store_device), format_bytes(loan.parameter_bytes)]
        for loan in loans[:_MOST_LOANS_SHOWN]
    ]
    table("Balanced parameters", ["channels", "used on", "stored on", "parameters"], rows, left=("channels",))
    if len(loans) > _MOST_LOANS_SHOWN:
        print(f"and {len(loans) - _MOST_LOANS_SHOWN} more")


def _off_chip(layout: Layout, device: DeviceLayout) -> str:
    needed = layout.off_chip_gbytes_per_s(device.device)
    there = device.board.off_chip_gbytes_per_s
    has = f"the board has {there:g}" if there else "what the board has is not known"
    return (
        f"device {device.device}: {format_bytes(device.off_chip_bytes)} of fully connected parameters and gradients off"
        f" chip; at full rate {needed:.0f} GB/s, {has}; this costs no time here"
    )


def _verdict(layout: Layout, smallest: int | None) -> str:
    if layout.balancing.fits:
        return f"fits on chip{', with balanced parameters' if layout.balancing.loans else ''}, in plain bytes"
    short = layout.balancing.shortfall_bytes
    worst = max(range(len(short)), key=lambda device: short[device])
    count = sum(missing > 0 for missing in short)
    enough = f"{smallest} such boards would do" if smallest else "no number of such boards up to 1024 would do"
    return (
        f"does not fit on chip: {format_bytes(sum(short))} missing on {count} of {len(short)} devices, most on device"
        f" {worst} ({format_bytes(short[worst])}); {enough};"
        " the rates above are those of devices with memory enough"
    )


def _remedies(plan: Plan) -> str:
    """What would still be missing with less to store."""

    def missing(in_flight: Sequence[int], value_bytes: int) -> str:
        short = sum(place(plan.mapping, plan.cluster, in_flight, value_bytes)[1].shortfall_bytes)
        return format_bytes(short) if short else "nothing"

    held, one = plan.steady.in_flight, [1] * plan.devices
    return (
        f"missing with values of 2 bytes: {missing(held, 2)}; with one sample in flight: {missing(one, 4)};"
        f" with both: {missing(one, 2)}"
    )


def _listed(devices: list[int]) -> str:
    return ", ".join(map(str, devices[:8])) + (" ..." if len(devices) > 8 else "")
