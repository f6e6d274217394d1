"""A page as HTML: one file, with style sheet, charts and their library inside it."""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Any

from ...common import InputError, escaped
from .parts import Page

_FOLDER = pathlib.Path(__file__).parent
_LIBRARIES = ("d3", "plot")


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
