"""Runs that signals end: at which moment, and what of them, must make no difference to how they
end.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
from jobs import Job, environment_of, ranks_below, shared_by

MOST_S = 10.0
TARGETS = "rank", "launcher", "group", "run", "alone"
"""What gets the signal: a rank; mpiexec; its process group, as by Ctrl-C; `emuchain launch`; one
process alone.
"""
SIGNALS = "INT", "TERM", "USR1", "HUP"
_LOOK_S = 0.1


class Case(NamedTuple):
    """How a run ended: what is wrong, whether the signal came before emuchain's first line, and
    what it said.

    The launcher itself `crashed` where SIGSEGV ended it, as Open MPI's at times when it is asked to
    end.
    """

    wrong: list[str]
    is_early: bool
    crashed: bool
    status: int
    end_s: float
    lines: list[str]


def attack_by_signals(
    mpi: str,
    target: str,
    name: str,
    ranks: int,
    moments_s: Sequence[float],
    arguments: Sequence[str],
) -> Iterator[tuple[str, Case | None]]:
    """Yield a line on each run, and how it ended; None for one that had ended before its moment."""
    number = getattr(signal, f"SIG{name}")
    for place, moment_s in enumerate(moments_s):
        rank = place % ranks
        whom = f"rank {rank}" if target == "rank" else target
        case = _attack(environment_of(mpi), mpi, target, number, ranks, rank, moment_s, arguments)
        where = f"{mpi} {name} to {whom} after {moment_s} s"
        if case is None:
            yield f"{where}: had ended", None
            continue
        verdict = "; ".join(case.wrong) or (
            "before emuchain's first line" if case.is_early else "as it should"
        )
        yield (
            (
                f"{where}: {verdict}; status {case.status} in {case.end_s:.1f} s;"
                f" {' / '.join(case.lines)}"
            ),
            case,
        )


HEAD = (
    f"{'MPI':<9}{'to':<10}{'signal':<8}{'runs':>5}{'early':>7}{'one line':>10}"
    f"{'crashed':>9}{'wrong':>7}{'slowest':>9}"
)
"""The head of a table with a row for each MPI, target and signal."""


def row(mpi: str, target: str, name: str, cases: Sequence[Case]) -> str:
    """Return the row that says how these runs ended, and how long the slowest took."""
    early, crashed, wrong = (
        sum(map(bool, flags))
        for flags in zip(
            *((case.is_early, case.crashed, case.wrong) for case in cases), strict=True
        )
    )
    message, slowest_s = (
        sum(len(case.lines) == 1 for case in cases),
        max(case.end_s for case in cases),
    )
    counts = f"{len(cases):>5}{early:>7}{message:>10}{crashed:>9}{wrong:>7}{slowest_s:>7.1f} s"
    return f"{mpi:<9}{target:<10}SIG{name:<5}{counts}"


def _attack(
    environment: Path,
    mpi: str,
    target: str,
    number: signal.Signals,
    ranks: int,
    rank: int,
    moment_s: float,
    arguments: Sequence[str],
) -> Case | None:
    with tempfile.TemporaryFile("w+") as said:
        begin_s = time.monotonic()
        job = Job(
            environment,
            ranks,
            arguments,
            said,
            target if target in ("run", "alone") else "launcher",
        )
        time.sleep(max(0.0, begin_s + moment_s - time.monotonic()))
        hit = job.rank(rank) if target == "rank" else psutil.Process(job.process.pid)
        shared = shared_by(job.left())
        begun = (
            [hit]
            if target not in ("launcher", "group")
            else list(ranks_below(job.process.pid).values())
        )
        has_begun = (
            hit is not None
            and len(begun) >= (ranks if begun != [hit] else 1)
            and all(map(_takes_signals, begun))
        )
        begin_s = time.monotonic()
        if hit is None or not _send(hit, number, to_group=target == "group"):
            job.end(MOST_S, set())
            return None
        files = _files_until_end(job, begin_s + MOST_S, shared)
        end_s = time.monotonic() - begin_s
        wrong = job.end(max(0.0, MOST_S - end_s), files)
        said.seek(0)
        text = said.read()
    status, lines = (
        job.process.returncode,
        [line for line in text.splitlines() if line.startswith("emuchain: ")],
    )
    if status == 0 and not lines:
        return None
    expected = _statuses(mpi, target, number)
    if len(lines) > 1:
        wrong.append(f"{len(lines)} lines")
    if "Traceback" in text and (has_begun or not _interrupted_pythons_start(text)):
        wrong.append("a traceback")
    crashed = status == -signal.SIGSEGV and target in ("launcher", "group")
    if status not in expected and has_begun and not crashed:
        wrong.append(f"status {status}, not {' or '.join(map(str, expected))}")
    return Case(wrong, not has_begun, crashed, status, end_s, lines)


def _statuses(mpi: str, target: str, number: signal.Signals) -> tuple[int, ...]:
    """Return the documented statuses (docs/running.md)."""
    if number == signal.SIGHUP and target in ("launcher", "group"):
        return (-number, 1)  # which mpiexec does not take: it ends, and all ranks with it
    if mpi == "openmpi" and target in ("launcher", "group") and number != signal.SIGUSR1:
        return (1,)
    return (128 + number,)


def _send(process: psutil.Process, number: signal.Signals, *, to_group: bool) -> bool:
    try:
        if to_group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False
    return True


def _takes_signals(process: psutil.Process) -> bool:
    """Return whether a process has got as far as the first line of a command."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return False
    caught = re.search(r"SigCgt:\s*(\w+)", status)
    return caught is not None and bool(int(caught[1], 16) & 1 << (signal.SIGUSR2 - 1))


def _files_until_end(job: Job, until_s: float, files: set[str]) -> set[str]:
    """Wait for the end of a run; return the files in shared memory that its processes had on the
    way.
    """
    while time.monotonic() < until_s:
        try:
            job.process.wait(_LOOK_S)
            break
        except subprocess.TimeoutExpired:
            files |= shared_by(job.left())
    return files


def _interrupted_pythons_start(text: str) -> bool:
    """Return whether Python was interrupted before it ran the first line of a command."""
    return "KeyboardInterrupt" in text and not re.search(r"cli\.py\", line \d+, in main", text)
