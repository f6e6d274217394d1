"""The report: one HTML page of one run or several, with charts, that needs no network (docs/report.md)."""

from .page import make_page, render
from .parts import Chart, Figure, Page, RunPart, Section, Table
from .source import Run

__all__ = ["Chart", "Figure", "Page", "Run", "RunPart", "Section", "Table", "make_page", "render"]
