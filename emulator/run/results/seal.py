"""The seal of a results file: one digest of all that it holds, which shows a reader that none of it has changed.

HDF5 has a checksum of each chunk, which says nothing of attributes, of what is not in chunks, or of two chunks or data
sets that have changed places. The digest is of names, types, shapes and contents together.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class _Content(NamedTuple):
    """What is known of an array: its type, its shape so far, and the checksum of its bytes."""

    dtype: str
    shape: tuple[int, ...]
    checksum: int = 0


class Seal:
    """Takes arrays by their paths in a file, whole or rows after rows, in any order of the paths."""

    def __init__(self) -> None:
        self._contents: dict[str, _Content] = {}

    def add(self, path: str, values: NDArray[Any]) -> None:
        """Add an array, or the next rows of one."""
        plain = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        before = self._contents.get(path)
        checksum = zlib.crc32(plain.data, 0 if before is None else before.checksum)
        rows = values.shape if before is None else (before.shape[0] + len(values), *values.shape[1:])
        self._contents[path] = _Content(values.dtype.str, rows, checksum)

    def digest(self) -> str:
        """Return the digest of all that was added."""
        contents = [(path, *content) for path, content in sorted(self._contents.items())]
        return hashlib.sha256(ascii(contents).encode("ascii")).hexdigest()
