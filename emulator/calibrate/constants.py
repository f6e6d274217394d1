"""What a calibration ends with: constants with their ranges, how well the model fits, and what is
left open.

Ranges come from the scatter between runs: 90 % of further runs lie within. A run's own residuals
say little of how the next run differs: ranges made of them hold 17 to 48 % of other runs. So each
run gives its own value, and of R of them follows exp(mean ± t · max(tau, 0.5 %) · sqrt(1 + 1/R)),
mean and tau of the logarithms, with Student's t at 0.95 for R - 1 degrees of freedom. With one run
only the floor of 0.5 % is known, and t is the normal distribution's.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..cluster import RangeClass
from ..common import plural
from .reading import Table, digest

FLOOR = 0.005
"""Least relative standard deviation between runs: what a file cannot show, such as the day or the
room.
"""

ONE_RUN = (
    "one run: nothing is known of the scatter between runs; ranges are those of the floor of"
    f" {100 * FLOOR:g} %"
)
"""What is reported to the user of data of one run."""

_MOST_LEFT_OUT = 30
"""Runs that are left out: with more, fits take time and the mean error hardly changes."""

_LEVEL = 0.95
_NORMAL = 1.6448536269514722


class Range(NamedTuple):
    """A range that holds 90 % of further runs, and the number of runs from which it follows."""

    low: float
    high: float
    runs: int

    @property
    def half_width(self) -> float:
        """Half of the width, as a share of the middle."""
        # The middle is the geometric one, sqrt(low * high), as ranges are of logarithms.
        return math.sqrt(self.high / self.low) - 1

    def times(self, factor: float) -> Range:
        """Return the range in another unit."""
        return Range(self.low * factor, self.high * factor, self.runs)

    def around(self, value: float) -> Range:
        """Return the range, widened where a value lies outside."""
        return Range(min(self.low, value), max(self.high, value), self.runs)


def range_of(values: Sequence[float]) -> Range:
    """Return the range of a constant, of which each run gives a value above zero."""
    runs = len(values)
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / runs
    tau = math.sqrt(math.fsum((log - mean) ** 2 for log in logs) / (runs - 1)) if runs > 1 else 0.0
    half = student(runs - 1) * max(tau, FLOOR) * math.sqrt(1 + 1 / runs)
    return Range(math.exp(mean - half), math.exp(mean + half), runs)


def left_out_runs(runs: Sequence[str]) -> list[str]:
    """Return which runs are left out one by one, to see how well the others predict them: of many,
    some.
    """
    return [*runs[:: math.ceil(len(runs) / _MOST_LEFT_OUT)]]


@functools.cache
def student(freedom: int) -> float:
    """Return the 0.95 quantile of Student's t; of the normal distribution without any degree of
    freedom.
    """
    if freedom == 0:
        return _NORMAL
    # t lies between the normal distribution's quantile and 6.314, that of one degree of freedom.
    low, high = _NORMAL, 7.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom) < _LEVEL else (low, middle)
    return (low + high) / 2


def _below(t: float, freedom: int) -> float:
    """Return the probability of values below `t`: a finite sum for whole degrees of freedom."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    term = total = 1.0 if freedom % 2 == 0 else cosine
    for k in range(freedom % 2 + 2, freedom, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    if freedom % 2 == 0:
        return 0.5 + math.sin(angle) * total / 2
    return 0.5 + (angle + (math.sin(angle) * total if freedom > 1 else 0)) / math.pi


@dataclasses.dataclass(frozen=True)
class Constant:
    """A constant by its key, as in `--what-if`, with the range that holds 90 % of further runs."""

    key: str
    value: float
    range: Range
    unit: str
    kind: RangeClass = "measured"

    @property
    def digits(self) -> int:
        """Digits behind the point that its unit is kept to: Mb/s, MB/s, ps."""
        return 3 if self.unit else 4

    def rounded(self) -> Constant:
        """Return the constant as a file has it; the range still holds the value."""
        value = round(self.value, self.digits)
        low, high = (round(bound, self.digits) for bound in self.range[:2])
        return dataclasses.replace(
            self, value=value, range=Range(min(low, value), max(high, value), self.range.runs)
        )


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """How well runs are predicted by all others: errors of rows, the share of rows that ranges
    hold, their width.

    Of many runs only some are left out: `runs`.
    """

    mean: float
    largest: float
    held: float
    half_width: float
    runs: int

    @classmethod
    def of(cls, rows: Sequence[tuple[float, float, Range]], runs: int) -> LeftOut | None:
        """Return the summary of rows, each with its error, its value, and the others' range; None
        without any.
        """
        if not rows:
            return None
        errors, count = [error for error, _, _ in rows], len(rows)
        held = sum(of_others.low <= value <= of_others.high for _, value, of_others in rows)
        widths = math.fsum(of_others.half_width for _, _, of_others in rows)
        return cls(math.fsum(errors) / count, max(errors), held / count, widths / count, runs)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Where constants come from: files, rows, runs, and the SHA-256 of the files one after the
    other.
    """

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
        return (
            f"{name}{more}: {plural(self.rows, 'row')}, {plural(self.runs, 'run')}, sha256"
            f" {self.sha256}"
        )


@dataclasses.dataclass(frozen=True)
class Fitness:
    """How well a model fits: the root mean square of its errors, the worst row, and the error over
    runs left out.
    """

    rms: float
    worst: str
    worst_error: float
    left_out: LeftOut | None


def as_json(
    constants: Sequence[Constant], evidence: Evidence, fitness: Fitness | None
) -> dict[str, Any]:
    """Return what a calibration found, for JSON."""
    said: dict[str, Any] = {
        "constants": {
            constant.key: {
                "value": constant.value,
                "low": constant.range.low,
                "high": constant.range.high,
                "runs": constant.range.runs,
                "class": constant.kind,
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
        said["leave_one_run_out"] = (
            None if fitness.left_out is None else dataclasses.asdict(fitness.left_out)
        )
    return said
