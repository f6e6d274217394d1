"""Validation of TOML files and flags into frozen models; an error is one line with file, key and
value.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import re
import sys
import typing
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import pydantic

from .arguments import native
from .file_kind import other_kind
from .messages import InputError
from .named_files import NO_FILE, Role
from .reading import (
    MOST_TOML_BYTES,
    BinaryError,
    decoded,
    did_you_mean,
    every_key,
    place_in,
    read_text,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Model(pydantic.BaseModel):
    """A frozen model that refuses unknown keys and silent conversions."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)

    former: ClassVar[Mapping[str, str]] = {}
    """Keys that it had once, or has in other programs, each with that which says the same here;
    messages name it.
    """
    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Keys that it does not have, each with where or how what they say is given."""


def as_tuple(value: Any) -> Any:
    """Return an array of TOML as a tuple, as frozen models have it; anything else as it is."""
    return tuple(value) if isinstance(value, list) else value


def model_of(described: type, **keys: Any) -> type[Model]:
    """Return a model with the fields of a dataclass, whose annotations give the ranges; `keys` are
    further fields.
    """
    hints = typing.get_type_hints(described, include_extras=True)
    fields: dict[str, Any] = {
        field.name: (
            hints[field.name],
            ... if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(described)
    }
    first = {key: value for key, value in keys.items() if key == "type"}
    return pydantic.create_model(
        described.__name__, __base__=Model, __doc__=described.__doc__, **{**first, **fields, **keys}
    )


class _Described:
    """A marker of dataclasses whose keys are validated by the model from `model_of`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def make(said: Any) -> Any:
            return source(
                **{field.name: getattr(said, field.name) for field in dataclasses.fields(source)}
            )

        return core_schema.no_info_after_validator_function(
            make, handler.generate_schema(model_of(source))
        )


DESCRIBED = _Described()
"""Annotation of a dataclass that is read from a table with its fields as keys."""


def shown(path: pathlib.Path) -> str:
    """Return a path as text for a one-line message."""
    return str(path) if str(path).isprintable() else repr(str(path))


_MOST_DOTS, _MOST_DIGITS = 200, 4000
_BARE_KEY = re.compile(r"[\w-]+", re.ASCII)
_LONG_NUMBER = re.compile(rf"\d[\d_]{{{_MOST_DIGITS}}}")

ModelT = TypeVar("ModelT", bound=Model)


