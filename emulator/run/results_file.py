"""Results files: HDF5, written whole through a file that tells a failed write afterwards, since HDF5 crashes there."""

from __future__ import annotations

import functools
import io
import os
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..common import HDF5_HEAD, InputError, Note, WholeFile, confined, encoded, open_file, other_kind
from .results import Results
from .results_form import FORMAT, TABLES, UNSEALED_FORMAT, Seal, as_array, damaged, read_arrays, results_from
from .tables import Growing


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
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._end}[whence]
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


_NOTHING_GROWS = Growing({}, ())
_HDF5 = ("v110", "v110")
"""HDF5's formats: with checksums of objects, and without a tree for what is one chunk."""

_CHUNK_BYTES, _CACHE_BYTES, _WHOLE_CHUNK_BYTES = 1 << 16, 1 << 18, 1 << 20
"""Sizes of chunks of columns that grow, of what is kept of them in memory, and of chunks of what is written at once."""

_DENIAL = "not a results file of emuchain"
_MOST_PACKED, _SECONDS, _BYTES_PER_SECOND = 16, 10, 20_000_000
"""The most bytes of content for each byte of a file, and the time that reading may take."""


def write_results(path: pathlib.Path, results: Results) -> None:
    """Write a results file, or replace one.

    Raises:
        InputError: the file cannot be written.
    """
    with WholeFile(path) as whole, whole.building() as file:
        fill_results(file, results)


def fill_results(into: BinaryIO, results: Results, growing: Growing = _NOTHING_GROWS) -> None:
    """Fill a file with results, and with columns of theirs that come in pieces.

    Raises:
        OSError: it cannot be written.
    """
    told = LossyFile(into)
    try:
        _fill(told, results, growing)
    finally:
        told.check()  # whatever HDF5 says then


def _fill(told: LossyFile, results: Results, growing: Growing) -> None:
    import h5py

    with h5py.File(told, "w", libver=_HDF5, rdcc_nbytes=_CACHE_BYTES) as file:
        into = _Sealed(file)
        into.attributes("config", results.config)
        into.attributes("versions", results.versions)
        for name, text in results.descriptions.items():
            into.whole(f"descriptions/{name}", np.array(text.encode()))
        for group in TABLES:
            table = getattr(results, group)
            file.create_group(group)
            for name, column in table.items():
                # Strings have a fixed length: HDF5 may hang on a damaged heap of variable-length ones.
                values = np.char.encode(column, "utf-8") if column.dtype.kind == "U" else column
                into.rows(f"{group}/{name}", values, len(values))
        for piece in growing.pieces:
            for group, table in piece.items():
                for name, values in table.items():
                    into.rows(f"{group}/{name}", values, growing.rows[group])
            told.check()
        file.create_group("weights")
        for layer, arrays in results.weights.items():
            for name, array in arrays.items():
                into.whole(f"weights/{layer}/{name}", array)
        file.attrs["format"], file.attrs["digest"] = FORMAT, np.bytes_(into.seal.digest())


class _Sealed:
    """Adds attributes and data sets to a file, and to its seal."""

    def __init__(self, file: Any) -> None:
        self.seal, self._file = Seal(), file
        self._columns: dict[str, tuple[Any, int]] = {}

    def attributes(self, path: str, values: Mapping[str, Any]) -> None:
        """Make a group with these attributes."""
        import h5py

        group = self._file.create_group(path)
        for name, value in values.items():
            plain = "" if value is None else np.array(value, np.int64) if isinstance(value, tuple) else value
            group.attrs[name] = np.array(encoded(plain), h5py.string_dtype()) if isinstance(plain, str) else plain
            self.seal.add(f"{path}/@{name}", as_array(plain))

    def whole(self, path: str, values: NDArray[Any]) -> None:
        """Add a data set."""
        chunks = None
        if values.ndim and values.size:
            count = -(-values.nbytes // _WHOLE_CHUNK_BYTES)
            chunks = (-(-len(values) // min(count, len(values))), *values.shape[1:])
        self._file.create_dataset(path, data=values, chunks=chunks, fletcher32=chunks is not None)
        self.seal.add(path, values)

    def rows(self, path: str, values: NDArray[Any], rows: int) -> None:
        """Add the next rows of a data set that will have `rows`."""
        data, first = self._columns.get(path) or (self._data_set(path, values, rows), 0)
        data[first : first + len(values)] = values
        self._columns[path] = data, first + len(values)
        self.seal.add(path, values)

    def _data_set(self, path: str, values: NDArray[Any], rows: int) -> Any:
        """Return a new data set of `rows` rows like those of `values`; what has columns is compressed, too."""
        shape = (rows, *values.shape[1:])
        if not np.prod(shape):
            return self._file.create_dataset(path, shape, values.dtype)
        chunk = max(1, min(rows, _CHUNK_BYTES // values[:1].nbytes)), *values.shape[1:]
        packed = {"compression": "gzip", "shuffle": True} if values.ndim > 1 else {}
        return self._file.create_dataset(path, shape, values.dtype, chunks=chunk, fletcher32=True, **packed)


def read_results(path: pathlib.Path, blame: str | None = None, denial: str = _DENIAL) -> Results:
    """Return the content of a results file, which may come from anywhere: it is read in a process with limits.

    `blame` begins messages, by default the path; `denial` is what another file is not. Warns by a `Note` of a file of
    an earlier version, whose damage is not always seen.

    Raises:
        InputError: no such file, not HDF5, damaged, or not a results file of emuchain.
    """
    blame = str(path) if blame is None else blame
    try:
        with open_file(path) as file:
            head, size = file.read(len(HDF5_HEAD)), os.fstat(file.fileno()).st_size
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{blame}: no such file; `emuchain train --out {path}` would write it") from None
    except (OSError, ValueError):
        head, size = b"", 0
    if head != HDF5_HEAD:
        raise other_kind(path, blame, denial)
    most = 2**26 + _MOST_PACKED * size
    seconds = _SECONDS + size // _BYTES_PER_SECOND
    read = functools.partial(read_arrays, path, blame, denial, most)
    arrays = confined(read, blame, most_bytes=2**28 + 3 * most, seconds=seconds)
    try:
        results = results_from(arrays)
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise damaged(" ".join(str(error).split()), blame) from None
    if arrays["@format"] == UNSEALED_FORMAT:
        said = "is of an earlier version of emuchain, without a digest: damage to it is not always seen"
        warnings.warn(f"{blame} {said}", Note, stacklevel=2)
    return results
