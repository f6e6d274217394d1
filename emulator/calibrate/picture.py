"""The picture of a link's fit: the time of a message over its size, and below it how far each row is from the fit."""

from __future__ import annotations

import itertools
import os

import numpy as np

from ..common import plural
from ..view import log_ticks, new_figure, save_figure
from .link import LinkFit, LinkModel
from .messages import Messages

_MARKS = (("o", "#0072b2"), ("s", "#d55e00"), ("^", "#009e73"), ("D", "#cc79a7"), ("v", "#e69f00"))
_MOST_RUNS = 8
"""More runs than these share one mark."""


def draw_link(fit: LinkFit, path: str | os.PathLike[str], flag: str = "--plot") -> None:
    """Draw a link's fit into a file, whose extension sets the format.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(8, 6, flag, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    messages, model = fit.messages, fit.model
    sizes = np.unique(np.geomspace(messages.sizes.min(), messages.sizes.max(), 400).round())
    endless = np.full_like(sizes, np.inf)
    along = Messages((), sizes, endless, endless)
    low = LinkModel(fit.latency_s.low, fit.bytes_per_s.high, 0.0, model.fit).times(along)
    high = LinkModel(fit.latency_s.high, fit.bytes_per_s.low, 0.0, model.fit).times(along)
    line = LinkModel(model.latency_s, model.bytes_per_s, 0.0, model.fit).times(along)
    above.fill_between(sizes, low * 1e6, high * 1e6, color="0.85", label="range of 90 % of runs")
    gbps = model.bytes_per_s * 8e-9
    above.plot(sizes, line * 1e6, color="0.35", label=f"{model.latency_s * 1e9:,.4g} ns + size / {gbps:,.4g} Gb/s")
    without_start = messages.times - model.start_s / messages.loops
    together = {plural(len(messages.runs), "run"): np.arange(len(messages.sizes))}
    runs = messages.runs if len(messages.runs) <= _MOST_RUNS else together
    for (run, chosen), (shape, colour) in zip(runs.items(), itertools.cycle(_MARKS), strict=False):
        label = run[-40:]
        style = {"color": colour, "markerfacecolor": "white", "markersize": 4}
        above.plot(messages.sizes[chosen], without_start[chosen] * 1e6, shape, label=label, **style)
        below.plot(messages.sizes[chosen], 100 * np.expm1(model.fit.residuals[chosen]), shape, **style)
    above.set(xscale="log", yscale="log", ylabel="time of a message in us")
    below.set(xscale="log", xlabel="bytes of a message", ylabel="from the fit, in %")
    below.axhline(0, color="0.35", linewidth=0.8)
    above.legend(fontsize="small")
    for axes in (above, below):
        axes.grid(color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    log_ticks(above.yaxis)
    log_ticks(below.xaxis)
    save_figure(figure, path, flag, dpi=130)
