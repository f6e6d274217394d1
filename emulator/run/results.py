"""Results of a run in one HDF5 file, written anew after each epoch and put in place in one move.

So a run that is killed leaves a readable file with all epochs that were done. Layout:

    config/            attributes: every key of the configuration
    descriptions/      the network's, cluster's and mapping's description, as text
    versions/          attributes: of emuchain, Python, libraries, MPI, machine
    history/           one row an epoch: epoch, learning_rate, train_loss, train_accuracy, test_loss, test_accuracy,
                       virtual_time_ps, host_time_s (both since the start of training)
    devices/           one row a device: board, slices, multipliers, fp_busy … pg_idle, lpram_bytes …
    links/             one row a direction of each link: sender, receiver, path1_bytes … path6_bytes, utilisation
    exchange/          with replicas, one row an epoch: value_bytes and made_bytes (float32 gradients sent, and what the
                       codec made of them), width_0 … width_32 (values of so many bits), device_ps (what a device
                       spent on it), histogram (of the last gradients, by sign and bin: zeros, then 2^-40 to 2^0)
    weights/LAYER/     weight (oc, ic, kh, kw), bias (oc)
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import platform
import sys
from typing import Any

import numpy as np

from ... import __version__
from ..common.errors import InputError
from ..config.config import Config
from ..mapping.traffic import DataPath
from .train import EpochResult, Weights
from .usage import PHASES, DeviceFigures, Figures, LinkFigures, Memory

FORMAT = 1
TABLES = ("history", "devices", "links", "exchange")
WIDTHS = (0, 8, 16, 32)
"""Bits of a value that INCEPTIONN's codec has made smaller, beside its tag."""

_MEMORY = ("lpram", "lgb", "act_ram", "board_memory", "bpram", "bgb")


@dataclasses.dataclass(frozen=True)
class Record:
    """All that a results file holds; `history` maps column names to rows, `devices` and `links` likewise."""

    config: dict[str, Any]
    descriptions: dict[str, str]
    versions: dict[str, str]
    history: dict[str, np.ndarray]
    devices: dict[str, np.ndarray]
    links: dict[str, np.ndarray]
    weights: Weights
    exchange: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


def versions(mpi: str) -> dict[str, str]:
    """The versions of everything that a run depends on."""
    import h5py
    import llvmlite
    import numba

    return {
        "emuchain": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "h5py": h5py.__version__,
        "hdf5": h5py.version.hdf5_version,
        "mpi": mpi,
        "platform": platform.platform(),
        "processor": platform.machine(),
        "command": " ".join(sys.argv),
    }


def history_table(history: list[EpochResult]) -> dict[str, np.ndarray]:
    """The history's columns."""
    return {
        "epoch": np.array([row.epoch + 1 for row in history], np.int64),
        "learning_rate": np.array([row.learning_rate for row in history], np.float64),
        "train_loss": np.array([row.train.mean_loss for row in history], np.float64),
        "train_accuracy": np.array([row.train.accuracy for row in history], np.float64),
        "test_loss": np.array([row.test.mean_loss for row in history], np.float64),
        "test_accuracy": np.array([row.test.accuracy for row in history], np.float64),
        "virtual_time_ps": np.array([row.virtual_time_ps for row in history], np.int64),
        "host_time_s": np.array([row.host_time_s for row in history], np.float64),
    }


