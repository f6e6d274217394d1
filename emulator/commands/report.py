"""`emuchain report`: results files as one HTML page, as figures for print, or as JSON."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Literal

from ..common import InputError, WholeFile, encoded, format_bytes, plural
from ..run import read_results
from ..view.page import (
    MOST_CURVES,
    Page,
    Run,
    alone,
    check_seeds,
    comparison_as_json,
    draw_figures,
    grouped,
    make_page,
    render,
)
from .output import tell


def report_runs(
    files: Sequence[str],
    out: str | None,
    figures: pathlib.Path | None,
    as_json: bool,
    seeds: int | Literal["apart"] | None,
) -> None:
    """Write a page of some results files to `out`, draw `figures` or print JSON; without these, write report.html.

    Args:
        files: the results files; those that differ only in their seeds are one run, by the means over these.
        out: the page.
        figures: the folder for figures.
        as_json: print the numbers of the page's table.
        seeds: how many each run must have, or `apart` to show them one by one.

    Raises:
        InputError: a file cannot be read, is there twice, or is one too many; a run has other seeds than it must; or
            a file cannot be written.
    """
    paths = [pathlib.Path(file) for file in files]
    if seeds == "apart":
        _check_count(len(paths), "results files")
    if out is None and figures is None and not as_json:
        out = "report.html"
    page_file = None if out is None else WholeFile(out, example="report.html")
    try:
        runs = [Run.of(name, read_results(path)) for name, path in zip(_names(paths), paths, strict=True)]
        _check_distinct(paths, runs)
        groups = alone(runs) if seeds == "apart" else grouped(runs)
        _check_count(len(groups), "runs")
        if isinstance(seeds, int):
            check_seeds(groups, seeds)
        page = make_page(runs, apart=seeds == "apart")
        size = None if page_file is None else _write_page(page, page_file)
    finally:
        if page_file is not None:
            page_file.close()
    drawn = [] if figures is None else draw_figures(page, figures)
    said = [
        *(f"{run.name}: shown without rates, links and timeline: {run.why_no_plan}" for run in runs if run.why_no_plan),
        *([] if size is None else [f"report of {_counted(runs, len(groups))} in {out} ({size}); open it in a browser"]),
        *(f"drawn: {path}" for path in drawn),
    ]
    for line in said:
        (tell if as_json else print)(line)
    if as_json:
        by_name = {run.name: str(path) for run, path in zip(runs, paths, strict=True)}
        print(json.dumps(comparison_as_json(groups, by_name), indent=2))


def _write_page(page: Page, file: WholeFile) -> str:
    """Write a page, and return its size."""
    content = encoded(render(page))
    file.write(content)
    return format_bytes(len(content))


def _counted(runs: Sequence[Run], groups: int) -> str:
    seeds = f", {len(runs)} files of several seeds" if len(runs) > groups else ""
    return f"{plural(groups, 'run')}{seeds}"


def _check_count(count: int, noun: str) -> None:
    if count > MOST_CURVES:
        raise InputError(f"{count} {noun}: a page shows at most {MOST_CURVES}; leave some out")


def _names(paths: Sequence[pathlib.Path]) -> list[str]:
    """Return short names of results files: their stems, or their paths where stems are alike."""
    stems = [path.stem for path in paths]
    return [stem if stems.count(stem) == 1 else str(path) for stem, path in zip(stems, paths, strict=True)]


def _check_distinct(paths: Sequence[pathlib.Path], runs: Sequence[Run]) -> None:
    """Check that no run is there twice.

    A run is known by the times that its epochs took on the host.
    """
    seen: dict[object, pathlib.Path] = {}
    for path, run in zip(paths, runs, strict=True):
        times = tuple(run.results.history.get("host_time_s", ()))
        for mark in (path.resolve(), times):
            if mark in seen:
                raise InputError(f"{path}: the same run as {seen[mark]}; give each run once")
            if mark:
                seen[mark] = path
