"""A simulated run and its steady state as text, as JSON, whose keys name units, and as a picture;
what faults cost.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..common import an, format_time_ps, number, percent, plural
from ..faults import Faults
from ..run import (
    PHASES,
    Cause,
    Death,
    DeviceUse,
    FaultCosts,
    Simulation,
    SteadyState,
    Throughput,
)
from ..timing import LinkLoad, Load
from .answer import Line
from .layout import mapping_as_json, stages_as_json
from .picture import new_figure, save_figure, whole_ticks
from .tables import most_loaded, table
from .terminal import ignored, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def simulation_as_json(
    simulation: Simulation,
    steady: SteadyState | None,
    epoch_images: int,
    cause: Cause | None = None,
) -> dict[str, Any]:
    """Return what `emuchain simulate --json` prints; `epoch_images` are those of the epoch whose
    hours it has.

    Where boards take actions as a whole, there are stages in place of a steady state.
    """
    plan, rate = simulation.plan, simulation.images_per_s
    return {
        **simulation.to_dict(),
        "interval_ps": None if steady is None else plan.timing.interval_ps,
        "epochs_per_hour": 3600 * rate / simulation.samples,
        "fits": plan.fits,
        "missing_bytes": plan.missing_bytes,
        "fits_lut": plan.fits_lut,
        "stale_samples": plan.stale_samples,
        "mapping": mapping_as_json(plan.timing),
        **({} if plan.stages is None else {"pipeline": stages_as_json(plan.stages)}),
        "steady": None if steady is None else steady_state_as_json(steady, epoch_images, cause),
    }


def time_cost_line(costs: FaultCosts) -> Line:
    """Return what all faults cost in time, and which alone costs most."""
    line = f"faults cost {format_time_ps(costs.cost_ps)}, {percent(costs.share)} of"
    line += f" {format_time_ps(costs.without_ps)} without"
    if len(costs.each) > 1:
        what, cost_ps = max(costs.each, key=lambda cost: cost[1])
        line += f"; most: {what}, {format_time_ps(cost_ps)}"
    elif costs.each:
        line += f": {costs.each[0][0]}"
    return Line(line)


def death_lines(costs: FaultCosts, faults: Faults) -> list[Line]:
    """Return what each board's death took: work that is lost, and the time until the others go
    on.
    """
    lines = [_death_line(death) for death in costs.deaths]
    late = faults.in_order[len(costs.deaths) :]
    return [
        *lines,
        *(Line(f"{death}: after the end of the run, so nothing is lost") for death in late),
    ]


def _death_line(death: Death) -> Line:
    first, last = death.leg.first + 1, death.leg.last
    where = f"mini-batch {last}" if first == last else f"mini-batches {first} to {last}"
    fault, left = death.fault, plural(death.left, "board")
    return Line(
        f"{fault}, in {where} of epoch {death.at.epoch + 1}: {format_time_ps(death.lost_ps)} of"
        f" work lost, {format_time_ps(fault.detect_ps)} to detect it,"
        f" {format_time_ps(fault.reload_ps)} to reload; {left} continue"
    )


def accuracy_cost_line(faults: Faults, accuracy: float, without: float) -> Line:
    """Return what flips cost in accuracy: that of a run with them, and of one without, as
    fractions.
    """
    points = 100 * (accuracy - without)
    flips = f"{len(faults.flips)} kinds of flips" if len(faults.flips) > 1 else str(faults.flips[0])
    change = f"change test accuracy by {points:+.2f} points, {100 * without:.2f} % without"
    return Line(f"flips {change}: {flips}")


def cost_rows(costs: FaultCosts) -> None:
    """Print what each fault costs alone."""
    if len(costs.each) > 1:
        rows = [
            [what, format_time_ps(cost_ps), percent(cost_ps / costs.without_ps)]
            for what, cost_ps in [*costs.each, ("all together", costs.cost_ps)]
        ]
        table("Cost of each fault by itself", ["fault", "time", "share"], rows, left=("fault",))


def costs_as_json(costs: FaultCosts) -> dict[str, Any]:
    """Return the costs of faults as JSON."""
    return {
        "without_ps": costs.without_ps,
        "cost_ps": costs.cost_ps,
        "each": [{"fault": what, "cost_ps": cost_ps} for what, cost_ps in costs.each],
        "deaths": [*map(_death_as_json, costs.deaths)],
    }


def _death_as_json(death: Death) -> dict[str, int]:
    fault, at = death.fault, death.at
    return {
        "board": fault.board,
        "at_ps": fault.at_ps,
        "epoch": at.epoch + 1,
        "mini_batches_done": at.step,
        "lost_ps": death.lost_ps,
        "detect_ps": fault.detect_ps,
        "reload_ps": fault.reload_ps,
        "devices_left": death.left,
    }


_SHADES = ("0.25", "0.5", "0.75")
_RIGHT, _LEFT = "0.4", "0.7"
_LIMITS = "#d55e00"
_WIDTH = 0.27


def print_steady_tables(state: SteadyState, full: bool = False) -> None:
    """Print idle shares of engines by slices, and the demand on links and memory: of the most
    loaded, or of all.
    """
    period_ps = state.period_ps
    slices = [
        (device, *idle)
        for device in state.devices
        for idle in _idle_shares(device, period_ps).items()
    ]
    title, shown = most_loaded(
        "Idle engines", "slices", slices, lambda row: -min(row[2].values()), full
    )
    rows = []
    for device, name, idle in shown:
        shares = [percent(idle[phase]) if phase in idle else "-" for phase in PHASES]
        rows.append(
            [str(device.device), name, *shares, percent(device.idle_share), number(device.gops)]
        )
    columns = [
        "device",
        "slice",
        *(f"{phase} idle" for phase in PHASES),
        "device idle",
        "GOPS of the device",
    ]
    table(title, columns, rows, names=("slice",))
    _print_demand("Demand on links", ("link", "Gb/s"), "links", state.links, period_ps, full)
    _print_demand(
        "Demand on off-chip memory", ("device", "GB/s"), "devices", state.memory, period_ps, full
    )


def _print_demand(
    title: str,
    columns: tuple[str, str],
    kind: str,
    loads: Sequence[Load],
    period_ps: float,
    full: bool,
) -> None:
    if not loads:
        return
    title, shown = most_loaded(title, kind, loads, lambda load: load.share(period_ps), full)
    rows = [
        [
            f"{load.device} -> {load.receiver}" if isinstance(load, LinkLoad) else str(load.device),
            f"{load.demand(period_ps):,.2f}",
            percent(load.share(period_ps)),
        ]
        for load in shown
    ]
    table(title, [*columns, "of bandwidth"], rows)


def _idle_shares(device: DeviceUse, period_ps: float) -> dict[str, dict[str, float]]:
    """Return the idle shares of a device's engines, by slice and phase."""
    shares: dict[str, dict[str, float]] = {}
    for load in device.engines:
        shares.setdefault(str(load.part), {})[load.phase.value] = 1 - load.share(period_ps)
    return shares


