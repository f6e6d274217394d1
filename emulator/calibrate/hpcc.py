"""What the benchmarks of HPCC FPGA print (M. Meyer et al., https://github.com/pc2/HPCC_FPGA), as columns and rows.

Each ends with a table under a header of its own: b_eff, STREAM, GEMM. A few lines before say which version it is, how
many FPGAs took part, and the size of matrices. Since 2022 the cells of tables have units. What versions differ in:

- b_eff before 1.3 sends two messages in a loop, one after the other: an FPGA's, and the one that answers it;
- STREAM before 2.6 and GEMM before 1.2 divide the times of several FPGAs by the number of repetitions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from ..common import InputError

Lines = list[tuple[int, list[str]]]
Version = tuple[int, ...]

_RANKS = re.compile(r"^MPI Ranks\s+(\d+)\s*$", re.MULTILINE)
_MATRIX = re.compile(r"^Matrix Size\s+(\d+)\s*$", re.MULTILINE)
_VERSION = re.compile(r"^(?:Version: *|#.*\bb_eff (?:version )?(?=\d))([^\s,;]+)", re.MULTILINE)
_NUMBER = r"(\S+)(?: (?:s|MB/s|GFLOP/s))?"

SINGLE_MESSAGES = (1, 3)
"""The version of b_eff from which a loop has one message."""


class _Run(NamedTuple):
    """What a benchmark says before its table, as text."""

    ranks: str
    matrix: str


def _messages(cells: list[str], run: _Run) -> list[str]:
    return cells[:3]


def _function(cells: list[str], run: _Run) -> list[str]:
    return [re.sub("[ _]", "-", cells[0].lower()), cells[1], run.ranks]


def _product(cells: list[str], run: _Run) -> list[str]:
    return [run.matrix, cells[0], run.ranks]


class _Benchmark(NamedTuple):
    """A benchmark: its table's header, a row, the columns, what makes a row's cells of them.

    `several` is the version from which the figures of several FPGAs are right.
    """

    name: str
    header: str
    row: str
    columns: list[str]
    cells_of: Callable[[list[str], _Run], list[str]]
    several: Version = ()


_BENCHMARKS = (
    _Benchmark(
        "b_eff",
        r"MSize\s+looplength\s+(?:transfer|time(?: \[s\])?)\s+G?B/s",
        rf"{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}",
        ["message_bytes", "loop_length", "transfer_s"],
        _messages,
    ),
    _Benchmark(
        "STREAM",
        r"Function\s+Best Rate(?: MB/s)?\s.*",
        rf"([A-Za-z]+(?:[ _][a-z]+)?)\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}",
        ["function", "best_mbytes_per_s", "fpgas"],
        _function,
        (2, 6),
    ),
    _Benchmark(
        "GEMM",
        r"best\s+mean\s+GFLOPS",
        rf"{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}",
        ["matrix_size", "best_s", "fpgas"],
        _product,
        (1, 2),
    ),
)


def hpcc_table(text: str, name: str) -> tuple[list[str], Lines] | None:
    """Return the columns and rows of what a benchmark has printed, each row with its line; None if it is none of them.

    Raises:
        InputError: the benchmark says that its results are wrong, is known to have them wrong, or stops before them.
    """
    lines = text.split("\n")
    for benchmark in _BENCHMARKS:
        places = [place for place, line in enumerate(lines) if re.fullmatch(benchmark.header, line.strip())]
        if not places:
            continue
        if re.search(r"^Validation: FAIL", text, re.MULTILINE):
            raise InputError(f"{name}: says `Validation: FAILED`; measure again")
        run, version = _Run(_first(_RANKS, text) or "1", _first(_MATRIX, text)), said_version(text)
        if version and run.ranks != "1" and version_of(version, name) < benchmark.several:
            right = ".".join(map(str, benchmark.several))
            raise InputError(
                f"{name}: {benchmark.name} {version} of {run.ranks} FPGAs divides their times by the number of"
                f" repetitions; measure with one, or with version {right}"
            )
        rows: Lines = []
        for number, line in enumerate(lines[places[-1] + 1 :], places[-1] + 2):
            match = re.fullmatch(benchmark.row, line.strip())
            if match is None:
                break
            rows.append((number, benchmark.cells_of(list(match.groups()), run)))
        return benchmark.columns, rows
    return None


def said_version(text: str) -> str:
    """Return the version that a benchmark prints, or of b_eff that a comment of CSV names; empty if none is said."""
    return _first(_VERSION, text)


def version_of(text: str, where: str) -> Version:
    """Return a version as numbers, of which later ones are larger.

    Raises:
        InputError: it is none; `where` begins the message.
    """
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})*", text, re.ASCII):
        raise InputError(f"{where}: {text!r} is no version; should be one such as 1.3")
    return tuple(map(int, text.split(".")))


def _first(sought: re.Pattern[str], text: str) -> str:
    match = sought.search(text)
    return match[1] if match else ""
