"""Results files: HDF5, written whole through a `LossyFile`.

What a file holds, its groups, is checked before any content is read, as plain arrays by path; and
so is its seal. The seal is one digest of names, types, shapes and contents together, which shows a
reader that nothing has changed. HDF5 has a checksum of each chunk, which says nothing of
attributes, of what is not in chunks, or of two chunks or data sets that have changed places.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import shlex
import warnings
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common import (
    HDF5_HEAD,
    NAMES,
    RESULTS,
    InputError,
    Note,
    WholeFile,
    confined,
    encoded,
    escaped,
    kind_of_hdf5,
    open_file,
    other_kind,
    unlike,
)
from ...config import of_today
from .history import MOST_COUNT
from .lossy_file import LossyFile
from .results import Results
from .schema import TABLES, Growing, checked_table
from .steps import Weights

Arrays = Mapping[str, NDArray[Any]]
"""Columns, texts and attributes by name."""

_MARK = "\ufeff"  # which a text in UTF-8 may begin with


class _Content(NamedTuple):
    """What is known of an array: its type, its shape so far, and the checksum of its bytes."""

    dtype: str
    shape: tuple[int, ...]
    checksum: int = 0


class Seal:
    """Takes arrays by their paths in a file, whole or rows after rows, in any order of the
    paths.
    """

    def __init__(self) -> None:
        self._contents: dict[str, _Content] = {}

    def add(self, path: str, values: NDArray[Any]) -> None:
        """Add an array, or the next rows of one."""
        plain = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        before = self._contents.get(path)
        checksum = zlib.crc32(plain.data, 0 if before is None else before.checksum)
        rows = (
            values.shape if before is None else (before.shape[0] + len(values), *values.shape[1:])
        )
        self._contents[path] = _Content(values.dtype.str, rows, checksum)

    def digest(self) -> str:
        """Return the digest of all that was added."""
        contents = [(path, *content) for path, content in sorted(self._contents.items())]
        return hashlib.sha256(ascii(contents).encode("ascii")).hexdigest()


FORMAT, UNSEALED_FORMAT = 2, 1
"""The format of files with a digest, and that of earlier versions."""

_GROUPS = ("config", "descriptions", "versions", "weights", *TABLES)
_WITH_ATTRIBUTES = ("config", "versions")
_MOST_MEMBERS = 100_000
_PLAIN_KINDS = "biufSU"
_LOCKED = (
    "another program has it open for writing, and HDF5 has locked it; close it there, and try again"
    " (where that program was killed, `h5clear --status {}` unlocks it)"
)


def as_array(value: Any) -> NDArray[Any]:
    """Return an attribute's value as an array, as it is before it is written and after it was
    read.
    """
    return np.asarray(value)


def read_arrays(
    path: pathlib.Path, blame: str, denial: str, most_bytes: int
) -> dict[str, NDArray[Any]]:
    """Return all attributes and data sets of a results file, by path; `most_bytes` of content at
    most.

    `blame` begins messages; `denial` is what another HDF5 file is not.

    Raises:
        InputError: not HDF5, damaged, or not a results file of emuchain.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            reader = _Reader(most_bytes)
            form = reader.attribute(file, "format") if "format" in file.attrs else np.zeros(0)
            if form.ndim or form.dtype.kind not in "iu" or form not in (FORMAT, UNSEALED_FORMAT):
                kind = kind_of_hdf5(file)
                if kind == RESULTS:
                    other = escaped(repr(form.tolist()))[:20]
                    raise InputError(
                        f"{blame}: a results file of another version of emuchain (format {other},"
                        f" not {FORMAT}); read it with that version, or train again"
                    )
                raise unlike(kind, path, blame, denial)
            arrays = reader.read(file)
            if (
                form == FORMAT
                and reader.attribute(file, "digest").tobytes() != _digest(arrays).encode()
            ):
                raise ValueError("its content is not what was written, by its digest")
            return arrays | {"@format": form}
    except (
        OSError,
        KeyError,
        ValueError,
        RuntimeError,
        AttributeError,
        TypeError,
        MemoryError,
    ) as error:
        reason = " ".join(str(error).split())
        if "unable to lock file" in reason or "already open for write" in reason:
            raise InputError(f"{blame}: {_LOCKED.format(shlex.quote(str(path)))}") from None
        raise damaged(reason, blame) from None


