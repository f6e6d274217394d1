"""`bench chain`: the whole emulated chain against plain PyTorch training, on the same cores.

Ours is `mpiexec -n RANKS emuchain train ...`, as users run it; PyTorch's is `torch_training`, with a thread for each
core. They take turns, PyTorch first: at least five mini-batches and five seconds, after one mini-batch that does not
count. A ratio is that of two turns side by side. Each one's first turn, with its start, is not counted. Memory is
looked at in that first turn and in one more at the end, outside all timing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from ..common.errors import InputError
from ..data.shapes import CLASSES, N_TRAIN, SHAPE
from ..network.load import load_network
from .stopwatch import median_ratio
from .torch_training import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY
from .turns import Run, Turn

TURN_S = 5.0


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is trained on, and how: on `devices` emulated FPGAs in `ranks` ranks, or with PyTorch's `threads`."""

    network: str
    devices: int
    ranks: int
    batch: int
    micro_batch: int
    threads: int
    runs: int


@dataclasses.dataclass(frozen=True)
class Side:
    """How one side did: samples a second (the median of its turns), its turns, and its most memory at once."""

    samples_per_s: float
    turns: tuple[Turn, ...]
    peak_bytes: int


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Both sides; ratios are ours to PyTorch's. None where there is no PyTorch."""

    ours: Side
    torch: Side | None
    ratio: float | None
    memory_ratio: float | None


@dataclasses.dataclass(frozen=True)
class _Entry:
    name: str
    command: list[str]
    threads: int


def ours_command(setting: Setting) -> list[str]:
    """The chain's command.

    Raises:
        InputError: there is no mpiexec.
    """
    flags: dict[str, Any] = {
        "network": setting.network,
        "data": "shapes",
        "devices": setting.devices,
        "schedule": "fpdeep",
        "batch": setting.batch,
        "micro-batch": setting.micro_batch,
        "samples": N_TRAIN // setting.batch * setting.batch,  # mini-batches of one size
        "test-samples": 1,
        "epochs": 1000,  # it is ended before
        "learning-rate": LEARNING_RATE,
        "momentum": MOMENTUM,
        "weight-decay": WEIGHT_DECAY,
        "progress": "steps",
    }
    train = [sys.executable, "-m", "emuchain", "train", *(f"--{key}={value}" for key, value in flags.items())]
    return train if setting.ranks == 1 else [find_mpiexec(), "-n", str(setting.ranks), *train]


def find_mpiexec() -> str:
    """The launcher of this environment, or else the first one on the path.

    Raises:
        InputError: there is none.
    """
    beside = pathlib.Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise InputError(
            f"no `mpiexec`, neither beside {sys.executable} nor on the path; install `emuchain[mpi-mpich]`, or give"
            " --ranks 1"
        )
    return found


def torch_command(setting: Setting) -> list[str]:
    """PyTorch's command."""
    program = ["-m", "emuchain.emulator.bench.torch_training"]
    return [sys.executable, *program, setting.network, str(setting.batch), str(setting.threads)]


def compare(setting: Setting, with_torch: bool) -> Comparison:
    """Run both, by turns of TURN_S or a little longer.

    Raises:
        InputError: the network cannot be trained on `shapes`, there is no mpiexec, or a run ended by itself.
    """
    _check_network(setting.network)
    ours = _Entry("the chain", ours_command(setting), threads=1)
    torch = _Entry("PyTorch", torch_command(setting), setting.threads)
    with _ended_in_order():
        subprocess.run([sys.executable, "-m", "emuchain.kernels.warm"], check=True)  # so that no turn holds compiling
        sides = _take_turns([torch, ours] if with_torch else [ours], setting.runs)
    return compared(sides[-1], sides[0] if with_torch else None)


def _check_network(name: str) -> None:
    network = load_network(name)
    if (network.input, network.classes) != (SHAPE, len(CLASSES)):
        takes, needed = ("x".join(map(str, shape)) for shape in (network.input, SHAPE))
        raise InputError(
            f"`network` = {name!r}: takes images {takes} in {network.classes} classes; `shapes`, which the benchmark"
            f" trains on, has {needed} in {len(CLASSES)}"
        )


def _take_turns(entries: list[_Entry], rounds: int) -> list[Side]:
    with contextlib.ExitStack() as stack:
        runs = []
        for entry in entries:
            runs.append(stack.enter_context(Run(entry.name, entry.command, _environment(entry.threads))))
            runs[-1].turn(TURN_S, look_at_memory=True)
        turns = [[run.turn(TURN_S) for run in runs] for _ in range(rounds)]
        for run in runs:
            run.turn(TURN_S, look_at_memory=True)
    return [side(mine, run.peak_bytes) for mine, run in zip(zip(*turns, strict=True), runs, strict=True)]


def side(turns: tuple[Turn, ...], peak_bytes: int) -> Side:
    """A side's figures."""
    return Side(statistics.median(turn.rate for turn in turns), turns, peak_bytes)


def compared(ours: Side, torch: Side | None) -> Comparison:
    """Ours beside PyTorch's, if it is there."""
    if torch is None:
        return Comparison(ours, None, None, None)
    ratio = median_ratio([turn.rate for turn in ours.turns], [turn.rate for turn in torch.turns])
    return Comparison(ours, torch, ratio, ours.peak_bytes / torch.peak_bytes)


def _environment(threads: int) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": "1"}


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM end the runs too: stopped processes would stay for ever."""

    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
