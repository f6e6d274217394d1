"""What a calibration ends with: constants with their ranges, how well the model fits, and what is left open."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence
from typing import Any

from ..common import plural
from .intervals import Range
from .reading import Table, digest


@dataclasses.dataclass(frozen=True)
class Constant:
    """A constant by its key, as in `--what-if`, with the range that holds 90 % of further runs."""

    key: str
    value: float
    range: Range
    unit: str

    @property
    def digits(self) -> int:
        """Digits behind the point that its unit is kept to: Mb/s, MB/s, ps."""
        return 3 if self.unit else 4

    def rounded(self) -> Constant:
        """Return the constant as a file has it; the range still holds the value."""
        value = round(self.value, self.digits)
        low, high = (round(bound, self.digits) for bound in self.range[:2])
        return dataclasses.replace(self, value=value, range=Range(min(low, value), max(high, value), self.range.runs))


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """How well runs are predicted by all others: errors of rows, the share of rows that ranges hold, their width.

    Of many runs only some are left out: `runs`.
    """

    mean: float
    largest: float
    held: float
    half_width: float
    runs: int

    @classmethod
    def of(cls, errors: Sequence[float], held: Sequence[bool], half_widths: Sequence[float], runs: int) -> LeftOut:
        """Return the summary of rows, each with its error, whether the others' range holds it, and that one's width."""
        rows = len(errors)
        return cls(math.fsum(errors) / rows, max(errors), sum(held) / rows, math.fsum(half_widths) / rows, runs)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Where constants come from: files, rows, runs, and the SHA-256 of the files one after the other."""

    files: tuple[str, ...]
    rows: int
    runs: int
    sha256: str
    date: datetime.date

    @classmethod
    def of(cls, tables: Sequence[Table], rows: int, runs: int) -> Evidence:
        """Return the evidence that tables give today."""
        names = tuple(table.name for table in tables)
        return cls(names, rows, runs, digest(tables), datetime.date.today())

    def __str__(self) -> str:
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        name = self.files[0].rpartition("/")[2]
        return f"{name}{more}: {plural(self.rows, 'row')}, {plural(self.runs, 'run')}, sha256 {self.sha256}"


@dataclasses.dataclass(frozen=True)
class Fitness:
    """How well a model fits: the root mean square of its errors, the worst row, and the error over runs left out."""

    rms: float
    worst: str
    worst_error: float
    left_out: LeftOut | None


def as_json(constants: Sequence[Constant], evidence: Evidence, fitness: Fitness | None) -> dict[str, Any]:
    """Return what a calibration found, for JSON."""
    said: dict[str, Any] = {
        "constants": {
            constant.key: {
                "value": constant.value,
                "low": constant.range.low,
                "high": constant.range.high,
                "runs": constant.range.runs,
                "class": "measured",
                "from": str(evidence),
                "date": evidence.date.isoformat(),
            }
            for constant in constants
        },
        "files": list(evidence.files),
        "rows": evidence.rows,
        "runs": evidence.runs,
    }
    if fitness is not None:
        said["rms"] = fitness.rms
        said["worst_row"] = {"row": fitness.worst, "error": fitness.worst_error}
        said["leave_one_run_out"] = None if fitness.left_out is None else dataclasses.asdict(fitness.left_out)
    return said
