"""Measured rows: of files that come with emuchain, and of others, whose source has no licence, in
the folder that `EMUCHAIN_WITNESSES` names. Some are fitted by `emuchain calibrate`, and others
compared with what it expects of them.
"""

from __future__ import annotations

import csv
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...emulator.calibrate import (
    BoardCalibration,
    CollectiveCalibration,
    Coverage,
    LinkCalibration,
    calibrate_check,
)
from ...emulator.common import scratch_folder
from ..claim import Measured, NoEvidence

Row = Mapping[str, Any]
"""Cells by their columns."""

Calibrate = Callable[..., BoardCalibration | CollectiveCalibration | LinkCalibration]

WITNESSES = "EMUCHAIN_WITNESSES"
"""The variable that names a folder of measurements which are not part of emuchain."""

_SOURCES = {
    "accl_rdma.csv": "zhenhaohe/accl_benchmark 08bf0973, no licence",
    "accl_tcp.csv": "zhenhaohe/accl_benchmark 08bf0973, no licence",
}


def bundled(name: str) -> list[Row]:
    """Return the rows of a file that comes with emuchain."""
    return _read(pathlib.Path(__file__).parent / name)


def witnesses(name: str) -> list[Row]:
    """Return the rows of a file in the folder of measurements that are not part of emuchain.

    Raises:
        NoEvidence: there is no such file.
    """
    path = pathlib.Path(os.environ.get(WITNESSES) or os.devnull) / name
    if not path.is_file():
        source = f", of {_SOURCES[name]}" if name in _SOURCES else ""
        raise NoEvidence(f"not part of emuchain: set {WITNESSES} to a folder with {name}{source}")
    return _read(path)


def _read(path: pathlib.Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(line for line in file if not line.startswith("#"))]


def constants_of(fitted: Sequence[Row], calibrate: Calibrate, **options: Any) -> str:
    """Return the file of constants, as TOML, that `emuchain calibrate` makes of rows.

    Raises:
        InputError: nothing follows from them.
    """
    with scratch_folder() as folder:
        return calibrate(written(fitted, folder), **options).toml


def compared(constants: str, further: Sequence[Row]) -> Coverage:
    """Return how rows compare with what a file of constants, as TOML, expects of them.

    Raises:
        InputError: it expects nothing of what they measure.
    """
    with scratch_folder() as folder:
        path = folder / "constants.toml"
        path.write_text(constants, encoding="utf-8")
        return calibrate_check(path, written(further, folder))


def mean_percent(coverage: Coverage, guess: str) -> Measured:
    """Return the mean error of rows in percent, with the largest, the share of them that ranges of
    90 % hold, and what a guess has.
    """
    held = f"{coverage.rows} rows, worst {coverage.worst_percent:.1f} %; ranges hold"
    return Measured(coverage.mean_percent, f"{held} {100 * coverage.in_range:.0f} %; {guess}")


def written(
    rows: Sequence[Row], folder: str | pathlib.Path, name: str = "rows.csv"
) -> pathlib.Path:
    """Return the path of a file with rows, in a folder."""
    path = pathlib.Path(folder, name)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return path


def chosen(rows: Iterable[Row], **wanted: str) -> list[Row]:
    """Return the rows that have one of the words, which spaces separate, in each named column; a
    column without words takes any row.
    """
    words_of = {column: words.split() for column, words in wanted.items() if words}

    def is_wanted(row: Row) -> bool:
        return all(row[column] in words for column, words in words_of.items())

    return [row for row in rows if is_wanted(row)]
