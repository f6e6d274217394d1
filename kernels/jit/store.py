"""The store of machine code: one file for each kernel.

A file's name depends on all that its content depends on: the kernel, the sources of all kernels, Numba and LLVM, and
the kind of processor with the micro-kernel's form. So no file is ever out of date, and processes that compile the same
kernel write the same content. A file appears atomically. One damaged by a full disk or a power cut counts as missing.

Machine code is obeyed, so it is taken only from where no other user can have put it, as OpenSSH takes keys: file,
folder and all folders above belong to this user or root, and no others may write to them. All else counts as missing,
too. The owner of the sources is trusted as well, since they are obeyed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
import json
import os
import pathlib
import stat
import tempfile
import zlib
from collections.abc import Iterator
from typing import Any

from ..current_folder import user_cache

SETTING = "NUMBA_CACHE_DIR"
SOURCES = pathlib.Path(__file__).parent.parent
"""The folder of all kernels' sources, including its sub-folders."""

Kind = str | list[Any]
"""A number's type; an array's item type and dimensions, such as "float32 1"; or a list, for a tuple."""


@dataclasses.dataclass(frozen=True)
class Code:
    """A kernel's machine code: an object file, its function's name, and the kinds of arguments and result.

    Numba compiles the function from that of `from_block`. It takes the addresses of the result, of the error and of the
    block of arguments, and returns 0 on success.
    """

    symbol: str
    arguments: list[Kind]
    result: str
    image: bytes


def find(name: str) -> Code | None:
    """Return a kernel's code, or None if it is not in the store."""
    for place in map(_trusted, _places()):
        content = b"" if place is None else _read(place / _file_name(name))
        check, _, rest = content.partition(b"\n")
        if check == _check(rest):
            head, _, image = rest.partition(b"\n")
            symbol, arguments, result = json.loads(head)
            return Code(symbol, arguments, result, image)
    return None


def keep(name: str, code: Code) -> None:
    """Store a kernel's code for other processes. Raise OSError where that is not possible."""
    place = where()
    rest = json.dumps([code.symbol, code.arguments, code.result]).encode() + b"\n" + code.image
    with tempfile.NamedTemporaryFile(dir=place, delete=False) as file:
        try:
            file.write(_check(rest) + b"\n" + rest)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.replace(file.name, place / _file_name(name))
        except OSError:
            os.unlink(file.name)
            raise


def where() -> pathlib.Path:
    """Return the first directory that can be written to. Raise OSError where there is none."""
    for place in (*_places(), _temporary()):
        if _can_write(place):
            return place
    raise OSError(
        f"nowhere to keep compiled code: {_temporary()} cannot be written to, or others can, too; "
        f"let {SETTING} name a place"
    )


def file_in_the_way() -> pathlib.Path | None:
    """Return the file at, or above, the place that SETTING names for a directory, if there is one."""
    place = pathlib.Path(os.environ.get(SETTING, ""))
    return next((part for part in (place, *place.parents) if part.exists() and not part.is_dir()), None)


def is_temporary(place: pathlib.Path) -> bool:
    """Return whether a directory is the temporary one, the last resort."""
    return place == _temporary()


def _places() -> Iterator[pathlib.Path]:
    """Yield directories for compiled code: that of SETTING; else beside the sources, the user's, a temporary one.

    If that of SETTING cannot be written to, it is still searched first, and the others follow.
    """
    named = os.environ.get(SETTING)
    if named:
        yield pathlib.Path(named)
        if _can_write(pathlib.Path(named)):
            return
    yield SOURCES / "__pycache__"
    users = user_cache()
    if users is not None:
        yield pathlib.Path(users)
    yield _temporary()


def _temporary() -> pathlib.Path:
    return pathlib.Path(tempfile.gettempdir(), f"emuchain-{os.getuid()}")


def _can_write(place: pathlib.Path) -> bool:
    """Return whether files can be written to a directory, and taken from it; make it if it does not exist."""
    try:
        missing = [folder for folder in (place, *place.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o700 if is_temporary(folder) else 0o755, exist_ok=True)
    except OSError:
        return False
    return place.is_dir() and os.access(place, os.W_OK) and _trusted(place) is not None


def _trusted(place: pathlib.Path) -> pathlib.Path | None:
    """Return a directory without links in its path if no other user can have written to it, otherwise None."""
    real = pathlib.Path(os.path.realpath(place))
    try:
        if (is_temporary(place) and place.is_symlink()) or not _is_safe(real.stat()):
            return None
        # Above, whoever owns / is trusted, which is not root in some containers; from a folder whose sticky bit is set,
        # such as /tmp, nobody removes what belongs to another.
        root = os.stat("/").st_uid
        for folder in map(os.stat, real.parents):
            if not _is_safe(folder, root, 0 if folder.st_mode & stat.S_ISVTX else _BY_OTHERS):
                return None
    except OSError:
        return None
    return real


_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def _is_safe(status: os.stat_result, another: int | None = None, forbidden: int = _BY_OTHERS) -> bool:
    """Return whether this user, root, the owner of the sources, or `another` has it, and others cannot write."""
    return status.st_uid in (os.geteuid(), 0, another, _owner()) and not status.st_mode & forbidden


def _owner() -> int:
    """Return the owner of the sources."""
    try:
        return SOURCES.stat().st_uid
    except OSError:
        return 0


def _read(path: pathlib.Path) -> bytes:
    """Return the content of a file, or nothing if there is none, or another user can have written to it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(status.st_mode) and _is_safe(status) else b""


def _check(rest: bytes) -> bytes:
    return b"%08x" % zlib.crc32(rest)


def _file_name(name: str) -> str:
    return f"{name}-{_key()}.code"


@functools.cache
def _key() -> str:
    """Return a digest of all that machine code depends on besides the kernel's name."""
    from llvmlite import binding

    from .. import form

    numba = importlib.util.find_spec("numba")
    assert numba is not None and numba.origin is not None
    sources = {str(path.relative_to(SOURCES)): path.read_bytes() for path in sorted(SOURCES.rglob("*.py"))}
    version = pathlib.Path(numba.origin).with_name("_version.py").read_bytes()
    cpu = os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()
    features = form.cpu_features()
    said = [binding.llvm_version_info, cpu, features, form.FORM.name, version, sources]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]
