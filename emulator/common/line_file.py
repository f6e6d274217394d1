"""Files that grow while a run goes on, each by one writer: what is added is on its way to the disk at once."""

from __future__ import annotations

import os
from typing import BinaryIO

from .escaped import encoded
from .whole_file import WholeFile


class LineFile(WholeFile):
    """A file that this process alone writes until `close`: `begin` it, then `add` to its end.

    It is begun as a new file, which takes the place of what was there: other links to that keep it. What was added
    stays when the run is killed, or the disk is full. All else is as for `WholeFile`.
    """

    _file: BinaryIO | None = None

    def begin(self, text: str) -> None:
        """Put a new file with this text in place of what is there.

        Raises:
            InputError: it cannot be written; what was there stays.
        """
        is_new = not os.path.exists(self.path)
        with self.building() as file:
            if not is_new:
                file.write(encoded(text))
                file.flush()
            self._file = os.fdopen(os.dup(file.fileno()), "wb", buffering=0)
        if is_new:
            self.add(text)

    def add(self, text: str) -> None:
        """Add text at the end.

        Raises:
            InputError: it cannot be written; what there was room for stays.
        """
        assert self._file is not None
        with self._telling("give another path, or free some space", OSError):
            left = memoryview(encoded(text))
            while left:
                left = left[self._file.write(left) :]

    def close(self) -> None:
        """See `WholeFile`.

        Raises:
            InputError: what was added has no room, which some file systems tell only now.
        """
        try:
            if self._file is not None:
                with self._telling("give another path, or free some space", OSError):
                    self._file.close()
        finally:
            super().close()
