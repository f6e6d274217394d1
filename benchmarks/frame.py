"""What benchmarks share: fair timing, figures beside PyTorch, the host, a report for people, pages
and programs.

A benchmark names its sides as calls. They run one after the other, repeatedly, so that a slow moment of the machine
affects all of them:

    once each | how often? | a a a  b b  peak | a a a  b b  peak | ...      rounds, until there are enough
    (compile)   (a: 3, b: 2)  \\______________/
                               a timing of each side: ratios are taken within a round, then the median over the rounds

Time is the processor time of this process, summed over its threads: other programs do not count, and a second thread
of a call would.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import importlib
import importlib.metadata
import importlib.util
import json
import math
import pathlib
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..emulator.common import system_name
from ..emulator.view import print_answer, say, table
from ..launch import usable_cores

MOST_ROUNDS = 31

_PEAK_ROUNDS = 200_000  # a millisecond, beside which the call costs nothing
_ROUNDING = (
    1e-4  # of the largest value: far above any effect of the order of sums, far below any mistake
)
_MMAP_THRESHOLD, _TRIM_THRESHOLD = (
    -3,
    -1,
)  # parameters of mallopt(3); 32 MiB is the greatest value of the first

Row = TypeVar("Row")
Floats = NDArray[np.float32]
Call = Callable[[], object]
Clock = Callable[[], float]

NO_TORCH = (
    " PyTorch was not measured: it is not installed (`pip install torch==2.13.0`), or --no-torch"
    " was given."
)


@dataclasses.dataclass(frozen=True)
class Pace:
    """Length of a measurement: at least `rounds` rounds; more, up to MOST_ROUNDS, until they have
    lasted `enough_s`.

    A timing repeats its call for at least `least_s`, since a single short call says little.
    """

    rounds: int
    least_s: float = 0.01
    enough_s: float = 0.5


def interleaved(
    calls: Sequence[Call], pace: Pace, clock: Clock = time.process_time
) -> list[list[float]]:
    """Return each call's seconds in each round; one-off work (such as compiling) is done before."""
    for call in calls:
        call()
    counts = [_count(call, pace.least_s, clock) for call in calls]
    timings: list[list[float]] = [[] for _ in calls]
    started_s, rounds = clock(), 0
    while rounds < pace.rounds or (rounds < MOST_ROUNDS and clock() - started_s < pace.enough_s):
        # In turns, so that a slow moment of the machine meets all of them.
        for call, count, mine in zip(calls, counts, timings, strict=True):
            mine.append(_time(call, count, clock) / count)
        rounds += 1
    return timings


def _count(call: Call, least_s: float, clock: Clock) -> int:
    """Return a number of calls that takes at least `least_s`."""
    count = 1
    while (lasted_s := _time(call, count, clock)) < least_s:
        # Doubled at the least, also where the clock has not moved yet.
        count = max(2 * count, math.ceil(count * least_s / lasted_s) if lasted_s > 0 else 0)
    return count


def _time(call: Call, count: int, clock: Clock) -> float:
    started_s = clock()
    for _ in range(count):
        call()
    return clock() - started_s


def beside_peak(calls: Sequence[Call], pace: Pace) -> list[list[float]]:
    """Return the seconds in each round of one operation at the multiply-add peak, and of each
    call.
    """
    from ..kernels.llvm import FLOP_OF_ROUND, multiply_add

    *timings, peak_s = interleaved([*calls, functools.partial(multiply_add, _PEAK_ROUNDS)], pace)
    return [[seconds / (_PEAK_ROUNDS * FLOP_OF_ROUND) for seconds in peak_s], *timings]


def median_ratio(upper: Sequence[float], lower: Sequence[float]) -> float:
    """Return the median of `upper` / `lower` over the rounds."""
    return statistics.median(u / v for u, v in zip(upper, lower, strict=True))


def speeds(
    flop: int, flop_s: Sequence[float], ours_s: Sequence[float], torch_s: Sequence[float] | None
) -> dict[str, Any]:
    """Return the figures that all rows beside PyTorch have, of `flop` operations; PyTorch's are
    None without it.
    """
    return {
        "rounds": len(ours_s),
        "seconds": statistics.median(ours_s),
        "gflops": flop / statistics.median(ours_s) / 1e9,
        "peak_gflops": 1 / statistics.median(flop_s) / 1e9,
        "torch_seconds": None if torch_s is None else statistics.median(torch_s),
        "ratio": None if torch_s is None else median_ratio(torch_s, ours_s),
    }