def print_steady_state(state: SteadyState, epoch_images: int | None) -> None:
    """Print the steady state in a few lines, with the time of an epoch if it is known how many
    images it has.
    """
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
    idle = [
        device.idle_share
        for device in state.devices
        if device.holds_convolutions or not state.convolutions
    ]
    where = " that hold convolutions" if state.convolutions else ""
    say(
        f"idle: {percent(state.mean_idle_share)} of the engines, the mean over devices{where}; "
        f"{percent(min(idle))} to {percent(max(idle))}"
    )
    say(
        f"pipeline full after {format_time_ps(state.fill_ps)}, when"
        f" {_entered(number(state.fill_samples))}"
    )
    behind = state.bottleneck.behind
    say(f"second slowest: {behind.name}, {format_time_ps(behind.sample_ps)}/sample")


def _entered(count: str) -> str:
    return f"{count} sample has entered" if count == "1" else f"{count} samples have entered"


def _throughput(throughput: Throughput, note: str) -> str:
    energy = "" if throughput.gop_per_j is None else f" and {throughput.gop_per_j:.2f} GOPS/J"
    per_fpga = f"{throughput.gops_per_fpga:,.1f} GOPS{energy}{note}"
    return f"{per_fpga}; for each of {throughput.devices:,} FPGA{'s' * (throughput.devices != 1)}"


