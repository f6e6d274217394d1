"""A report: the runs of some results files, in groups, with their page, figures and numbers.

A page of one run or several is one HTML file, with styles, charts and their library in it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

from .... import __version__
from ...common import InputError, WholeFile, encoded, escaped, format_bytes
from ...run import Results, read_results
from .boards import links, memory, roofs, timeline, utilisation
from .drawn import draw_figures
from .learning import convergence, gradients
from .outcome import (
    comparing_headline,
    comparison,
    comparison_as_json,
    devices_of,
    figures,
    headline,
    settings,
)
from .parts import MOST_CURVES, Key, Page, RunPart, Section
from .source import Group, Run, alone, check_seeds, grouped

_OF_A_RUN = (roofs, utilisation, links, memory, gradients, timeline, settings)

_TERMS = (
    "FP is forward propagation, EB error back-propagation, PG the computation of parameter"
    " gradients."
)

_FOLDER = pathlib.Path(__file__).parent
_LIBRARIES = ("d3", "plot")


def make_page(groups: Sequence[Group]) -> Page:
    """Return the page of runs in groups, the answer first; those of a group differ only in their
    seeds.
    """
    parts = tuple(_part(group, place) for place, group in enumerate(groups))
    curves = convergence(groups)
    shared = () if curves is None else (curves,)
    if len(groups) == 1:
        tables = comparison(groups) if groups[0].has_seeds else ()
        return Page(parts[0].title, parts[0].headline, tables, shared, parts, __version__, _TERMS)
    networks = list(dict.fromkeys(group.first.network for group in groups))
    title = f"{len(groups)} runs of {', '.join(networks[:3])}{' …' if len(networks) > 3 else ''}"
    return Page(
        title, comparing_headline(groups), comparison(groups), shared, parts, __version__, _TERMS
    )


def _part(group: Group, place: int) -> RunPart:
    run = group.first
    sections: list[Section] = [section for make in _OF_A_RUN if (section := make(run)) is not None]
    title, note = f"{run.network} on {devices_of(run)}", ""
    if group.has_seeds:
        title += f", {len(group.runs)} seeds"
        note = f"What limits the rate, and all below it, is of seed {group.seeds[0]}."
    mark = Key.of_curve(group.name, place)
    return RunPart(group.name, title, headline(group), figures(group), tuple(sections), mark, note)


def render(page: Page) -> str:
    """Return the page as HTML.

    Raises:
        InputError: jinja2 is not installed.
    """
    try:
        import jinja2
        from jinja2.utils import htmlsafe_json_dumps
        from markupsafe import Markup
    except ImportError:
        raise InputError("a report needs jinja2: pip install 'emuchain[report]'") from None
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: escaped(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["json"] = functools.partial(htmlsafe_json_dumps, dumps=_compact)
    return environment.get_template("static/page.html").render(
        page=page,
        style=Markup(_text("static/page.css")),
        library=Markup("\n".join(map(_library, _LIBRARIES))),
        script=Markup(_script()),
    )


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _script() -> str:
    """Return all scripts as one function; what they share comes first, what starts them last."""
    names = sorted(path.name for path in (_FOLDER / "static").glob("*.js"))
    names.sort(key=lambda name: (name != "base.js", name == "draw.js"))
    return (
        '(() => {\n"use strict";\n' + "\n".join(_text(f"static/{name}") for name in names) + "})();"
    )


def _library(name: str) -> str:
    """Return a library, below the licence that goes with every copy."""
    [path] = _FOLDER.glob(f"vendor/{name}.*js")
    return f"/*!\n{_text(f'vendor/{name}.LICENSE.txt')}*/\n{path.read_text(encoding='utf-8')}"


def _compact(data: Any, **_: Any) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


Source = Results | str | os.PathLike[str]
"""A run's results, or the path of its file."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What was made of some runs: `size` is that of the page, if one was written, `drawn` are the
    figures' files.
    """

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
    """Return the report of some runs; those that differ only in their seeds are one, by the means
    over these.

    Args:
        sources: the runs.
        out: the file of a page, if one is wanted.
        figures: the folder for figures, if they are wanted.
        seeds: how many each run must have, or `apart` to show them one by one.

    Raises:
        InputError: a file cannot be read, is there twice, or is one too many; a run has other seeds
            than it must; or a file cannot be written.
    """
    if seeds == "apart":
        _check_count(len(sources), "results files")
    # Before any file is read: what cannot be written is reported before the work.
    page_file = None if out is None else WholeFile(out, example="report.html")
    try:
        runs = tuple(
            Run.of(name, _results(source))
            for name, source in zip(_names(sources), sources, strict=True)
        )
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
    files = {
        run.name: os.fspath(source) for run, source in named if not isinstance(source, Results)
    }
    return Report(runs, groups, files, size, drawn)


def _results(source: Source) -> Results:
    return source if isinstance(source, Results) else read_results(pathlib.Path(source))


def _check_count(count: int, noun: str) -> None:
    if count > MOST_CURVES:
        raise InputError(f"{count} {noun}: a page shows at most {MOST_CURVES}; leave some out")


def _names(sources: Sequence[Source]) -> list[str]:
    """Return short names of runs: the stems of their files, or their paths where stems are alike,
    or their places.
    """
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
