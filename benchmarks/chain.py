"""`bench chain`: the whole emulated chain against plain PyTorch training, on the same cores.

Ours is `mpiexec -n RANKS emuchain train ...`, as users run it; PyTorch's is a program of
`programs`, with a thread for each core. They take turns, PyTorch first: at least five mini-batches
and five seconds, after one mini-batch that does not count. A ratio compares two adjacent turns. A
third program takes turns with them: the same multiply-adds and nothing else, which bounds all
training on these cores. Each side's first turn, which includes its start, is not counted. Memory is
measured in that first turn and in one more at the end, outside all timing.

One run continues while the others are stopped (SIGSTOP, SIGCONT), a few seconds each, repeatedly.
So a slow moment of the machine affects all, each starts only once, and none needs to know of the
others: only the line that a run prints after each mini-batch is read. A run is slow just after it
continues: its caches are cold, and its threads and ranks wake up one after another. So the first
mini-batch of a turn is not counted, and at least five whole ones after it are. Linux only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import IO

import psutil

from ..emulator.common import InputError, format_bytes, plural
from ..emulator.data import describe_data
from ..emulator.network import load_network
from ..kernels import python_command, safe_environment
from ..launch import LaunchError, family, launch_command, send
from .frame import (
    NO_TORCH,
    Report,
    Sheet,
    as_ratio,
    describe_host,
    is_installed,
    median_ratio,
    tell,
    torch_version,
)
from .programs import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, data_for

_DONE = re.compile(r"(\d+)/\d+ samples")
_LOOK_S = 0.1  # between two measurements of the memory
_END_S = 10.0
UNCOUNTED, LEAST_COUNTED = 1, 5
"""Mini-batches at the beginning of a turn that do not count, and the least number that count after
them.
"""


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
    """The processes of a command that prints `N/M samples` as it advances; they end with the `with`
    block. Turns last as the clock on the wall says, or as the time `of_processor`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        of_processor: bool = False,
    ) -> None:
        self.peak_bytes = 0
        self._clock = self._processor_s if of_processor else time.perf_counter
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
        # Reads all the time: a run whose pipe is full would wait.
        threading.Thread(
            target=_read, args=(self._process.stdout, self._lines), daemon=True
        ).start()

    @property
    def pid(self) -> int:
        """Id of the process that was started; the others are its descendants."""
        return self._process.pid

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def turn(self, least_s: float, *, look_at_memory: bool = False) -> Turn:
        """Continue for one mini-batch, then for at least `least_s` and five mini-batches more,
        which count; then stop.

        Measuring the memory takes time, so a turn with `look_at_memory` is not for timing.

        Raises:
            InputError: the run has ended.
        """
        # one run    SIGCONT | uncounted | counted: five mini-batches and least_s at the least | SIGSTOP
        # the next   (stopped)                                                                   SIGCONT | ...
        send(signal.SIGCONT, family(self._process.pid))
        for _ in range(UNCOUNTED):
            before = self._mini_batch(look_at_memory)
        started_s, counted, samples, seconds = self._clock(), 0, before, 0.0
        while counted < LEAST_COUNTED or seconds < least_s:
            samples = self._mini_batch(look_at_memory)
            counted, seconds = counted + 1, self._clock() - started_s
        send(signal.SIGSTOP, family(self._process.pid))
        return Turn(samples - before, seconds)

    def _processor_s(self) -> float:
        """Return the processor time that the run has had."""
        total = 0.0
        for process in family(self._process.pid):
            with contextlib.suppress(psutil.Error):  # the process has ended
                times = process.cpu_times()
                total += times.user + times.system
        return total

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
        # One that is stopped would get SIGTERM only once it continues.
        send(signal.SIGCONT, members)
        if self._process.poll() is None:
            self._process.terminate()  # launchers end their ranks too
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            send(signal.SIGKILL, members[1:])
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
        last = (
            (own or said or ["it said nothing"])[-1]
            .removeprefix("emuchain: ")
            .removeprefix("error: ")
        )
        raise InputError(f"{self._name} ended with status {status}: {last}")


def _read(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def memory_bytes(processes: Iterable[psutil.Process]) -> int:
    """Return the sum of their proportional set sizes: shared memory counts once in total (PSS,
    proc_pid_smaps(5)).
    """
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):  # the process has ended
            total += process.memory_full_info().pss
    return total


