"""TOML files and flags become validated, frozen models here, once; a complaint is one line with file, key and value."""

from __future__ import annotations

import pathlib
import sys
from typing import Any, TypeVar

import pydantic

from ..common.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Model(pydantic.BaseModel):
    """A frozen model that refuses unknown keys and silent conversions."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


def shown(path: pathlib.Path) -> str:
    """A path for a message of one line."""
    return str(path) if str(path).isprintable() else repr(str(path))


ModelT = TypeVar("ModelT", bound=Model)


def read_toml(path: pathlib.Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        InputError: the file cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise InputError(f"{path}: not a TOML file: nested too deeply") from None
    except ValueError as error:  # not TOML, not UTF-8, or a path that no file can have
        raise InputError(f"{shown(path)}: not a TOML file: {error}") from None


def validate(model: type[ModelT], values: dict[str, Any], source: str) -> ModelT:
    """Build `model` from `values`; `source` (a file name, or "command line") begins the message of an error.

    Raises:
        InputError: a key is unknown or missing, or a value has the wrong type or range.
    """
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        raise InputError(" ".join(f"{source}: {_first_problem(model, error)}".split())) from None


def _first_problem(model: type[Model], error: pydantic.ValidationError) -> str:
    """One line about the first thing that pydantic found, in the words of the file."""
    problem = error.errors(include_url=False)[0]
    place = _place(problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = ", ".join(sorted(model.model_fields)) if len(problem["loc"]) == 1 else "those in the documentation"
        return f"unknown key `{place}` = {problem['input']!r}; known keys: {known}"
    if problem["type"] == "missing":
        return f"key `{place}` is missing"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if not place:
        return message
    return f"`{place}` = {problem['input']!r}: {message}"


def _place(location: tuple[int | str, ...]) -> str:
    """The TOML spelling of a pydantic location: ('layers', 3, 'conv', 'kernel') becomes layers[3].kernel."""
    words = ""
    for before, part in zip((None, *location), location, strict=False):
        if isinstance(part, int):
            words += f"[{part}]"
        elif isinstance(before, int) and len(location) > location.index(before) + 2:
            continue  # the tag of a discriminated union stands between an index and a key
        elif part.startswith(("function-before[", "tagged-union[", "tuple[", "constrained-")):
            continue  # a branch of a union, no key of the file
        else:
            words += f".{part}" if words else part
    return words
