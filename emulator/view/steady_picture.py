"""The steady state as a picture: how busy each device's engines are, what links carry, and what limits in colour."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..run import PHASES, LinkUse, SteadyState
from ..timing import Load
from .picture import new_figure, save_figure, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHADES = ("0.25", "0.5", "0.75")
_RIGHT, _LEFT = "0.4", "0.7"
_LIMITS = "#d55e00"
_WIDTH = 0.27


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
    panels[-1].set_xlim(-0.6, count - 0.4)
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
        links = [link for link in state.links if (link.load.receiver > link.load.sender) == (offset < 0)]
        places = [min(link.load.sender, link.load.receiver) + 0.5 + offset * _WIDTH / 2 for link in links]
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
