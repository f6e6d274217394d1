"""`emuchain show`: a results file for people."""

from __future__ import annotations

import pathlib

import numpy as np

from ..results import Record, read
from ..tables import percent, table
from ..units import format_bytes, format_time_ps


def show_results(file: str) -> None:
    """Print a results file.

    Raises:
        InputError: it cannot be read.
    """
    record = read(pathlib.Path(file))
    config = record.config
    print(
        f"{config['network']} on {config['devices']} devices ({config['cluster']}), {config['schedule']}, "
        f"batch {config['batch']}, seed {config['seed']}, data {config['data']} ({config['samples']} images)"
    )
    shown = ("emuchain", "python", "numpy", "numba")
    print("versions: " + ", ".join(f"{name} {record.versions[name]}" for name in shown))
    print(f"mpi: {record.versions['mpi']}; on {record.versions['platform']}")
    _history(record)
    if record.devices:
        _devices(record)
    if len(record.links.get("sender", ())):
        _links(record)
    if record.weights:
        _weights(record)


def _history(record: Record) -> None:
    h = record.history
    rows = [
        [
            str(h["epoch"][i]),
            f"{h['learning_rate'][i]:g}",
            f"{h['train_loss'][i]:.4f}",
            percent(h["train_accuracy"][i]),
            f"{h['test_loss'][i]:.4f}",
            percent(h["test_accuracy"][i]),
            format_time_ps(int(h["virtual_time_ps"][i])),
            f"{h['host_time_s'][i]:.1f} s",
        ]
        for i in range(len(h["epoch"]))
    ]
    columns = ["epoch", "rate", "loss", "accuracy", "test loss", "test accuracy", "virtual time", "host time"]
    table("History" if rows else "History: no epoch was finished", columns, rows)


def _devices(record: Record) -> None:
    d = record.devices
    rows = [
        [
            str(d["device"][i]),
            str(d["board"][i]),
            str(d["slices"][i]),
            *(percent(d[f"{phase}_busy"][i]) for phase in ("fp", "eb", "pg")),
            format_bytes(int(d["lpram_bytes"][i])),
            format_bytes(int(d["act_ram_bytes"][i])),
        ]
        for i in range(len(d["device"]))
    ]
    columns = ["device", "board", "slices", "FP busy", "EB busy", "PG busy", "LPRAM", "Act-RAM"]
    table("Devices", columns, rows, left=("board", "slices"))


def _links(record: Record) -> None:
    links = record.links
    used = [n for n in range(1, 7) if links[f"path{n}_bytes"].any()]
    rows = [
        [
            f"{links['sender'][i]} -> {links['receiver'][i]}",
            *(format_bytes(int(links[f"path{n}_bytes"][i])) for n in used),
            percent(links["utilisation"][i]),
        ]
        for i in range(len(links["sender"]))
    ]
    table("Links", ["link", *(f"path {n}" for n in used), "utilisation"], rows)


def _weights(record: Record) -> None:
    rows = []
    for layer, arrays in record.weights.items():
        weight = arrays["weight"]
        norm = float(np.sqrt(np.square(weight, dtype=np.float64).mean()))
        rows.append([layer, "x".join(map(str, weight.shape)), f"{norm:.5f}", "yes" if "bias" in arrays else "no"])
    table("Weights", ["layer", "oc x ic x kh x kw", "root mean square", "bias"], rows, left=("layer",))