def read_toml(path: pathlib.Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        InputError: the file cannot be read or is not TOML.
    """
    try:
        return _parsed(read_text(path, MOST_TOML_BYTES))
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot be read: {error.strerror or error}") from None
    except BinaryError:
        raise other_kind(path, shown(path), "not a TOML file") from None
    except ValueError as error:  # not TOML, not UTF-8, or a path that no file can have
        other = path.suffix.lower() in _OTHER_TEXTS
        how = f"; emuchain reads TOML, no {path.suffix} file" if other else _how(str(error))
        raise InputError(f"{shown(path)}: not a TOML file: {error}{how}") from None


_OTHER_TEXTS = (".json", ".yaml", ".yml", ".ini", ".py", ".csv")


def _how(problem: str) -> str:
    """Return what helps against a frequent fault of TOML, for the end of its message."""
    return "; text stands in quotes" if problem.startswith("Invalid value") else ""


def toml_value(value: object) -> str:
    """Return text, a number, a truth value, a date, or a list or table of such as TOML has it."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_toml_key(key)} = {toml_value(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, str):
        # JSON's strings are TOML's, except for the delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else toml_value(key)


def read_description(text: str) -> dict[str, Any]:
    """Return the keys of a description that a file of results holds: TOML, or JSON where it came
    from Python.

    Raises:
        ValueError: it is neither.
    """
    try:
        return dict(json.loads(text)) if text.startswith("{") else _parsed(decoded(text.encode()))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _parsed(text: str) -> dict[str, Any]:
    """Return the content of TOML.

    Raises:
        ValueError: it is none; the message says what is wrong, at which line and column.
    """
    number = _LONG_NUMBER.search(text)
    if number is not None:
        raise ValueError(
            f"A number of more than {_MOST_DIGITS:,} digits {_at(text, number.start())}"
        )
    # Keys take time with the square of their dots.
    if any(part.count(".") > _MOST_DOTS for part in re.split("[=,\n]", text)):
        raise ValueError("nested too deeply")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(str(error).replace("(at end of document)", _at(text, len(text)))) from None


def _at(text: str, place: int) -> str:
    line, column = place_in(text[:place])
    return f"(at line {line}, column {column})"


def validate(model: type[ModelT], values: dict[str, Any], source: str) -> ModelT:
    """Build `model` from `values`; `source` (a file name, or "command line") begins the message of
    an error.

    Raises:
        InputError: a key is unknown or missing, or a value has the wrong type or range.
    """
    try:
        return model.model_validate(native(values))
    except pydantic.ValidationError as error:
        raise InputError(" ".join(f"{source}: {_first_problem(model, error)}".split())) from None


def _first_problem(model: type[Model], error: pydantic.ValidationError) -> str:
    """Return one line about the first problem that pydantic found, in the terms of the file."""
    problems = error.errors(include_url=False)
    # A misspelt key is missing, too; its spelling is what helps.
    unknown = [problem for problem in problems if problem["type"] == "extra_forbidden"]
    advised = [problem for problem in unknown if problem["loc"][-1] in model.elsewhere]
    problem = [*advised, *unknown, *problems][0]
    kind, place, value = problem["type"], _place(problem["loc"]), problem["input"]
    if kind == "extra_forbidden":
        *outer, key = problem["loc"]
        own = _keys_of(model, outer[-1]) if outer else {*model.model_fields}
        former = {name: new for name, new in model.former.items() if not own or new in own}
        hint = did_you_mean(
            str(key), own or _all_keys(model) - {key}, former, model.elsewhere if own else {}
        )
        # A guess may be wrong, and the keys then help.
        sure = hint if key in former or key in model.elsewhere else ""
        return f"unknown key `{place}` = {_quoted(value)}; {hint}{every_key(sorted(own), sure)}"
    if kind == "missing":
        *outer, last = problem["loc"]
        if isinstance(last, int):
            least = 1 + max(
                index
                for *above, index in (other["loc"] for other in problems)
                if above == outer and isinstance(index, int)
            )
            return f"`{_place(tuple(outer))}` = {_quoted(value)}: should have {least} values"
        return f"key `{place}` is missing"
    if kind == "union_tag_not_found":
        return f"key `{place}.type` is missing"
    if kind == "union_tag_invalid":
        tag, kinds = problem["ctx"]["tag"], re.findall("'([^']*)'", problem["ctx"]["expected_tags"])
        hint = did_you_mean(tag, kinds, model.former, model.elsewhere)
        return f"`{place}` has the unknown type {tag!r}; {hint}known types: {', '.join(kinds)}"
    if kind in _NO_TABLE:
        # Behind an index, the last part is the tag of a union, and no key of the file.
        *outer, last = problem["loc"] or ("",)
        tagged = bool(outer) and isinstance(outer[-1], int) and isinstance(last, str)
        place = _place(tuple(outer)) if tagged else place
        return f"`{place}` = {_quoted(value)}: should be a table, {{ KEY = VALUE, … }}"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if kind == "tuple_type":
        message = f"should be a list{_as_list(value)}"
    if kind == "literal_error":
        expected = re.findall("'([^']*)'", problem["ctx"]["expected"])
        message = did_you_mean(str(value), expected, model.former) + message
    if kind == "string_type" and _is_file(model, problem["loc"]):
        message += ", the path of a file"
    if kind in ("int_type", "float_type") and isinstance(value, str) and _NUMBER.fullmatch(value):
        message += ", without quotes"
    for bound in problem.get("ctx", {}).values():
        if isinstance(bound, float) and not 1e-4 <= abs(bound) < 1e16:
            message = re.sub(
                r"(?<= )[\d.]+$", f"{bound:g}", message
            )  # pydantic writes out all zeros
    if not place:
        return message
    return f"`{place}` = {_quoted(value)}: {message}"


def _is_file(model: type[Model], location: tuple[int | str, ...]) -> bool:
    """Return whether a key of a model names files."""
    field = model.model_fields.get(str(location[0])) if len(location) == 1 else None
    roles = [] if field is None else [role for role in field.metadata if isinstance(role, Role)]
    return bool(roles) and NO_FILE not in roles


_NO_TABLE = ("model_type", "model_attributes_type", "dataclass_type", "dict_type")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
_SIZES = re.compile(r"\d+([x, ]+\d+)+", re.ASCII)
_LONGEST_VALUE = 200


def _quoted(value: object) -> str:
    """Return a value as Python writes it, arrays of files as lists, the begin of one that is
    long.
    """
    text = repr([*value] if isinstance(value, tuple) else value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _as_list(value: object) -> str:
    """Return the list that a text such as 3x8x8 means, or what a list looks like."""
    if isinstance(value, str) and _SIZES.fullmatch(value):
        return f": [{', '.join(re.findall('[0-9]+', value))}]"
    return f", such as [{toml_value(value)}]" if isinstance(value, str | int | float) else ", [ … ]"


def _all_keys(model: type[Model]) -> set[str]:
    """Return the keys of a model's tables, at any depth."""
    schema = model.model_json_schema()
    tables = [schema, *schema.get("$defs", {}).values()]
    return {key for table in tables for key in table.get("properties", {})}


def _keys_of(model: type[Model], kind: int | str) -> set[str]:
    """Return the keys of a model's tables of a `type`, such as layers of kind "fc"; empty if there
    are none.
    """
    tables = model.model_json_schema().get("$defs", {}).values()
    return {
        key
        for table in tables
        if table.get("properties", {}).get("type", {}).get("const") == kind
        for key in table["properties"]
    }


def _place(location: tuple[int | str, ...]) -> str:
    """Return the TOML spelling of a pydantic location: ('layers', 3, 'conv', 'kernel') becomes
    layers[3].kernel.
    """
    words = ""
    for before, part, behind in zip(
        (None, *location), location, (*location[1:], None), strict=False
    ):
        if isinstance(part, int):
            words += f"[{part}]"
        elif isinstance(before, int) and isinstance(behind, str):
            continue  # the tag of a discriminated union, between an index and a key
        elif part.startswith(("function-before[", "tagged-union[", "tuple[", "constrained-")):
            continue  # a branch of a union, not a key of the file
        else:
            words += f".{part}" if words else part
    return words
