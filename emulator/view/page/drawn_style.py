"""What figures for print share: their size and type, the page's colours, and what is the same in all charts."""

from __future__ import annotations

import contextlib
import math
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..picture import new_figure
from .parts import TIME_UNITS_PS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Colours = Mapping[str, str]
"""Colours of the page's light scheme, by their names in its style sheet."""

FLAG = "--figures"
LIMIT = "limit"
GRID: dict[str, Any] = {"color": "#dfe3e8", "linewidth": 0.5}
_WIDTH_IN, _HEIGHT_IN, _POINTS = 3.5, 2.3, 8
"""A column of a paper with two, and the size of its type."""
_STYLE = {
    "font.size": _POINTS,
    "axes.titlesize": _POINTS,
    "axes.labelsize": _POINTS,
    "xtick.labelsize": _POINTS,
    "ytick.labelsize": _POINTS,
    "legend.fontsize": _POINTS,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,  # publishers take no Type 3
}
_COLOUR = re.compile(r"--([\w-]+): (#\w{6});")
_IN_A_LINE = 40


@contextlib.contextmanager
def column_figure(height: float = 1) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure of a column's width with axes, `height` times as high as usual, in the same style everywhere.

    Raises:
        InputError: matplotlib is not installed.
    """
    new_figure(1, 1, FLAG)  # says if there is no matplotlib
    from matplotlib import style

    with style.context(["default", _STYLE], after_reset=True):
        figure = new_figure(_WIDTH_IN, _HEIGHT_IN * height, FLAG, layout="constrained")
        yield figure, figure.subplots()


def page_colours() -> Colours:
    """Return the colours of the page's light scheme."""
    text = (pathlib.Path(__file__).parent / "static/page.css").read_text(encoding="utf-8")
    return dict(_COLOUR.findall(text.partition("}")[0]))


def legend_below(axes: Axes) -> None:
    """Put a legend below axes, in as many columns as its names leave room for."""
    handles, names = axes.get_legend_handles_labels()
    figure = axes.get_figure()
    if names and figure is not None:
        columns = legend_columns(names)
        figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, columnspacing=1.2)


def legend_columns(names: Sequence[str]) -> int:
    """Return in how many columns a legend's names have room."""
    return max(1, min(len(names), 4, _IN_A_LINE // (max(map(len, names)) + 5)))


def times(values: Sequence[float | None], scale: float) -> list[float]:
    """Return values times `scale`; NaN for None."""
    return [math.nan if value is None else value * scale for value in values]


def time_unit(longest_ps: float) -> tuple[str, int]:
    """Return the largest unit of which a time has at least two, and its length in ps."""
    return next((unit for unit in reversed(TIME_UNITS_PS.items()) if longest_ps >= 2 * unit[1]), ("ps", 1))
