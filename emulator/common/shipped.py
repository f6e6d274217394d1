"""The TOML files that come with emuchain, by name, with a hint where it is misspelt; a user's file goes by its path."""

from __future__ import annotations

import difflib
import os
import pathlib
from collections.abc import Iterable, Sequence

from ...kernels import offered_folders
from .errors import InputError

_HERE = pathlib.Path(__file__).parents[1]
_MOST_LISTED, _MOST_CLOSE = 20, 3
"""More names than these hide what the line says."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question about the known name that is closest, with a blank behind it; empty if none is close."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean `{close[0]}`? " if close else ""


def listed(key: str, name: str, known: Sequence[str]) -> str:
    """Return the known names; of many, those that are close to `name`, and the command that lists all of this key."""
    if len(known) <= _MOST_LISTED:
        return ", ".join(known)
    close = ", ".join(difflib.get_close_matches(name, known, _MOST_CLOSE))
    return f"{f'{close} and others' if close else 'those'} that `emuchain {key}` lists"


def names(folder: str) -> list[str]:
    """Return the names of the TOML files in a folder of the package `emuchain.emulator`, and in those of extensions."""
    return sorted({path.stem for place in _folders(folder) for path in place.glob("*.toml")})


def _folders(folder: str) -> list[pathlib.Path]:
    """Return emuchain's own folder, and those of the same name that extensions have."""
    return [_HERE / folder, *offered_folders(pathlib.PurePath(folder).name)]


def find(key: str, name: str, folder: str, endings: tuple[str, ...] = (".toml",)) -> pathlib.Path:
    """Return the path of the TOML file `name` in `folder`, or `name` itself as a path if it has one of the `endings`.

    Endings may be in capitals.

    Raises:
        InputError: neither applies; the message lists what `key` may be.
    """
    known = names(folder)
    if name in known:
        return next(place / f"{name}.toml" for place in _folders(folder) if (place / f"{name}.toml").is_file())
    if name.lower().endswith(endings):
        return pathlib.Path(name)
    beside = [name + ending for ending in endings if os.path.isfile(name + ending)]
    hint = f"did you mean `{beside[0]}`? " if beside else did_you_mean(name, known)
    files = f"a {' or '.join(endings)} file"
    raise InputError(f"`{key}` = {name!r}: {hint}known: {listed(key, name, known)}; or the path of {files}")
