"""`bench chain`: the whole emulated chain against plain PyTorch training, on the same cores.

Ours is `mpiexec -n RANKS emuchain train ...`, as users run it; PyTorch's is `torch_training`, with a thread for each
core. They take turns, PyTorch first: at least five mini-batches and five seconds, after one mini-batch that does not
count. A ratio compares two adjacent turns. A third program takes turns with them, `chain_peak`: the same multiply-adds
and nothing else, which bounds all training on these cores. Each side's first turn, which includes its start, is not
counted. Memory is measured in that first turn and in one more at the end, outside all timing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from ...kernels import find_program, python_command, safe_environment
from ..common import InputError, format_bytes, plural
from ..data import describe_data
from ..network import load_network
from .figures import Sheet, as_ratio, median_ratio
from .torch_training import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY
from .turns import Run, Turn

TURN_S = 5.0

CHAIN_NOTES = (
    "The sides train in turns; each is stopped while the other trains. samples/s: the median over the turns; its ratio:"
    " the median of ours to PyTorch's, turn by turn (more is better). Memory: the peak of the sum of PSS over all"
    " processes; its ratio: ours to PyTorch's (less is better). At the peak: only the multiply-adds of training,"
    " on all cores at once; no program has more samples/s."
)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A network to train on `devices` emulated FPGAs in `ranks` ranks, or by PyTorch on `threads`, in `runs` turns."""

    network: str
    devices: int
    ranks: int
    batch: int
    micro_batch: int
    threads: int
    runs: int


@dataclasses.dataclass(frozen=True)
class Side:
    """One side's result: samples per second (the median of its turns), its turns, and its peak memory."""

    samples_per_s: float
    turns: tuple[Turn, ...]
    peak_bytes: int


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Both sides and the peak; ratios are ours to PyTorch's, and the peak's. None without PyTorch."""

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
        InputError: mpiexec was not found.
    """
    flags: dict[str, Any] = {
        "network": setting.network,
        "data": "shapes",
        "devices": setting.devices,
        "schedule": "fpdeep",
        "batch": setting.batch,
        "micro-batch": setting.micro_batch,
        "samples": describe_data("shapes")[0] // setting.batch * setting.batch,  # mini-batches of equal size
        "test-samples": 1,
        "epochs": 1000,  # the benchmark ends it earlier
        "learning-rate": LEARNING_RATE,
        "momentum": MOMENTUM,
        "weight-decay": WEIGHT_DECAY,
        "progress": "steps",
    }
    train = python_command("emuchain", "train", *(f"--{key}={value}" for key, value in flags.items()))
    return train if setting.ranks == 1 else [find_mpiexec(), "-n", str(setting.ranks), *train]


def find_mpiexec() -> str:
    """Return the path of this environment's mpiexec, or else of the first one on PATH.

    Raises:
        InputError: mpiexec was not found.
    """
    beside = pathlib.Path(sys.executable).with_name("mpiexec")
    path = str(beside) if beside.exists() else find_program("mpiexec")
    if path is None:
        raise InputError(
            f"no `mpiexec`, neither next to {sys.executable} nor on the PATH; install `emuchain[mpi-mpich]`, or give"
            " --ranks 1"
        )
    return path


def torch_command(setting: Setting) -> list[str]:
    """Return the command that trains with PyTorch."""
    return _program("emuchain.emulator.bench.torch_training", setting)


def peak_command(setting: Setting) -> list[str]:
    """Return the command that runs the multiply-adds alone."""
    return _program("emuchain.emulator.bench.chain_peak", setting)


def _program(module: str, setting: Setting) -> list[str]:
    return python_command(module, setting.network, str(setting.batch), str(setting.threads))


