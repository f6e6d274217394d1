"""Messages over Aurora between U280 boards (pc2/Aurora-HLS): those of five nodes up to 1 MiB are
fitted, all of the other nodes, up to 256 MiB, predicted.
"""

from __future__ import annotations

from ...emulator.calibrate import Coverage, calibrate_link
from ..claim import Measured
from ..constants import kept
from .rows import Row, bundled, compared, constants_of, mean_percent

FITTED_NODES = 5
"""Of eight."""

LARGEST_FITTED = 1 << 20
"""Bytes."""


def _is_fitted_size(row: Row) -> bool:
    return int(row["message_bytes"]) <= LARGEST_FITTED


def aurora_parts() -> dict[str, list[Row]]:
    """Return the rows that are fitted, those of the other nodes, and of these the larger ones."""
    rows = bundled("aurora_u280.csv")
    nodes = sorted({row["run"] for row in rows})
    others = [row for row in rows if row["run"] in nodes[FITTED_NODES:]]
    fitted = [row for row in rows if row["run"] in nodes[:FITTED_NODES] and _is_fitted_size(row)]
    beyond = [row for row in others if not _is_fitted_size(row)]
    return {"fitted": fitted, "other nodes": others, "larger messages": beyond}


@kept
def _constants() -> str:
    return constants_of(aurora_parts()["fitted"], calibrate_link, type="u280")


@kept
def _aurora(part: str) -> Coverage:
    """Return how a part of the rows compares with what the fitted ones say."""
    return compared(_constants(), aurora_parts()[part])


def aurora_percent(part: str) -> Measured:
    """Return the mean error of a part of the rows, in percent, beside that of a line."""
    coverage = _aurora(part)
    return mean_percent(coverage, f"a line {coverage.null_percent:.1f} %")


def aurora_worst_percent(part: str) -> Measured:
    """Return the largest error of a part of the rows, in percent, beside that of a line."""
    coverage = _aurora(part)
    return Measured(coverage.worst_percent, f"a line {coverage.null_worst_percent:.1f} %")