def check_agreement(name: str, ours: Iterable[Floats], theirs: Iterable[Floats]) -> None:
    """Raise ArithmeticError if results differ from PyTorch's: speed with wrong results means
    nothing.
    """
    for mine, other in zip(ours, theirs, strict=True):
        distance = float(np.abs(mine - other).max() / np.abs(other).max())
        if not distance < _ROUNDING:
            raise ArithmeticError(
                f"{name}: differs from PyTorch by {distance:.1e} of the largest value"
            )


def random_numbers() -> np.random.Generator:
    """Return the generator of what benchmarks compute on, from its beginning."""
    return np.random.Generator(np.random.Philox(key=1))


def is_installed(module: str) -> bool:
    """Return whether a module, such as `torch`, is installed."""
    return importlib.util.find_spec(module) is not None


def torch_version() -> str:
    """Return PyTorch's version without importing it."""
    return importlib.metadata.version("torch")


def load_torch() -> ModuleType:
    """Return PyTorch, set to one thread and to keep its memory from call to call."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    _keep_memory()
    return torch


def _keep_memory() -> None:
    """Let glibc's malloc keep freed memory, as our arena does.

    Otherwise large results would come from the system at each call, or not, depending on what was
    freed before; and their page faults can take three times as long as the layer.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(_MMAP_THRESHOLD, 32 << 20)
    mallopt(_TRIM_THRESHOLD, 1 << 30)


def peer_versions(modules: Mapping[str, str]) -> dict[str, str | None]:
    """Return the versions of packages, of which the modules are given; None for those that are not
    installed.
    """
    return {
        name: _version(name) if is_installed(module) else None for name, module in modules.items()
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # a checkout on the path
        return "unknown"


def describe_host(torch: str | None) -> dict[str, Any]:
    """Return the processor, the number of cores that this process may use, the micro-kernel's form,
    and versions.
    """
    from ..kernels.form import FORM

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
            "torch": torch,
        },
    }


def cpu_model(cpuinfo: pathlib.Path) -> str:
    """Return the processor's name as Linux gives it, or else its architecture."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [
        line.split(":", 1)[1].strip()
        for line in lines
        if line.startswith("model name") and ":" in line
    ]
    return names[0] if names else platform.machine()


def host_line(host: dict[str, Any]) -> str:
    """Return the host as one line of text."""
    versions = ", ".join(
        f"{name} {version}" for name, version in host["versions"].items() if version
    )
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


def sheet_of(
    title: str, words: int, rows: Iterable[Row], *columns: tuple[str, Callable[[Row], str]]
) -> Sheet:
    """Return the table of rows, from each column's heading and its cell of a row."""
    headings, cells = zip(*columns, strict=True)

    def line(row: Row) -> tuple[str, ...]:
        return tuple(cell(row) for cell in cells)

    return Sheet(title, headings, tuple(map(line, rows)), words)


def as_ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def as_ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.2f} ms"


@dataclasses.dataclass(frozen=True)
class Report:
    """What a benchmark says: `fields` of JSON; or an answer, sheets, and what their figures
    mean.
    """

    host: dict[str, Any]
    fields: dict[str, Any]
    answer: Sequence[str]
    sheets: Sequence[Sheet]
    notes: str

    def print(self, *, as_json: bool, as_markdown: bool) -> None:
        """Print it; the answer comes first."""
        if as_json:
            print(json.dumps({"host": self.host, **self.fields}))
            return
        print_answer([*self.answer, host_line(self.host)])
        for sheet in self.sheets:
            if as_markdown:
                print(f"\n{sheet.markdown()}")
            else:
                sheet.draw()
        print()
        say(self.notes)


def report_of_layers(
    pace: Pace, torch: ModuleType | None, rows: Sequence[Any], summaries: Sequence[Any], **said: Any
) -> Report:
    """Return the report of measured layers and their means; `said` is its answer, sheets and
    notes.
    """
    fields: dict[str, Any] = {"threads": 1, "runs": pace.rounds}
    fields |= {
        "rows": list(map(fields_of, rows)),
        "summary": list(map(fields_of, summaries)),
    }
    said["notes"] += "" if torch else NO_TORCH
    return Report(describe_host(torch.__version__ if torch else None), fields, **said)


def fields_of(row: Any, *properties: str) -> dict[str, Any]:
    """Return the fields of a row, and some of its properties, by name."""
    return dataclasses.asdict(row) | {name: getattr(row, name) for name in properties}


def reported(rows: Iterable[Row], text: Callable[[Row], str]) -> list[Row]:
    """Return rows that are being measured, after telling of each that it has been."""
    measured = []
    for row in rows:
        tell(text(row))
        measured.append(row)
    return measured


def tell(text: str) -> None:
    """Print a line of progress where a terminal shows it; nothing moves, for that would disturb
    what is measured.
    """
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