def damaged(reason: str, blame: str) -> InputError:
    """Return the error for a file that is not as emuchain wrote it; `blame` begins its message."""
    return InputError(
        f"{blame}: not a readable results file, possibly damaged or truncated: {escaped(reason)};"
        " take an earlier copy of it, or train again"
    )


def _digest(arrays: Arrays) -> str:
    seal = Seal()
    for path, array in arrays.items():
        if not path.endswith("/"):
            seal.add(path, array)
    return seal.digest()


class _Reader:
    """Reads groups whose kinds, shapes and storage are as emuchain writes them."""

    def __init__(self, most_bytes: int) -> None:
        self._left, self._members = most_bytes, _MOST_MEMBERS

    def read(self, file: Any) -> dict[str, NDArray[Any]]:
        """Return arrays by path; those of attributes have `@` before the name. A group is there as
        an empty array.
        """
        arrays: dict[str, NDArray[Any]] = {}
        for group in _GROUPS:
            if group in TABLES and TABLES[group].later and group not in file:
                continue
            self._group(_member(file, group), group, arrays)
        return arrays

    def _group(self, group: Any, path: str, arrays: dict[str, NDArray[Any]]) -> None:
        if not hasattr(group, "items"):
            raise ValueError(f"{path} is not a group")
        arrays[f"{path}/"] = np.zeros(0)
        for name in group:
            self._count()
            member = _member(group, name)
            if hasattr(member, "items"):
                if path != "weights":
                    raise ValueError(f"{path}/{name} is a group")
                self._group(member, f"{path}/{name}", arrays)
            else:
                arrays[f"{path}/{name}"] = self._data(member, f"{path}/{name}")
        for name in group.attrs if path in _WITH_ATTRIBUTES else ():
            self._count()
            arrays[f"{path}/@{name}"] = self.attribute(group, name)

    def _count(self) -> None:
        self._members -= 1
        if self._members < 0:
            raise ValueError(f"more than {_MOST_MEMBERS:,} data sets")

    def attribute(self, group: Any, name: str) -> NDArray[Any]:
        """Return the value of an attribute, after checking that it is plain."""
        identity = group.attrs.get_id(name)
        if identity.shape is None or identity.dtype.kind not in _PLAIN_KINDS + "O":
            raise ValueError(f"{name} holds what no results hold: {identity.dtype}")
        self._take(identity.dtype.itemsize * int(np.prod(identity.shape, dtype=object)), name)
        value = as_array(group.attrs[name])
        if value.dtype.kind not in _PLAIN_KINDS:
            raise ValueError(f"{name} holds what no results hold")
        return value

    def _data(self, data: Any, path: str) -> NDArray[Any]:
        """Return the content of a data set after checking that it is in the file, and not more than
        that can hold.
        """
        if data.dtype.kind not in _PLAIN_KINDS or data.ndim > 4 or data.shape is None:
            raise ValueError(f"{path} holds what no results hold: {data.dtype}")
        if data.is_virtual or data.external:
            raise ValueError(f"{path} is in another file")
        if data.nbytes and not data.id.get_storage_size():
            raise ValueError(f"{path} has a shape, but no content")
        self._take(data.nbytes, path)
        return np.asarray(data[()])

    def _take(self, count: int, name: str) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError(f"{name} has a shape which is more than such a file can hold")


def _member(group: Any, name: str) -> Any:
    """Return a member of a group that is in this file itself: links lead elsewhere."""
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise KeyError(f"no {name}, or a link to it")
    return group[name]


def results_from(arrays_by_path: dict[str, NDArray[Any]]) -> Results:
    """Return the results that the arrays of `read_arrays` are.

    Raises:
        KeyError, TypeError, ValueError: something is missing, or has another kind or length.
    """
    groups: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in _GROUPS}
    weights: dict[str, dict[str, NDArray[Any]]] = {}
    for path, array in arrays_by_path.items():
        group, _, name = path.partition("/")
        if group == "weights":
            layer, _, kind = name.rpartition("/")
            if kind and not layer:
                raise TypeError(f"weights/{kind} is not a group")
            if layer:
                weights.setdefault(escaped(layer), {}).update(
                    {escaped(kind): array} if kind else {}
                )
        elif name:
            groups[group][escaped(_name(name))] = (
                _text(array) if group in TABLES and array.dtype.kind == "S" else array
            )
    tables: dict[str, Any] = {name: checked_table(name, groups[name]) for name in TABLES}
    results = Results(
        _config(groups["config"], len(tables["devices"].get("device", "1"))),
        _descriptions(groups["descriptions"]),
        {name: str(value) for name, value in _attributes(groups["versions"]).items()},
        weights=_weights(weights),
        **tables,
    )
    _check_times(results)
    _check_places(results)
    return results


