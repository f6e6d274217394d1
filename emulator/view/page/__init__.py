"""The report: one HTML page of one run or several, with charts, that needs no network
(docs/report.md).
"""

from .drawn import draw_figures
from .outcome import comparison_as_json
from .parts import MOST_CURVES, Chart, Figure, Page, RunPart, Section, Table
from .report import Report, Source, make_page, make_report, render
from .source import Group, Run, alone, check_seeds, grouped

__all__ = [
    "MOST_CURVES",
    "Chart",
    "Figure",
    "Group",
    "Page",
    "Report",
    "Run",
    "RunPart",
    "Section",
    "Source",
    "Table",
    "alone",
    "check_seeds",
    "comparison_as_json",
    "draw_figures",
    "grouped",
    "make_page",
    "make_report",
    "render",
]
