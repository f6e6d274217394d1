"""The TOML files that come with emuchain, by name, with a hint where it is misspelt; a user's file goes by its path."""

from __future__ import annotations

import difflib
import os
import pathlib
from collections.abc import Iterable

from .errors import InputError


def did_you_mean(name: str, known: Iterable[str], most: int = 1) -> str:
    """Return a question about the known names that are closest, with a blank behind it; empty if none is close."""
    close = [f"`{other}`" for other in difflib.get_close_matches(name, list(known), most)]
    return f"did you mean {' or '.join(close)}? " if close else ""


_HERE = pathlib.Path(__file__).parents[1]
_MOST_LISTED, _MOST_MEANT = 20, 3
"""More names than these hide what the line says."""


def names(folder: str) -> list[str]:
    """Return the names of the TOML files in a folder of the package `emuchain.emulator`."""
    files = _HERE / folder
    return sorted(entry.name.removesuffix(".toml") for entry in files.iterdir() if entry.name.endswith(".toml"))


def find(key: str, name: str, folder: str, endings: tuple[str, ...] = (".toml",)) -> pathlib.Path:
    """Return the path of the TOML file `name` in `folder`, or `name` itself as a path if it has one of the `endings`.

    Endings may be in capitals.

    Raises:
        InputError: neither applies; the message lists what `key` may be.
    """
    known = names(folder)
    if name in known:
        return _HERE / folder / f"{name}.toml"
    if name.lower().endswith(endings):
        return pathlib.Path(name)
    beside = [name + ending for ending in endings if os.path.isfile(name + ending)]
    is_short = len(known) <= _MOST_LISTED
    hint = f"did you mean `{beside[0]}`? " if beside else did_you_mean(name, known, 1 if is_short else _MOST_MEANT)
    listed = ", ".join(known) if is_short else f"those that `emuchain {key}` lists"
    files = f"a {' or '.join(endings)} file"
    raise InputError(f"`{key}` = {name!r}: {hint}known: {listed}; or the path of {files}")
