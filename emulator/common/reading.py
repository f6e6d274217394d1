"""Files that users name: by path, or by the name of one that comes with emuchain; and how they are
read.

What is read is a regular file of a size that can be meant, and nothing that would never end. Of a
name that is misspelt, a hint says which was meant.
"""

from __future__ import annotations

import codecs
import difflib
import errno
import os
import pathlib
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import BinaryIO

from ...kernels import offered_folders
from .messages import InputError
from .quantities import format_bytes

MOST_TOML_BYTES = 2**22
MOST_TEXT_BYTES = 2**28
_HEAD_BYTES = 4096
# Not 09 to 0d, which lay out lines, and not 1b, with which colours of terminals begin.
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)


class BinaryError(ValueError):
    """A file that should be a text is none, in whatever encoding."""


def looks_like_text(head: bytes) -> bool:
    """Return whether a file that begins so may be a text, in whatever encoding."""
    return head.startswith(_WIDE_MARKS) or not _CONTROL.search(head[:_HEAD_BYTES])


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read bytes; a pipe without a writer is refused, and not waited for.

    Raises:
        OSError: it cannot be opened, or is no regular file; `strerror` says why.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            kind = (
                "a folder"
                if stat.S_ISDIR(mode)
                else "a pipe"
                if stat.S_ISFIFO(mode)
                else "a device"
            )
            raise OSError(errno.EINVAL, f"is {kind}; give a file", os.fspath(path))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_file(path: pathlib.Path, most_bytes: int = MOST_TEXT_BYTES) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: as `open_file`, or it holds more than `most_bytes`; `strerror` says why.
    """
    with open_file(path) as file:
        # The size of the opened file: by now, the path may lead to another one.
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise OSError(
                errno.EFBIG, f"is larger than {format_bytes(most_bytes)}", os.fspath(path)
            )
        return file.read()


def read_text(path: pathlib.Path, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """Return the content of a text file in UTF-8, with line ends of any system as
    `\\n`, and without a byte order mark.

    Raises:
        OSError: as `read_file`.
        ValueError: it is in another encoding; the message says where, and what to do.
    """
    return decoded(read_file(path, most_bytes))


def read_exact_text(path: pathlib.Path, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """Return the content of a text file in UTF-8 with its own line ends and byte order mark, to
    keep it as it is.

    Raises:
        OSError: as `read_file`.
        ValueError: it is in another encoding.
    """
    return read_file(path, most_bytes).decode("utf-8")


def decoded(content: bytes) -> str:
    """Return bytes of a text file as `read_text` does.

    Raises:
        ValueError: they are in another encoding, or a `BinaryError` in none.
    """
    # In UTF-16 without a byte order mark, every other byte of ASCII characters is 0; two
    # characters tell.
    if any(content.startswith(mark) for mark in _WIDE_MARKS) or re.match(
        rb"(?:[^\0]\0){2}|(?:\0[^\0]){2}", content
    ):
        raise ValueError("in UTF-16 or UTF-32; save it in UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if not looks_like_text(content):
            raise BinaryError(
                "not in UTF-8, nor a text at all, but a binary file; give another one"
            ) from None
        line, column = place_in(content[: error.start].decode("utf-8", "replace"))
        raise ValueError(
            f"not in UTF-8: byte 0x{content[error.start]:02x} at line {line}, column {column}; save"
            " it in UTF-8"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def place_in(before: str) -> tuple[int, int]:
    """Return the line and the column, both from 1, that come after a text."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


_HERE = pathlib.Path(__file__).parents[1]
_MOST_LISTED, _MOST_CLOSE = 20, 3
"""More names than these hide what the line says."""


_NOTHING: Mapping[str, str] = MappingProxyType({})


def did_you_mean(
    name: str,
    known: Iterable[str],
    former: Mapping[str, str] = _NOTHING,
    elsewhere: Mapping[str, str] = _NOTHING,
) -> str:
    """Return a question about the known name that is closest, with a blank behind it; empty if none
    is close.

    A name that was known formerly is closest to what it is today. Of one that is meant `elsewhere`,
    return what that says.
    """
    if name in elsewhere:
        return f"{elsewhere[name]}; "
    close = [former[name]] if name in former else difflib.get_close_matches(name, list(known), 1)
    return f"did you mean `{close[0]}`? " if close else ""


def every_key(known: Iterable[str], hint: str) -> str:
    """Return the known keys for a message; of many, behind a hint, where they stand."""
    keys = [*known]
    if hint and len(keys) > _MOST_LISTED:
        return "docs/configuration.md has all keys"
    return f"known keys: {', '.join(keys) or 'see docs/configuration.md'}"


def listed(key: str, name: str, known: Sequence[str]) -> str:
    """Return the known names; of many, those that are close to `name`, and the command that lists
    all of this key.
    """
    if len(known) <= _MOST_LISTED:
        return ", ".join(known)
    close = ", ".join(difflib.get_close_matches(name, known, _MOST_CLOSE))
    command = "network" if key == "network" else "cluster"  # which lists boards and links, too
    return f"{f'{close} and others' if close else 'those'} that `emuchain {command}` lists"


def names(folder: str) -> list[str]:
    """Return the names of the TOML files in a folder of the package `emuchain.emulator`, and in
    those of extensions.
    """
    return sorted({path.stem for place in _folders(folder) for path in place.glob("*.toml")})


def _folders(folder: str) -> list[pathlib.Path]:
    """Return emuchain's own folder, and those of the same name that extensions have."""
    return [_HERE / folder, *offered_folders(pathlib.PurePath(folder).name)]


_NAMED = {"network": "network/zoo", "cluster": "cluster/clusters"}
"""What comes with emuchain and is given by its name in many places, with the folder of its
files.
"""


def kind_named(name: str, *, but: str = "") -> str:
    """Return whether a name is a "network" or a "cluster" that comes with emuchain; empty if it is
    neither, or is what `but` says.
    """
    if but and but not in _NAMED:
        return ""
    return next((kind for kind in _NAMED if kind != but and name in names(_NAMED[kind])), "")


def find(key: str, name: str, folder: str, endings: tuple[str, ...] = (".toml",)) -> pathlib.Path:
    """Return the path of the TOML file `name` in `folder`, or `name` itself as a path if it has one
    of the `endings`.

    Endings may be in capitals.

    Raises:
        InputError: neither applies; the message lists what `key` may be.
    """
    known = names(folder)
    if name in known:
        return next(
            place / f"{name}.toml"
            for place in _folders(folder)
            if (place / f"{name}.toml").is_file()
        )
    if name.lower().endswith(endings):
        return pathlib.Path(name)
    if other := kind_named(name, but=key):
        raise InputError(
            f"`{key}` = {name!r}: is a {other}, no {key}; give it as `{other}`: the two may have"
            " changed places"
        )
    beside = [name + ending for ending in endings if os.path.isfile(name + ending)]
    hint = f"did you mean `{beside[0]}`? " if beside else did_you_mean(name, known)
    files = f"a {' or '.join(endings)} file"
    raise InputError(
        f"`{key}` = {name!r}: {hint}known: {listed(key, name, known)}; or the path of {files}"
    )
