"""The steady state as text, as JSON, whose keys name units, and as a picture, with what limits in colour."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from ..common import an, format_time_ps, number, percent, plural
from ..run import PHASES, Cause, DeviceUse, LinkUse, MemoryUse, SteadyState, Throughput
from ..timing import Load
from .picture import new_figure, save_figure, whole_ticks
from .table import most_loaded, table
from .terminal import ignored, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHADES = ("0.25", "0.5", "0.75")
_RIGHT, _LEFT = "0.4", "0.7"
_LIMITS = "#d55e00"
_WIDTH = 0.27


def print_steady_tables(state: SteadyState, full: bool = False) -> None:
    """Print idle shares of engines by slices, and the demand on links and memory: of the most loaded, or of all."""
    slices = [(device, *of_slice) for device in state.devices for of_slice in _idle_shares(device).items()]
    title, shown = most_loaded("Idle engines", "slices", slices, lambda row: -min(row[2].values()), full)
    rows = []
    for device, name, idle in shown:
        shares = [percent(idle[phase]) if phase in idle else "-" for phase in PHASES]
        rows.append([str(device.device), name, *shares, percent(device.idle_share), number(device.gops)])
    columns = ["device", "slice", *(f"{phase} idle" for phase in PHASES), "device idle", "GOPS of the device"]
    table(title, columns, rows, names=("slice",))
    if state.links:
        title, links = most_loaded("Demand on links", "links", state.links, _link_share, full)
        demands = [
            [f"{link.load.sender} -> {link.load.receiver}", f"{link.demand_gbps:,.2f}", percent(_link_share(link))]
            for link in links
        ]
        table(title, ["link", "Gb/s", "of bandwidth"], demands)
    if state.memory:
        title, ports = most_loaded("Demand on off-chip memory", "devices", state.memory, _port_share, full)
        demands = [
            [str(port.load.device), f"{port.demand_gbytes_per_s:,.2f}", percent(_port_share(port))] for port in ports
        ]
        table(title, ["device", "GB/s", "of bandwidth"], demands)


def _link_share(link: LinkUse) -> float:
    return link.demand_gbps / link.bandwidth_gbps


def _port_share(port: MemoryUse) -> float:
    return port.demand_gbytes_per_s / port.bandwidth_gbytes_per_s


def _idle_shares(device: DeviceUse) -> dict[str, dict[str, float]]:
    """Return the idle shares of a device's engines, by slice and phase."""
    shares: dict[str, dict[str, float]] = {}
    for use in device.engines:
        shares.setdefault(str(use.load.part), {})[use.load.phase.value] = use.idle_share
    return shares


def print_steady_state(state: SteadyState, epoch_images: int | None) -> None:
    """Print the steady state in a few lines, with the time of an epoch if it is known how many images it has."""
    note, epoch = ignored(state.missing_bytes), ""
    if epoch_images is not None:
        hours = state.epoch_hours(epoch_images)
        taken = f"{plural(epoch_images, state.noun)} take{'s' * (epoch_images == 1)}"
        epoch = f"; {taken} {number(hours)} h, so {number(1 / hours)} epochs an hour"
    say(f"steady state: {number(state.images_per_s)} {state.noun}s/s{note}{epoch}")
    if state.convolutions is not None:
        say(f"convolutions: {_throughput(state.convolutions, note)} that hold convolutions")
    say(f"all layers: {_throughput(state.all_layers, note)}")
    if state.joules_per_image is not None:
        energy = f"{number(1000 * state.joules_per_image)} mJ {an(state.noun)}"
        say(f"energy: {energy}{note}; boards, and what moves off chip")
    idle = [device.idle_share for device in state.devices if device.holds_convolutions or not state.convolutions]
    where = " that hold convolutions" if state.convolutions else ""
    say(
        f"idle: {percent(state.mean_idle_share)} of the engines, the mean over devices{where}; "
        f"{percent(min(idle))} to {percent(max(idle))}"
    )
    say(f"pipeline full after {format_time_ps(state.fill_ps)}, when {_entered(number(state.fill_samples))}")
    behind = state.bottleneck.behind
    say(f"second slowest: {behind.name}, {format_time_ps(behind.sample_ps)}/sample")


def _entered(count: str) -> str:
    return f"{count} sample has entered" if count == "1" else f"{count} samples have entered"


def _throughput(throughput: Throughput, note: str) -> str:
    energy = "" if throughput.gop_per_j is None else f" and {throughput.gop_per_j:.2f} GOPS/J"
    per_fpga = f"{throughput.gops_per_fpga:,.1f} GOPS{energy}{note}"
    return f"{per_fpga}; for each of {throughput.devices:,} FPGA{'s' * (throughput.devices != 1)}"


def steady_state_as_json(state: SteadyState, epoch_images: int, cause: Cause | None = None) -> dict[str, Any]:
    """Return the steady state as JSON, with the time of an epoch of `epoch_images` images at its rate.

    Rates of the bottleneck's kinds are those of this cut; those of `cause`, if it is known, are of a new one.
    """
    hours = state.epoch_hours(epoch_images)
    bottleneck = state.bottleneck
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
        "joules_per_image": state.joules_per_image,
        "fits": state.fits,
        "fill_ps": state.fill_ps,
        "fill_samples": state.fill_samples,
        "bottleneck": {
            "slowest": _load(bottleneck.slowest),
            "behind": _load(bottleneck.behind),
            "ties": bottleneck.ties,
            "images_per_s_without_slowest": _rate_if_any(state, bottleneck.behind.sample_ps),
            "images_per_s_engines_alone": _rate_if_any(state, bottleneck.engines_ps),
            "images_per_s_links_alone": _rate_if_any(state, bottleneck.links_ps),
            "images_per_s_exchanges_alone": _rate_if_any(state, bottleneck.exchanges_ps),
            "images_per_s_memory_alone": _rate_if_any(state, bottleneck.memory_ps),
        },
        "cause": None if cause is None else cause_as_json(cause),
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
        "memory": [
            {
                "device": port.load.device,
                "sample_bytes": port.load.sample_bytes,
                "sample_ps": port.load.sample_ps,
                "demand_gbytes_per_s": port.demand_gbytes_per_s,
            }
            for port in state.memory
        ],
    }


