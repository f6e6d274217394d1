"""Tables of numbers as text, CSV or TSV, or as Parquet: each row is a sample, some of the columns
are targets.

In text, a first row in which a cell is no number names the columns. An empty cell is no target;
inputs have none. Parquet with lists has a column of inputs and one of targets, by their names.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common import InputError, format_bytes, free_room, plural
from ..dataset import Dataset
from ..files import check_regular, other_data, shown
from ..reading import Reading
from .objects import TARGET_NAMES, of_columns
from .values import own_dataset

PARQUET = ".parquet"
_BYTES_OF_A_BYTE = 24
"""Memory that a byte of a file takes while it is read, as text and numbers."""
_BYTES_OF_A_CELL = 160
"""Memory that a cell of Parquet takes so."""


def load_table(path: Path, reading: Reading) -> Dataset:
    """Return the rows of a table as samples (values,), in 32 bits.

    Raises:
        InputError: it is no table of numbers, or has no such columns.
    """
    check_regular(path)
    where = shown(path)
    is_parquet = path.suffix.lower() == PARQUET
    if is_parquet:
        columns_of_file = _columns_of_parquet(path, where)
        if any(isinstance(value, list) for value in _firsts(columns_of_file)):
            if len(reading.target_columns) > 1:
                raise InputError(f"{where}: `target_columns`: beside lists, one column has targets")
            part = of_columns(columns_of_file, where, reading.target_columns)
            name = shown(path.stem)
            return own_dataset(name, part[:2], None, reading, where=where, note=part.note)
        names = [*columns_of_file]
        cells = ([_cell(value) for value in column] for column in columns_of_file.values())
        rows = [list(row) for row in zip(*cells, strict=True)]
    else:
        names, rows = _rows(path, where)
    targets = _target_places(where, names, reading.target_columns)
    inputs = [place for place in range(len(names)) if place not in targets]
    if not inputs:
        raise InputError(f"{where}: has no columns of inputs beside those of targets")
    values = np.empty((len(rows), len(inputs)), np.float32)
    for column, place in enumerate(inputs):
        values[:, column] = _numbers(where, names[place], [row[place] for row in rows])
    columns = [[row[place] for row in rows] for place in targets]
    own = _targets(where, [names[place] for place in targets], columns)
    note = f"{plural(len(inputs), 'input')}; target {', '.join(names[place] for place in targets)}"
    return own_dataset(shown(path.stem), (values, own), None, reading, where=where, note=note)


def _rows(path: Path, where: str) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and the cells of all rows."""
    _check_room(where, path.stat().st_size * _BYTES_OF_A_BYTE)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            start = file.readline()
            file.seek(0)
            delimiter = max("\t,;", key=start.count)
            rows = [[cell.strip() for cell in row] for row in csv.reader(file, delimiter=delimiter)]
    except (UnicodeDecodeError, csv.Error):
        raise other_data(path, "not a table as text, in UTF-8") from None
    rows = [row for row in rows if any(row)]
    if not rows:
        raise InputError(f"{where}: empty; a table has a row for each sample")
    names = [str(place + 1) for place in range(len(rows[0]))]
    if not all(_is_number(cell) for cell in rows[0]):
        names = [shown(cell) for cell in rows.pop(0)]
    _check_names(where, names)
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise InputError(
                f"{where}: row {number:,} has {plural(len(row), 'cell')}; should be {len(names)},"
                " one for each column"
            )
    return names, rows


