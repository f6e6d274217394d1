"""The files that a command or a call names: what it writes is none of what it reads, and nothing is
written twice.

Each setting that names files is declared with a role, `Reads` or `Writes`: keys of the
configuration by annotations, flags by their types, arguments of `import emuchain` where its
functions begin. Once all are known, and before any file is opened to be written, each output is
compared with all else by device and inode, to which links lead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from .lock import FOLDERS_LOCK
from .messages import InputError
from .whole_file import touched

Paths: TypeAlias = Iterable[str | os.PathLike[str]]
_Place: TypeAlias = tuple[str | int, ...]


def itself(value: str) -> Paths:
    """Return the value of a setting as the one file that it names."""
    return (value,)


@dataclasses.dataclass(frozen=True)
class Reads:
    """The role of a setting that names what is read: `what` it is, as text, and which files those
    are.

    `files` raises nothing but OSError, ValueError or InputError, which are left to who reads them.
    """

    what: str
    files: Callable[[str], Paths] = itself


@dataclasses.dataclass(frozen=True)
class Writes:
    """The role of a setting that names what is written, and which files that touches.

    What the setting `goes_on` names has been read by then, and may be replaced.
    """

    files: Callable[[str], Paths] = touched
    goes_on: str | None = None


NO_FILE = Reads("no file", lambda _: ())
"""The role of a setting whose value is text, and names no file."""

Role: TypeAlias = Reads | Writes


def in_folder(pattern: str) -> Callable[[str], Paths]:
    """Return which files a setting touches that names a folder, into which files are written whose
    names match.
    """

    def files(folder: str) -> Paths:
        yield folder
        yield os.path.join(folder, FOLDERS_LOCK)
        yield from pathlib.Path(folder).glob(pattern)

    return files


class _Named(NamedTuple):
    """A setting, and one of the files that it names, if it is known."""

    key: str
    value: str
    role: Role
    path: str | os.PathLike[str] | None = None

    def __str__(self) -> str:
        name = "" if self.path is None else os.fspath(self.path)
        return f"`{self.key}` = {self.value!r}" + (
            "" if name in os.path.normpath(self.value) else f" ({name})"
        )

    def files(self) -> Iterator[tuple[_Place, _Named]]:
        """Yield all files that it names, as far as they can be known, each with its place."""
        with contextlib.suppress(OSError, ValueError, InputError):
            for path in self.role.files(self.value):
                place = _place(path)
                if place is not None:
                    yield place, self._replace(path=path)


class NamedFiles:
    """The files that settings name, which are added one by one and then checked."""

    def __init__(self) -> None:
        self._settings: list[_Named] = []

    def add(self, key: str, value: object, role: Role) -> None:
        """Add what a setting names; a list or a tuple names several, and what is neither text nor a
        path names none.
        """
        if isinstance(value, list | tuple):
            for part in value:
                self.add(key, part, role)
        elif isinstance(value, str | os.PathLike):
            self._settings.append(_Named(key, os.fsdecode(value), role))

    def check(self) -> None:
        """Compare each output with all inputs and all other outputs.

        Raises:
            InputError: two settings name the same file, and one of them would write it; or it can
                be no file's name.
        """
        written: dict[_Place, _Named] = {}
        for setting in self._settings:
            if isinstance(setting.role, Writes):
                if "\0" in setting.value:
                    raise InputError(
                        f"{setting}: holds a character 0, which no file's name may; give another"
                        " path"
                    )
                for place, named in setting.files():
                    other = written.setdefault(place, named)
                    if (other.key, other.value) != (named.key, named.value):
                        raise InputError(
                            f"{named}: this run writes another file there, that of {other}; give"
                            " each file a name of its own"
                        )
        if not any(map(_is_of_a_file, written)):
            return  # what is read is there, and none of what will be written is
        for setting in self._settings:
            if isinstance(setting.role, Reads):
                for place, named in setting.files():
                    output = written.get(place)
                    if output is not None and (
                        not isinstance(output.role, Writes) or output.role.goes_on != named.key
                    ):
                        raise InputError(
                            f"{output}: is {setting.role.what}, which {named} names; give another"
                            " path"
                        )


def _place(path: str | os.PathLike[str]) -> _Place | None:
    """Return what is the same for all paths of a file: its device and inode, or those of the folder
    where it would be.

    A folder is no file, and has none.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return _new_place(path)
    except (OSError, ValueError):
        return None
    return None if stat.S_ISDIR(status.st_mode) else (status.st_dev, status.st_ino)


def _new_place(path: str | os.PathLike[str]) -> _Place | None:
    """Return the inode of the nearest folder that there is on the way to a file, and the names from
    there on.
    """
    with contextlib.suppress(OSError, ValueError):
        target = pathlib.Path(os.path.realpath(path))
        for folder in target.parents:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                status = os.stat(folder)
                return (status.st_dev, status.st_ino, *target.relative_to(folder).parts)
    return None


def _is_of_a_file(place: _Place) -> bool:
    # Device and inode; the place of a file that is not there yet has names behind them.
    return len(place) == 2
