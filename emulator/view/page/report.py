"""A report: the runs of some results files, in groups, with their page, figures and numbers."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

from ...common import InputError, WholeFile, encoded, format_bytes
from ...run import Results, read_results
from .comparison import comparison_as_json
from .drawn import draw_figures
from .group import Group, alone, check_seeds, grouped
from .page import make_page, render
from .parts import MOST_CURVES
from .source import Run

Source = Results | str | os.PathLike[str]
"""A run's results, or the path of its file."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What was made of some runs: `size` is that of the page, if one was written, `drawn` are the figures' files."""

    runs: tuple[Run, ...]
    groups: tuple[Group, ...]
    files: dict[str, str]
    size: str | None
    drawn: tuple[pathlib.Path, ...]

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers of the page's table, as JSON's values."""
        return comparison_as_json(self.groups, self.files)


def make_report(
    sources: Sequence[Source],
    out: str | os.PathLike[str] | None,
    figures: str | os.PathLike[str] | None,
    seeds: int | Literal["apart"] | None,
) -> Report:
    """Return the report of some runs; those that differ only in their seeds are one, by the means over these.

    Args:
        sources: the runs.
        out: the file of a page, if one is wanted.
        figures: the folder for figures, if they are wanted.
        seeds: how many each run must have, or `apart` to show them one by one.

    Raises:
        InputError: a file cannot be read, is there twice, or is one too many; a run has other seeds than it must; or
            a file cannot be written.
    """
    if seeds == "apart":
        _check_count(len(sources), "results files")
    page_file = None if out is None else WholeFile(out, example="report.html")
    try:
        runs = tuple(Run.of(name, _results(source)) for name, source in zip(_names(sources), sources, strict=True))
        _check_distinct(sources, runs)
        groups = tuple(alone(runs) if seeds == "apart" else grouped(runs))
        _check_count(len(groups), "runs")
        if isinstance(seeds, int):
            check_seeds(groups, seeds)
        page, size = make_page(groups), None
        if page_file is not None:
            content = encoded(render(page))
            page_file.write(content)
            size = format_bytes(len(content))
    finally:
        if page_file is not None:
            page_file.close()
    drawn = () if figures is None else tuple(draw_figures(page, pathlib.Path(figures)))
    named = zip(runs, sources, strict=True)
    files = {run.name: os.fspath(source) for run, source in named if not isinstance(source, Results)}
    return Report(runs, groups, files, size, drawn)


def _results(source: Source) -> Results:
    return source if isinstance(source, Results) else read_results(pathlib.Path(source))


def _check_count(count: int, noun: str) -> None:
    if count > MOST_CURVES:
        raise InputError(f"{count} {noun}: a page shows at most {MOST_CURVES}; leave some out")


def _names(sources: Sequence[Source]) -> list[str]:
    """Return short names of runs: the stems of their files, or their paths where stems are alike, or their places."""
    stems = [
        f"run {place}" if isinstance(source, Results) else pathlib.Path(source).stem
        for place, source in enumerate(sources, 1)
    ]
    return [
        stem if isinstance(source, Results) or stems.count(stem) == 1 else os.fspath(source)
        for stem, source in zip(stems, sources, strict=True)
    ]


def _check_distinct(sources: Sequence[Source], runs: Sequence[Run]) -> None:
    """Check that no run is there twice.

    A run is known by the times that its epochs took on the host.
    """
    seen: dict[object, str] = {}
    for source, run in zip(sources, runs, strict=True):
        times = tuple(run.results.history.get("host_time_s", ()))
        path = None if isinstance(source, Results) else pathlib.Path(source)
        label = run.name if path is None else str(path)
        for mark in (None if path is None else path.resolve(), times):
            if mark in seen:
                raise InputError(f"{label}: the same run as {seen[mark]}; give each run once")
            if mark:
                seen[mark] = label
