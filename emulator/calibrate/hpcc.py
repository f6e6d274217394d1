"""What the benchmarks of HPCC FPGA print (M. Meyer et al., https://github.com/pc2/HPCC_FPGA), as columns and rows.

Each ends with a table under a header of its own: b_eff, STREAM, GEMM. A few lines before say how many FPGAs took part
and the size of matrices.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..common import InputError

Lines = list[tuple[int, list[str]]]

_RANKS = re.compile(r"^MPI Ranks\s+(\d+)\s*$", re.MULTILINE)
_MATRIX = re.compile(r"^Matrix Size\s+(\d+)\s*$", re.MULTILINE)
_NUMBER = r"(\S+)"


def _messages(cells: list[str], text: str) -> list[str]:
    return cells[:3]


def _function(cells: list[str], text: str) -> list[str]:
    return [cells[0].lower().replace(" ", "-"), cells[1], _ranks(text)]


def _product(cells: list[str], text: str) -> list[str]:
    matrix = _MATRIX.search(text)
    return [matrix[1] if matrix else "", cells[0], _ranks(text)]


def _ranks(text: str) -> str:
    ranks = _RANKS.search(text)
    return ranks[1] if ranks else "1"


_TABLES: tuple[tuple[str, str, list[str], Callable[[list[str], str], list[str]]], ...] = (
    (
        r"MSize\s+looplength\s+transfer\s+B/s",
        rf"{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}",
        ["message_bytes", "loop_length", "transfer_s"],
        _messages,
    ),
    (
        r"Function\s+Best Rate MB/s.*",
        rf"([A-Za-z]+(?: [a-z]+)?)\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}",
        ["function", "best_mbytes_per_s", "fpgas"],
        _function,
    ),
    (
        r"best\s+mean\s+GFLOPS",
        rf"{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}",
        ["matrix_size", "best_s", "fpgas"],
        _product,
    ),
)
"""By benchmark: the header, a row, the columns, and what makes a row's cells of them."""


def hpcc_table(text: str, name: str) -> tuple[list[str], Lines] | None:
    """Return the columns and rows of what a benchmark has printed, each row with its line; None if it is none of them.

    Raises:
        InputError: the benchmark says that its results are wrong, or stops before them.
    """
    lines = text.split("\n")
    for header, row, columns, cells_of in _TABLES:
        places = [place for place, line in enumerate(lines) if re.fullmatch(header, line.strip())]
        if not places:
            continue
        if re.search(r"^Validation: FAIL", text, re.MULTILINE):
            raise InputError(f"{name}: says `Validation: FAILED`; measure again")
        rows: Lines = []
        for number, line in enumerate(lines[places[-1] + 1 :], places[-1] + 2):
            match = re.fullmatch(row, line.strip())
            if match is None:
                break
            rows.append((number, cells_of(list(match.groups()), text)))
        return columns, rows
    return None