def _columns_of_parquet(path: Path, where: str) -> dict[str, list[Any]]:
    """Return the values of all columns, by their names.

    Raises:
        InputError: pyarrow is not installed, or cannot read the file.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            f"{where}: Parquet needs pyarrow: pip install 'emuchain[parquet]'"
        ) from None
    try:
        file = parquet.ParquetFile(path)
        head = file.metadata
        _check_room(where, head.num_rows * head.num_columns * _BYTES_OF_A_CELL)
        table = file.read()
        columns = [column.to_pylist() for column in table.columns]
    except (OSError, ValueError, NotImplementedError) as error:
        reason = shown(" ".join(str(error).split())[:100])
        raise InputError(f"{where}: not a readable Parquet file: {reason}") from None
    names = [shown(name) for name in table.column_names]
    _check_names(where, names)
    if not names or not columns[0]:
        raise InputError(f"{where}: empty; a table has a row for each sample")
    made = dict(zip(names, columns, strict=True))
    for name, value in zip(names, _firsts(made), strict=True):
        if isinstance(value, dict | bytes):
            raise InputError(
                f"{where}: column {name!r} holds records or bytes, such as pictures; read it in"
                " Python: emuchain.train(data=datasets.Dataset.from_parquet(FILE))"
            )
    return made


def _firsts(columns: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Return the first value of each column, None where it has none."""
    return [next((value for value in own if value is not None), None) for own in columns.values()]


def _cell(value: Any) -> str:
    """Return a value as text: nothing for none, 0 or 1 for yes or no."""
    return "" if value is None else str(int(value) if isinstance(value, bool) else value).strip()


def _check_room(where: str, size_bytes: int) -> None:
    room = free_room()
    if size_bytes > room.free_bytes:
        raise InputError(
            f"{where}: would take about {format_bytes(size_bytes)} of memory, and"
            f" {room.limit} {format_bytes(room.free_bytes)}; write it as arrays, with numpy.savez"
        )


def _check_names(where: str, names: Sequence[str]) -> None:
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where}: two columns are called {twice!r}; give each its own name")


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _target_places(where: str, names: Sequence[str], given: Sequence[str]) -> list[int]:
    """Return the columns that are targets: those given, or the one with a known name, or the last.

    Raises:
        InputError: there is no such column.
    """
    for name in given:
        if name not in names:
            known = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
            raise InputError(f"{where}: `target_columns`: no column {name!r}; columns: {known}")
    if given:
        return [names.index(name) for name in dict.fromkeys(given)]
    lower = [name.lower() for name in names]
    named = next((name for name in TARGET_NAMES if name in lower), lower[-1])
    return [lower.index(named)]


def _numbers(where: str, name: str, cells: Sequence[str]) -> NDArray[np.float64]:
    """Return a column of inputs.

    Raises:
        InputError: a cell is empty, or no number.
    """
    values = np.empty(len(cells))
    for number, cell in enumerate(cells):
        if not cell or not _is_number(cell):
            what = f"{shown(cell)!r}, which is no number" if cell else "nothing"
            raise InputError(
                f"{where}: row {number + 1:,}, column {name!r} holds {what}; give numbers, such as"
                " a column of 0 and 1 for each word, or leave the column out"
            )
        values[number] = float(cell)
    return values


def _targets(
    where: str, names: Sequence[str], columns: Sequence[Sequence[str]]
) -> NDArray[np.int64] | NDArray[np.float64] | NDArray[np.str_]:
    """Return one column as classes, names or numbers, several as numbers."""
    [cells, *others] = columns
    if not others:
        if any(cell and not _is_number(cell) for cell in cells):
            if not all(cells):
                raise InputError(
                    f"{where}: row {cells.index('') + 1:,} has no {names[0]}, a class by its name;"
                    " leave the row out, or number the classes, with -1 for none"
                )
            return np.array(cells)
        if all(cell.lstrip("+-").isdecimal() for cell in cells):
            return np.array([int(cell) for cell in cells], np.int64)
    for name, column in zip(names, columns, strict=True):
        if not all(map(_is_number, column)):
            word = next(cell for cell in column if not _is_number(cell))
            raise InputError(
                f"{where}: column {name!r} holds {shown(word)!r}; several targets are numbers"
            )
    own = np.array([[float(cell or "nan") for cell in column] for column in columns])
    return own[0] if len(own) == 1 else own.T
