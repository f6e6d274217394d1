"""The CSV file of a sweep, which keeps the points that are finished.

While a sweep runs, rows are added as points finish; at the end all are put in order. Each row has
the identity of its point in the column `point`, and a checksum of the row. A file with other
points, or with a row that has changed, is left alone.
"""

from __future__ import annotations

import csv
import io
import pathlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from ...common import NAMES, InputError, LineFile, as_cell, encoded, of_cell, plural, shown

INTERNAL = "internal error"
"""How the reason of a point begins that failed by a bug, and so is computed again when a sweep goes
on.
"""

_POINT = "point"
_REMEDY = "`restart` starts it over, or name another file"


class Journal:
    """The finished points of a sweep in a CSV file; `done` holds the figures of those that are
    there, by identity.

    Args:
        path: the file, which need not exist.
        keys: columns of keys and figures.
        points: identities of the sweep's points.
        kind: the dataclass of a point's figures.
        restart: whether to begin anew, whatever the file holds.

    Raises:
        InputError: the file cannot be read or written, or is that of another sweep, or one that
            runs.
    """

    def __init__(
        self,
        path: pathlib.Path,
        keys: Sequence[str],
        points: Sequence[str],
        kind: type[Any],
        *,
        restart: bool = False,
    ) -> None:
        self._path, self._file = path, LineFile(path, "csv", "sweep.csv")
        self._columns, self._kind = [*keys, _POINT], kind
        self.done: dict[str, Any] = {}
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

    # The file, of which a last line without an end is one that was being written when the sweep was
    # ended:
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
            raise InputError(f"{self._setting}: cannot be read: {error.strerror}") from None
        head = ",".join(self._columns) + "\n"
        if not text.startswith(head) and not head.startswith(text):
            raise InputError(
                f"{self._setting}: belongs to another sweep, with other columns; {_REMEDY}"
            )
        # The file may end amid a row, or amid the head, where the sweep was ended while it wrote.
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
                    f"{self._setting}: {others} of its {plural(len(rows), 'point')} are not of this"
                    " sweep, or are of another version of emuchain or other content of the files;"
                    f" {_REMEDY}"
                )
            self.done = {
                row[_POINT]: _measured(row, self._kind)
                for row in rows
                if not row["error"].startswith(INTERNAL)
            }
        except (ValueError, csv.Error):
            raise InputError(
                f"{self._setting}: is damaged, or was changed by hand; {_REMEDY}"
            ) from None

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
    def _setting(self) -> str:
        return f"`csv` = {shown(self._path)}"


def _truth(text: str) -> bool:
    return {"True": True, "False": False}[text]


_READERS: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": _truth, "str": str}


def _measured(row: dict[str, str], kind: type[Any]) -> Any:
    """Return the figures of a row.

    Raises:
        ValueError: a cell is not of its column's type.
    """
    figures = {}
    for name, hint in kind.__annotations__.items():
        if name not in row:
            continue
        try:
            figures[name] = _READERS[hint.split(" ")[0]](of_cell(row[name])) if row[name] else None
        except KeyError:
            raise ValueError(row[name]) from None
    return kind(**figures)
