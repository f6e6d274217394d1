"""Records that a run adds at the end and reads again in pieces: in a file without a name, so memory does not grow."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...common import scratch_error

_KEPT_BYTES = 1 << 16
"""In memory; a spool that holds no more has no file."""
_PIECE_BYTES = 1 << 18


class Spool:
    """Records of one type in the order in which they were added. The file ends with the process, and has no name."""

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._kept = np.empty(max(1, _KEPT_BYTES // self.dtype.itemsize), self.dtype)
        self._filed = self._held = 0
        self._file: Any = None

    def __len__(self) -> int:
        """Return the number of records."""
        return self._filed + self._held

    @property
    def nbytes(self) -> int:
        """Size of all records."""
        return len(self) * self.dtype.itemsize

    def add(self, values: NDArray[Any]) -> None:
        """Add records at the end.

        Raises:
            InputError: there is no room for temporary files.
        """
        if self._held + len(values) > len(self._kept):
            self._write(self._kept[: self._held])
            self._held = 0
        if len(values) > len(self._kept):
            self._write(np.ascontiguousarray(values, self.dtype))
        else:
            self._kept[self._held : self._held + len(values)] = values
            self._held += len(values)

    def read(self, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """Return a copy of the records `first` to `last` - 1, by default all."""
        first, last, _ = slice(first, last).indices(len(self))
        values = np.empty(max(0, last - first), self.dtype)
        filed = max(0, min(last, self._filed) - first)
        if filed:
            self._fill(values[:filed], first)
        values[filed:] = self._kept[max(0, first - self._filed) : max(0, last - self._filed)]
        return values

    def pieces(self) -> Iterator[NDArray[Any]]:
        """Yield all records in order, some at a time."""
        size = max(1, _PIECE_BYTES // self.dtype.itemsize)
        for first in range(0, len(self), size):
            yield self.read(first, first + size)

    def cut(self, count: int) -> None:
        """Keep the first `count` records."""
        self._held = max(0, count - self._filed)
        self._filed = min(count, self._filed)

    def _write(self, values: NDArray[Any]) -> None:
        if not len(values):
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - as long as the spool
            self._file.seek(self._filed * self.dtype.itemsize)
            left = values.view(np.uint8).data.cast("B")
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise scratch_error(error) from None
        self._filed += len(values)

    def _fill(self, values: NDArray[Any], first: int) -> None:
        """Read records from the file."""
        left, place = values.view(np.uint8).data.cast("B"), first * self.dtype.itemsize
        while left:
            count = os.preadv(self._file.fileno(), [left], place)
            left, place = left[count:], place + count