_NAMES = ("network", "cluster", "schedule", "data", "compress")
_COUNTS = {"epochs": 1, "batch": 1, "samples": 1, "devices": 1, "replicas": 1, "seed": 0}
"""Keys that are numbers, and the least of each."""

_EARLIER = {"replicas": 1, "compress": "none"}
"""What keys that files of earlier versions lack meant then; those files may leave `devices` open,
too.
"""


def _weights(weights: Mapping[str, Arrays]) -> Weights:
    for layer, arrays in weights.items():
        for name, array in arrays.items():
            if array.dtype != np.float32 or not array.ndim or not array.size:
                raise ValueError(f"weights/{layer}/{name} is {array.dtype} {array.shape}")
    return {layer: dict(arrays) for layer, arrays in weights.items()}


def _attributes(group: Arrays) -> dict[str, Any]:
    """Return attributes as numbers, truths, text, and lists of numbers."""
    values: dict[str, Any] = {}
    for key, value in group.items():
        name = key.removeprefix("@")
        if (
            name == key
            or value.ndim > 1
            or value.dtype.kind not in ("biufU" if not value.ndim else "if")
        ):
            raise ValueError(f"{name} is {value.dtype} {value.shape}")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise ValueError(f"{name} is {value}")
        values[name] = (
            value
            if value.ndim
            else _printable(value.item())
            if value.dtype.kind == "U"
            else value.item()
        )
    return values


def _printable(value: str) -> str:
    """Return text as it is if it is printable, apart from bytes of a file's name that are no UTF-8;
    else escaped.
    """
    return (
        value
        if value.encode("utf-8", NAMES).decode("utf-8", "ignore").isprintable()
        else escaped(value)
    )


def _config(group: Arrays, devices: int) -> dict[str, Any]:
    config = of_today({**_EARLIER, **_attributes(group)})
    if config.get("devices", "") == "":
        config["devices"] = max(1, devices)
    for key in (*_NAMES, *_COUNTS):
        if key not in config:
            raise ValueError(f"the setting {key} is missing")
        value, kind = config[key], str if key in _NAMES else int
        if type(value) is not kind or (
            isinstance(value, int) and not _COUNTS[key] <= value < 1 << 63
        ):
            raise ValueError(f"the setting {key} is {value!r}")
    return config


def _descriptions(group: Arrays) -> dict[str, str]:
    for name, text in group.items():
        if text.ndim or text.dtype.kind != "S":
            raise ValueError(f"descriptions/{name} is {text.dtype} {text.shape}")
    texts = {name: _described(text.item().decode()) for name, text in group.items()}
    if not 0 <= int(texts.get("missing_bytes", 0)) <= MOST_COUNT:
        raise ValueError(f"missing_bytes is {texts['missing_bytes']}")
    return texts


def _described(text: str) -> str:
    """Return a file's text as it is, with its line ends and byte order mark, but for what a
    terminal obeys.
    """
    mark = _MARK if text.startswith(_MARK) else ""
    return mark + "\r\n".join(map(escaped, text.removeprefix(_MARK).split("\r\n")))