def cause_as_json(cause: Cause) -> dict[str, Any]:
    """Return what holds a chain back, with the rate that it has with wider links and a new cut."""
    wider = cause.wider
    links = None if wider is None else {"bandwidth_gbps": wider.gbps, "images_per_s": wider.images_per_s}
    return {"kind": cause.kind, "wider_links": links}


def _device(device: DeviceUse) -> dict[str, Any]:
    engines = [
        {
            "slice": str(use.load.part),
            "phase": use.load.phase.value,
            "multipliers": use.load.engine.multipliers,
            "macs": use.load.macs,
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


def _rate_if_any(state: SteadyState, sample_ps: int) -> float | None:
    return state.replicas * 1e12 / sample_ps if sample_ps else None


def draw_steady_state(state: SteadyState, title: str, path: str | os.PathLike[str], flag: str = "--plot") -> None:
    """Draw a steady state into a file, whose extension sets the format.

    Above, for each device, the share of a period in which FP, EB and PG are busy: of several slices, the busiest.
    Below, for each link, the demand in both directions, with a line where the link is full.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    count = len(state.devices)
    figure = new_figure(min(24.0, 0.35 * count + 6), 6.4, flag, layout="constrained")
    limit = state.bottleneck.slowest
    rate = f"{state.images_per_s:,.1f} {state.noun}s/s"
    figure.suptitle(f"{title}\n{rate}, limited by {limit.name}", fontsize="medium")
    panels: list[Axes] = [*figure.subplots(2 if state.links else 1, 1, sharex=True, squeeze=False).flat]
    _draw_engines(panels[0], state, limit)
    if state.links:
        _draw_links(panels[1], state, limit)
    panels[-1].set_xlim(-0.6, max([count, *(place + 2 for place in state.link_places)]) - 0.4)
    panels[-1].set_xlabel("device; a link stands between its two")
    whole_ticks(panels[-1].xaxis)
    for axes in panels:
        axes.margins(y=0.2)
        axes.set_axisbelow(True)
        axes.grid(axis="y", color="0.9", linewidth=0.6)
        axes.legend(fontsize="small", ncols=4, loc="upper right")
    save_figure(figure, path, flag)


def _draw_engines(axes: Axes, state: SteadyState, limit: Load) -> None:
    for column, (phase, shade) in enumerate(zip(PHASES, _SHADES, strict=True)):
        for device in state.devices:
            loads = [use.load for use in device.engines if use.load.phase.value == phase]
            if loads:
                busiest = max(loads, key=lambda load: load.sample_ps)
                colour = _LIMITS if limit in loads else shade
                place = device.device + (column - 1) * _WIDTH
                axes.bar(place, 100 * busiest.sample_ps / state.period_ps, _WIDTH, color=colour)
        axes.bar(0, 0, color=shade, label=phase)
    if any(limit == use.load for device in state.devices for use in device.engines):
        axes.bar(0, 0, color=_LIMITS, label="limits")
    axes.set(ylabel="engines busy / %", ylim=(0, 120))


def _draw_links(axes: Axes, state: SteadyState, limit: Load) -> None:
    fullest = [_full_gbps(link, state.period_ps) for link in state.links]
    known = [full for full in fullest if full is not None]
    most_shown = 4 * state.highest_demand_gbps
    for offset, shade, label in ((-1, _RIGHT, "to the right"), (1, _LEFT, "to the left")):
        chosen = [
            (place, link)
            for place, link in zip(state.link_places, state.links, strict=True)
            if (link.load.receiver > link.load.sender) == (offset < 0)
        ]
        links = [link for _, link in chosen]
        places = [place + 0.5 + offset * _WIDTH / 2 for place, _ in chosen]
        colours = [_LIMITS if link.load == limit else shade for link in links]
        axes.bar(places, [link.demand_gbps for link in links], _WIDTH, color=colours)
        axes.bar(0, 0, color=shade, label=label)
        for place, link in zip(places, links, strict=True):
            full = _full_gbps(link, state.period_ps)
            if full is not None and full <= most_shown:
                axes.plot([place - _WIDTH / 2, place + _WIDTH / 2], [full, full], color="black", linewidth=1)
    if any(link.load == limit for link in state.links):
        axes.bar(0, 0, color=_LIMITS, label="limits")
    if known:
        far = "" if min(known) <= most_shown else f" at {min(known):.4g} Gb/s"
        axes.plot([], [], color="black", linewidth=1, label=f"full{far}")
    axes.set_ylabel("demand on links / Gb/s")


def _full_gbps(link: LinkUse, period_ps: float) -> float | None:
    """Return the demand at which a link would be busy all the time."""
    busy = link.load.sample_ps / period_ps
    return link.demand_gbps / busy if busy else None
