"""Where machine code is kept: one file for each kernel.

A file's name says what its content depends on: the kernel, the sources of all kernels, Numba and LLVM, and the kind of
processor with the micro-kernel's form. So no file is ever out of date, processes that compile the same write the same,
and a file appears at once and whole. One that a full disk or a power cut has damaged counts as none.
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
"""The folder of all kernels' sources, in sub-folders too."""

Kind = str | list[Any]
"""A number's name; "float32 1", an array's item type and dimensions; or a list, for a tuple."""


@dataclasses.dataclass(frozen=True)
class Code:
    """A kernel's machine code: an object file, its function's name, and the kinds of arguments and result.

    The function is compiled by Numba from one of the block's address: it takes that, after the addresses of the result
    and of what went wrong, and returns 0 where nothing did.
    """

    symbol: str
    arguments: list[Kind]
    result: str
    image: bytes


def find(name: str) -> Code | None:
    """A kernel's code, if it was compiled before."""
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
    """Keep a kernel's code for others. Raise OSError where that cannot be."""
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
    """The first place that can be written to. Raise OSError where there is none."""
    for place in (*_places(), _temporary()):
        if _can_write(place):
            return place
    raise OSError(
        f"nowhere to keep compiled code: {_temporary()} cannot be written to, or others can, too; "
        f"let {SETTING} name a place"
    )


def is_temporary(place: pathlib.Path) -> bool:
    """Whether a place is but the last resort."""
    return place == _temporary()


def _places() -> Iterator[pathlib.Path]:
    """Directories for compiled code: the one that is named; else that beside the sources, the user's, a temporary one.

    Where the one that is named cannot be written to, it is but looked at first.
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
    """Whether files can be put into a directory, which is made if there is none."""
    try:
        place.mkdir(mode=0o700 if is_temporary(place) else 0o777, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(place, os.W_OK) and (_is_ours(place) or not is_temporary(place))


def _is_ours(place: pathlib.Path) -> bool:
    """Whether this is a directory into which nobody else can have put anything."""
    try:
        found = place.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _file_name(name: str) -> str:
    return f"{name}-{_key()}.code"


@functools.cache
def _key() -> str:
    """A digest of all that machine code depends on beside the kernel's name."""
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
