"""`emuchain calibrate check`: measurements that were not fitted, beside what a file of constants
expects of them.

Each row is compared with the table `[[next_measurement]]` of what it measures, in the set-up that
its columns name, or with that of any other set-up. The share of rows within their ranges should be
90 %, which is what the ranges say of themselves.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..cluster import load_cluster
from ..common import Figures, InputError, read_toml, shown, typed
from .board import cluster_of, memory_rates, product_rates
from .collective import KINDS, CollectiveModel, CollectiveTime, collective_times
from .constants import MESSAGE, NextMeasurement, Outlook
from .link import messages_of
from .reading import Kind, Path, Row, Table, listed_files, read_tables


@dataclasses.dataclass(frozen=True)
class Coverage(Figures):
    """How measurements compare with what was expected of them: errors in percent, the share of rows
    that ranges hold, how wide these are to either side, and the null model's errors.
    """

    _figures = (
        "rows mean_percent worst_percent worst_row in_range half_width_percent null_percent"
        " median_percent null_median_percent null_worst_percent"
    )

    rows: int
    mean_percent: float
    worst_percent: float
    worst_row: str
    in_range: float
    half_width_percent: float
    null_percent: float
    median_percent: float
    null_median_percent: float
    null_worst_percent: float


class _Measured(NamedTuple):
    """A row, what it measures, the value, and the size and the loop of messages."""

    row: Row
    what: str
    value: float
    size: float = 1.0
    loop: float = math.inf


@typed
def calibrate_check(
    constants: Path,
    files: Path | Sequence[Path],
    *,
    only: Mapping[str, str] | None = None,
    b_eff_version: str | None = None,
) -> Coverage:
    """Return how measurements compare with what a file of constants expects of them.

    Args:
        constants: a file that `emuchain calibrate` has written.
        files: measurements that were not fitted, as `calibrate_link` and `calibrate_board` take
            them.
        only: of the rows, take those with these values in their columns.
        b_eff_version: of the b_eff that measured `transfer_s`, where files do not say it.

    Raises:
        InputError: a file cannot be read or used, or expects nothing of what a row measures.
    """
    expected = _Expected.of(pathlib.Path(constants))
    tables = read_tables(listed_files(files), only)
    errors: list[tuple[float, Row]] = []
    widths, null_errors, inside = [], [], 0
    for row, value, outlook in expected.beside(tables, b_eff_version):
        errors.append((outlook.value / value - 1, row))
        widths.append(math.sqrt(outlook.high / outlook.low) - 1)
        null_errors.append(abs(outlook.null / value - 1))
        inside += outlook.low <= value <= outlook.high
    if not errors:
        raise InputError(f"{tables[0].name}: has no row of which constants expect anything")
    worst, row = max(errors, key=lambda error: abs(error[0]))
    count = len(errors)
    return Coverage(
        count,
        100 * math.fsum(abs(error) for error, _ in errors) / count,
        100 * abs(worst),
        str(row),
        inside / count,
        100 * math.fsum(widths) / count,
        100 * math.fsum(null_errors) / count,
        100 * statistics.median(abs(error) for error, _ in errors),
        100 * statistics.median(null_errors),
        100 * max(null_errors),
    )


@dataclasses.dataclass(frozen=True)
class _Expected:
    """What a file of a cluster or of a board expects."""

    name: str
    measurements: Sequence[NextMeasurement]
    collectives: Sequence[CollectiveModel]

    @classmethod
    def of(cls, path: pathlib.Path) -> _Expected:
        """Read a file; loading checks all its keys."""
        keys = read_toml(path)
        load_cluster(keys if "boards" in keys else cluster_of(keys, "board"))
        measurements = [*map(NextMeasurement.of, keys.get("next_measurement", ()))]
        models = [*map(CollectiveModel.of, keys.get("collectives", ()))]
        if not measurements and not models:
            raise InputError(
                f"{shown(path)}: has no `[[next_measurement]]` and no `[[collectives]]`, which"
                " `emuchain calibrate link`, `board` and `collective` write"
            )
        return cls(str(path), measurements, models)

    def beside(
        self, tables: Sequence[Table], b_eff_version: str | None
    ) -> Iterator[tuple[Row, float, Outlook]]:
        """Yield rows, the value of each, and what is expected of it."""
        of_collectives = [table for table in tables if table.kind in KINDS]
        for time in collective_times(of_collectives):
            yield time.row, time.us, self._model(time).expects(time)
        others = [table for table in tables if table.kind not in KINDS]
        for measured in _rows(others, b_eff_version):
            table = _table_of(self.measurements, measured, self.name)
            yield measured.row, measured.value, table.at(measured.size, measured.loop)

    def _model(self, time: CollectiveTime) -> CollectiveModel:
        """Return the model of the system of a row, whose protocol it knows."""
        model = next((model for model in self.collectives if time.row.is_of(model.where)), None)
        if model is None:
            raise InputError(
                f"{time.row}: {self.name} expects nothing of collectives of its system"
            )
        if time.protocol not in model.protocols:
            known = ", ".join(model.protocols)
            raise InputError(
                f"{time.row}: {self.name} expects nothing of protocol {time.protocol!r}, but of"
                f" {known}"
            )
        return model


def _rows(tables: Sequence[Table], b_eff_version: str | None) -> Iterator[_Measured]:
    """Yield what tables have measured."""
    for table in tables:
        if table.kind is Kind.LINK:
            messages = messages_of([table], 0, b_eff_version)
            columns = (messages.rows, messages.times, messages.sizes, messages.loops)
            for row, time, size, loop in zip(*columns, strict=True):
                yield _Measured(row, MESSAGE, float(time) * 1e9, float(size), float(loop))
        elif table.kind in (Kind.MEMORY, Kind.PRODUCTS):
            for rate in (*memory_rates([table]), *product_rates([table])):
                yield _Measured(rate.row, rate.what, rate.value)
        else:
            raise InputError(
                f"{table.name}: measures {table.kind.value}; messages, memory and products are"
                " compared"
            )


def _table_of(
    expected: Sequence[NextMeasurement], measured: _Measured, name: str
) -> NextMeasurement:
    """Return what is expected in the set-up of a row, or in any other one."""
    alike = [table for table in expected if table.what == measured.what]
    if not alike:
        known = ", ".join(dict.fromkeys(table.what for table in expected))
        raise InputError(
            f"{measured.row}: {measured.what}: {name} expects nothing of it, but of {known}"
        )
    return next((table for table in alike if measured.row.is_of(table.where)), alike[-1])