TURN_S = 5.0

NOTES = (
    "The sides train in turns; each is stopped while the other trains. samples/s: the median over"
    " the turns; its ratio: the median of ours to PyTorch's, turn by turn (more is better). Memory:"
    " the peak of the sum of PSS over all processes; its ratio: ours to PyTorch's (less is better)."
    " At the peak: only the multiply-adds of training, on all cores at once; no program has more"
    " samples/s."
)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A network to train on `devices` emulated FPGAs in `ranks` ranks, or by PyTorch on `threads`,
    in `runs` turns.
    """

    network: str
    devices: int
    ranks: int
    batch: int
    micro_batch: int
    threads: int
    runs: int


@dataclasses.dataclass(frozen=True)
class Side:
    """One side's result: samples per second (the median of its turns), its turns, and its peak
    memory.
    """

    samples_per_s: float
    turns: tuple[Turn, ...]
    peak_bytes: int

    @property
    def rates(self) -> list[float]:
        """Samples per second of each turn."""
        return [turn.rate for turn in self.turns]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Both sides and the peak; ratios are ours to PyTorch's, and the peak's. None without
    PyTorch.
    """

    ours: Side
    peak: Side
    torch: Side | None
    ratio: float | None
    peak_ratio: float | None
    memory_ratio: float | None


@dataclasses.dataclass(frozen=True)
class _Entry:
    name: str
    command: list[str]
    threads: int


def ours_command(setting: Setting) -> list[str]:
    """Return the command that trains on the chain.

    Raises:
        InputError: the network takes no built-in data, or mpiexec was not found.
    """
    data = data_for(load_network(setting.network))
    flags: dict[str, object] = {
        "network": setting.network,
        "data": data,
        "devices": setting.devices,
        "schedule": "fpdeep",
        "batch": setting.batch,
        "micro-batch": setting.micro_batch,
        "samples": (
            describe_data(data)[0] // setting.batch * setting.batch
        ),  # mini-batches of equal size
        "test-samples": 1,
        "epochs": 1000,  # the benchmark ends it earlier
        "learning-rate": LEARNING_RATE,
        "momentum": MOMENTUM,
        "weight-decay": WEIGHT_DECAY,
        "progress": "steps",
    }
    words = ["train", *(f"--{key}={value}" for key, value in flags.items())]
    if setting.ranks == 1:
        return python_command("emuchain", *words)
    try:
        return launch_command(setting.ranks, words)
    except LaunchError:
        raise InputError(
            f"no `mpiexec`, neither next to {sys.executable} nor on the PATH; install"
            " `emuchain[mpi-mpich]`, or give --ranks 1"
        ) from None


def program_command(program: str, setting: Setting) -> list[str]:
    """Return the command of one of `programs`: to train with PyTorch, or to run the multiply-adds
    alone.
    """
    words = program, setting.network, str(setting.batch), str(setting.threads)
    return python_command("emuchain.benchmarks.programs", *words)


def report(setting: Setting, *, no_torch: bool) -> Report:
    """Measure the chain, beside PyTorch where that is installed."""
    with_torch = not no_torch and is_installed("torch")
    tell(f"training {setting.network} in turns …")
    comparison = compare(setting, with_torch)
    fields = {
        "command": ours_command(setting),
        "torch_command": program_command("torch", setting) if with_torch else None,
        **dataclasses.asdict(setting),
        **dataclasses.asdict(comparison),
    }
    host = describe_host(torch_version() if with_torch else None)
    notes = NOTES + ("" if with_torch else NO_TORCH)
    return Report(host, fields, answer(setting, comparison), [sheet(setting, comparison)], notes)


def compare(setting: Setting, with_torch: bool) -> Comparison:
    """Run both sides in turns of TURN_S seconds or slightly more.

    Raises:
        InputError: the network takes no built-in data, mpiexec was not found, or a run ended early.
    """
    ours = _Entry("the chain", ours_command(setting), threads=1)
    peak = _Entry("the peak", program_command("peak", setting), threads=1)
    torch = _Entry("PyTorch", program_command("torch", setting), setting.threads)
    with ended_in_order():
        warm = python_command("emuchain.kernels.warm")
        subprocess.run(
            warm, env=safe_environment(os.environ), check=True
        )  # so that no turn compiles
        sides = _take_turns([torch, ours, peak] if with_torch else [ours, peak], setting.runs)
    return compared(sides[-2], sides[-1], sides[0] if with_torch else None)


