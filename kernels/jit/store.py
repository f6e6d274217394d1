"""The store of machine code: one file for each kernel.

A file's name depends on all that its content depends on: the kernel, the source of its module and
of all that this imports, Numba and LLVM, and the kind of processor with the micro-kernel's form. So
no file is ever out of date, changes elsewhere leave it good, and processes that compile the same
kernel write the same content. A file appears atomically. One damaged by a full disk or a power cut
counts as missing.

    emuchain.kernels.layers.pool.forward-<key>.code
                                          │
                      a digest of   layers/pool.py ──▶ window.py
                                           └─────────▶ jit/__init__.py ──▶ jit/compiled.py ──▶ jit/emitter.py
                      and of nothing else in the folder: another codec compiles no kernel again

Machine code is obeyed, so it is taken only from where no other user can have put it, as OpenSSH
takes keys: file, folder and all folders above belong to this user or root, and no others may write
to them. All else counts as missing, too. The owner of the sources is trusted as well, since they
are obeyed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
import itertools
import json
import os
import pathlib
import re
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..current_folder import user_cache

SETTING = "NUMBA_CACHE_DIR"
ROOM = __name__.rpartition(".jit.")[0]
"""The package of emuchain's kernels. A kernel's name is its module and its function, as
`ROOM.conv.layout.pack`.
"""
SOURCES = pathlib.Path(__file__).parent.parent
"""The folder of all kernels' sources, including its sub-folders."""

Kind = str | list[Any]
"""A number's type; an array's item type and dimensions, such as "float32 1"; or a list, for a
tuple.
"""


@dataclasses.dataclass(frozen=True)
class Code:
    """A kernel's machine code: an object file, its function's name, and the kinds of arguments and
    result.

    Numba compiles the function from that of `from_block`. It takes the addresses of the result, of
    the error and of the block of arguments, and returns 0 on success.
    """

    symbol: str
    arguments: list[Kind]
    result: str
    image: bytes


def find(name: str) -> Code | None:
    """Return a kernel's code, or None if it is not in the store."""
    try:
        file_name = _file_name(name)
    except OSError:
        return None
    for place in map(_trusted, _places()):
        content = b"" if place is None else _read(place / file_name)
        check, _, rest = content.partition(b"\n")
        if check == _check(rest):
            head, _, image = rest.partition(b"\n")
            symbol, arguments, result = json.loads(head)
            return Code(symbol, arguments, result, image)
    return None


def has_any(module: str) -> bool:
    """Return whether there is code of any of a module's kernels."""
    pattern = f"{module}.*-{_key(module)}.code"
    return any(
        next(place.glob(pattern), None) is not None
        for place in map(_trusted, _places())
        if place is not None
    )


def keep(name: str, code: Code) -> None:
    """Store a kernel's code for other processes. Raise OSError where that is not possible."""
    place, file_name = where(), _file_name(name)
    rest = json.dumps([code.symbol, code.arguments, code.result]).encode() + b"\n" + code.image
    # Under a name of its own until it is whole, so that other processes find all of it or nothing;
    # what a crash leaves incomplete fails its check:
    #
    #     write check + code -> chmod -> rename to NAME-DIGEST.code
    with tempfile.NamedTemporaryFile(dir=place, delete=False) as file:
        try:
            file.write(_check(rest) + b"\n" + rest)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.replace(file.name, place / file_name)
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
    """Return the file at, or above, the place that SETTING names for a directory, if there is
    one.
    """
    place = pathlib.Path(os.environ.get(SETTING, ""))
    return next(
        (part for part in (place, *place.parents) if part.exists() and not part.is_dir()), None
    )


def is_temporary(place: pathlib.Path) -> bool:
    """Return whether a directory is the temporary one, the last resort."""
    return place == _temporary()


def _places() -> Iterator[pathlib.Path]:
    """Yield directories for compiled code: that of SETTING; else beside the sources, the user's, a
    temporary one.

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
    """Return whether files can be written to a directory, and taken from it; make it if it does not
    exist.
    """
    try:
        missing = [folder for folder in (place, *place.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o700 if is_temporary(folder) else 0o755, exist_ok=True)
    except OSError:
        return False
    return place.is_dir() and os.access(place, os.W_OK) and _trusted(place) is not None


def _trusted(place: pathlib.Path) -> pathlib.Path | None:
    """Return a directory without links in its path if no other user can have written to it,
    otherwise None.
    """
    real = pathlib.Path(os.path.realpath(place))
    try:
        if (is_temporary(place) and place.is_symlink()) or not _is_safe(real.stat()):
            return None
        # Above, whoever owns / is trusted, which is not root in some containers; from a folder
        # whose sticky bit is set, such as /tmp, users cannot remove one another's files.
        root = os.stat("/").st_uid
        for folder in map(os.stat, real.parents):
            if not _is_safe(folder, root, 0 if folder.st_mode & stat.S_ISVTX else _BY_OTHERS):
                return None
    except OSError:
        return None
    return real


_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def _is_safe(
    status: os.stat_result, another: int | None = None, forbidden: int = _BY_OTHERS
) -> bool:
    """Return whether this user, root, the owner of the sources, or `another` has it, and others
    cannot write.
    """
    return status.st_uid in (os.geteuid(), 0, another, _owner()) and not status.st_mode & forbidden


def _owner() -> int:
    """Return the owner of the sources."""
    try:
        return SOURCES.stat().st_uid
    except OSError:
        return 0


def _read(path: pathlib.Path) -> bytes:
    """Return the content of a file, or nothing if there is none, or another user can have written
    to it.
    """
    try:
        # A link may lead to another user's file, and a FIFO would block who opens it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(status.st_mode) and _is_safe(status) else b""


def _check(rest: bytes) -> bytes:
    return b"%08x" % zlib.crc32(rest)


def _file_name(name: str) -> str:
    return f"{name}-{_key(name.rpartition('.')[0])}.code"


@functools.cache
def _key(module: str) -> str:
    """Return a digest of all that the machine code of a module's kernels depends on."""
    digest = hashlib.sha256(_machine())
    for path in sources(module):
        digest.update(path.removeprefix(str(SOURCES)).encode() + _source(path).digest)
    return digest.hexdigest()[:16]


