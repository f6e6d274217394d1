"""What a calibration ends with: constants with their ranges, how well the model fits, and what is
left open.

Two ranges, of 90 % each, follow from a mixed model of the measurements (`mixed.py`): that of a
constant, as a further run of the same set-up has it, and that of the next measurement, which holds
the scatter of a single row and how far the form is from the truth, too (`check.py`).

Such a file ends with tables `[[next_measurement]]`: of what, such as a message, which value is
expected at each size, and between which ends 90 % of further measurements lie. Measurements that
were not fitted are compared with it, and with a null model: of messages the straight line of the
constants, of memory what the board's data sheet says, of products a multiplier a DSP.

    low ---- value ------ high        a row lies within, or outside
     64 .... 90 bytes ..... 128       between two sizes, ratios to the null model are interpolated
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..cluster import RangeClass
from ..common import plural, toml_value
from .mixed import GROUP, RUN, Floats, MixedModel, Mixture, Rows
from .reading import Row, Table, digest

ONE_RUN = (
    "one run: nothing is known of the scatter between runs; ranges are those of boards that were"
    f" measured often, {100 * RUN.likely:g} %"
)
"""What is reported to the user of data of one run."""

_MOST_LEFT_OUT = 30
"""Runs that are left out: with more, fits take time and the mean error hardly changes."""

_LOW, _HIGH = 0.05, 0.95

_GROUP_COLUMNS = ("system", "bitstream", "communication", "kernel_replications")
"""Columns of which other values are another set-up."""


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


def ranges_of(mixture: Mixture, values: Floats | float, runs: int) -> list[Range]:
    """Return the ranges that hold 90 % of values, as distributed about those of a form."""
    ends = (np.exp(mixture.quantile(share)) * values for share in (_LOW, _HIGH))
    return [Range(float(low), float(high), runs) for low, high in zip(*ends, strict=True)]


def expected(mixture: Mixture, values: Floats | float) -> Floats:
    """Return the values that further ones are as often above as below."""
    middle: Floats = np.exp(mixture.quantile(0.5)) * values
    return middle


Setup = tuple[tuple[str, str], ...]
"""The columns by which set-ups differ, with the values of one."""


def setups_of(rows: Sequence[Row], by: Sequence[str] = _GROUP_COLUMNS) -> list[Setup]:
    """Return the set-up of each row, by those columns that all rows have."""
    columns = [column for column in by if all(row.has(column) for row in rows)]
    return [tuple((column, row.cells[column]) for column in columns) for row in rows]


def next_by_setup(
    mixed: MixedModel, setups: Sequence[Setup], rows: Callable[[int], Rows]
) -> Iterator[tuple[Setup, Mixture]]:
    """Yield how further measurements are distributed in each set-up, and in any other; `rows` says
    where they stand in the set-up of a number, -1 of another one.
    """
    for number, setup in enumerate(setups):
        yield setup, mixed.next_rows(rows(number))
    if setups[0]:
        other = mixed.next_rows(rows(-1))
        yield (), other if len(setups) > 1 else other.widened(GROUP)


LeftOutRow = tuple[float, float, Range]
"""The relative error of a row that is predicted by other runs, its value, and their range."""


def left_out_rows(
    mixed: MixedModel, run: int, rows: Rows, formed: Floats, values: Floats
) -> Iterator[LeftOutRow]:
    """Yield rows of the run of a number as all others predict them, with what the form says of
    each and its value; but for rows of what only this run has measured.
    """
    places = np.flatnonzero(mixed.determines(rows, run))
    if not len(places):
        return
    formed = formed[places]
    mixture = mixed.next_rows(rows.at(places).further(), run)
    ends = ranges_of(mixture, formed, 1)
    for value, middle, end in zip(values[places], expected(mixture, formed), ends, strict=True):
        yield abs(float(middle / value) - 1), float(value), end


def left_out_runs(runs: Sequence[str]) -> list[str]:
    """Return which runs are left out one by one, to see how well the others predict them: of many,
    some.
    """
    return [*runs[:: math.ceil(len(runs) / _MOST_LEFT_OUT)]]


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
    def of(cls, rows: Sequence[LeftOutRow], runs: int) -> LeftOut | None:
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


MESSAGE = "message"


@dataclasses.dataclass(frozen=True)
class NextMeasurement:
    """What is expected at some sizes, in bytes; of what has none, at one.

    `what` is "message", in ns, a function of memory, in GB/s, or "products", in 10^9 MACs/s.
    `where` has the columns by which this set-up differs from others of the file. `null` is the null
    model's. `start_ns` is taken once for each loop of messages, and is in none of the values.
    """

    what: str
    where: Mapping[str, str]
    sizes: Floats
    values: Floats
    lows: Floats
    highs: Floats
    null: Floats
    start_ns: float = 0.0

    @classmethod
    def single(
        cls,
        what: str,
        where: Mapping[str, str],
        value: float,
        ends: tuple[float, float],
        null: float | None,
    ) -> NextMeasurement:
        """Return what is expected of what has no size; without a null model, that is its own."""
        low, high = (np.array([end]) for end in ends)
        listed = np.array([value if null is None else null])
        return cls(what, where, np.ones(1), np.array([value]), low, high, listed)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> NextMeasurement:
        """Return what a table of a file says, which is valid."""
        names = ("sizes", "values", "lows", "highs", "null")
        sizes, values, lows, highs, null = (np.array(table[name], np.float64) for name in names)
        where, start_ns = table.get("where", {}), table.get("start_ns", 0.0)
        return cls(table["what"], where, sizes, values, lows, highs, null, start_ns)

    def at(self, size: float, loop: float = math.inf) -> Outlook:
        """Return what is expected at a size; a kernel that sends `loop` messages starts once."""
        start = self.start_ns / loop
        place = math.log(size)
        null = self._null(size)
        ratios = (
            math.exp(np.interp(place, np.log(self.sizes), np.log(values / self.null)))
            for values in (self.values, self.lows, self.highs)
        )
        value, low, high = (null * ratio for ratio in ratios)
        added = (value + start) / value
        return Outlook(value * added, low * added, high * added, null + start)

    def _null(self, size: float) -> float:
        """Return the null model's value: a line between two sizes, and on beyond them."""
        if len(self.sizes) == 1:
            return float(self.null[0])
        after = int(np.clip(np.searchsorted(self.sizes, size), 1, len(self.sizes) - 1))
        (x, y), (x2, y2) = ((self.sizes[place], self.null[place]) for place in (after - 1, after))
        return float(max(y + (y2 - y) * (size - x) / (x2 - x), 1e-9))

    def toml(self) -> list[str]:
        """Return the lines of its table."""
        lines = ["", "[[next_measurement]]", f"what = {toml_value(self.what)}"]
        lines += [f"where = {toml_value(dict(self.where))}"] if self.where else []
        lines += [f"start_ns = {self.start_ns:.6g}"] if self.start_ns else []
        for key, values in self._columns.items():
            lines.append(f"{key} = [{', '.join(f'{value:.6g}' for value in values.tolist())}]")
        return lines

    @property
    def _columns(self) -> dict[str, Floats]:
        return {
            "sizes": self.sizes,
            "values": self.values,
            "lows": self.lows,
            "highs": self.highs,
            "null": self.null,
        }


@dataclasses.dataclass(frozen=True)
class Outlook:
    """What a measurement is expected to be, between which ends with 90 %, and by the null model."""

    value: float
    low: float
    high: float
    null: float
