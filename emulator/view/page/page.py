"""A page of one run or several, from their results, as HTML: one file, with styles, charts and their library in it."""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from .... import __version__
from ...common import InputError, escaped
from .answer import devices_of, figures, headline, settings
from .boards import links, memory, utilisation
from .comparison import comparing_headline, comparison
from .convergence import convergence
from .group import Group
from .learning import gradients
from .pace import roofs, timeline
from .parts import Key, Page, RunPart, Section

_OF_A_RUN = (roofs, utilisation, links, memory, gradients, timeline, settings)

_TERMS = "FP is forward propagation, EB error back-propagation, PG the computation of parameter gradients."

_FOLDER = pathlib.Path(__file__).parent
_LIBRARIES = ("d3", "plot")


def make_page(groups: Sequence[Group]) -> Page:
    """Return the page of runs in groups, the answer first; those of a group differ only in their seeds."""
    parts = tuple(_part(group, place) for place, group in enumerate(groups))
    curves = convergence(groups)
    shared = () if curves is None else (curves,)
    if len(groups) == 1:
        tables = comparison(groups) if groups[0].has_seeds else ()
        return Page(parts[0].title, parts[0].headline, tables, shared, parts, __version__, _TERMS)
    networks = list(dict.fromkeys(group.first.network for group in groups))
    title = f"{len(groups)} runs of {', '.join(networks[:3])}{' …' if len(networks) > 3 else ''}"
    return Page(title, comparing_headline(groups), comparison(groups), shared, parts, __version__, _TERMS)


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
    return '(() => {\n"use strict";\n' + "\n".join(_text(f"static/{name}") for name in names) + "})();"


def _library(name: str) -> str:
    """Return a library, below the licence that goes with every copy."""
    [path] = _FOLDER.glob(f"vendor/{name}.*js")
    return f"/*!\n{_text(f'vendor/{name}.LICENSE.txt')}*/\n{path.read_text(encoding='utf-8')}"


def _compact(data: Any, **_: Any) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))