@functools.cache
def _machine() -> bytes:
    """Return what says which compiler makes the code, and for which processor."""
    from llvmlite import binding

    from .. import form

    numba = importlib.util.find_spec("numba")
    assert numba is not None and numba.origin is not None
    version = pathlib.Path(numba.origin).with_name("_version.py").read_bytes()
    cpu = os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()
    return repr(
        [
            binding.llvm_version_info,
            cpu,
            form.cpu_features(),
            form.FORM.name,
            form.PRODUCTS,
            version,
        ]
    ).encode()


def sources(module: str) -> list[str]:
    """Return the paths of a module and of all modules that it imports, directly or not, in order.

    Files are read, never run. What a function imports when it runs counts, too, as do the modules
    that `Kernels` names; libraries do not. Raise OSError if the module is in no file.
    """
    paths: set[str] = set()
    waiting = (
        _modules_at(str(SOURCES), module[len(ROOM) + 1 :]) if _is_ours(module) else _outside(module)
    )
    if not waiting:
        raise OSError(f"{module} is in no file, so nothing says when its kernels change")
    while waiting:
        path = waiting.pop()
        if path not in paths:
            paths.add(path)
            waiting += _source(path).imported
    return sorted(paths)


def _is_ours(module: str) -> bool:
    return module == ROOM or module.startswith(f"{ROOM}.")


def _outside(module: str) -> list[str]:
    """Return the file of a module that is not emuchain's, if it has one: what is typed at a prompt
    has none.
    """
    path = getattr(sys.modules.get(module), "__file__", None)
    return [] if path is None else [path]


class _Source(NamedTuple):
    digest: bytes
    imported: list[str]


_IMPORT = re.compile(
    r"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(?:\(([^)]*)\)|(.*))", re.MULTILINE
)
_NAME = re.compile(r"(\w+)(?:[ \t]+as[ \t]+\w+)?")
_LAZY = re.compile(r"\bKernels\(\"([\w.]+)\"\)")


@functools.cache
def _source(path: str) -> _Source:
    """Return a digest of a file, and the files of the modules that it imports."""
    try:
        content = pathlib.Path(path).read_bytes()
    except OSError:
        return _Source(b"", [])
    text = content.decode(errors="replace")
    imported = [
        file for module in _LAZY.findall(text) for file in _modules_at(str(SOURCES), module)
    ]
    for dots, module, several, one in _IMPORT.findall(text):
        folder, below = _folder(path, dots, module)
        imported += _modules_at(folder, below, _NAME.findall(several or one)) if folder else []
    return _Source(hashlib.sha256(content).digest(), imported)


def _folder(path: str, dots: str, module: str) -> tuple[str, str]:
    """Return from which folder an import in a file starts, and the module below it; no folder for a
    library.
    """
    if dots:
        folder = path
        for _ in dots:
            folder = os.path.dirname(folder)
        return folder, module
    if _is_ours(module):
        return str(SOURCES), module[len(ROOM) + 1 :]
    before, inside, _ = path.partition(f"{os.sep}{module.partition('.')[0]}{os.sep}")
    return (before if inside else ""), module


def _modules_at(folder: str, module: str, names: Sequence[str] = ()) -> list[str]:
    """Return the files of the modules `names` of a package; or of the module itself, whose names
    they then are.
    """
    place = os.path.join(folder, *module.split(".")) if module else folder
    files = [_files_of(os.path.join(place, name)) for name in names]
    own = [] if names and all(files) else _files_of(place)
    return [*own, *itertools.chain.from_iterable(files)]


def _files_of(place: str) -> list[str]:
    """Return a module's file; of a package, its face and the list of what that imports when it is
    used.
    """
    folder, name = os.path.split(place)
    if f"{name}.py" in _listing(folder):
        return [f"{place}.py"]
    faces = {"__init__.py", "__init__.pyi"} & _listing(place) if name in _listing(folder) else ()
    return [os.path.join(place, face) for face in faces]


@functools.cache
def _listing(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()
