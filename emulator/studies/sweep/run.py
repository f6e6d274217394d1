"""All points of a sweep, in parallel; finished ones are kept in a CSV file, and a sweep resumes from there.

While it runs, rows are added as points finish; at the end all are put in order. Each row has the identity of its point
in the column `point`, and a checksum of the row. A file with other points, or with a row that has changed, is left
alone.
"""

from __future__ import annotations

import csv
import io
import pathlib
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from ....launch import Ranks, SingleProcess, WorkerLost, in_parallel, usable_cores
from ...cluster import Gpu
from ...common import NAMES, InputError, LineFile, as_cell, encoded, of_cell, plural, shown
from ...number import precision_of
from ...plan import in_precision
from ...view import multiplier_texts
from .measure import INTERNAL, Measured, figures, identities, measure, row_of
from .result import SweepResult, find_target
from .space import Point, Space, points_of

Announce = Callable[[int, int], AbstractContextManager[Callable[[], None]]]
"""From the number of points, and of those that are there already, to what is called after each further one."""

_POINT = "point"
_REMEDY = "`restart` starts it over, or name another file"


class Interrupted(KeyboardInterrupt):
    """A sweep was interrupted after `done` of `total` points."""

    def __init__(self, done: int, total: int) -> None:
        super().__init__(done, total)
        self.done, self.total = done, total


def run_space(
    space: Space,
    epoch_images: int,
    *,
    ranks: Ranks | None = None,
    jobs: int | None = None,
    csv: pathlib.Path | None = None,
    restart: bool = False,
    announce: Announce = lambda *_: nullcontext(lambda: None),
    blame: str = "command line",
    ranged: bool = True,
    target: float | None = None,
) -> SweepResult:
    """Compute all points of a sweep.

    Args:
        space: its keys and their values.
        epoch_images: images of an epoch, for its hours.
        ranks: where there are several, the others compute the points.
        jobs: number of processes otherwise; by default one for each core.
        csv: a file for the rows; points that it holds are not computed again.
        restart: whether to compute all points anew.
        announce: what reports progress.
        blame: beginning of messages about a value.
        ranged: whether to draw the ranges of rates, and how sure choices are.
        target: a rate in samples per second, for which the point with the fewest boards is told.

    Raises:
        InputError: a value is invalid, the file is that of another sweep or cannot be written, or a process died.
        Interrupted: by Ctrl-C; finished points are in the file.
    """
    points = points_of(space, blame)
    known = identities(points, epoch_images) if csv is not None else [""] * len(points)
    journal = None if csv is None else Journal(csv, [*space.values, *figures(ranged)], known, restart=restart)
    measurements: list[Measured | None] = [None] * len(points)
    if journal is not None:
        measurements = [journal.done.get(point) for point in known]
    missing = [place for place, measured in enumerate(measurements) if measured is None]
    tasks = [(points[place], epoch_images, ranged) for place in missing]
    try:
        with announce(len(points), len(points) - len(missing)) as advance:
            for number, measured in in_parallel(ranks or SingleProcess(), jobs or usable_cores(), measure, tasks):
                place = missing[number]
                measurements[place] = measured
                if journal is not None:
                    journal.add(row_of(points[place], measured, ranged), known[place])
                advance()
        rows = [
            row_of(point, measured, ranged)
            for point, measured in zip(points, measurements, strict=True)
            if measured is not None
        ]
        if journal is not None:
            journal.finish(rows, known)
    except KeyboardInterrupt:
        raise Interrupted(sum(measured is not None for measured in measurements), len(measurements)) from None
    except WorkerLost as error:
        raise InputError(str(error)) from None
    finally:
        if journal is not None:
            journal.close()
    nouns = {point.network.sample_noun for point in points}
    noun = nouns.pop() if len(nouns) == 1 else "sample"
    roofs = [row.pop("roofs", None) for row in rows]
    reached = None if target is None else find_target(target, points, rows)
    return SweepResult(space, rows, noun, roofs if ranged else None, _multiplier_texts(points), reached)


def _multiplier_texts(points: Sequence[Point]) -> tuple[str, ...]:
    """Return what all boards of chains multiply with, a line for each kind."""
    texts: dict[str, None] = {}
    known = set()
    for point in points:
        given, cluster = point.settings.get("precision", "fp32"), point.cluster
        if cluster is None or (id(cluster), repr(given)) in known:
            continue
        known.add((id(cluster), repr(given)))
        if any(isinstance(board, Gpu) for board in cluster.boards):
            continue
        with suppress(InputError, ValueError):  # points that fail say why
            texts |= dict.fromkeys(multiplier_texts(in_precision(cluster, precision_of(given)).boards))
    return tuple(texts)


