"""The rows of a sweep as a table for 80 columns, and which of them to show where there are many."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .findings import limiting_kind, rate_text
from .result import SweepResult
from .series import Series

_FEWEST = 4


def table_of(result: SweepResult, rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the heads of the columns, and the cells of rows."""
    keys = [key for key in result.space.varied if key != "devices"]
    columns: dict[str, Callable[[dict[str, Any]], str]] = {"boards": lambda row: str(row["boards"])}
    columns |= {key.replace(".", ".\n"): functools.partial(_key_cell, key=key) for key in keys}
    columns[f"{result.noun}s/s"] = lambda row: rate_text(row["images_per_s"])
    columns["eff. %"] = lambda row: "-" if row["efficiency"] is None else f"{100 * row['efficiency']:.1f}"
    if any(row["images_per_j"] is not None for row in rows):
        columns[f"{result.noun}s/J"] = lambda row: "-" if row["images_per_j"] is None else f"{row['images_per_j']:.3g}"
    if any(row["off_chip_mib"] for row in rows):
        columns["off chip\nMiB"] = lambda row: f"{row['off_chip_mib']:.1f}" if row["off_chip_mib"] else "-"
    if any(row["fits"] is False for row in rows):
        columns["missing\nMiB"] = lambda row: "-" if row["fits"] else f"{row['missing_mib']:.1f}"
    columns["limited by"] = _limit_cell
    return [*columns], [_cells(row, columns, len(keys)) for row in rows]


def _key_cell(row: dict[str, Any], key: str) -> str:
    return str(row[key])


def _limit_cell(row: dict[str, Any]) -> str:
    slowest = re.sub(r"\[\d+:\d+\]( [IO]CP)?| \(.*\)", "", row["bottleneck"])
    kind = limiting_kind(row)
    return slowest if kind == row["bottleneck_kind"] else f"{kind}: {slowest}"


def _cells(row: dict[str, Any], columns: Mapping[str, Callable[[dict[str, Any]], str]], keys: int) -> list[str]:
    """Return the cells of a row; of one that fails, the keys and the reason."""
    if row["error"] is None:
        return [cell(row) for cell in columns.values()]
    _, *others = columns.values()
    return [
        str(row["devices"]),
        *(cell(row) for cell in others[:keys]),
        *["-"] * (len(others) - keys - 1),
        row["error"],
    ]


def chosen_rows(result: SweepResult, most: int) -> list[dict[str, Any]]:
    """Return all rows, or, where there are more than `most`, some of each series, or else the best of each series."""
    if len(result.rows) <= most:
        return result.rows
    if not result.series:
        return result.rows[:most]
    each = most // len(result.series)
    if each < _FEWEST:
        best = [max(series.rows, key=lambda row: row["images_per_s"]) for series in result.series]
        return sorted(best, key=lambda row: -row["images_per_s"])[:most]
    return [row for series in result.series for row in _some(series, each)]


def _some(series: Series, most: int) -> list[dict[str, Any]]:
    """Return the first, the last, the fastest and the knee of a series, and others evenly spread."""
    rows = series.rows
    fastest = max(range(len(rows)), key=lambda place: rows[place]["images_per_s"])
    places = {0, len(rows) - 1, fastest} | ({rows.index(series.knee)} if series.knee else set())
    free = most - len(places)
    places |= {round((number + 1) * (len(rows) - 1) / (free + 1)) for number in range(free)}
    return [rows[place] for place in sorted(places)]
