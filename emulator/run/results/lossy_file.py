"""A file that tells a failed write afterwards, since HDF5 crashes where a disk is full."""

from __future__ import annotations

import io
import os
from typing import Any, BinaryIO


class LossyFile(io.RawIOBase):
    """A file that takes all that is written, and loses what comes after the first failure."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file, self._place, self._end = file.fileno(), 0, 0
        self._failure: OSError | None = None

    def check(self) -> None:
        """Raise the first failure.

        Raises:
            OSError: a write has failed.
        """
        if self._failure is not None:
            raise self._failure

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        self._place = (
            offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._end}[whence]
        )
        return self._place

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._place

    def readinto(self, into: Any) -> int:
        """See `io.RawIOBase`; what is lost is 0."""
        left, count = memoryview(into).cast("B"), os.preadv(self._file, [into], self._place)
        left[count:] = bytes(len(left) - count)
        self._place += len(left)
        return len(left)

    def write(self, content: Any) -> int:
        """See `io.RawIOBase`."""
        left = memoryview(content).cast("B")
        self._end = max(self._end, self._place + len(left))
        try:
            while left and self._failure is None:
                count = os.pwrite(self._file, left, self._place)
                left, self._place = left[count:], self._place + count
        except OSError as failure:
            self._failure = failure
        self._place += len(left)
        return memoryview(content).nbytes

    def truncate(self, size: int | None = None) -> int:
        """See `io.RawIOBase`."""
        self._end = self._place if size is None else size
        try:
            os.ftruncate(self._file, self._end)
        except OSError as failure:
            self._failure = self._failure or failure
        return self._end
