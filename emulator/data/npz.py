"""NumPy's archives, without pickles, and with sizes that are checked before memory is taken."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..common import ZIP_HEAD, InputError, format_bytes, free_room
from .arrays import CLASSES, ArrayFile, check_type, load_arrays
from .dataset import Dataset
from .files import check_regular, other_data, shown
from .reading import Reading

_LOCAL_HEADER = 30  # bytes before a member's name
_DEFLATE_MOST = 1032  # bytes that one compressed byte can stand for
_PIECE = 1 << 22
_MOST_NAMES_BYTES = 1 << 28  # of the names of classes


@dataclass(frozen=True)
class StoredImages:
    """The images of an array that lies in a file as it is, in C order; each is read when it is asked for."""

    path: str
    offset: int
    shape: tuple[int, ...]

    def __getitem__(self, number: int) -> NDArray[np.uint8]:
        size = math.prod(self.shape[1:])
        try:
            with open(self.path, "rb", buffering=0) as file:
                data = os.pread(file.fileno(), size, self.offset + number * size)
        except OSError as error:
            raise InputError(f"{shown(self.path)}: cannot be read ({error.strerror or error})") from None
        if len(data) != size:
            raise InputError(f"{shown(self.path)}: has been cut off since the start")
        return np.frombuffer(data, np.uint8).reshape(self.shape[1:])


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    size: int  # of the header, in bytes

    @property
    def data_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def load_npz(path: Path, reading: Reading) -> Dataset:
    """Return the images of an archive as `numpy.savez` or `savez_compressed` writes it.

    Uncompressed images stay in the file; compressed ones are held in memory.

    Raises:
        InputError: the archive is damaged, holds objects, or `load_arrays` refuses its content.
    """
    check_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return load_arrays(_Archive(path, archive).file(), reading)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        if not _is_archive(path):
            raise other_data(path, "not an archive of NumPy") from None
        reason = shown(" ".join(str(error).split())[:100])
        raise InputError(f"{shown(path)}: not a whole archive of NumPy ({reason}); save it again") from None


def _is_archive(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(ZIP_HEAD)) == ZIP_HEAD


class _Archive:
    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = path, archive
        self._notes: list[str] = []

    def file(self) -> ArrayFile:
        """Return what `load_arrays` asks for."""
        if len(self._archive.NameToInfo) < len(self._archive.infolist()):
            raise zipfile.BadZipFile("two of its arrays have one name")
        names = {shown(name.removesuffix(".npy")) for name in self._archive.namelist() if name.endswith(".npy")}
        where, name = shown(self._path), shown(self._path.stem)
        return ArrayFile(where, name, names, self._images, self._array, self._classes, self._notes)

    def _images(self, name: str) -> Any:
        info, header = self._checked(name)
        if info.compress_type == zipfile.ZIP_STORED and not header.fortran:
            self._check_sum(info)
            return StoredImages(str(self._path.resolve()), self._begin(info) + header.size, header.shape)
        self._notes.append(f"`{name}` takes {format_bytes(header.data_bytes)} of memory")
        return self._read(info, header, name)

    def _check_sum(self, info: zipfile.ZipInfo) -> None:
        """Read a member once, to compare its checksum: of the pieces that are read later there is none."""
        with self._archive.open(info) as stream:
            while stream.read(_PIECE):
                pass

    def _array(self, name: str) -> NDArray[Any]:
        return self._read(*self._checked(name), name)

    def _classes(self) -> list[str]:
        info, header = self._checked(CLASSES)
        if header.data_bytes > _MOST_NAMES_BYTES or len(header.shape) != 1:
            said = f"shape {header.shape} and {format_bytes(header.data_bytes)}"
            raise InputError(f"{shown(self._path)}: `{CLASSES}` has {said}; should be a list of names")
        return [
            shown(name.decode("utf-8", "replace") if isinstance(name, bytes) else name)
            for name in self._read(info, header, CLASSES).tolist()
        ]

    def _checked(self, name: str) -> tuple[zipfile.ZipInfo, _Header]:
        """Return where a member is and its header, checked against the size of the member and of the file."""
        info, where = self._archive.getinfo(f"{name}.npy"), shown(self._path)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{where}: `{name}` is compressed in a way that NumPy does not use; save it again")
        with self._archive.open(info) as stream:
            header = _header(stream)
        check_type(where, name, header.dtype)
        said, there = header.size + header.data_bytes, self._path.stat().st_size
        most = info.compress_size * _DEFLATE_MOST if info.compress_type == zipfile.ZIP_DEFLATED else info.compress_size
        if said != info.file_size or info.compress_size > there or said > most:
            raise InputError(
                f"{where}: `{name}` of shape {header.shape} would take {format_bytes(said)}, but the archive, of"
                f" {format_bytes(there)}, holds {format_bytes(min(info.file_size, most, there * _DEFLATE_MOST))} of it;"
                " it is damaged"
            )
        return info, header

    def _begin(self, info: zipfile.ZipInfo) -> int:
        """Return the place of a member's first byte in the file."""
        with self._path.open("rb") as file:
            file.seek(info.header_offset)
            local = file.read(_LOCAL_HEADER)
        if len(local) < _LOCAL_HEADER or local[:4] != b"PK\x03\x04":
            raise zipfile.BadZipFile("a member is not where the directory says")
        begin = info.header_offset + _LOCAL_HEADER + sum(int.from_bytes(local[i : i + 2], "little") for i in (26, 28))
        if begin + info.file_size > self._path.stat().st_size:
            raise zipfile.BadZipFile("a member extends beyond the end of the file")
        return begin

    def _read(self, info: zipfile.ZipInfo, header: _Header, name: str) -> NDArray[Any]:
        """Read an array into memory, if there is enough."""
        room = free_room()
        if header.data_bytes > room.free_bytes:
            raise InputError(
                f"{shown(self._path)}: `{name}` would take {format_bytes(header.data_bytes)} of memory, and"
                f" {room.limit} {format_bytes(room.free_bytes)}; save it with numpy.savez, and it is read in pieces"
            )
        data = np.empty(header.data_bytes, np.uint8)
        with self._archive.open(info) as stream:
            stream.read(header.size)
            done, view = 0, data.data
            while done < len(data) and (count := stream.readinto(view[done:])):  # type: ignore[attr-defined]
                done += count
            if done < len(data) or stream.read(1):
                raise zipfile.BadZipFile(f"`{name}` is cut off")
        return data.view(header.dtype).reshape(header.shape, order="F" if header.fortran else "C")


def _header(stream: IO[bytes]) -> _Header:
    """Return the header of an array; it is parsed as a literal, and nothing in it is run."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(stream)
        shape, fortran, dtype = readers[version](stream)
    except zipfile.BadZipFile:
        raise
    except Exception as error:  # NumPy's parser can fail in any way
        raise ValueError(f"no header of an array: {' '.join(str(error).split())}") from None
    if any(size < 0 for size in shape):
        raise ValueError(f"a shape of {shape}")
    return _Header(shape, fortran, dtype, stream.tell())
