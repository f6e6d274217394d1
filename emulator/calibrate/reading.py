"""Files of measurements: CSV whose header names units, what HPCC FPGA prints, and reports of builds
(`reports.py`); the header says what a file holds.

A row keeps its cells as text with the line that it stands on; numbers are read where they are used,
by `Row.number`, so that every error names file, line, column and value. Nothing that a file holds
is ever run.

Benchmarks of HPCC FPGA (M. Meyer et al., https://github.com/pc2/HPCC_FPGA) end with a table under a
header of its own:
b_eff, STREAM, GEMM. A few lines before say which version it is, how many FPGAs took part, and the
size of matrices. Since 2022 the cells of tables have units. What versions differ in:

- b_eff before 1.3 sends two messages in a loop, one after the other: an FPGA's, and the one that
  answers it;
- STREAM before 2.6 and GEMM before 1.2 divide the times of several FPGAs by the number of
  repetitions.
"""

from __future__ import annotations

import csv
import dataclasses
import enum
import hashlib
import math
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..common import InputError, decoded, did_you_mean, plural, read_file, shown
from .build import Report
from .reports import read_report

Lines = list[tuple[int, list[str]]]
Path = str | os.PathLike[str]
Version = tuple[int, ...]

_RANKS = re.compile(r"^MPI Ranks\s+(\d+)\s*$", re.MULTILINE)
_MATRIX = re.compile(r"^(?:Matrix Size|Total matrix size:)\s+(\d+)\s*$", re.MULTILINE)
_VERSION = re.compile(r"^(?:Version: *|#.*\bb_eff (?:version )?(?=\d))([^\s,;]+)", re.MULTILINE)
_NUMBER = r"([^\s:]+)(?: (?:s|MB/s|GFLOP/s))?"

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
    """Return the columns and rows of what a benchmark has printed, each row with its line; None if
    it is none of them.

    Raises:
        InputError: the benchmark says that its results are wrong, is known to have them wrong, or
            stops before them.
    """
    lines = text.split("\n")
    for benchmark in _BENCHMARKS:
        places = [
            place
            for place, line in enumerate(lines)
            if re.fullmatch(benchmark.header, line.strip())
        ]
        if not places:
            continue
        if re.search(r"^Validation: FAIL", text, re.MULTILINE):
            raise InputError(f"{name}: says `Validation: FAILED`; measure again")
        run, version = _Run(_first(_RANKS, text) or "1", _first(_MATRIX, text)), said_version(text)
        if version and run.ranks != "1" and version_of(version, name) < benchmark.several:
            right = ".".join(map(str, benchmark.several))
            raise InputError(
                f"{name}: {benchmark.name} {version} of {run.ranks} FPGAs divides their times by"
                f" the number of repetitions; measure with one, or with version {right}"
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
    """Return the version that a benchmark prints, or of b_eff that a comment of CSV names; empty if
    none is said.
    """
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


_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
MESSAGE_TIMES = {f"message_{unit}": seconds for unit, seconds in _SECONDS.items()}
"""The columns for the time of a message, with the seconds of their unit."""

COLLECTIVE_TIMES = {
    "slowest_rank_median_us": 1.0,
    "time_us": 1.0,
    "us": 1.0,
    "time_ms": 1e3,
    "ms": 1e3,
    "time_s": 1e6,
}
"""The columns for the time of a collective, with the microseconds of their unit."""

VERSION = "version"
"""The column for the version of the benchmark, which its output or a comment may say, too."""

_MOST_COLUMNS, _MOST_CELLS = 1000, 1_000_000
"""Most columns of a file, and cells of all: more than five thousand runs of b_eff have."""

_LEAST, _MOST = 1e-18, 1e18
"""Bounds of numbers, in whatever unit: an attosecond, an exabyte."""

_DELIMITERS = ",;\t"


class Kind(enum.Enum):
    """What a file measures, as messages name it."""

    LINK = "messages over a link"
    MEMORY = "off-chip memory"
    PRODUCTS = "matrix products"
    LAYERS = "layers"
    CONVOLUTIONS = "convolutions"
    BITSTREAM = "a bitstream's report"
    BUILD = "what a build takes"
    COLLECTIVES = "collectives"
    ALL_REDUCES = "all-reduces"


_HEADERS: dict[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Kind.LINK: (("message_bytes",), (*MESSAGE_TIMES, "transfer_s")),
    Kind.MEMORY: (("function", "best_mbytes_per_s"), ()),
    Kind.PRODUCTS: (("matrix_size",), ("best_s", "gflops")),
    Kind.LAYERS: (("network", "layer", "phase", "samples"), ("us", "cycles")),
    Kind.CONVOLUTIONS: (("oc", "ic", "oh", "ow", "k", "cycles"), ()),
    Kind.BITSTREAM: (("clock_mhz", "dsp_used"), ()),
    Kind.COLLECTIVES: (("collective", "nodes", "bytes"), (*COLLECTIVE_TIMES,)),
    Kind.ALL_REDUCES: (("chips", "floats"), (*COLLECTIVE_TIMES,)),
}
"""By kind, the columns that all files have, and those of which they have one at least."""

_KNOWN = (
    "message_bytes with message_ns, _us, _ms, _s or transfer_s and loop_length; matrix_size with"
    " best_s or gflops; function with best_mbytes_per_s; network, layer, phase, samples with us or"
    " cycles; oc, ic, oh, ow, k with cycles; clock_mhz with dsp_used; collective, nodes, bytes with"
    " time_us or time_ms; chips, floats with ms; and reports of builds by Vitis,"
    " Vivado and Quartus"
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a file: its cells by column, the line, and the run that it belongs to."""

    file: str
    line: int
    cells: Mapping[str, str]
    run: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def has(self, column: str) -> bool:
        """Return whether the file has this column."""
        return column in self.cells

    def is_of(self, where: Mapping[str, str]) -> bool:
        """Return whether its columns have these values, as far as the file has them."""
        return all(self.cells.get(column, value) == value for column, value in where.items())

    def number(self, column: str) -> float:
        """Return the number in a column.

        Raises:
            InputError: it is no number, not finite, zero or negative, or what nothing that is
                measured can be.
        """
        try:
            value = float(self.cells[column])
        except ValueError:
            raise InputError(
                f"{self.said(column)}: should be a number, its unit in the header"
            ) from None
        if not math.isfinite(value) or value <= 0:
            raise InputError(f"{self.said(column)}: should be a finite number above 0")
        if not _LEAST <= value <= _MOST:
            raise InputError(
                f"{self.said(column)}: should be a number from {_LEAST:g} to {_MOST:g}"
            )
        return value

    def count(self, column: str) -> int:
        """Return the whole number in a column.

        Raises:
            InputError: it is none above 0.
        """
        value = self.number(column)
        if value != round(value):
            raise InputError(f"{self.said(column)}: should be a whole number")
        return round(value)

    def said(self, column: str) -> str:
        """Return the beginning of a message on a cell: the row, the column, and what stands
        there.
        """
        return f"{self}: `{column}` = {_short(repr(self.cells[column]))}"

    def boards(self) -> int:
        """Return over how many FPGAs a rate is summed: the column `fpgas`, 1 without it."""
        return self.count("fpgas") if self.has("fpgas") else 1


@dataclasses.dataclass(frozen=True)
class Table:
    """A file: what it measures, and its rows; of a report of a build, one without cells."""

    name: str
    kind: Kind
    rows: tuple[Row, ...]
    content: bytes = dataclasses.field(repr=False)
    report: Report | None = None


def listed_files(files: Path | Sequence[Path]) -> list[Path]:
    """Return files as a list, of which one may be given alone."""
    return [files] if isinstance(files, str | os.PathLike) else list(files)


def read_tables(files: Sequence[Path], only: Mapping[str, str] | None = None) -> list[Table]:
    """Return the tables of some files, with the rows whose columns have the values in `only`.

    Raises:
        InputError: there is no file; one cannot be read, holds something else, or is given twice;
            no row is left.
    """
    if not files:
        raise InputError("no measurements: give a CSV file, or what HPCC FPGA has printed")
    tables: dict[bytes, Table] = {}
    cells = 0
    for path in map(pathlib.Path, files):
        table = _read(path)
        cells += len(table.rows) * len(table.rows[0].cells)
        if cells > _MOST_CELLS:
            raise InputError(
                f"{table.name}: files have more than {_MOST_CELLS:,} cells together; give fewer"
                " rows"
            )
        twin = tables.setdefault(table.content, table)
        if twin is not table:
            raise InputError(f"{shown(path)}: holds the same as {twin.name}; give each run once")
    columns = {column for table in tables.values() for column in table.rows[0].cells}
    for column in only or {}:
        if column not in columns:
            hint = did_you_mean(column, columns)
            raise InputError(
                f"`only`: no file has a column `{column}`; {hint}there are"
                f" {', '.join(sorted(columns))}"
            )
    return [_chosen(table, only or {}) for table in tables.values()]


def named(tables: Sequence[Table]) -> str:
    """Return the names of tables for a message: the first one, and how many more there are."""
    return tables[0].name + (f" and {len(tables) - 1} more" if len(tables) > 1 else "")


def digest(tables: Sequence[Table]) -> str:
    """Return the first digits of the SHA-256 of all files one after the other, as `cat FILES |
    sha256sum` has it.
    """
    return hashlib.sha256(b"".join(table.content for table in tables)).hexdigest()[:12]


def _read(path: pathlib.Path) -> Table:
    name = shown(path)
    try:
        content = read_file(path)
        text = decoded(content)
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{name}: cannot be read: {error}") from None
    if not text.strip():
        raise InputError(
            f"{name}: is empty; give a CSV file with a header, or what HPCC FPGA has printed"
        )
    report = read_report(text, name)
    if report is not None:
        return Table(name, Kind.BUILD, (Row(name, 1, {}, name),), content, report)
    printed = hpcc_table(text, name)
    header, lines = printed if printed is not None else _csv(text, name)
    kind = _kind(header, name)
    if not lines:
        raise InputError(f"{name}: has a header and no row")
    version = said_version(text)
    known = {VERSION: version} if version and VERSION not in header else {}
    rows = tuple(
        _row(name, number, {**dict(zip(header, cells, strict=True)), **known})
        for number, cells in lines
    )
    return Table(name, kind, rows, content)


def _row(name: str, number: int, cells: Mapping[str, str]) -> Row:
    return Row(name, number, cells, _run_of(cells, name))


def _csv(text: str, name: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the header, and the cells of each row with its line."""
    if "\0" in text:
        raise InputError(
            f"{name}: is no text; give a CSV file with a header, or what HPCC FPGA has printed"
        )
    lines = text.split("\n")
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    delimiter = next((sign for sign in _DELIMITERS if sign in first), ",")
    header: list[str] = []
    rows: list[tuple[int, list[str]]] = []
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            if not any(cells) or cells[0].startswith("#"):
                continue
            if not header:
                header = [cell.lower() for cell in cells]
                _check_header(header, len(lines), name)
            elif len(cells) != len(header):
                cut = f"{plural(len(cells), 'cell')}, the header {len(header)}"
                raise InputError(f"{name}:{reader.line_num}: has {cut}")
            else:
                rows.append((reader.line_num, cells))
    except csv.Error as error:
        raise InputError(f"{name}:{reader.line_num}: is no CSV: {error}") from None
    return header, rows


def _check_header(header: Sequence[str], lines: int, name: str) -> None:
    if len(header) > _MOST_COLUMNS:
        raise InputError(
            f"{name}: has {len(header):,} columns, above {_MOST_COLUMNS:,}; give those that are"
            " read"
        )
    if len(header) * lines > _MOST_CELLS:
        raise InputError(
            f"{name}: has {plural(lines, 'line')} of {plural(len(header), 'column')}, above"
            f" {_MOST_CELLS:,} cells; give fewer rows, or those columns that are read"
        )
    twice = next((column for column in header if column and header.count(column) > 1), None)
    if twice is not None:
        raise InputError(f"{name}: the header has `{_short(twice)}` twice")


def _kind(header: Sequence[str], name: str) -> Kind:
    """Return what a file measures, by the columns of its header."""
    columns = set(header)
    for kind, (needed, one_of) in _HEADERS.items():
        if columns.issuperset(needed) and (not one_of or columns.intersection(one_of)):
            return kind
    for needed, one_of in _HEADERS.values():
        if one_of and columns.issuperset(needed):
            raise InputError(
                f"{name}: `{needed[0]}` needs a column with its unit beside it:"
                f" {' or '.join(one_of)}"
            )
    known = [column for needed, one_of in _HEADERS.values() for column in (*needed, *one_of)]
    hints = (did_you_mean(column, known) for column in header if column not in known)
    hint = next((hint for hint in hints if hint), "")
    raise InputError(
        f"{name}: the header ({_short(', '.join(header))}) is of no known kind; {hint}known:"
        f" {_KNOWN}"
    )


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]} ..."


