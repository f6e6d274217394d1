"""A training run, with its descendants, that takes turns with another one: it continues only during its turns.

Two runs on the same cores are compared by letting one continue while the other is stopped (SIGSTOP, SIGCONT), a few
seconds each, repeatedly. So a slow moment of the machine affects both, each starts only once, and neither needs to know
of the other: only the line that a run prints after each mini-batch is read. A run is slow just after it continues: its
caches are cold, and its threads and ranks wake up one after another. So the first mini-batch of a turn is not counted,
and at least five whole ones after it are. Linux only.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import queue
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO

from ..common import InputError, parse_status

_DONE = re.compile(r"(\d+)/\d+ samples")
_LOOK_S = 0.1  # between two measurements of the memory
_END_S = 10.0
UNCOUNTED, LEAST_COUNTED = 1, 5
"""Mini-batches at the beginning of a turn that do not count, and the least number that count after them."""

_PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Turn:
    """Samples that were trained on in a turn, and the seconds that this took."""

    samples: int
    seconds: float

    @property
    def rate(self) -> float:
        """Samples per second."""
        return self.samples / self.seconds


class Run:
    """The processes of a command that prints `N/M samples` as it advances; they end with the `with` block."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.peak_bytes = 0
        self._name = name
        self._samples = 0
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in `close`
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=dict(environment),
            text=True,
            start_new_session=True,  # an interrupt reaches only the benchmark, which then ends the run
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()

    @property
    def pid(self) -> int:
        """Id of the process that was started; the others are its descendants."""
        return self._process.pid

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def turn(self, least_s: float, *, look_at_memory: bool = False) -> Turn:
        """Continue for one mini-batch, then for at least `least_s` and five mini-batches more, which count; then stop.

        Measuring the memory takes time, so a turn with `look_at_memory` is not for timing.

        Raises:
            InputError: the run has ended.
        """
        # one run    SIGCONT | uncounted | counted: five mini-batches and least_s at the least | SIGSTOP
        # the next   (stopped)                                                                   SIGCONT | ...
        tell(family(self._process.pid), signal.SIGCONT)
        for _ in range(UNCOUNTED):
            before = self._mini_batch(look_at_memory)
        started_s, counted, samples, seconds = time.perf_counter(), 0, before, 0.0
        while counted < LEAST_COUNTED or seconds < least_s:
            samples = self._mini_batch(look_at_memory)
            counted, seconds = counted + 1, time.perf_counter() - started_s
        tell(family(self._process.pid), signal.SIGSTOP)
        return Turn(samples - before, seconds)

    def _mini_batch(self, look_at_memory: bool) -> int:
        """Wait for the end of a mini-batch; return the number of samples since the start."""
        while True:
            done = _DONE.search(self._next_line(look_at_memory))
            if done is not None and int(done[1]) > self._samples:
                self._samples = int(done[1])
                return self._samples

    def close(self) -> None:
        """End all processes of the run."""
        members = family(self._process.pid)
        tell(members, signal.SIGCONT)
        if self._process.poll() is None:
            self._process.terminate()  # launchers end their ranks too
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            tell(members[1:], signal.SIGKILL)
        self._errors.close()

    def _next_line(self, look_at_memory: bool) -> str:
        while True:
            try:
                line = self._lines.get(timeout=_LOOK_S)
            except queue.Empty:
                line = ""
            if look_at_memory:
                self.peak_bytes = max(self.peak_bytes, memory_bytes(family(self._process.pid)))
            if line is None:
                self._fail()
            elif line:
                return line

    def _fail(self) -> None:
        status = self._process.wait()
        self._errors.seek(0)
        said = [line.strip() for line in self._errors if line.strip()]
        own = [line for line in said if line.startswith("emuchain: ")]
        last = (own or said or ["it said nothing"])[-1].removeprefix("emuchain: ").removeprefix("error: ")
        raise InputError(f"{self._name} ended with status {status}: {last}")


def _read(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def family(pid: int) -> list[int]:
    """Return the ids of a process and its descendants, parents before children, without those that have ended."""
    children: dict[int, list[int]] = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                _, parent = parse_status((entry / "status").read_text(encoding="utf-8", errors="replace"))
            except (OSError, ValueError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    members = [pid]
    for member in members:
        members += children.get(member, [])
    return members


def tell(pids: list[int], number: signal.Signals) -> None:
    """Send the signal `number` to all of them; skip those that have ended."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def memory_bytes(pids: list[int]) -> int:
    """Return the sum of their proportional set sizes: shared memory counts once in total (PSS, proc_pid_smaps(5))."""
    return sum(_pss(pid) for pid in pids)


def _pss(pid: int) -> int:
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:  # the process has ended
        return 0
    match = _PSS.search(text)
    return 1024 * int(match[1]) if match else 0