def exchange_table(history: list[EpochResult], nodes: int) -> dict[str, np.ndarray]:
    """The exchange's columns, of so many devices; none where nothing was exchanged."""
    rows = [row.exchanged for row in history]
    if not any(row.traffic.value_bytes for row in rows):
        return {}
    table = {
        "epoch": np.array([row.epoch + 1 for row in history], np.int64),
        "value_bytes": np.array([row.traffic.value_bytes for row in rows], np.int64),
        "made_bytes": np.array([row.traffic.made_bytes for row in rows], np.int64),
    }
    for place, bits in enumerate(WIDTHS):
        table[f"width_{bits}"] = np.array([row.traffic.widths[place] for row in rows], np.int64)
    table["device_ps"] = np.array([row.spent_ps // nodes for row in rows], np.int64)
    table["histogram"] = np.array([row.histogram for row in rows], np.int64)
    return table


def device_table(figures: Figures | None) -> dict[str, np.ndarray]:
    """The devices' columns."""
    if figures is None:
        return {}
    rows = figures.devices
    table: dict[str, Any] = {
        "device": np.array([row.device for row in rows], np.int64),
        "board": np.array([row.board for row in rows], np.str_),
        "slices": np.array([", ".join(row.slices) for row in rows], np.str_),
        "multipliers": np.array([row.multipliers for row in rows], np.int64),
    }
    for phase in PHASES:
        # Not a number where a device has no such engine: the first layer needs no EB.
        busy = np.array([row.busy.get(phase, np.nan) for row in rows])
        table[f"{phase.lower()}_busy"], table[f"{phase.lower()}_idle"] = busy, 1 - busy
    for name in ("lpram", "lgb", "act_ram", "bpram", "bgb"):
        table[f"{name}_bytes"] = np.array([getattr(row.memory, name) for row in rows], np.int64)
    table["board_memory_bytes"] = np.array([row.memory.board for row in rows], np.int64)
    return table


def link_table(figures: Figures | None) -> dict[str, np.ndarray]:
    """The links' columns."""
    if figures is None:
        return {}
    rows = figures.links
    table = {
        "sender": np.array([row.sender for row in rows], np.int64),
        "receiver": np.array([row.receiver for row in rows], np.int64),
    }
    for path in DataPath:
        table[f"path{path.value}_bytes"] = np.array([row.path_bytes.get(path, 0) for row in rows], np.int64)
    table["utilisation"] = np.array([row.utilisation for row in rows], np.float64)
    return table


def figures_of(record: Record) -> Figures | None:
    """The figures that a record's tables hold; None before the first epoch."""
    if not len(record.history.get("epoch", ())) or not record.devices:
        return None
    d, li = record.devices, record.links
    devices = [
        DeviceFigures(
            int(d["device"][i]),
            str(d["board"][i]),
            tuple(str(d["slices"][i]).split(", ")),
            {p: float(d[f"{p.lower()}_busy"][i]) for p in PHASES if not np.isnan(d[f"{p.lower()}_busy"][i])},
            int(d["multipliers"][i]),
            Memory(*(int(d[f"{name}_bytes"][i]) for name in _MEMORY)),
        )
        for i in range(len(d["device"]))
    ]
    links = [
        LinkFigures(
            int(li["sender"][i]),
            int(li["receiver"][i]),
            {path: int(li[f"path{path.value}_bytes"][i]) for path in DataPath if li[f"path{path.value}_bytes"][i]},
            float(li["utilisation"][i]),
        )
        for i in range(len(li["sender"]))
    ]
    return Figures(int(record.history["virtual_time_ps"][-1]), tuple(devices), tuple(links))


def check_writable(out: str) -> pathlib.Path:
    """The path of the results file, where it can be written.

    Raises:
        InputError: its folder does not exist or cannot be written to, or the path is a folder.
    """
    path = pathlib.Path(out)
    try:
        if path.is_dir():
            raise InputError(f"`out` = {out!r}: is a folder; give the name of a file, such as {path / 'run.h5'}")
        if not path.parent.is_dir():
            raise InputError(
                f"`out` = {out!r}: the folder {path.parent} does not exist; create it, or give another path"
            )
        trial = _partial(path)
        trial.touch()
        trial.unlink()
        if path.exists():
            os.close(os.open(path, os.O_WRONLY))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"`out` = {out!r}: cannot be written: {reason}; give a path that can") from None
    return path


def write(path: pathlib.Path, record: Record) -> None:
    """Write the file beside its place, then move it there.

    Raises:
        InputError: the disk does not take it.
    """
    import h5py

    partial = _partial(path)
    try:
        with h5py.File(partial, "w") as file:
            file.attrs["format"] = FORMAT
            _attributes(file.create_group("config"), record.config)
            _attributes(file.create_group("versions"), record.versions)
            for name, text in record.descriptions.items():
                file[f"descriptions/{name}"] = np.bytes_(text.encode())
            for group in TABLES:
                table = getattr(record, group)
                file.create_group(group)
                for name, column in table.items():
                    # Strings of fixed length: HDF5 may hang on a damaged heap of others.
                    file[f"{group}/{name}"] = np.char.encode(column, "utf-8") if column.dtype.kind == "U" else column
            file.create_group("weights")
            for layer, arrays in record.weights.items():
                for name, array in arrays.items():
                    file[f"weights/{layer}/{name}"] = array
            file.flush()
        with open(partial, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise InputError(f"`out` = '{path}': cannot be written: {error}") from None


def read(path: pathlib.Path) -> Record:
    """The content of a results file; weights as shapes only would not do, so all of it.

    Raises:
        InputError: no such file, not HDF5, damaged, or not a results file of emuchain.
    """
    import h5py

    if not path.is_file():
        raise InputError(f"{path}: no such file; `emuchain train --out {path}` would write it")
    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT:
                raise InputError(f"{path}: an HDF5 file, but not a results file of emuchain (format {FORMAT})")
            said_versions = dict(file["versions"].attrs)
            tables = {
                group: {name: _column(data) for name, data in file[group].items()}
                for group in TABLES
                if group in file or group != "exchange"  # which files of earlier versions do not have
            }
            weights = {
                layer: {name: data[()] for name, data in arrays.items()} for layer, arrays in file["weights"].items()
            }
            descriptions = {name: data[()].decode() for name, data in file["descriptions"].items()}
            attributes = {name: _plain(value) for name, value in file["config"].attrs.items()}
            return Record(attributes, descriptions, said_versions, weights=weights, **tables)
    except (OSError, KeyError, ValueError, RuntimeError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not a readable results file, perhaps damaged or cut off: {reason}") from None


def config_attributes(config: Config, devices: int, samples: int) -> dict[str, Any]:
    """The full configuration, with what was left open filled in."""
    return {**config.model_dump(), "devices": devices, "samples": samples}


def _plain(value: Any) -> Any:
    """Python's own number for NumPy's."""
    return value.item() if isinstance(value, np.generic) else value


def _column(data: Any) -> np.ndarray:
    values = data[()]
    return np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values


def _attributes(group: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        group.attrs[name] = "" if value is None else np.array(value, np.int64) if isinstance(value, tuple) else value


def _partial(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name}.partial")
