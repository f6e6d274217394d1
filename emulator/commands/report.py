"""`emuchain report`: results files as one HTML page."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from ..common import InputError, WholeFile, encoded, format_bytes
from ..run import read_results
from ..view.page import Run, make_page, render

MOST_RUNS = 12
"""Largest number of runs on a page: that of colours."""


def write_report(files: Sequence[str], out: str) -> None:
    """Write a page of some results files to `out`, and print where it is.

    Raises:
        InputError: a file cannot be read, is there twice, or is one too many; or the page cannot be written.
    """
    paths = [pathlib.Path(file) for file in files]
    if len(paths) > MOST_RUNS:
        raise InputError(f"{len(paths)} results files: a page shows at most {MOST_RUNS}; leave some out")
    page = WholeFile(out, example="report.html")
    with page:
        runs = [Run.of(name, read_results(path)) for name, path in zip(_names(paths), paths, strict=True)]
        _check_distinct(paths, runs)
        text = render(make_page(runs))
        page.write(encoded(text))
    for run in runs:
        if run.why_no_plan:
            print(f"{run.name}: shown without rates, links and timeline: {run.why_no_plan}")
    size = format_bytes(len(encoded(text)))
    print(f"report of {len(runs)} run{'s' * (len(runs) > 1)} in {out} ({size}); open it in a browser")


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
