"""The store of machine code: one file for each kernel.

A file's name depends on all that its content depends on: the kernel, the sources of all kernels, Numba and LLVM, and
the kind of processor with the micro-kernel's form. So no file is ever out of date, and processes that compile the same
kernel write the same content. A file appears atomically. One damaged by a full disk or a power cut counts as missing.
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
    for place in _places():
        try:
            head, _, image = (place / _file_name(name)).read_bytes().partition(b"\n")
            check, symbol, arguments, result = json.loads(head)
        except (OSError, ValueError):
            continue
        if check == zlib.crc32(image):
            return Code(symbol, arguments, result, image)
    return None


def keep(name: str, code: Code) -> None:
    """Store a kernel's code for other processes. Raise OSError where that is not possible."""
    place = where()
    head = json.dumps([zlib.crc32(code.image), code.symbol, code.arguments, code.result]).encode()
    with tempfile.NamedTemporaryFile(dir=place, delete=False) as file:
        try:
            file.write(head + b"\n" + code.image)
            file.flush()
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
    yield pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "emuchain")
    if _is_ours(_temporary()):
        yield _temporary()


def _temporary() -> pathlib.Path:
    return pathlib.Path(tempfile.gettempdir(), f"emuchain-{os.getuid()}")


def _can_write(place: pathlib.Path) -> bool:
    """Return whether files can be written to a directory; make it if it does not exist."""
    try:
        place.mkdir(mode=0o700 if is_temporary(place) else 0o777, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(place, os.W_OK) and (_is_ours(place) or not is_temporary(place))


def _is_ours(place: pathlib.Path) -> bool:
    """Return whether this is a directory to which no other user can have written."""
    try:
        found = place.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _file_name(name: str) -> str:
    return f"{name}-{_key()}.code"


@functools.cache
def _key() -> str:
    """Return a digest of all that machine code depends on besides the kernel's name."""
    from llvmlite import binding

    from ..form import FORM

    numba = importlib.util.find_spec("numba")
    assert numba is not None and numba.origin is not None
    sources = {str(path.relative_to(SOURCES)): path.read_bytes() for path in sorted(SOURCES.rglob("*.py"))}
    version = pathlib.Path(numba.origin).with_name("_version.py").read_bytes()
    cpu = os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES") or binding.get_host_cpu_features().flatten()
    said = [binding.llvm_version_info, cpu, features, FORM.name, version, sources]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]
