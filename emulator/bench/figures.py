"""What benchmarks share: fair timing, the host without which figures mean little, and sheets of figures.

Calls run one after the other, repeatedly, so that a slow moment of the machine affects all of them. Ratios are computed
within a round, between adjacent timings, and then the median over the rounds. Time is the processor time of this
process, summed over its threads: other programs do not count, and a second thread of a call would.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import __version__
from ...launch import usable_cores
from ..common import system_name
from ..view import table

MOST_ROUNDS = 31

Clock = Callable[[], float]

NO_TORCH = "PyTorch was not measured: it is not installed (`pip install torch==2.13.0`), or --no-torch was given."


@dataclasses.dataclass(frozen=True)
class Pace:
    """Length of a measurement: at least `rounds` rounds; more, up to MOST_ROUNDS, until they have lasted `enough_s`.

    A timing repeats its call for at least `least_s`, since a single short call says little.
    """

    rounds: int
    least_s: float = 0.01
    enough_s: float = 0.5


def interleaved(
    calls: Sequence[Callable[[], object]], pace: Pace, clock: Clock = time.process_time
) -> list[list[float]]:
    """Return each call's seconds in each round; one-off work (such as compiling) is done before."""
    for call in calls:
        call()
    counts = [_count(call, pace.least_s, clock) for call in calls]
    timings: list[list[float]] = [[] for _ in calls]
    started_s, rounds = clock(), 0
    while rounds < pace.rounds or (rounds < MOST_ROUNDS and clock() - started_s < pace.enough_s):
        for call, count, mine in zip(calls, counts, timings, strict=True):
            mine.append(_time(call, count, clock) / count)
        rounds += 1
    return timings


def _count(call: Callable[[], object], least_s: float, clock: Clock) -> int:
    """Return a number of calls that takes at least `least_s`."""
    count = 1
    while (lasted_s := _time(call, count, clock)) < least_s:
        count = max(2 * count, math.ceil(count * least_s / lasted_s) if lasted_s > 0 else 0)
    return count


def _time(call: Callable[[], object], count: int, clock: Clock) -> float:
    started_s = clock()
    for _ in range(count):
        call()
    return clock() - started_s


def median_ratio(upper: Sequence[float], lower: Sequence[float]) -> float:
    """Return the median of `upper` / `lower` over the rounds."""
    return statistics.median(u / v for u, v in zip(upper, lower, strict=True))


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of ratios: that of 2 and 1/2 is 1."""
    return statistics.geometric_mean(ratios)


def describe_host(torch_version: str | None) -> dict[str, Any]:
    """Return the processor, the number of cores that this process may use, the micro-kernel's form, and versions."""
    from ...kernels.form import FORM

    return {
        "cpu": cpu_model(pathlib.Path("/proc/cpuinfo")),
        "cores": usable_cores(),
        "form": FORM.name,
        "platform": system_name(),
        "versions": {
            "emuchain": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": importlib.metadata.version("numba"),
            "llvmlite": importlib.metadata.version("llvmlite"),
            "torch": torch_version,
        },
    }


def cpu_model(cpuinfo: pathlib.Path) -> str:
    """Return the processor's name as Linux gives it, or else its architecture."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name") and ":" in line]
    return names[0] if names else platform.machine()


def host_line(host: dict[str, Any]) -> str:
    """Return the host as one line of text."""
    versions = ", ".join(f"{name} {version}" for name, version in host["versions"].items() if version)
    return f"{host['cpu']}, {host['cores']} cores, form {host['form']}; {versions}"


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A table; its first `words` columns hold words, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int

    def draw(self) -> None:
        """Print the table as text."""
        table(self.title, self.columns, self.rows, left=self.columns[: self.words])

    def markdown(self) -> str:
        """Return the table in Markdown, under its title."""
        rule = ["---"] * self.words + ["--:"] * (len(self.columns) - self.words)
        lines = ["| " + " | ".join(cells) + " |" for cells in (self.columns, rule, *self.rows)]
        return "\n".join([f"**{self.title}**", "", *lines, ""])


def as_ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"
