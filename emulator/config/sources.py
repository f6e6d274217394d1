"""Where values of a configuration come from: a TOML file, flags, keyword arguments; and which files
they name.

`--set KEY=VALUE` and `changes=` give values of any keys of a run and of its cluster, spelt as in
their files. Keys of a run take their own places; those of a cluster (`cluster/changes.py`) become
the key `changes` of the run.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..cluster import is_settable, settable_keys
from ..common import (
    NO_FILE,
    InputError,
    NamedFiles,
    Reads,
    Role,
    Writes,
    did_you_mean,
    every_key,
    read_toml,
    tomllib,
    validate,
)
from ..mapping import HandmadeCut
from ..number import joined
from ..schedule import ScheduleKind, edited_kind
from .config import Config
from .groups import ungrouped
from .other_names import ELSEWHERE, OTHER_NAMES
from .rates import FORMER


def role_of(key: str) -> Role:
    """Return which files a key of the configuration, or of a cluster, names."""
    field = Config.model_fields.get(key)
    marks = (
        ()
        if field is None
        else (mark for mark in field.metadata if isinstance(mark, Reads | Writes))
    )
    return next(iter(marks), NO_FILE)


def name_files(files: NamedFiles, keys: Mapping[str, object]) -> None:
    """Add the files that some keys of the configuration name."""
    for key, value in keys.items():
        files.add(
            key,
            value.file if isinstance(value, ScheduleKind | HandmadeCut) else value,
            role_of(key),
        )


@contextlib.contextmanager
def blaming(file: str | None, flags: dict[str, Any]) -> Iterator[None]:
    """Prefix errors about a key with `file`, unless a flag gave its value."""
    try:
        yield
    except InputError as error:
        key = re.match(r"`(\w+)` = ", str(error))
        if file is not None and key is not None and key[1] not in flags:
            raise InputError(f"{file}: {error}") from None
        raise


def read_keys(file: str) -> dict[str, Any]:
    """Return the keys of a run in a TOML file, in tables or not; their values are not validated
    yet.

    Raises:
        InputError: the file cannot be read, or a table or the place of a key is wrong.
    """
    return ungrouped(read_toml(pathlib.Path(file)), file)


def load_config(file: str | None, flags: dict[str, Any]) -> Config:
    """Return the configuration from a TOML file, if one is given; flags override it.

    Raises:
        InputError: an unknown key, or a value of the wrong type or range.
    """
    if file is None:
        return validate(Config, flags, "command line")
    in_file = read_keys(file)
    validate(Config, in_file, file)
    if isinstance(flags.get("precision"), Mapping):
        flags = {**flags, "precision": joined(in_file.get("precision"), flags["precision"])}
    if "changes" in flags and isinstance(in_file.get("changes"), Mapping):
        flags = {
            **flags,
            "changes": {**(validate(Config, in_file, file).changes or {}), **flags["changes"]},
        }
    return validate(Config, {**in_file, **flags}, "command line")


def settings_config(settings: dict[str, Any], order: object = None) -> Config:
    """Return the configuration with the keys in `settings`.

    Where `order` is text, it is what the file of their schedule said, which is then not read.

    Raises:
        InputError: an unknown key, or a value of the wrong type or range.
    """
    if isinstance(order, str):
        settings = {**settings, "schedule": edited_kind(str(settings.get("schedule")), order)}
    return validate(Config, settings, "settings")


CHANGES = "changes"
_TABLE = "precision."
"""The beginning of keys of the table `precision`."""


def parse_changes(
    texts: Iterable[str], blame: str = "--set", run_keys: Iterable[str] | None = None
) -> dict[str, object]:
    """Return the values in texts `KEY=VALUE` by their keys; a value is TOML or a bare word.

    Of a run, the keys may be `run_keys`, by default all.

    Raises:
        InputError: a text has another form, or a key is unknown or given twice.
    """
    changes: dict[str, object] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals:
            raise InputError(f"{blame} {text}: expected KEY=VALUE, such as link.bandwidth_gbps=250")
        if key in changes:
            raise InputError(f"{blame} {text}: `{key}` is given twice")
        check_key(key, f"{blame} {text}", run_keys)
        changes[key] = _value(value.strip())
    return changes


def check_key(key: str, blame: str, run_keys: Iterable[str] | None = None) -> None:
    """Check that a key is one of a run, by default of all of these, or of a cluster.

    Raises:
        InputError: it is none.
    """
    of_run = (
        [name for name in Config.model_fields if name != CHANGES]
        if run_keys is None
        else [*run_keys]
    )
    if key in of_run or (key.startswith(_TABLE) and _TABLE[:-1] in of_run) or is_settable(key):
        return
    known = [*of_run, *settable_keys()]
    hint = did_you_mean(key, known, {**OTHER_NAMES, **FORMER}, ELSEWHERE)
    raise InputError(f"{blame}: unknown key `{key}`; {hint}{every_key(known, hint)}")


def is_of_run(key: str) -> bool:
    """Return whether a key is one of a run, the table `precision` included."""
    return key.startswith(_TABLE) or (key in Config.model_fields and key != CHANGES)


def in_place(settings: Mapping[str, Any], blame: str = "changes") -> dict[str, Any]:
    """Return settings in which the changed keys of a run, if there are any in `changes`, have their
    own places.

    Raises:
        InputError: a key is unknown, or has another value beside its changed one.
    """
    changes = settings.get(CHANGES)
    if not isinstance(changes, Mapping):
        return dict(settings)
    placed = {key: value for key, value in settings.items() if key != CHANGES}
    for key, value in changes.items():
        check_key(key, blame)
        if key.startswith(_TABLE):
            table = placed.get("precision", {})
            table = dict(table) if isinstance(table, Mapping) else {"format": table}
            placed["precision"] = {**table, key.removeprefix(_TABLE): value}
        elif is_of_run(key):
            if key in settings and settings[key] != value:
                raise InputError(
                    f"`{key}` = {settings[key]!r}: {blame} has {value!r}; give one of them"
                )
            placed[key] = value
    of_cluster = {key: value for key, value in changes.items() if not is_of_run(key)}
    return {**placed, CHANGES: of_cluster} if of_cluster else placed


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
