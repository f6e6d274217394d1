"""Images and labels as arrays of a file: the required form, the resulting data set, and the two
formats that hold them.

NumPy's archives are read without pickles, and with sizes that are checked before memory is taken.
An HDF5 file is not trusted, either: no links, no storage in other files, no foreign filters.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..common import ZIP_HEAD, InputError, format_bytes, free_room, plural
from . import own
from .dataset import Dataset
from .files import check_regular, other_data, shown
from .lazy import LazyImages
from .own import ArrayPictures, Samples
from .reading import Preparation, Reading, split

IMAGES, LABELS, TEST_IMAGES, TEST_LABELS, CLASSES = (
    "images",
    "labels",
    "test_images",
    "test_labels",
    "classes",
)
_MOST_NAMES_BYTES = 1 << 28  # of the names of classes


@dataclass(frozen=True, eq=False)
class ArrayFile:
    """What a file holds: names of arrays, and how to read images, labels and names of classes, all
    checked.
    """

    path: str
    name: str
    names: Collection[str]
    images: Callable[[str], Samples]
    labels: Callable[[str], NDArray[Any]]
    classes: Callable[[], list[str]]
    notes: list[str] = field(default_factory=list)


def load_arrays(file: ArrayFile, reading: Reading) -> Dataset:
    """Return the images of a file; they are read when they are needed.

    Raises:
        InputError: an array is missing, or has the wrong type or shape; a label is out of range.
    """
    if own.INPUTS in file.names:
        return _load_values(file, reading)
    has_test = TEST_IMAGES in file.names or TEST_LABELS in file.names
    needed = (IMAGES, LABELS, *((TEST_IMAGES, TEST_LABELS) if has_test else ()))
    missing = [name for name in needed if name not in file.names]
    if missing:
        names_there = ", ".join(sorted(file.names)[:8]) or "nothing"
        raise InputError(
            f"{file.path}: has no `{missing[0]}`, but {names_there}; `images` and `labels` are"
            " needed, or `inputs` and `targets`"
        )
    names = file.classes() if CLASSES in file.names else None
    pictures, labels = _part(file, IMAGES, LABELS, reading.channels)
    classes = _classes(file.path, labels, names)
    preparation = Preparation(reading.resize, reading.crop_size)
    size = preparation.size(pictures.sizes, file.path)
    if not has_test:
        train, test = split(labels, len(classes), reading.test_share, reading.split_seed, file.path)
        note = (
            f"{plural(len(test), 'image')}, a share of {reading.test_share:g} of each class,"
            f" {'is' if len(test) == 1 else 'are'} the test set"
        )
        images, test_images = (
            LazyImages(pictures, preparation, size, numbers) for numbers in (train, test)
        )
        notes = "; ".join([*file.notes, note])
        return Dataset(file.name, images, labels[train], test_images, labels[test], classes, notes)
    test_pictures, test_labels = _part(file, TEST_IMAGES, TEST_LABELS, reading.channels)
    _in_range(file.path, TEST_LABELS, test_labels, len(classes))
    test_size = preparation.size(test_pictures.sizes, file.path)
    if (test_size, test_pictures.channels) != (size, pictures.channels):
        shapes = (
            f"{part.channels}x{s[0]}x{s[1]}"
            for part, s in ((pictures, size), (test_pictures, test_size))
        )
        raise InputError(
            f"{file.path}: `images` are {next(shapes)} and `test_images` {next(shapes)}; should be"
            " the same"
        )
    images, test_images = (
        LazyImages(part, preparation, size, np.arange(len(part)))
        for part in (pictures, test_pictures)
    )
    return Dataset(
        file.name, images, labels, test_images, test_labels, classes, "; ".join(file.notes)
    )


def _load_values(file: ArrayFile, reading: Reading) -> Dataset:
    """Return the inputs of a file, with their targets."""
    parts: list[tuple[Any, NDArray[Any]] | None] = []
    for inputs, targets in ((own.INPUTS, own.TARGETS), (own.TEST_INPUTS, own.TEST_TARGETS)):
        there = [name for name in (inputs, targets) if name in file.names]
        if len(there) == 1 or (inputs == own.INPUTS and not there):
            missing = targets if there == [inputs] else inputs
            raise InputError(
                f"{file.path}: has `{there[0]}`, but no `{missing}`; give both, with one of each"
                " sample"
            )
        parts.append((file.images(inputs), file.labels(targets)) if there else None)
    [train, test] = parts
    assert train is not None
    names = tuple(file.classes()) if CLASSES in file.names else None
    return own.own_dataset(
        file.name, train, test, reading, classes=names, where=file.path, note="; ".join(file.notes)
    )


def check_type(where: str, name: str, dtype: np.dtype[Any]) -> None:
    """Check the type of an array by what its name says that it holds.

    Raises:
        InputError: another one is needed.
    """
    if dtype.hasobject or dtype.kind == "O":
        raise InputError(
            f"{where}: `{name}` holds pickled objects, which are refused; save it as numbers"
        )
    if name in (IMAGES, TEST_IMAGES) and dtype != np.uint8:
        raise InputError(f"{where}: `{name}` is of {dtype}; should be uint8, from 0 to 255")
    if name in (LABELS, TEST_LABELS) and dtype.kind not in "iu":
        raise InputError(
            f"{where}: `{name}` is of {dtype}; should be of whole numbers, such as int64"
        )
    if name in (own.INPUTS, own.TEST_INPUTS) and dtype.kind not in "fiub":
        raise InputError(f"{where}: `{name}` is of {dtype}; should be of numbers")
    if name in (own.TARGETS, own.TEST_TARGETS) and dtype.kind not in "fiubUS":
        raise InputError(f"{where}: `{name}` is of {dtype}; should be of numbers, or of names")
    if name == CLASSES and dtype.kind not in "US":
        raise InputError(
            f"{where}: `{name}` is of {dtype}; should be of names, as numpy.array(['cat', 'dog'])"
        )


def _part(
    file: ArrayFile, images: str, labels: str, channels: str | None
) -> tuple[ArrayPictures, NDArray[np.int64]]:
    pictures = ArrayPictures.of(file.images(images), images, file.path, channels)
    values = file.labels(labels)
    if values.shape not in ((len(pictures),), (len(pictures), 1)):
        raise InputError(
            f"{file.path}: `{labels}` has shape {values.shape}; should be ({len(pictures)},), one"
            " an image"
        )
    wide = values.reshape(-1)
    # As int64, such a label would be negative.
    if wide.dtype.kind == "u" and len(wide) and int(wide.max()) >= 1 << 63:
        raise InputError(f"{file.path}: `{labels}` has a label of {int(wide.max())}")
    return pictures, wide.astype(np.int64)


def _classes(where: str, labels: NDArray[np.int64], names: list[str] | None) -> tuple[str, ...]:
    """Return the names of the classes: those of the file, or the numbers up to the largest label,
    which all occur.
    """
    if names is not None:
        if not names:
            raise InputError(
                f"{where}: `{CLASSES}` is empty; should have a name for each class, or be left out"
            )
        _in_range(where, LABELS, labels, len(names))
        return tuple(names)
    most = len(np.unique(labels))
    _in_range(
        where, LABELS, labels, most, " without gaps, since there is no array `classes` of names"
    )
    return tuple(map(str, range(most)))


def _in_range(
    where: str, name: str, labels: NDArray[np.int64], classes: int, why: str = ""
) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise InputError(
            f"{where}: `{name}`: label {labels[wrong[0]]} found at place {wrong[0]}; should be 0 to"
            f" {classes - 1}{why}"
        )


# NumPy's archives

_LOCAL_HEADER = 30  # bytes before a member's name
_DEFLATE_MOST = 1032  # bytes that one compressed byte can stand for
_PIECE = 1 << 22


@dataclass(frozen=True)
class StoredImages:
    """The images of an array that lies in a file as it is, in C order; each is read when it is
    asked for.
    """

    path: str
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.stack([self[number] for number in range(self.shape[0])]).astype(
            dtype or self.dtype
        )

    def __getitem__(self, number: int) -> NDArray[Any]:
        size = math.prod(self.shape[1:]) * self.dtype.itemsize
        try:
            # Opened for each item, and read without a position: threads and forks share nothing.
            with open(self.path, "rb", buffering=0) as file:
                data = os.pread(file.fileno(), size, self.offset + number * size)
        except OSError as error:
            raise InputError(
                f"{shown(self.path)}: cannot be read ({error.strerror or error})"
            ) from None
        if len(data) != size:
            raise InputError(f"{shown(self.path)}: has been cut off since the start")
        return np.frombuffer(data, self.dtype).reshape(self.shape[1:])


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
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        ValueError,
    ) as error:
        if not _is_archive(path):
            raise other_data(path, "not an archive of NumPy") from None
        reason = shown(" ".join(str(error).split())[:100])
        raise InputError(
            f"{shown(path)}: not a whole archive of NumPy ({reason}); save it again"
        ) from None


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
        names = {
            shown(name.removesuffix(".npy"))
            for name in self._archive.namelist()
            if name.endswith(".npy")
        }
        where, name = shown(self._path), shown(self._path.stem)
        return ArrayFile(where, name, names, self._images, self._array, self._classes, self._notes)

    def _images(self, name: str) -> Any:
        info, header = self._checked(name)
        if info.compress_type == zipfile.ZIP_STORED and not header.fortran:
            self._check_sum(info)
            offset = self._begin(info) + header.size
            return StoredImages(str(self._path.resolve()), offset, header.shape, header.dtype)
        self._notes.append(f"`{name}` takes {format_bytes(header.data_bytes)} of memory")
        return self._read(info, header, name)

    def _check_sum(self, info: zipfile.ZipInfo) -> None:
        """Read a member once, to compare its checksum: of the pieces that are read later there is
        none.
        """
        with self._archive.open(info) as stream:
            while stream.read(_PIECE):
                pass

    def _array(self, name: str) -> NDArray[Any]:
        return self._read(*self._checked(name), name)

    def _classes(self) -> list[str]:
        info, header = self._checked(CLASSES)
        if header.data_bytes > _MOST_NAMES_BYTES or len(header.shape) != 1:
            said = f"shape {header.shape} and {format_bytes(header.data_bytes)}"
            raise InputError(
                f"{shown(self._path)}: `{CLASSES}` has {said}; should be a list of names"
            )
        return [
            shown(name.decode("utf-8", "replace") if isinstance(name, bytes) else name)
            for name in self._read(info, header, CLASSES).tolist()
        ]

    def _checked(self, name: str) -> tuple[zipfile.ZipInfo, _Header]:
        """Return where a member is and its header, checked against the size of the member and of
        the file.
        """
        info, where = self._archive.getinfo(f"{name}.npy"), shown(self._path)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(
                f"{where}: `{name}` is compressed in a way that NumPy does not use; save it again"
            )
        with self._archive.open(info) as stream:
            header = _header(stream)
        check_type(where, name, header.dtype)
        said, there = header.size + header.data_bytes, self._path.stat().st_size
        most = (
            info.compress_size * _DEFLATE_MOST
            if info.compress_type == zipfile.ZIP_DEFLATED
            else info.compress_size
        )
        if said != info.file_size or info.compress_size > there or said > most:
            raise InputError(
                f"{where}: `{name}` of shape {header.shape} would take {format_bytes(said)}, but"
                f" the archive, of {format_bytes(there)}, holds"
                f" {format_bytes(min(info.file_size, most, there * _DEFLATE_MOST))} of it; it is"
                " damaged"
            )
        return info, header

    def _begin(self, info: zipfile.ZipInfo) -> int:
        """Return the place of a member's first byte in the file."""
        with self._path.open("rb") as file:
            file.seek(info.header_offset)
            local = file.read(_LOCAL_HEADER)
        if len(local) < _LOCAL_HEADER or local[:4] != b"PK\x03\x04":
            raise zipfile.BadZipFile("a member is not where the directory says")
        begin = (
            info.header_offset
            + _LOCAL_HEADER
            # Lengths of the name and of the extra field, which may differ from the directory's.
            + sum(int.from_bytes(local[i : i + 2], "little") for i in (26, 28))
        )
        if begin + info.file_size > self._path.stat().st_size:
            raise zipfile.BadZipFile("a member extends beyond the end of the file")
        return begin

    def _read(self, info: zipfile.ZipInfo, header: _Header, name: str) -> NDArray[Any]:
        """Read an array into memory, if there is enough."""
        room = free_room()
        if header.data_bytes > room.free_bytes:
            raise InputError(
                f"{shown(self._path)}: `{name}` would take {format_bytes(header.data_bytes)} of"
                f" memory, and {room.limit} {format_bytes(room.free_bytes)}; save it with"
                " numpy.savez, and it is read in pieces"
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
    # Version 3 differs in names of fields, and arrays with fields are refused anyway.
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
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


# HDF5

_FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
_MOST_PACKED = 1032  # bytes that one compressed byte can stand for
_CHUNK_MOST = 1 << 28  # bytes of a chunk, which is read as a whole
_CACHE = 1 << 26  # bytes of chunks that are kept


@dataclass(eq=False)
class Hdf5Images:
    """The images of an array in an HDF5 file; each is read when it is asked for, by any thread or
    process.
    """

    path: str
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    _open: Any = field(default=None, repr=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.stack([self[number] for number in range(self.shape[0])]).astype(
            dtype or self.dtype
        )

    def __getitem__(self, number: int) -> NDArray[Any]:
        import h5py

        with _reading(Path(self.path)):
            if self._open is None:
                self._open = h5py.File(self.path, "r", rdcc_nbytes=_CACHE)[self.name]
            image: NDArray[Any] = self._open[number]
        return image

    def __getstate__(self) -> dict[str, Any]:
        # Objects of h5py cannot be pickled: each process opens the file itself.
        return {**self.__dict__, "_open": None}


def load_hdf5(path: Path, reading: Reading) -> Dataset:
    """Return the images of an HDF5 file with the arrays `images` and `labels`, and `test_images`
    and `test_labels`.

    Raises:
        InputError: the file is damaged, leads elsewhere, or `load_arrays` refuses its content.
    """
    import h5py

    check_regular(path)
    if not h5py.is_hdf5(path):
        raise other_data(path, "not an HDF5 file, or one that was cut off")
    with _reading(path), h5py.File(path, "r") as file:

        def images(name: str) -> Hdf5Images:
            array = _checked(path, file, name)
            return Hdf5Images(str(path.resolve()), name, array.shape, array.dtype)

        def labels(name: str) -> NDArray[Any]:
            values: NDArray[Any] = _checked(path, file, name)[()]
            return values

        def classes() -> list[str]:
            return _class_names(path, _checked(path, file, CLASSES))

        of_values = own.INPUTS, own.TARGETS, own.TEST_INPUTS, own.TEST_TARGETS
        known = (IMAGES, LABELS, TEST_IMAGES, TEST_LABELS, CLASSES, *of_values)
        names = [
            name for name in known if file.id.links.exists(name.encode())
        ]  # without following links
        others = [shown(name) for name in itertools.islice(file, 8)]
        return load_arrays(
            ArrayFile(shown(path), shown(path.stem), names or others, images, labels, classes),
            reading,
        )


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what h5py raises into one line about the file."""
    try:
        yield
    except BlockingIOError:
        raise InputError(
            f"{shown(path)}: another program is writing it; wait until that has closed it"
        ) from None
    except (
        OSError,
        RuntimeError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        IndexError,
    ) as error:
        if "already open for write" in str(error):
            raise InputError(
                f"{shown(path)}: another program is writing it, or ended without closing it; wait"
                " for it, or write the file again"
            ) from None
        reason = shown(" ".join(str(error).split())[:100])
        raise InputError(
            f"{shown(path)}: not a readable HDF5 file, possibly damaged or cut off: {reason}"
        ) from None


def _checked(path: Path, file: Any, name: str) -> Any:
    """Return an array of the file that lies wholly in it, and is as large as it says."""
    import h5py

    where = shown(path)
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise InputError(
            f"{where}: `{name}` is a link, which is refused; it should be an array of the file"
            " itself"
        )
    array = file[name]
    if not isinstance(array, h5py.Dataset):
        raise InputError(f"{where}: `{name}` is not an array")
    if array.external is not None or array.is_virtual:
        raise InputError(
            f"{where}: `{name}` lies in other files, which is refused; copy it into this one"
        )
    if array.shape is None:
        raise InputError(f"{where}: `{name}` is empty")
    if (
        h5py.check_string_dtype(array.dtype) is not None and array.dtype.hasobject
    ):  # damaged ones may hang HDF5
        raise InputError(
            f"{where}: `{name}` has strings of any length, which are refused; write them as"
            " numpy.array(…, 'S')"
        )
    check_type(where, name, array.dtype)
    _check_storage(where, name, array, path.stat().st_size)
    return array


def _check_storage(where: str, name: str, array: Any, there: int) -> None:
    made = array.id.get_create_plist()
    filters = [made.get_filter(number)[0] for number in range(made.get_nfilters())]
    unknown = [number for number in filters if number not in _FILTERS]
    if unknown:
        raise InputError(
            f"{where}: `{name}` has filter {unknown[0]}; known are {', '.join(_FILTERS.values())}"
        )
    chunk = math.prod(array.chunks or ()) * array.dtype.itemsize
    if chunk > _CHUNK_MOST:
        raise InputError(
            f"{where}: `{name}` is in chunks of {format_bytes(chunk)}, each of which is read as a"
            " whole; write it in chunks of an image"
        )
    size, stored = math.prod(array.shape) * array.dtype.itemsize, array.id.get_storage_size()
    held = stored * (_MOST_PACKED if filters else 1)
    if stored > there or held < size:
        raise InputError(
            f"{where}: `{name}` of shape {array.shape} would take {format_bytes(size)}, but the"
            f" file, of {format_bytes(there)}, holds {format_bytes(min(stored, there))} of it; it"
            " is damaged, or was not written to its end"
        )
    if array.chunks:
        _check_chunks(where, name, array)


def _check_chunks(where: str, name: str, array: Any) -> None:
    """Check that all chunks are there: others would be read as zeros, and bytes tell nothing where
    they are packed.
    """
    needed = math.prod(
        -(-side // chunk) for side, chunk in zip(array.shape, array.chunks, strict=True)
    )
    written = array.id.get_num_chunks()
    if written < needed:
        raise InputError(
            f"{where}: `{name}` has {written:,} of its {needed:,} chunks, and what is missing would"
            " be read as zeros; it was not written to its end: write it again"
        )


def _class_names(path: Path, array: Any) -> list[str]:
    if array.ndim != 1 or array.nbytes > _MOST_NAMES_BYTES:
        size = format_bytes(array.nbytes)
        raise InputError(
            f"{shown(path)}: `{CLASSES}` has shape {array.shape} and {size}; should be a list of"
            " names"
        )
    return [
        shown(name.decode("utf-8", "replace") if isinstance(name, bytes) else name)
        for name in array[()].tolist()
    ]
