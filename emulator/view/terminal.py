"""Text on the terminal, if any, that shows what rank 0 prints: its width, and lines that are
wrapped to it.

Under an MPI launcher a rank's own standard output is no evidence: MPICH gives every rank a pipe
even on a terminal, and Open MPI gives every rank a pseudo-terminal even when its own output goes to
a file. The evidence is the standard output of the launcher, which is an ancestor of the rank's
process. Where it cannot be found (not Linux, a launcher on another host, srun's ranks), no terminal
is assumed.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import Literal

from ..common import format_time_ps, parse_status

# Set for every rank: by MPICH and `srun --mpi=pmi2`, by PMIx, by Open MPI.
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")

# The kernel cuts names to 15 characters: hydra_bstrap_proxy is cut, hydra_pmi_proxy just fits.
_LAUNCHER_NAME = re.compile(r"mpiexec.*|mpirun.*|hydra_.*|prterun|prted?|orterun|orted|srun")

_TERMINAL_PATH = re.compile(r"/dev/(pts/\d+|tty\w*|console)")


_PIPE_WIDTH = 80

_INDENT = "  "
_WHOLE = re.compile(
    r"(?:\S+ (?:images/s|samples/s|GOPS(?: and \S+ GOPS/J)?); )?memory ignored, \S+ MiB too much"
    r"|\d (?:[munp]?s|min|h|[KMGT]i?B|B|%|images/s|samples/s|Gb/s|of)\b"
)
"""What is not broken at a blank: a rate with its note, and a number with its unit."""

_NO_BREAK = "\N{NO-BREAK SPACE}"


def screen_width() -> int:
    """Return the columns that text may take: those of the terminal, or 80 where output goes
    elsewhere.
    """
    return terminal_width() if is_terminal() else _PIPE_WIDTH


def is_terminal(descriptor: Literal[1, 2] = 1) -> bool:
    """Return whether standard output (1) or error (2) of this process, if it is rank 0, ends on a
    terminal.
    """
    stream = sys.stdout if descriptor == 1 else sys.stderr
    if not launched(os.environ):
        return stream.isatty()
    try:
        return _terminal_path(descriptor) is not None and _may_reach_launcher(stream.fileno())
    except (OSError, ValueError):
        return False


def terminal_width(default: int = 100) -> int:
    """Return the width of that terminal in columns, or `default` if it cannot be determined."""
    try:
        if not launched(os.environ):
            return os.get_terminal_size(sys.stdout.fileno()).columns or default
        path = _terminal_path()
        if path is None:
            return default
        terminal = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except (OSError, ValueError):
        return default
    try:
        return os.get_terminal_size(terminal).columns or default
    except OSError:
        return default
    finally:
        os.close(terminal)


def launched(environment: Mapping[str, str]) -> bool:
    """Return whether a process with this environment is a rank that an MPI launcher started."""
    return any(variable in environment for variable in _RANK_VARIABLES)


def outermost_launcher(pid: int, read_status: Callable[[int], str]) -> int | None:
    """Return the process that started the rank `pid`, if any: the topmost of the launchers nearest
    above it.

    Other processes may stand between the rank and its launcher (`mpiexec -n 4 bash -c "..."`), but
    a second launcher further up does not count: it has given the first one its output, as it would
    give any rank.
    """
    # shell <- mpiexec <- hydra_pmi_proxy <- bash <- rank      read from right to left: bash is passed over, the
    #          ^ returned                                      proxy and mpiexec match, the shell ends the search
    launcher = None
    name, parent = parse_status(read_status(pid))
    while parent > 0:
        pid = parent
        name, parent = parse_status(read_status(pid))
        if _LAUNCHER_NAME.fullmatch(name):
            launcher = pid
        elif launcher is not None:
            break
    return launcher


def is_terminal_path(path: str) -> bool:
    """Return whether `path`, the target of a link such as /proc/PID/fd/1, is a terminal."""
    return _TERMINAL_PATH.fullmatch(path) is not None


def _terminal_path(descriptor: int = 1) -> str | None:
    launcher = outermost_launcher(os.getpid(), _read_status)
    if launcher is None:
        return None
    path = os.readlink(f"/proc/{launcher}/fd/{descriptor}")
    return path if is_terminal_path(path) else None


def _read_status(pid: int) -> str:
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return file.read()


def _may_reach_launcher(descriptor: int) -> bool:
    """Return whether this process's own output may go to its launcher: output redirected to a file
    does not.
    """
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


def say(text: str) -> None:
    """Print a line; where it is wider than the screen, it goes on below, indented."""
    print("\n".join(wrapped(text, screen_width())))


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of `text`, none wider than `width` unless a word is."""
    whole = _WHOLE.sub(lambda match: match[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(
        whole, width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def time_and_ps(time_ps: int) -> str:
    """Return a time as readable text, and to the picosecond."""
    return f"{format_time_ps(time_ps)} ({time_ps:,} ps)"


def ignored(missing_bytes: int) -> str:
    """Return what follows a rate that ignores missing memory, with a semicolon; empty where none is
    missing.
    """
    return f"; memory ignored, {mebibytes(missing_bytes)} too much" if missing_bytes else ""


def mebibytes(count: int) -> str:
    """Return a number of bytes as text in MiB, to three digits."""
    size = count / 2**20
    return f"{size:,.0f} MiB" if size >= 100 else f"{size:.3g} MiB"
