"""Reading of files that users name: regular files of a size that can be meant, and nothing that would never end."""

from __future__ import annotations

import errno
import os
import pathlib
import stat
from typing import BinaryIO

from .units import format_bytes

MOST_TOML_BYTES = 2**22
MOST_TEXT_BYTES = 2**28


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read bytes; a pipe without a writer is refused, and not waited for.

    Raises:
        OSError: it cannot be opened, or is no regular file; `strerror` says why.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device"
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
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise OSError(errno.EFBIG, f"is larger than {format_bytes(most_bytes)}", os.fspath(path))
        return file.read()


def read_text(path: pathlib.Path, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """Return the content of a text file in UTF-8, with line ends of any system as `\\n`.

    Raises:
        OSError: as `read_file`.
        UnicodeDecodeError: it is not UTF-8.
    """
    return read_file(path, most_bytes).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