class Journal:
    """The finished points of a sweep in a CSV file; `done` holds the figures of those that are there, by identity.

    Args:
        path: the file, which need not exist.
        keys: columns of keys and figures.
        points: identities of the sweep's points.
        restart: whether to begin anew, whatever the file holds.

    Raises:
        InputError: the file cannot be read or written, or is that of another sweep, or one that runs.
    """

    def __init__(
        self, path: pathlib.Path, keys: Sequence[str], points: Sequence[str], *, restart: bool = False
    ) -> None:
        self._path, self._file = path, LineFile(path, "csv", "sweep.csv")
        self._columns = [*keys, _POINT]
        self.done: dict[str, Measured] = {}
        try:
            self._begin(points, restart)
        except BaseException:
            self._file.close()
            raise

    def _begin(self, points: Sequence[str], restart: bool) -> None:
        """Take the finished points that are there, and get ready to add others."""
        kept = "" if restart else self._whole_lines()
        if kept:
            self._take(kept, set(points))
        self._file.begin(kept or self._text([self._columns]))

    def add(self, row: dict[str, Any], point: str) -> None:
        """Add a finished point."""
        self._file.add(self._text([self._cells(row, point)]))

    def finish(self, rows: Sequence[dict[str, Any]], points: Sequence[str]) -> None:
        """Put all rows in order; the file is replaced at once."""
        cells = (self._cells(row, point) for row, point in zip(rows, points, strict=True))
        self._file.write(encoded(self._text([self._columns, *cells])))

    def close(self) -> None:
        """Close the file, and let others write it."""
        self._file.close()

    def _text(self, rows: Sequence[Sequence[Any]]) -> str:
        """Return rows as lines of the file."""
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(map(as_cell, row) for row in rows)
        return text.getvalue()

    # The file, of which a last line without an end is one that was being written when the sweep was ended:
    #   network,cluster,devices,boards,images_per_s,...,point
    #   quick-cifar,vc709,4,4,1234.5,...,IDENTITY-CHECKSUM      as points finish; at the end in their order
    def _cells(self, row: dict[str, Any], point: str) -> list[Any]:
        cells = ["" if row[column] is None else row[column] for column in self._columns[:-1]]
        return [*cells, f"{point}-{self._checksum([*cells, point])}"]

    def _checksum(self, cells: Sequence[Any]) -> str:
        return f"{zlib.crc32(self._text([cells]).encode()):08x}"

    def _whole_lines(self) -> str:
        """Return the file's content without a last line that was not finished."""
        try:
            with self._path.open(encoding="utf-8", errors=NAMES, newline="") as file:
                text = file.read()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise InputError(f"{self._told}: cannot be read: {error.strerror}") from None
        head = ",".join(self._columns) + "\n"
        if not text.startswith(head) and not head.startswith(text):
            raise InputError(f"{self._told}: belongs to another sweep, with other columns; {_REMEDY}")
        return text[: text.rfind("\n") + 1]

    def _take(self, text: str, points: set[str]) -> None:
        """Keep the figures of the rows that are there.

        Raises:
            InputError: a row has changed, or is of another sweep.
        """
        try:
            _, *lines = filter(None, csv.reader(io.StringIO(text)))
            rows = [self._row(cells) for cells in lines]
            others = sum(row[_POINT] not in points for row in rows)
            if others:
                raise InputError(
                    f"{self._told}: {others} of its {plural(len(rows), 'point')} are not of this sweep, or are of"
                    f" another version of emuchain or other content of the files; {_REMEDY}"
                )
            self.done = {row[_POINT]: _measured(row) for row in rows if not row["error"].startswith(INTERNAL)}
        except (ValueError, csv.Error):
            raise InputError(f"{self._told}: is damaged, or was changed by hand; {_REMEDY}") from None

    def _row(self, cells: Sequence[str]) -> dict[str, str]:
        """Return a line's cells by column, and in the last the point alone.

        Raises:
            ValueError: the line has other columns, or is not what its checksum is of.
        """
        point, dash, checksum = cells[-1].partition("-")
        if dash and checksum != self._checksum([*cells[:-1], point]):  # earlier versions wrote none
            raise ValueError(cells[-1])
        return dict(zip(self._columns, [*cells[:-1], point], strict=True))

    @property
    def _told(self) -> str:
        return f"`csv` = {shown(self._path)}"


def _truth(text: str) -> bool:
    return {"True": True, "False": False}[text]


_READERS: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": _truth, "str": str}


def _measured(row: dict[str, str]) -> Measured:
    """Return the figures of a row.

    Raises:
        ValueError: a cell is not of its column's type.
    """
    figures = {}
    for name, hint in Measured.__annotations__.items():
        if name not in row:
            continue
        try:
            figures[name] = _READERS[hint.split(" ")[0]](of_cell(row[name])) if row[name] else None
        except KeyError:
            raise ValueError(row[name]) from None
    return Measured(**figures)
