"""Reports and comparisons as text and as JSON: the edge between them and people."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..common.units import format_time_ps
from ..run.usage import PHASES
from ..studies.what_if import Compared
from ..timing.bottleneck import Server
from .steady_state import DeviceUse, Report, Throughput
from .tables import percent, table


def print_tables(report: Report, bandwidth_gbps: float) -> None:
    """Idle shares of all engines, slice by slice, and the demand on all links."""
    columns = ["device", "slice", *(f"{phase} idle" for phase in PHASES), "device idle", "GOPS"]
    rows = [row for device in report.devices for row in _slice_rows(device)]
    table("Steady state: idle engines", columns, rows, left=("slice",))
    if report.links:
        demands = [
            [
                f"{link.server.sender} -> {link.server.receiver}",
                f"{link.demand_gbps:.2f}",
                percent(link.demand_gbps / bandwidth_gbps),
            ]
            for link in report.links
        ]
        table("Steady state: demand on links", ["link", "Gb/s", "of bandwidth"], demands)


def _slice_rows(device: DeviceUse) -> list[list[str]]:
    rows: dict[str, dict[str, str]] = {}
    for use in device.engines:
        rows.setdefault(str(use.server.part), {})[use.server.phase] = percent(use.idle_share)
    found = [["", name, *(idle.get(phase, "-") for phase in PHASES), "", ""] for name, idle in rows.items()]
    found[0][0] = str(device.device)
    found[0][-2:] = percent(device.idle_share), f"{device.gops:.1f}"
    return found


def print_summary(report: Report, epoch_images: int) -> None:
    """The steady state in a few lines."""
    hours = report.epoch_hours(epoch_images)
    print(f"steady state: {report.images_per_s:.1f} images/s; {epoch_images} images take {hours:.3g} h", end="")
    print(f", so {1 / hours:.3g} epochs an hour")
    if report.convolutions is not None:
        print(f"convolutions: {_throughput(report.convolutions)} that hold any")
    print(f"all layers: {_throughput(report.all_layers)}")
    idle = [device.idle_share for device in report.devices if device.holds_convolutions or not report.convolutions]
    where = " that hold convolutions" if report.convolutions else ""
    print(f"idle: {percent(report.mean_idle_share)} of the engines, the mean over devices{where};", end=" ")
    print(f"{percent(min(idle))} to {percent(max(idle))}")
    print(f"pipeline full after {format_time_ps(report.fill_ps)}, when {report.fill_samples:.1f} samples have entered")
    print_bottleneck(report)


def _throughput(throughput: Throughput) -> str:
    energy = "" if throughput.gop_per_j is None else f" and {throughput.gop_per_j:.2f} GOPS/J"
    return f"{throughput.gops_per_fpga:.1f} GOPS{energy} for each of {throughput.devices} FPGAs"


def print_bottleneck(report: Report) -> None:
    """What holds the chain back, and what removing it would give: rates are those of all replicas."""
    found = report.bottleneck
    ties = f" ({found.ties} more are as slow)" if found.ties else ""
    print(f"bottleneck: {found.slowest.name}, {format_time_ps(found.slowest.sample_ps)} a sample{ties}")
    print(f"behind it: {found.behind.name}, {format_time_ps(found.behind.sample_ps)}")
    left_ps = {
        "it": found.behind.sample_ps,
        "all links": max(found.engines_ps, found.exchanges_ps),
        "all engines": max(found.links_ps, found.exchanges_ps),
        "all exchanges": max(found.engines_ps, found.links_ps) if found.exchanges_ps else 0,
    }
    rates = [f"{what}: {report.replicas * 1e12 / ps:.1f} images/s" for what, ps in left_ps.items() if ps]
    print(f"infinitely fast, if the chain never drains: {'; '.join(rates)}")


def print_comparison(changes: str, rows: Sequence[Compared]) -> None:
    """Two runs side by side."""
    cells = [[row.figure, _number(row.before), _number(row.after), _number(row.ratio)] for row in rows]
    table(f"What if {changes}", ["figure", "as it is", "what if", "ratio"], cells, left=("figure",))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def report_as_json(report: Report, epoch_images: int) -> dict[str, Any]:
    """The steady state; units in the keys."""
    hours = report.epoch_hours(epoch_images)
    found = report.bottleneck
    return {
        "period_ps": report.period_ps,
        "images_per_s": report.images_per_s,
        "epoch_images": epoch_images,
        "epoch_hours": hours,
        "epochs_per_hour": 1 / hours,
        "convolutions": None if report.convolutions is None else dataclasses.asdict(report.convolutions),
        "all_layers": dataclasses.asdict(report.all_layers),
        "mean_idle_share": report.mean_idle_share,
        "highest_demand_gbps": report.highest_demand_gbps,
        "fill_ps": report.fill_ps,
        "fill_samples": report.fill_samples,
        "bottleneck": {
            "slowest": _server(found.slowest),
            "behind": _server(found.behind),
            "ties": found.ties,
            "images_per_s_without_slowest": _rate(report, found.behind.sample_ps),
            "images_per_s_engines_alone": _rate(report, found.engines_ps),
            "images_per_s_links_alone": _rate(report, found.links_ps),
            "images_per_s_exchanges_alone": _rate(report, found.exchanges_ps),
        },
        "devices": [_device(device) for device in report.devices],
        "links": [
            {
                "sender": link.server.sender,
                "receiver": link.server.receiver,
                "sample_bytes": link.server.sample_bytes,
                "demand_gbps": link.demand_gbps,
            }
            for link in report.links
        ],
    }


def comparison_as_json(rows: Sequence[Compared]) -> dict[str, Any]:
    """Each figure as it is, as it would be, and their ratio."""
    return {row.figure: {"before": row.before, "after": row.after, "ratio": row.ratio} for row in rows}


def _device(device: DeviceUse) -> dict[str, Any]:
    engines = [
        {
            "slice": str(use.server.part),
            "phase": use.server.phase,
            "multipliers": use.server.engines.multipliers,
            "macs": use.macs,
            "sample_ps": use.server.sample_ps,
            "idle_share": use.idle_share,
        }
        for use in device.engines
    ]
    return {
        "device": device.device,
        "gops": device.gops,
        "idle_share": device.idle_share,
        "holds_convolutions": device.holds_convolutions,
        "engines": engines,
    }


def _server(server: Server) -> dict[str, Any]:
    return {"name": server.name, "sample_ps": server.sample_ps}


def _rate(report: Report, sample_ps: int) -> float | None:
    return report.replicas * 1e12 / sample_ps if sample_ps else None
