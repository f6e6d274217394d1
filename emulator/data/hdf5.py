"""Images and labels in an HDF5 file, which is not trusted: no links, no storage in other files, no foreign filters."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common import InputError, format_bytes
from .arrays import CLASSES, IMAGES, LABELS, TEST_IMAGES, TEST_LABELS, ArrayFile, check_type, load_arrays
from .dataset import Dataset
from .files import check_regular, other_data, shown
from .reading import Reading

_FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
_MOST_PACKED = 1032  # bytes that one compressed byte can stand for
_CHUNK_MOST = 1 << 28  # bytes of a chunk, which is read as a whole
_CACHE = 1 << 26  # bytes of chunks that are kept
_MOST_NAMES_BYTES = 1 << 28  # of the names of classes


@dataclass(eq=False)
class Hdf5Images:
    """The images of an array in an HDF5 file; each is read when it is asked for, by any thread or process."""

    path: str
    name: str
    shape: tuple[int, ...]
    _open: Any = field(default=None, repr=False)

    def __getitem__(self, number: int) -> NDArray[np.uint8]:
        import h5py

        with _reading(Path(self.path)):
            if self._open is None:
                self._open = h5py.File(self.path, "r", rdcc_nbytes=_CACHE)[self.name]
            image: NDArray[np.uint8] = self._open[number]
        return image

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}


def load_hdf5(path: Path, reading: Reading) -> Dataset:
    """Return the images of an HDF5 file with the arrays `images` and `labels`, and `test_images` and `test_labels`.

    Raises:
        InputError: the file is damaged, leads elsewhere, or `load_arrays` refuses its content.
    """
    import h5py

    check_regular(path)
    if not h5py.is_hdf5(path):
        raise other_data(path, "not an HDF5 file, or one that was cut off")
    with _reading(path), h5py.File(path, "r") as file:

        def images(name: str) -> Hdf5Images:
            return Hdf5Images(str(path.resolve()), name, _checked(path, file, name).shape)

        def labels(name: str) -> NDArray[Any]:
            values: NDArray[Any] = _checked(path, file, name)[()]
            return values

        def classes() -> list[str]:
            return _class_names(path, _checked(path, file, CLASSES))

        known = (IMAGES, LABELS, TEST_IMAGES, TEST_LABELS, CLASSES)
        names = [name for name in known if file.id.links.exists(name.encode())]  # without following links
        others = [shown(name) for name in itertools.islice(file, 8)]
        return load_arrays(ArrayFile(shown(path), shown(path.stem), names or others, images, labels, classes), reading)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what h5py raises into one line about the file."""
    try:
        yield
    except BlockingIOError:
        raise InputError(f"{shown(path)}: another program is writing it; wait until that has closed it") from None
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, OverflowError, IndexError) as error:
        if "already open for write" in str(error):
            raise InputError(
                f"{shown(path)}: another program is writing it, or ended without closing it; wait for it, or"
                " write the file again"
            ) from None
        reason = shown(" ".join(str(error).split())[:100])
        raise InputError(f"{shown(path)}: not a readable HDF5 file, possibly damaged or cut off: {reason}") from None


def _checked(path: Path, file: Any, name: str) -> Any:
    """Return an array of the file that lies wholly in it, and is as large as it says."""
    import h5py

    where = shown(path)
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise InputError(f"{where}: `{name}` is a link, which is refused; it should be an array of the file itself")
    array = file[name]
    if not isinstance(array, h5py.Dataset):
        raise InputError(f"{where}: `{name}` is not an array")
    if array.external is not None or array.is_virtual:
        raise InputError(f"{where}: `{name}` lies in other files, which is refused; copy it into this one")
    if array.shape is None:
        raise InputError(f"{where}: `{name}` is empty")
    if h5py.check_string_dtype(array.dtype) is not None and array.dtype.hasobject:  # damaged ones may hang HDF5
        raise InputError(
            f"{where}: `{name}` has strings of any length, which are refused; write them as numpy.array(…, 'S')"
        )
    check_type(where, name, array.dtype)
    _check_storage(where, name, array, path.stat().st_size)
    return array


def _check_storage(where: str, name: str, array: Any, there: int) -> None:
    made = array.id.get_create_plist()
    filters = [made.get_filter(number)[0] for number in range(made.get_nfilters())]
    unknown = [number for number in filters if number not in _FILTERS]
    if unknown:
        raise InputError(f"{where}: `{name}` has filter {unknown[0]}; known are {', '.join(_FILTERS.values())}")
    chunk = math.prod(array.chunks or ()) * array.dtype.itemsize
    if chunk > _CHUNK_MOST:
        raise InputError(
            f"{where}: `{name}` is in chunks of {format_bytes(chunk)}, each of which is read as a whole; write it in"
            " chunks of an image"
        )
    size, stored = math.prod(array.shape) * array.dtype.itemsize, array.id.get_storage_size()
    held = stored * (_MOST_PACKED if filters else 1)
    if stored > there or held < size:
        raise InputError(
            f"{where}: `{name}` of shape {array.shape} would take {format_bytes(size)}, but the file, of"
            f" {format_bytes(there)}, holds {format_bytes(min(stored, there))} of it; it is damaged, or was not written"
            " to its end"
        )
    if array.chunks:
        _check_chunks(where, name, array)


def _check_chunks(where: str, name: str, array: Any) -> None:
    """Check that all chunks are there: others would be read as zeros, and bytes tell nothing where they are packed."""
    needed = math.prod(-(-side // chunk) for side, chunk in zip(array.shape, array.chunks, strict=True))
    written = array.id.get_num_chunks()
    if written < needed:
        raise InputError(
            f"{where}: `{name}` has {written:,} of its {needed:,} chunks, and what is missing would be read as zeros;"
            " it was not written to its end: write it again"
        )


def _class_names(path: Path, array: Any) -> list[str]:
    if array.ndim != 1 or array.nbytes > _MOST_NAMES_BYTES:
        size = format_bytes(array.nbytes)
        raise InputError(f"{shown(path)}: `{CLASSES}` has shape {array.shape} and {size}; should be a list of names")
    return [shown(name.decode("utf-8", "replace") if isinstance(name, bytes) else name) for name in array[()].tolist()]