def compare(setting: Setting, with_torch: bool) -> Comparison:
    """Run both sides in turns of TURN_S seconds or slightly more.

    Raises:
        InputError: the network cannot be trained on `shapes`, mpiexec was not found, or a run ended early.
    """
    _check_network(setting.network)
    ours = _Entry("the chain", ours_command(setting), threads=1)
    peak = _Entry("the peak", peak_command(setting), threads=1)
    torch = _Entry("PyTorch", torch_command(setting), setting.threads)
    with _ended_in_order():
        warm = python_command("emuchain.kernels.warm")
        subprocess.run(warm, env=safe_environment(os.environ), check=True)  # so that no turn compiles
        sides = _take_turns([torch, ours, peak] if with_torch else [ours, peak], setting.runs)
    return compared(sides[-2], sides[-1], sides[0] if with_torch else None)


def _check_network(name: str) -> None:
    network = load_network(name)
    _, _, images, classes = describe_data("shapes")
    if (network.input, network.classes) != (images, classes):
        takes, needed = ("x".join(map(str, shape)) for shape in (network.input, images))
        raise InputError(
            f"`network` = {name!r}: takes images {takes} in {plural(network.classes, 'class')};"
            f" `shapes`, which the benchmark"
            f" trains on, has {needed} in {classes}"
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
    """Return a side's figures."""
    return Side(statistics.median(turn.rate for turn in turns), turns, peak_bytes)


def compared(ours: Side, peak: Side, torch: Side | None) -> Comparison:
    """Compare ours and the peak with PyTorch's, if it was measured."""
    if torch is None:
        return Comparison(ours, peak, None, None, None, None)
    ratio, peak_ratio = (
        median_ratio([turn.rate for turn in side.turns], [turn.rate for turn in torch.turns]) for side in (ours, peak)
    )
    return Comparison(ours, peak, torch, ratio, peak_ratio, ours.peak_bytes / torch.peak_bytes)


def _environment(threads: int) -> dict[str, str]:
    return {**safe_environment(os.environ), "OMP_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": "1"}


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM end the runs too: otherwise stopped processes would remain for ever."""

    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def chain_answer(setting: Setting, comparison: Comparison) -> list[str]:
    """Return the speed and memory of the chain, and beside PyTorch's, if that was measured."""
    ours, torch = comparison.ours, comparison.torch
    lines = [
        f"{setting.network} on {plural(setting.devices, 'device')}: {ours.samples_per_s:,.1f} samples/s on this machine"
    ]
    lines.append(f"memory: {format_bytes(ours.peak_bytes)}")
    if torch is not None:
        lines.append(f"{as_ratio(comparison.ratio)} times as fast as PyTorch with {torch.samples_per_s:,.1f} samples/s")
        at_most = f"{comparison.peak.samples_per_s:,.1f} samples/s, {as_ratio(comparison.peak_ratio)} times as fast"
        lines.append(f"at the cores' multiply-add peak: {at_most}")
        lines.append(f"{as_ratio(comparison.memory_ratio)} times its memory of {format_bytes(torch.peak_bytes)}")
    return lines


def chain_sheet(setting: Setting, comparison: Comparison) -> Sheet:
    """Return a table with a row for each side, and their ratios."""
    how = f"emuchain, {setting.devices} devices in {setting.ranks} rank{'s' * (setting.ranks != 1)}"
    rows = [_side_row(how, comparison.ours)]
    if comparison.torch is not None:
        rows.append(_side_row(f"PyTorch, {setting.threads} thread{'s' * (setting.threads != 1)}", comparison.torch))
    rows.append((*_side_row("multiply-adds only, at the peak", comparison.peak)[:-1], ""))
    if comparison.torch is not None:
        rows.append(("ratio", "", as_ratio(comparison.ratio), "", as_ratio(comparison.memory_ratio)))
        rows.append(("ratio at the peak", "", as_ratio(comparison.peak_ratio), "", ""))
    title = f"{setting.network}, mini-batches of {setting.batch}, micro-batches of {setting.micro_batch}, fpdeep"
    return Sheet(title, ("side", "turns", "samples/s", "least to most", "memory"), tuple(rows), 1)


def _side_row(name: str, side: Side) -> tuple[str, ...]:
    rates = [turn.rate for turn in side.turns]
    return (
        name,
        str(len(rates)),
        f"{side.samples_per_s:.1f}",
        f"{min(rates):.1f} to {max(rates):.1f}",
        format_bytes(side.peak_bytes),
    )
