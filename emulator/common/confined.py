"""Untrusted files are read in a process with limits, where a crash or a hang of a library does no
harm.

Beside it, where temporary files are, and what is reported of those that cannot be written.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import io
import os
import pathlib
import resource
import select
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from .messages import InputError

Arrays = Mapping[str, np.ndarray]
"""Arrays of numbers, bools, or text of a fixed length, by name."""


def confined(
    read: Callable[[], Arrays], blame: str, *, most_bytes: int, seconds: int, patience: int = 60
) -> dict[str, np.ndarray]:
    """Return what `read` returns in a process with limits: `most_bytes` more memory, `seconds` of
    processor time.

    The time that passes tells nothing of a file, since other programs and disks may take most of
    it. It is limited to `patience` times as many seconds, only so that nothing waits for ever.

    Raises:
        InputError: `read` raised it, or ended otherwise; `blame` begins the line.
    """
    receiving, sending = os.pipe2(os.O_CLOEXEC)
    # A fork, since `read` may be a closure, which cannot be sent to another process.
    child = os.fork()
    if child == 0:
        try:
            os.close(receiving)
            _limit(most_bytes, seconds)
            with os.fdopen(sending, "wb") as pipe:
                _send(read, pipe)
        finally:
            # Without exit handlers and buffers of the parent, which are its own to run and flush.
            os._exit(0)
    # Otherwise the pipe would never end: the parent, too, could write into it.
    os.close(sending)
    with os.fdopen(receiving, "rb", buffering=0) as pipe:
        try:
            content = _receive(pipe, 2 * most_bytes, patience * seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                # In every case: a child that has closed its pipe may still run.
                os.kill(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
    if content is None:
        took_s = usage.ru_utime + usage.ru_stime
        raise InputError(
            f"{blame}: not read after {patience * seconds:,} s, in {took_s:.1f} s of processor"
            " time; the disk or the machine is too busy: try again"
        )
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        raise InputError(
            f"{blame}: takes more than {seconds} s of processor time to read; it is damaged or"
            " malicious"
        )
    # The first byte is "r" of a result, "e" of a refusal by `read`; a crash sends none.
    kind, rest = content[:1], content[1:]
    if kind == b"e":
        raise InputError(rest.decode("utf-8", "replace"))
    if kind != b"r":
        raise InputError(f"{blame}: crashes the library that reads it; it is damaged or malicious")
    with np.load(io.BytesIO(rest), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _send(read: Callable[[], Arrays], pipe: io.BufferedWriter) -> None:
    try:
        content = io.BytesIO()
        np.savez(
            content,
            allow_pickle=False,
            **{name: np.asarray(array) for name, array in read().items()},
        )
        pipe.write(b"r" + content.getbuffer())
    except InputError as error:
        pipe.write(b"e" + str(error).encode("utf-8", "replace"))


def _receive(pipe: io.FileIO, most_bytes: int, seconds: float) -> bytes | None:
    """Return all that comes, or None if it does not end in time."""
    end, chunks, size = time.monotonic() + seconds, [], 0
    while size <= most_bytes:
        ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return None
        chunk = pipe.read(1 << 20)
        if not chunk:
            break
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks)


def _limit(most_bytes: int, seconds: int) -> None:
    """Limit this process, and discard what a library prints before it aborts."""
    # Its traceback may go to a descriptor that is none of the three below.
    faulthandler.disable()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    with open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    # A fork inherits handlers. Only death by this signal tells the parent that time ran out.
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    for kind, soft, most in (
        # No core file, and no byte into any regular file; a pipe is none.
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, 0, 0),
        # SIGXCPU comes at the soft limit, SIGKILL at the hard one.
        (resource.RLIMIT_CPU, seconds, seconds + 1),
        # In addition to what the parent had mapped, which the child has mapped, too.
        (resource.RLIMIT_AS, taken + most_bytes, taken + most_bytes),
    ):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (min(soft, most), most))


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def scratch_folder() -> Iterator[pathlib.Path]:
    """Return a folder of its own for temporary files, which is removed at the end of the `with`.

    Raises:
        InputError: it cannot be made, or there is no room for what is written there.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="emuchain-", ignore_cleanup_errors=True)
    except OSError as error:
        raise scratch_error(error) from None
    with folder as name:
        try:
            yield pathlib.Path(name)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise scratch_error(error) from None


def scratch_error(error: OSError) -> InputError:
    """Return the error for a temporary file that cannot be written."""
    try:
        place = f"temporary files in {tempfile.gettempdir()}"
    except OSError:
        place = "temporary files"
    return InputError(
        f"{place}: cannot be written: {error.strerror or error}; free some room, or name another"
        " folder by TMPDIR"
    )
