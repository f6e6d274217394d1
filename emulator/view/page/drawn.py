"""The charts of a page as figures for print: a PDF and an SVG of a column's width for each, always the same."""

from __future__ import annotations

import math
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Iterator

from ...common import InputError, own_folder
from ..picture import save_figure
from .drawn_boards import draw_demand, draw_gantt, draw_heat, draw_memory, draw_roofs
from .drawn_learning import draw_curves, draw_histogram, draw_widths
from .drawn_style import FLAG, column_figure, legend_columns, page_colours
from .parts import Chart, Page

_MADE_BY = "emuchain report"
_FORMATS = ("pdf", "svg")
_LONGEST_NAME = 80
_LEGEND_ROW, _ROOFS_HEIGHT = 0.068, 1.2

_DRAWN: dict[str, tuple[str, Callable[..., None]]] = {
    "curves": ("", draw_curves),
    "roofs": ("rates", draw_roofs),
    "heat": ("utilisation", draw_heat),
    "demand": ("links", draw_demand),
    "memory": ("memory", draw_memory),
    "histogram": ("", draw_histogram),
    "widths": ("widths", draw_widths),
    "gantt": ("timeline", draw_gantt),
}
"""The name of a figure, and what draws it, by the kind of its chart."""


def draw_figures(page: Page, folder: pathlib.Path) -> list[pathlib.Path]:
    """Draw the charts of a page into a folder, each as PDF and as SVG; return their paths.

    Figures of an earlier report are replaced; the same page gives the same files.

    Raises:
        InputError: matplotlib is not installed, a file cannot be written, or one of this name is no such figure.
    """
    colours, drawn = page_colours(), []
    charts = dict(_named(page))
    with column_figure(), own_folder(folder, FLAG):
        paths = {name: [folder / f"{name}.{form}" for form in _FORMATS] for name in charts}
        for path in (path for of_chart in paths.values() for path in of_chart):
            _check_own(path)
        for name, chart in charts.items():
            with column_figure(_height(chart)) as (figure, axes):
                _, draw = _DRAWN[chart.kind]
                draw(axes, chart.data, colours)
                for path in paths[name]:
                    save_figure(figure, path, FLAG, creator=_MADE_BY)
                    drawn.append(path)
    return drawn


def _named(page: Page) -> Iterator[tuple[str, Chart]]:
    """Yield the charts of a page by names of files; those of several runs begin with the run's."""
    for section in page.shared:
        for chart in section.charts:
            yield _kind_name(chart), chart
    names = [re.sub(r"[^\w.+-]+", "-", part.name).strip("-.")[:_LONGEST_NAME] for part in page.runs]
    counts = Counter(names)
    for place, (part, name) in enumerate(zip(page.runs, names, strict=True), 1):
        own = name if counts[name] == 1 else f"{name}-{place}"
        for section in part.sections:
            for chart in section.charts:
                yield _kind_name(chart) if len(page.runs) == 1 else f"{own}-{_kind_name(chart)}", chart


def _kind_name(chart: Chart) -> str:
    if chart.kind == "curves":
        over = "virtual-time" if chart.data["over"] == "virtual_time_ps" else "epochs"
        return f"{chart.data['measure']}-over-{over}"
    return f"{chart.data['of']}s" if chart.kind == "histogram" else _DRAWN[chart.kind][0]


def _height(chart: Chart) -> float:
    """Return how high a figure is, over the usual height: more where it has many devices, or a long legend."""
    if chart.kind == "gantt":
        return max(1.0, 0.5 + chart.data["devices"] / 12)
    if chart.kind == "curves":
        names = [f"{curve['run']}, n = 0" for curve in chart.data["curves"]]
        return 1 + _LEGEND_ROW * (math.ceil(len(names) / legend_columns(names)) - 1)
    return _ROOFS_HEIGHT if chart.kind == "roofs" else 1


def _check_own(path: pathlib.Path) -> None:
    """Check that a file that is there is a figure of a report.

    Raises:
        InputError: it is another file.
    """
    try:
        is_own = not path.exists() or (path.is_file() and _MADE_BY.encode() in path.read_bytes())
    except OSError as error:
        raise InputError(f"`{FLAG}`: {path}: cannot be read: {error.strerror}") from None
    if not is_own:
        raise InputError(
            f"`{FLAG}`: {path}: is there already, and no figure of `{_MADE_BY}`, so it is not replaced; move it away,"
            " or give another folder"
        )
