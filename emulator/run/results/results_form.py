"""What a results file holds: its groups, checked before any content is read, as plain arrays by path."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from ...common import InputError, escaped
from .results import Results

FORMAT = 1
TABLES = ("history", "devices", "links", "exchange", "messages", "resources", "steps")
_LATER_TABLES = ("exchange", "messages", "resources", "steps")
"""Absent from files of earlier versions."""
_GROUPS = ("config", "descriptions", "versions", "weights", *TABLES)
_MOST_MEMBERS = 100_000
_PLAIN_KINDS = "biufSU"


def read_arrays(path: pathlib.Path, most_bytes: int) -> dict[str, np.ndarray]:
    """Return all attributes and data sets of a results file, by path; `most_bytes` of content at most.

    Raises:
        InputError: not HDF5, damaged, or not a results file of emuchain.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT:
                raise InputError(f"{path}: an HDF5 file, but not a results file of emuchain (format {FORMAT})")
            return _Reader(most_bytes).read(file)
    except (OSError, KeyError, ValueError, RuntimeError, AttributeError, TypeError, MemoryError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not a readable results file, possibly damaged or truncated: {reason}") from None


class _Reader:
    """Reads groups whose kinds, shapes and storage are as emuchain writes them."""

    def __init__(self, most_bytes: int) -> None:
        self._left, self._members = most_bytes, _MOST_MEMBERS

    def read(self, file: Any) -> dict[str, np.ndarray]:
        """Return arrays by path; those of attributes have `@` before the name. A group is there as an empty array."""
        found: dict[str, np.ndarray] = {}
        for group in _GROUPS:
            if group in _LATER_TABLES and group not in file:
                continue
            self._group(_member(file, group), group, found)
        return found

    def _group(self, group: Any, path: str, found: dict[str, np.ndarray]) -> None:
        if not hasattr(group, "items"):
            raise ValueError(f"{path} is not a group")
        found[f"{path}/"] = np.zeros(0)
        for name in group:
            self._members -= 1
            if self._members < 0:
                raise ValueError(f"more than {_MOST_MEMBERS:,} data sets")
            member = _member(group, name)
            if hasattr(member, "items"):
                if path != "weights":
                    raise ValueError(f"{path}/{name} is a group")
                self._group(member, f"{path}/{name}", found)
            else:
                found[f"{path}/{name}"] = self._data(member, f"{path}/{name}")
        for name in group.attrs if path in ("config", "versions") else ():
            value = np.asarray(group.attrs[name])
            found[f"{path}/@{name}"] = value.astype(np.str_) if value.dtype.kind == "O" and not value.ndim else value

    def _data(self, data: Any, path: str) -> np.ndarray:
        """Return the content of a data set after checking that it is in the file, and not more than that can hold."""
        if data.dtype.kind not in _PLAIN_KINDS or data.ndim > 4 or data.shape is None:
            raise ValueError(f"{path} holds what no results hold: {data.dtype}")
        if data.is_virtual or data.external:
            raise ValueError(f"{path} is in another file")
        if data.nbytes and not data.id.get_storage_size():
            raise ValueError(f"{path} has a shape, but no content")
        self._left -= data.nbytes
        if self._left < 0:
            raise ValueError(f"{path} has the shape {data.shape}, which is more than such a file can hold")
        return np.asarray(data[()])


def _member(group: Any, name: str) -> Any:
    """Return a member of a group that is in this file itself: links lead elsewhere."""
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise KeyError(f"no {name}, or a link to it")
    return group[name]


def results_from(found: dict[str, np.ndarray]) -> Results:
    """Return the results that the arrays of `read_arrays` are.

    Raises:
        KeyError, TypeError, ValueError: something is missing, or has another kind or length.
    """
    groups: dict[str, dict[str, np.ndarray]] = {name: {} for name in _GROUPS}
    weights: dict[str, dict[str, np.ndarray]] = {}
    for path, array in found.items():
        group, _, name = path.partition("/")
        if group == "weights":
            layer, _, of = name.rpartition("/")
            if of and not layer:
                raise TypeError(f"weights/{of} is not a group")
            if layer:
                weights.setdefault(escaped(layer), {}).update({escaped(of): array} if of else {})
        elif name:
            groups[group][escaped(name)] = array
    tables = {group: {_name(name): _column(array) for name, array in groups[group].items()} for group in TABLES}
    for group in ("history", "devices", "links", "resources", "steps"):
        if len({len(column) for column in tables[group].values()}) > 1:
            raise ValueError(f"columns of {group} have several lengths")
    said = {
        group: {name[1:]: _plain(array) for name, array in groups[group].items()} for group in ("config", "versions")
    }
    descriptions = {name: escaped(array.item().decode()) for name, array in groups["descriptions"].items()}
    return Results(said["config"], descriptions, said["versions"], weights=weights, **tables)


def _plain(value: np.ndarray) -> Any:
    """Return a number or text; a list of numbers unchanged."""
    if value.ndim:
        return value
    return escaped(value.item()) if value.dtype.kind == "U" else value.item()


def _name(column: str) -> str:
    """Return a column's name; that of earlier versions differs."""
    return "compressed_bytes" if column == "made_bytes" else column


def _column(values: np.ndarray) -> np.ndarray:
    if not values.ndim:
        raise ValueError("a column is a single value")
    if values.dtype.kind != "S":
        return values
    texts = np.char.decode(values, "utf-8")
    return np.array([escaped(text) for text in texts.ravel().tolist()], np.str_).reshape(texts.shape)
