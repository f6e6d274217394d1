"""A lock on what one process writes at a time: a file beside it, on which the kernel holds a lock
for this process.

The kernel drops it with the process, however that ends. The file only says who that is, and is
always one that was made for it: nothing is written to what is there already, which may be a link to
another file. What a killed process left is recognised by its content, and replaced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import socket
import stat
import weakref
from collections.abc import Iterator

from .messages import InputError

FOLDERS_LOCK = ".emuchain.lock"
"""The name of the lock of a folder, in it."""

# Empty, too: a full disk, or a death before `_sign`, leaves a lock without its holder's name.
_OURS = re.compile(rb"(process \d+ on [^\n]*\n)?")
_MOST_BYTES = 500
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
# O_NOFOLLOW: a link in the lock's place is refused, so that nothing is written where it leads.
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Lock:
    """A lock that this process holds from now until `release`; without one on file systems that
    have none.

    Args:
        path: the lock's file.
        setting: what is written under it, with which messages begin.

    Raises:
        InputError: another writer holds it, or there is a file of this name that is no lock.
        OSError: the lock's file cannot be made.
    """

    def __init__(self, path: pathlib.Path, setting: str) -> None:
        self._release = weakref.finalize(self, _release, os.getpid(), path, _take(path, setting))

    def release(self) -> None:
        """Let others take it; the end of the process does the same."""
        self._release()


@contextlib.contextmanager
def own_folder(path: str | os.PathLike[str], key: str = "out") -> Iterator[pathlib.Path]:
    """Make a folder, if there is none, into which this process alone writes in the `with`.

    Raises:
        InputError: it cannot be made or written to, or another process writes into it.
    """
    folder = pathlib.Path(path)
    setting = f"`{key}` = {os.fspath(path)!r}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(folder / FOLDERS_LOCK, setting)
    except (OSError, ValueError) as error:  # the latter: no folder's name
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{setting}: cannot be written: {reason}; give a folder that can be written"
        ) from None
    try:
        yield folder
    finally:
        lock.release()


def _take(path: pathlib.Path, setting: str) -> int | None:
    """Return the descriptor that holds the lock, or None on a file system without locks."""
    while True:
        is_new, lock = _open(path, setting)
        if lock is None:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Who had it may have removed it after it was opened here: then others would lock
            # another file.
            if not _is_at(path, lock):
                continue
            # Left by a killed process. It is removed while its lock is held, and made anew: what
            # was there before is never written to.
            if not is_new:
                path.unlink()
                continue
            _sign(lock)
        except BlockingIOError:
            raise InputError(f"{setting}: {_rival(lock)}") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            if is_new:
                path.unlink()
            return None
        else:
            # `finally` closes every descriptor but the one that is handed on.
            lock, kept = -1, lock
            return kept
        finally:
            if lock >= 0:
                os.close(lock)


def _open(path: pathlib.Path, setting: str) -> tuple[bool, int | None]:
    """Return whether the lock's file is new, and its descriptor; None where it has gone meanwhile.

    Raises:
        InputError: there is another file in its place.
    """
    with contextlib.suppress(FileExistsError):
        return True, os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        lock = os.open(path, _FLAGS)
    except FileNotFoundError:
        return False, None
    except OSError as error:
        if error.errno not in (
            errno.ELOOP,
            errno.EISDIR,
            errno.ENXIO,
        ):  # a link, a folder, a socket
            raise
    else:
        status = os.fstat(lock)
        if (
            stat.S_ISREG(status.st_mode)
            and status.st_nlink <= 1
            and _OURS.fullmatch(os.pread(lock, _MOST_BYTES, 0))
        ):
            return False, lock
        os.close(lock)
    raise InputError(
        f"{setting}: cannot be locked: {path} should be the lock's file, but is another file, which"
        " is not touched; move it away, or give another path"
    )


def _sign(lock: int) -> None:
    """Write who holds a lock; on a full disk, the file stays empty."""
    owner = _owner().encode()
    try:
        is_whole = os.pwrite(lock, owner, 0) == len(owner)
    except OSError:
        is_whole = False
    if not is_whole:
        os.ftruncate(lock, 0)


def _owner() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}\n"


def _rival(lock: int) -> str:
    owner = os.pread(lock, _MOST_BYTES, 0).decode(errors="replace")
    # flock belongs to an opened file, not to a process: a second lock of this process fails, too.
    if owner == _owner():
        return "this run writes another file there; give each file its own name"
    who = f" ({owner.strip()})" if owner.strip().isprintable() and owner else ""
    return f"another run{who} writes it; give another path, or wait until that run has ended"


def _release(owner: int, path: pathlib.Path, lock: int | None) -> None:
    if lock is not None and os.getpid() == owner:  # not in a process that was forked from it
        with contextlib.suppress(OSError):
            # The name goes while the lock is held: after the close, the next lock may have it.
            if _is_at(path, lock):
                path.unlink()
        os.close(lock)


def _is_at(path: pathlib.Path, opened: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(opened))
    except FileNotFoundError:
        return False
