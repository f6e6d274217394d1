"""The results file: a run's results in HDF5, written as a whole after each epoch.

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
from typing import Any

import numpy as np

from ..common import InputError, open_file, write_whole
from .confined import confined
from .results import Results
from .results_form import FORMAT, TABLES, read_arrays, results_from

_MOST_PACKED, _SECONDS, _BYTES_PER_SECOND = 16, 10, 20_000_000
"""The most bytes of content for each byte of a file, and the time that reading may take."""


def write_results(path: pathlib.Path, results: Results) -> None:
    """Write a results file, or replace one.

    Raises:
        InputError: the file cannot be written.
    """
    write_whole(path, results_image(results))


def results_image(results: Results) -> bytes:
    """Return the content of a results file, put together in memory: HDF5 crashes where a disk is full."""
    import h5py

    with h5py.File("results", "w", driver="core", backing_store=False) as file:
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
                packing = {"compression": "gzip", "shuffle": True} if values.ndim > 1 else {}
                file.create_dataset(f"{group}/{name}", data=values, **packing)
        file.create_group("weights")
        for layer, arrays in results.weights.items():
            for name, array in arrays.items():
                file[f"weights/{layer}/{name}"] = array
        file.flush()
        image: bytes = file.id.get_file_image()
        return image


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
