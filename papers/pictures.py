"""A paper's figures from our results: those of its files (`FIGURES`), and bars that its claims.toml
describes.

[[picture]]
name = "table6"

[picture.panels."ResNet-50: speed-up over DP"]    # a panel, with a claim for each pair of bars: published and ours
4vcu118 = "bapipe-t6-4vcu118"
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Callable, Mapping

from ..emulator.common import own_folder
from ..emulator.view import new_figure, save_figure
from ..kernels import modules
from .claim import NoEvidence, Picture, Value, load_claims, pictures_of
from .run import measures

Draw = Callable[[pathlib.Path], None]
"""Draws a figure into a file; raises NoEvidence where there is nothing to draw."""

_HEIGHT, _LEAST_WIDTH = 4, 9
_COLOURS = {"published": "#bbbbbb", "ours": "#3b76af"}


def draw_pictures(
    paper: str, folder: pathlib.Path, runs: pathlib.Path | None
) -> list[pathlib.Path]:
    """Draw a paper's figures from our results; return their paths.

    `runs` is a folder with results of training, for figures that show convergence.

    Raises:
        InputError: matplotlib is not installed, `runs` has no results, or a file cannot be written.
    """
    drawn = []
    with own_folder(folder, "--pictures"):
        for name, draw in _figures(paper, runs).items():
            path = folder / f"{name}.png"
            with contextlib.suppress(NoEvidence):
                draw(path)
                drawn.append(path)
    return drawn


def _figures(paper: str, runs: pathlib.Path | None) -> Mapping[str, Draw]:
    """Return what draws a paper's figures, by their names; those of training only where there are
    runs.
    """
    figures: dict[str, Draw] = {}
    for topic in modules(f"{__package__}.{paper}"):
        figures |= getattr(topic, "FIGURES", {})
        if runs is not None:
            of_runs = getattr(topic, "FIGURES_OF_RUNS", {})
            figures |= {name: functools.partial(draw, runs) for name, draw in of_runs.items()}
    return figures | {
        picture.name: functools.partial(_draw_bars, paper, picture)
        for picture in pictures_of(paper)
    }


def _draw_bars(paper: str, picture: Picture, path: pathlib.Path) -> None:
    """Draw pairs of bars, published and ours; a panel for each unit."""
    counts = [len(rows) for rows in picture.panels.values()]
    figure = new_figure(max(_LEAST_WIDTH, 0.45 * sum(counts)), _HEIGHT, "--pictures")
    drawn = figure.subplots(1, len(counts), squeeze=False, gridspec_kw={"width_ratios": counts})[0]
    for axes, (label, rows) in zip(drawn, picture.panels.items(), strict=True):
        heights: dict[str, list[float]] = {"published": [], "ours": []}
        for claim in rows.values():
            heights["published"].append(_first(load_claims(paper)[claim].value))
            heights["ours"].append(_first(measures(paper)[claim]().ours))
        for place, (name, colour) in enumerate(_COLOURS.items()):
            left = [row + 0.4 * place - 0.2 for row in range(len(rows))]
            axes.bar(left, heights[name], 0.4, color=colour, label=name)
        axes.set_xticks(range(len(rows)), list(rows), rotation=90, fontsize=7)
        axes.set_ylabel(label)
    drawn[0].legend(fontsize=8)
    save_figure(figure, path, "--pictures")


def _first(value: Value) -> float:
    return float(value[0] if isinstance(value, list) else value)