def steady_state_as_json(
    state: SteadyState, epoch_images: int, cause: Cause | None = None
) -> dict[str, Any]:
    """Return the steady state as JSON, with the time of an epoch of `epoch_images` images at its
    rate.

    Rates of the bottleneck's kinds are those of this cut; those of `cause`, if it is known, are of
    a new one.
    """
    hours = state.epoch_hours(epoch_images)
    epoch = {"epoch_images": epoch_images, "epoch_hours": hours, "epochs_per_hour": 1 / hours}
    held_back = None if cause is None else cause_as_json(cause)
    return {**state.to_dict(), **epoch, "cause": held_back}


def cause_as_json(cause: Cause) -> dict[str, Any]:
    """Return what holds a chain back, with the rate that it has with wider links and a new cut."""
    wider = cause.wider
    links = (
        None
        if wider is None
        else {"bandwidth_gbps": wider.gbps, "images_per_s": wider.images_per_s}
    )
    return {"kind": cause.kind, "wider_links": links}


def draw_steady_state(
    state: SteadyState, title: str, path: str | os.PathLike[str], flag: str = "--plot"
) -> None:
    """Draw a steady state into a file, whose extension sets the format.

    Above, for each device, the share of a period in which FP, EB and PG are busy: of several
    slices, the busiest. Below, for each link, the demand in both directions, with a line where the
    link is full.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    count = len(state.devices)
    figure = new_figure(min(24.0, 0.35 * count + 6), 6.4, flag, layout="constrained")
    limit = state.bottleneck.slowest
    rate = f"{state.images_per_s:,.1f} {state.noun}s/s"
    figure.suptitle(f"{title}\n{rate}, limited by {limit.name}", fontsize="medium")
    panels: list[Axes] = [
        *figure.subplots(2 if state.links else 1, 1, sharex=True, squeeze=False).flat
    ]
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
            loads = [load for load in device.engines if load.phase.value == phase]
            if loads:
                busiest = max(loads, key=lambda load: load.sample_ps)
                colour = _LIMITS if limit in loads else shade
                place = device.device + (column - 1) * _WIDTH
                axes.bar(place, 100 * busiest.sample_ps / state.period_ps, _WIDTH, color=colour)
        axes.bar(0, 0, color=shade, label=phase)
    if any(limit in device.engines for device in state.devices):
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
            if (link.receiver > link.device) == (offset < 0)
        ]
        links = [link for _, link in chosen]
        places = [place + 0.5 + offset * _WIDTH / 2 for place, _ in chosen]
        colours = [_LIMITS if link == limit else shade for link in links]
        axes.bar(places, [link.demand(state.period_ps) for link in links], _WIDTH, color=colours)
        axes.bar(0, 0, color=shade, label=label)
        for place, link in zip(places, links, strict=True):
            full = _full_gbps(link, state.period_ps)
            if full is not None and full <= most_shown:
                axes.plot(
                    [place - _WIDTH / 2, place + _WIDTH / 2],
                    [full, full],
                    color="black",
                    linewidth=1,
                )
    if limit in state.links:
        axes.bar(0, 0, color=_LIMITS, label="limits")
    if known:
        far = "" if min(known) <= most_shown else f" at {min(known):.4g} Gb/s"
        axes.plot([], [], color="black", linewidth=1, label=f"full{far}")
    axes.set_ylabel("demand on links / Gb/s")


def _full_gbps(link: LinkLoad, period_ps: float) -> float | None:
    """Return the demand at which a link would be busy all the time."""
    busy = link.sample_ps / period_ps
    return link.demand(period_ps) / busy if busy else None
