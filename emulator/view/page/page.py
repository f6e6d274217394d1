"""A page of one run or several, from their results, as HTML: one file, with styles, charts and their library in it."""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from .... import __version__
from ...common import InputError, escaped
from .answer import comparing_headline, comparison, devices_of, figures, headline, settings
from .boards import links, memory, utilisation
from .learning import convergence, gradients
from .pace import roofs, timeline
from .parts import Page, RunPart, Section
from .source import Run

_OF_A_RUN = (roofs, utilisation, links, memory, gradients, timeline, settings)

_FOLDER = pathlib.Path(__file__).parent
_LIBRARIES = ("d3", "plot")


def make_page(runs: Sequence[Run]) -> Page:
    """Return the page of one run or several, the answer first."""
    parts = tuple(_part(run) for run in runs)
    curves = convergence(runs)
    shared = () if curves is None else (curves,)
    if len(runs) == 1:
        return Page(parts[0].title, parts[0].headline, (), shared, parts, __version__)
    networks = list(dict.fromkeys(run.network for run in runs))
    title = f"{len(runs)} runs of {', '.join(networks[:3])}{' …' if len(networks) > 3 else ''}"
    return Page(title, comparing_headline(runs), (comparison(runs),), shared, parts, __version__)


def _part(run: Run) -> RunPart:
    sections: list[Section] = [section for make in _OF_A_RUN if (section := make(run)) is not None]
    return RunPart(run.name, f"{run.network} on {devices_of(run)}", headline(run), figures(run), tuple(sections))


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
