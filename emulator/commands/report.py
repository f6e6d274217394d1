"""`emuchain report`: results files as one HTML page, as figures for print, or as JSON."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Literal

from ..common import plural
from ..view.page import Report, make_report
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
        files: the results files.
        out: the page.
        figures: the folder for figures.
        as_json: print the numbers of the page's table.
        seeds: how many each run must have, or `apart` to show them one by one.

    Raises:
        InputError: as `make_report`.
    """
    if out is None and figures is None and not as_json:
        out = "report.html"
    report = make_report(files, out, figures, seeds)
    said = [
        f"{run.name}: shown without rates, links and timeline: {run.why_no_plan}"
        for run in report.runs
        if run.why_no_plan
    ]
    if report.size is not None:
        said.append(f"report of {_counted(report)} in {out} ({report.size}); open it in a browser")
    said += (f"drawn: {path}" for path in report.drawn)
    for line in said:
        (tell if as_json else print)(line)
    if as_json:
        print(json.dumps(report.numbers, indent=2))


def _counted(report: Report) -> str:
    runs, groups = len(report.runs), len(report.groups)
    seeds = f", {runs} files of several seeds" if runs > groups else ""
    return f"{plural(groups, 'run')}{seeds}"