def _take_turns(entries: list[_Entry], rounds: int) -> list[Side]:
    with contextlib.ExitStack() as stack:
        runs = []
        for entry in entries:
            runs.append(
                stack.enter_context(Run(entry.name, entry.command, environment_of(entry.threads)))
            )
            runs[-1].turn(TURN_S, look_at_memory=True)
        turns = []
        for _ in range(rounds):
            turns.append([run.turn(TURN_S) for run in runs])
        for run in runs:
            run.turn(TURN_S, look_at_memory=True)
    return [
        side(mine, run.peak_bytes) for mine, run in zip(zip(*turns, strict=True), runs, strict=True)
    ]


def side(turns: tuple[Turn, ...], peak_bytes: int) -> Side:
    """Return a side's figures."""
    return Side(statistics.median(turn.rate for turn in turns), turns, peak_bytes)


def compared(ours: Side, peak: Side, torch: Side | None) -> Comparison:
    """Compare ours and the peak with PyTorch's, if it was measured."""
    if torch is None:
        return Comparison(ours, peak, None, None, None, None)
    ratio, peak_ratio = (median_ratio(side.rates, torch.rates) for side in (ours, peak))
    return Comparison(ours, peak, torch, ratio, peak_ratio, ours.peak_bytes / torch.peak_bytes)


def environment_of(threads: int) -> dict[str, str]:
    """Return the environment of a run with some threads."""
    return {
        **safe_environment(os.environ),
        "OMP_NUM_THREADS": str(threads),
        "NUMBA_NUM_THREADS": "1",
    }


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """Let SIGTERM end the runs too: otherwise stopped processes would remain for ever."""

    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def answer(setting: Setting, comparison: Comparison) -> list[str]:
    """Return the speed and memory of the chain, and beside PyTorch's, if that was measured."""
    ours, torch = comparison.ours, comparison.torch
    lines = [
        f"{setting.network} on {plural(setting.devices, 'device')}: {ours.samples_per_s:,.1f}"
        " samples/s on this machine"
    ]
    lines.append(f"memory: {format_bytes(ours.peak_bytes)}")
    if torch is not None:
        lines.append(
            f"{as_ratio(comparison.ratio)} times as fast as PyTorch with {torch.samples_per_s:,.1f}"
            " samples/s"
        )
        at_most = (
            f"{comparison.peak.samples_per_s:,.1f} samples/s, {as_ratio(comparison.peak_ratio)}"
            " times as fast"
        )
        lines.append(f"at the cores' multiply-add peak: {at_most}")
        lines.append(
            f"{as_ratio(comparison.memory_ratio)} times its memory of"
            f" {format_bytes(torch.peak_bytes)}"
        )
    return lines


def sheet(setting: Setting, comparison: Comparison) -> Sheet:
    """Return a table with a row for each side, and their ratios."""
    how = f"emuchain, {setting.devices} devices in {setting.ranks} rank{'s' * (setting.ranks != 1)}"
    rows = [_side_row(how, comparison.ours)]
    if comparison.torch is not None:
        rows.append(
            _side_row(
                f"PyTorch, {setting.threads} thread{'s' * (setting.threads != 1)}", comparison.torch
            )
        )
    rows.append((*_side_row("multiply-adds only, at the peak", comparison.peak)[:-1], ""))
    if comparison.torch is not None:
        rows.append(
            ("ratio", "", as_ratio(comparison.ratio), "", as_ratio(comparison.memory_ratio))
        )
        rows.append(("ratio at the peak", "", as_ratio(comparison.peak_ratio), "", ""))
    title = (
        f"{setting.network}, mini-batches of {setting.batch}, micro-batches of"
        f" {setting.micro_batch}, fpdeep"
    )
    return Sheet(title, ("side", "turns", "samples/s", "least to most", "memory"), tuple(rows), 1)


def _side_row(name: str, side: Side) -> tuple[str, ...]:
    rates = side.rates
    return (
        name,
        str(len(rates)),
        f"{side.samples_per_s:.1f}",
        f"{min(rates):.1f} to {max(rates):.1f}",
        format_bytes(side.peak_bytes),
    )