def _run_of(cells: Mapping[str, str], name: str) -> str:
    """Return a row's run: what its columns `file` and `run` say, otherwise its file."""
    said = [cells[column] for column in ("file", "run") if cells.get(column)]
    return " ".join(said if "file" in cells else [name, *said])


def _chosen(table: Table, only: Mapping[str, str]) -> Table:
    """Return a table with those rows that are wanted; files without a column keep all theirs."""
    rows = table.rows
    for column, value in only.items():
        if rows and rows[0].has(column):
            values = list(dict.fromkeys(row.cells[column] for row in rows))
            rows = tuple(row for row in rows if row.cells[column] == value)
            if not rows:
                others = _short(", ".join(values))
                raise InputError(
                    f"{table.name}: no row has `{column}` = {value!r}; there are {others}"
                )
    return dataclasses.replace(table, rows=rows)


def of_board(tables: Sequence[Table], name: str) -> list[Table]:
    """Return tables whose rows are of one board: where there are several, those of `name`.

    Raises:
        InputError: none of several is called so.
    """
    boards = dict.fromkeys(
        row.cells["board"] for table in tables for row in table.rows if row.has("board")
    )
    if len(boards) < 2:
        return list(tables)
    chosen = next((board for board in boards if board.lower() == name.lower()), None)
    if chosen is None:
        raise InputError(
            f"rows are of several boards: choose one by `--only board=NAME`: {', '.join(boards)}"
        )
    return [_chosen(table, {"board": chosen}) for table in tables]
