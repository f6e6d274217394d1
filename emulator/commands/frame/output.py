"""What commands print: text that a terminal does not obey, phases of long ones, and how they end
where they cannot.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from ...common import INPUT_STATUS, NAMES, InputError, Note, escaped, one_line

_LONGEST_LINE = 2000
_UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)
PIPE_STATUS = 128 + int(signal.SIGPIPE)
"""The status that a shell shows for a command whose output is read no further."""


def check() -> None:
    """Check that there is a standard output, before a file takes its place; input and error may be
    closed.

    It takes names of files with bytes that are no text, as it does by itself where the locale is C.

    Raises:
        InputError: it is closed.
    """
    closed = [number for number in (0, 1, 2) if not _is_open(number)]
    if closed:
        nowhere = os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is closed
        for number in closed:
            os.dup2(nowhere, number)
        if nowhere not in closed:
            os.close(nowhere)
        # They stay open until the process ends.
        sys.stdin, sys.stdout, sys.stderr = (
            stream or os.fdopen(number, mode)
            for number, (stream, mode) in enumerate(
                ((sys.stdin, "r"), (sys.stdout, "w"), (sys.stderr, "w"))
            )
        )
    if 1 in closed:
        raise InputError("standard output is closed; redirect it to /dev/null if it is not wanted")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors=NAMES)


class _Escaping:
    """A stream that spells out what a terminal would obey in text; names and paths may hold it.

    Rich's consoles write to the stream behind it, whose name is theirs: colours and bars are meant.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        return self.rich_proxied_file.write(escaped(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextlib.contextmanager
def escaping() -> Iterator[None]:
    """Let nothing that is printed obey a file or a name; standard output and error must be open."""
    with (
        contextlib.redirect_stdout(_Escaping(sys.stdout)),
        contextlib.redirect_stderr(_Escaping(sys.stderr)),
    ):
        yield


def finish() -> None:
    """Write what is still held back. Raise OSError where that is not possible."""
    sys.stdout.flush()


def failure(error: BaseException | None) -> tuple[str, int] | None:
    """Return the line and the exit status of a command whose output cannot be written, or None
    after another error.

    `error` may be what rich or click raise instead: they exit with 1 where a pipe is read no
    further.

    There is no line where a reader such as `head` has seen enough. What is held back is dropped.
    Files are written by `WholeFile`, whose failures are input errors: what fails without a name is
    standard output.
    """
    while isinstance(error, SystemExit):
        error = error.__context__
    if (
        not isinstance(error, OSError)
        or error.filename is not None
        or error.errno not in _UNWRITABLE
    ):
        return None
    _drop(1)
    if isinstance(error, BrokenPipeError):
        return "", PIPE_STATUS
    return f"emuchain: error: standard output cannot be written: {error.strerror}", INPUT_STATUS


@contextlib.contextmanager
def notes() -> Iterator[None]:
    """Print notes on what commands are given as lines of their own; of several on one subject, the
    first.
    """
    with warnings.catch_warnings():
        show_others = warnings.showwarning
        reported: set[str] = set()

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if isinstance(message, Note):
                tell_notes([str(message)] if message.subject not in reported else ())
                reported.add(message.subject)
            else:
                show_others(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        warnings.simplefilter("always", Note)
        yield


def tell_notes(lines: Iterable[str | None]) -> None:
    """Print notes on what commands are given, a line each; nothing of one that is empty or None."""
    for line in filter(None, lines):
        tell(f"emuchain: note: {line}")


def tell_warning(line: str | None) -> None:
    """Print what is reported before work that takes long, if there is a line."""
    if line is not None:
        tell(f"emuchain: warning: {line}")


def tell(line: str) -> None:
    """Print a line on standard error, if that is possible, with what a terminal would obey as text,
    and no novel.
    """
    text = escaped(line)
    if len(text) > _LONGEST_LINE:
        text = f"{text[:1000]} ... {text[-900:]}"
    if text:
        try:
            print(text, file=sys.stderr, flush=True)
        except OSError:
            _drop(2)


def _drop(number: int) -> None:
    """Send what a stream still holds back, and all else, nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@contextmanager
def phases(first: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner with the phase `first`, and yield a function that names the next; silent
    without a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda phase: None
        return
    from rich.console import Console
    from rich.text import Text

    def shown(phase: str) -> Text:
        return Text(f"{one_line(phase)} …")

    with Console(stderr=True).status(shown(first)) as status:
        yield lambda phase: status.update(shown(phase))