def _check_times(results: Results) -> None:
    """Check that epochs and mini-batches follow one another, as many as there must be."""
    history, steps, epochs = results.history, results.steps, results.epochs
    numbers = np.arange(1, epochs + 1)
    if not (
        np.array_equal(history["epoch"], numbers)
        and (np.diff(history["virtual_time_ps"]) >= 0).all()
    ):
        raise ValueError("epochs do not follow one another")
    if results.exchange and not np.array_equal(results.exchange["epoch"], numbers):
        raise ValueError("exchange has other epochs than the history")
    if results.rounding and not np.array_equal(results.rounding["epoch"], numbers):
        raise ValueError("rounding has other epochs than the history")
    count = -(-results.config["samples"] // results.config["batch"])
    if steps and len(steps["epoch"]):
        # As many rows as that are in the file: no count makes arrays larger than what was read.
        rows = len(steps["epoch"])
        fits = rows == epochs * count
        if not (fits and np.array_equal(steps["epoch"], np.repeat(numbers, count))):
            raise ValueError(f"steps has {rows} mini-batches of {epochs} epochs of {count}")
        if not np.array_equal(steps["step"], np.tile(np.arange(1, count + 1), epochs)):
            raise ValueError("mini-batches do not follow one another")
    if results.messages and len(results.messages["compressed_bytes"]) != epochs * count:
        raise ValueError(
            f"messages has {len(results.messages['compressed_bytes'])} mini-batches, not"
            f" {epochs * count}"
        )


def _check_places(results: Results) -> None:
    """Check that devices are in order, and that links join two of them; which ones the topology
    says.
    """
    devices, links = results.devices, results.links
    count = len(devices["device"]) if devices else 0
    if devices and not np.array_equal(devices["device"], np.arange(count)):
        raise ValueError("devices do not follow one another")
    if links and len(links["sender"]):
        ends = np.array([links["sender"], links["receiver"]])
        if ends.max() >= count or (ends[0] == ends[1]).any():
            raise ValueError("links do not join two devices")


def _name(column: str) -> str:
    """Return a column's name; that of earlier versions differs."""
    return "compressed_bytes" if column == "made_bytes" else column


def _text(values: NDArray[Any]) -> NDArray[Any]:
    texts = np.char.decode(values, "utf-8")
    return np.array([escaped(text) for text in texts.ravel().tolist()], np.str_).reshape(
        texts.shape
    )


_NOTHING_GROWS = Growing({}, ())
_HDF5 = ("v110", "v110")
"""HDF5's formats: with checksums of objects, and without a tree for what is one chunk."""

_CHUNK_BYTES, _CACHE_BYTES, _WHOLE_CHUNK_BYTES = 1 << 16, 1 << 18, 1 << 20
"""Sizes of chunks of columns that grow, of what is kept of them in memory, and of chunks of what is
written at once.
"""

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
    lossy = LossyFile(into)
    try:
        _fill(lossy, results, growing)
    finally:
        lossy.check()  # whatever HDF5 says then


def _fill(lossy: LossyFile, results: Results, growing: Growing) -> None:
    import h5py

    with h5py.File(lossy, "w", libver=_HDF5, rdcc_nbytes=_CACHE_BYTES) as file:
        into = _Sealed(file)
        into.attributes("config", results.config)
        into.attributes("versions", results.versions)
        for name, text in results.descriptions.items():
            into.whole(f"descriptions/{name}", np.array(text.encode()))
        for group in TABLES:
            table = getattr(results, group)
            file.create_group(group)
            for name, column in table.items():
                # Strings of fixed length: reading strings of variable length from a damaged heap
                # can hang HDF5.
                values = np.char.encode(column, "utf-8") if column.dtype.kind == "U" else column
                into.rows(f"{group}/{name}", values, len(values))
        for piece in growing.pieces:
            for group, table in piece.items():
                for name, values in table.items():
                    into.rows(f"{group}/{name}", values, growing.rows[group])
            lossy.check()
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
            plain = (
                ""
                if value is None
                else np.array(value, np.int64)
                if isinstance(value, tuple)
                else value
            )
            group.attrs[name] = (
                np.array(encoded(plain), h5py.string_dtype()) if isinstance(plain, str) else plain
            )
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
        """Return a new data set of `rows` rows like those of `values`; what has columns is
        compressed, too.
        """
        shape = (rows, *values.shape[1:])
        if not np.prod(shape):
            return self._file.create_dataset(path, shape, values.dtype)
        chunk = max(1, min(rows, _CHUNK_BYTES // values[:1].nbytes)), *values.shape[1:]
        packed = {"compression": "gzip", "shuffle": True} if values.ndim > 1 else {}
        return self._file.create_dataset(
            path, shape, values.dtype, chunks=chunk, fletcher32=True, **packed
        )


def read_results(path: pathlib.Path, blame: str | None = None, denial: str = _DENIAL) -> Results:
    """Return the content of a results file, which may come from anywhere: it is read in a process
    with limits.

    `blame` begins messages, by default the path; `denial` is what another file is not. Warns by a
    `Note` of a file of an earlier version, whose damage is not always seen.

    Raises:
        InputError: no such file, not HDF5, damaged, or not a results file of emuchain.
    """
    blame = str(path) if blame is None else blame
    try:
        with open_file(path) as file:
            head, size = file.read(len(HDF5_HEAD)), os.fstat(file.fileno()).st_size
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{blame}: no such file; `emuchain train --out {path}` would write it"
        ) from None
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
        said = (
            "is of an earlier version of emuchain, without a digest: damage to it is not always"
            " seen"
        )
        warnings.warn(f"{blame} {said}", Note, stacklevel=2)
    return results
