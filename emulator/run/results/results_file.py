"""The results file: a run's results in HDF5, written as a whole after each epoch (less often where it is long: `Pace`).

So a killed run leaves a readable file with all finished epochs. Layout:

    config/            attributes: every key of the configuration
    descriptions/      the network's, cluster's and mapping's description, as text; missing_bytes of memory, which the
                       times ignore
    versions/          attributes: of emuchain, Python, libraries, MPI, machine
    history/           one row per epoch: epoch, learning_rate (of its last mini-batch), train_loss, train_accuracy,
                       test_loss, test_accuracy, virtual_time_ps, host_time_s (both since the start of training); of a
                       network that predicts each character of a text test_bits, unigram_bits, bigram_bits (a character)
    devices/           one row per device: board, slices, multipliers, fp_busy … pg_idle, lpram_bytes …
    links/             one row per direction of each link: sender, receiver, path1_bytes … path6_bytes, utilisation
    exchange/          with replicas, one row per epoch: value_bytes and compressed_bytes (float32 gradients sent,
                       before and after the codec), width_0 … width_32 (values of that many bits), device_ps (time
                       that a device spent on it), histogram (of the last gradients, by sign and bin: zeros, then
                       2^-40 to 2^0)
    messages/          with a codec, one row per message of a mini-batch: replica, device, block (of balanced
                       parameters; -1: of the exchange), value_bytes; and compressed_bytes, one row per mini-batch of
                       the run, one column per message
    resources/         of a pair, or a GPU alone, in place of devices and links: resource, busy_ps, carried_bytes (those
                       that a link actually carried), longest (the task that takes longest in a mini-batch)
    steps/             one row per mini-batch of the run: epoch and step (both from 1), loss, learning_rate,
                       virtual_time_ps (since the start of training)
    weights/LAYER/     weight (oc, ic, kh, kw), bias (oc)
"""

from __future__ import annotations

import os
import pathlib
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ...common import InputError, WholeFile, open_file
from .confined import confined
from .growing import Growing
from .lossy_file import LossyFile
from .results import Results
from .results_form import FORMAT, TABLES, read_arrays, results_from

_NOTHING_GROWS = Growing({}, ())
_CHUNK_BYTES = 1 << 16
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

    with h5py.File(told, "w") as file:
        file.attrs["format"] = FORMAT
        _attributes(file.create_group("config"), results.config)
        _attributes(file.create_group("versions"), results.versions)
        for name, text in results.descriptions.items():
            file[f"descriptions/{name}"] = np.bytes_(text.encode())
        for group in TABLES:
            table = getattr(results, group)
            file.create_group(group)
            for name, column in table.items():
                # Strings have a fixed length: HDF5 may hang on a damaged heap of variable-length ones.
                values = np.char.encode(column, "utf-8") if column.dtype.kind == "U" else column
                _data_set(file, f"{group}/{name}", values, len(values))[:] = values
        _grow(file, growing, told)
        file.create_group("weights")
        for layer, arrays in results.weights.items():
            for name, array in arrays.items():
                file[f"weights/{layer}/{name}"] = array


def _grow(file: Any, growing: Growing, told: LossyFile) -> None:
    """Add columns piece by piece."""
    done: dict[str, tuple[Any, int]] = {}
    for piece in growing.pieces:
        for group, table in piece.items():
            for name, values in table.items():
                path = f"{group}/{name}"
                data, first = done.get(path) or (_data_set(file, path, values, growing.rows[group]), 0)
                data[first : first + len(values)] = values
                done[path] = data, first + len(values)
        told.check()


def _data_set(file: Any, path: str, values: NDArray[Any], rows: int) -> Any:
    """Return a new data set of `rows` rows like those of `values`."""
    shape = (rows, *values.shape[1:])
    if values.ndim == 1:
        return file.create_dataset(path, shape, values.dtype)
    size = max(1, _CHUNK_BYTES // max(1, values[:1].nbytes))
    chunks = (max(1, min(rows, size)), *values.shape[1:])
    return file.create_dataset(path, shape, values.dtype, chunks=chunks, compression="gzip", shuffle=True)


def read_results(path: pathlib.Path) -> Results:
    """Return the content of a results file, which may come from anywhere: it is read in a process with limits.

    Raises:
        InputError: no such file, not HDF5, damaged, or not a results file of emuchain.
    """
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise InputError(f"{path}: no such file; `emuchain train --out {path}` would write it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: no such file, or one that cannot be read: {reason}") from None
    most = 2**26 + _MOST_PACKED * size
    seconds = _SECONDS + size // _BYTES_PER_SECOND
    found = confined(lambda: read_arrays(path, most), str(path), most_bytes=2**28 + 3 * most, seconds=seconds)
    try:
        return results_from(found)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not a readable results file, possibly damaged or truncated: {reason}") from None


def _attributes(group: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        group.attrs[name] = "" if value is None else np.array(value, np.int64) if isinstance(value, tuple) else value
