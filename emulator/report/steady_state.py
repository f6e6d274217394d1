"""The steady state as text, and as JSON, whose keys name the units."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..common import format_time_ps
from ..run import PHASES, DeviceUse, SteadyState, Throughput
from ..timing import Load
from .tables import percent, table


def print_steady_tables(state: SteadyState, bandwidth_gbps: float) -> None:
    """Print idle shares of all engines, slice by slice, and the demand on all links."""
    columns = ["device", "slice", *(f"{phase} idle" for phase in PHASES), "device idle", "GOPS"]
    rows = [row for device in state.devices for row in _slice_rows(device)]
    table("Steady state: idle engines", columns, rows, left=("slice",))
    if state.links:
        demands = [
            [
                f"{link.load.sender} -> {link.load.receiver}",
                f"{link.demand_gbps:.2f}",
                percent(link.demand_gbps / bandwidth_gbps),
            ]
            for link in state.links
        ]
        table("Steady state: demand on links", ["link", "Gb/s", "of bandwidth"], demands)


def _slice_rows(device: DeviceUse) -> list[list[str]]:
    rows: dict[str, dict[str, str]] = {}
    for use in device.engines:
        rows.setdefault(str(use.load.part), {})[use.load.phase.value] = percent(use.idle_share)
    found = [["", name, *(idle.get(phase, "-") for phase in PHASES), "", ""] for name, idle in rows.items()]
    found[0][0] = str(device.device)
    found[0][-2:] = percent(device.idle_share), f"{device.gops:.1f}"
    return found


def print_steady_state(state: SteadyState, epoch_images: int) -> None:
    """Print the steady state in a few lines."""
    hours = state.epoch_hours(epoch_images)
    print(f"steady state: {state.images_per_s:.1f} images/s; {epoch_images} images take {hours:.3g} h", end="")
    print(f", so {1 / hours:.3g} epochs an hour")
    if state.convolutions is not None:
        print(f"convolutions: {_throughput(state.convolutions)} that hold convolutions")
    print(f"all layers: {_throughput(state.all_layers)}")
    idle = [device.idle_share for device in state.devices if device.holds_convolutions or not state.convolutions]
    where = " that hold convolutions" if state.convolutions else ""
    print(f"idle: {percent(state.mean_idle_share)} of the engines, the mean over devices{where};", end=" ")
    print(f"{percent(min(idle))} to {percent(max(idle))}")
    print(f"pipeline full after {format_time_ps(state.fill_ps)}, when {state.fill_samples:.1f} samples have entered")
    print_bottleneck(state)


def _throughput(throughput: Throughput) -> str:
    energy = "" if throughput.gop_per_j is None else f" and {throughput.gop_per_j:.2f} GOPS/J"
    return f"{throughput.gops_per_fpga:.1f} GOPS{energy} for each of {throughput.devices} FPGAs"


def print_bottleneck(state: SteadyState) -> None:
    """Print what limits the chain, and the rates, of all replicas together, that removing it would give."""
    found = state.bottleneck
    ties = f" ({found.ties} others are as slow)" if found.ties else ""
    print(f"bottleneck: {found.slowest.name}, {format_time_ps(found.slowest.sample_ps)} a sample{ties}")
    print(f"next: {found.behind.name}, {format_time_ps(found.behind.sample_ps)}")
    left_ps = {
        "the bottleneck": found.behind.sample_ps,
        "all links": max(found.engines_ps, found.exchanges_ps),
        "all engines": max(found.links_ps, found.exchanges_ps),
        "all exchanges": max(found.engines_ps, found.links_ps) if found.exchanges_ps else 0,
    }
    rates = [f"{what} {_rate(state, ps):.1f}" for what, ps in left_ps.items() if ps]
    print(f"images/s if infinitely fast, and the chain never drains: {'; '.join(rates)}")


def steady_state_as_json(state: SteadyState, epoch_images: int) -> dict[str, Any]:
    """Return the steady state as JSON, with the time of an epoch of `epoch_images` images at its rate."""
    hours = state.epoch_hours(epoch_images)
    found = state.bottleneck
    return {
        "period_ps": state.period_ps,
        "images_per_s": state.images_per_s,
        "epoch_images": epoch_images,
        "epoch_hours": hours,
        "epochs_per_hour": 1 / hours,
        "convolutions": None if state.convolutions is None else dataclasses.asdict(state.convolutions),
        "all_layers": dataclasses.asdict(state.all_layers),
        "mean_idle_share": state.mean_idle_share,
        "highest_demand_gbps": state.highest_demand_gbps,
        "fill_ps": state.fill_ps,
        "fill_samples": state.fill_samples,
        "bottleneck": {
            "slowest": _load(found.slowest),
            "behind": _load(found.behind),
            "ties": found.ties,
            "images_per_s_without_slowest": _rate_if_any(state, found.behind.sample_ps),
            "images_per_s_engines_alone": _rate_if_any(state, found.engines_ps),
            "images_per_s_links_alone": _rate_if_any(state, found.links_ps),
            "images_per_s_exchanges_alone": _rate_if_any(state, found.exchanges_ps),
        },
        "devices": [_device(device) for device in state.devices],
        "links": [
            {
                "sender": link.load.sender,
                "receiver": link.load.receiver,
                "sample_bytes": link.load.sample_bytes,
                "demand_gbps": link.demand_gbps,
            }
            for link in state.links
        ],
    }


def _device(device: DeviceUse) -> dict[str, Any]:
    engines = [
        {
            "slice": str(use.load.part),
            "phase": use.load.phase.value,
            "multipliers": use.load.engine.multipliers,
            "macs": use.macs,
            "sample_ps": use.load.sample_ps,
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


def _load(load: Load) -> dict[str, Any]:
    return {"name": load.name, "sample_ps": load.sample_ps}


def _rate(state: SteadyState, sample_ps: int) -> float:
    return state.replicas * 1e12 / sample_ps


def _rate_if_any(state: SteadyState, sample_ps: int) -> float | None:
    return _rate(state, sample_ps) if sample_ps else None
