"""A layout as a picture in the form of FPDeep's Fig. 14: for each device, the layers' shares of DSP, BRAM and LUT."""

from __future__ import annotations

import os

from ..plan import Layout
from .picture import new_figure, save_figure, whole_ticks

_KINDS = {"DSP": "dsp", "BRAM": "bram_banks", "LUT": "lut"}
"""Fields of `Resources` by title."""


def draw_layout(layout: Layout, path: str | os.PathLike[str], flag: str = "--plot") -> None:
    """Write the picture to `path`, whose extension sets the format.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    figure = new_figure(min(24.0, 0.35 * len(layout.devices) + 6), 8, flag, layout="constrained")
    from matplotlib import colormaps

    figure.suptitle(f"{layout.network.name} on {len(layout.devices)} x {layout.devices[0].board.name}")
    layers = [layer.name for layer in layout.network.layers]
    colours = colormaps["turbo"]
    for axes, (title, kind) in zip(figure.subplots(3, 1, sharex=True), _KINDS.items(), strict=True):
        for device in layout.devices:
            of_board = device.board.limits[kind]
            if not of_board:
                continue
            parts = [(held.part.layer.name, getattr(held.resources, kind)) for held in device.slices]
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
    axes.set_xlabel("device")
    whole_ticks(axes.xaxis)
    shown = {label: bar for axes in figure.axes for bar, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(shown.values(), shown.keys(), loc="outside right upper", fontsize="small")
    save_figure(figure, path, flag, dpi=120)
