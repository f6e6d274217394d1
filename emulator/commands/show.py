"""`emuchain show`: a results file for people."""

from __future__ import annotations

import pathlib

import numpy as np

from ..common.units import format_time_ps
from ..report.tables import device_rows, exchange_rows, link_rows, percent, table
from ..run.results import Record, figures_of, read


def show_results(file: str) -> None:
    """Print a results file.

    Raises:
        InputError: it cannot be read.
    """
    record = read(pathlib.Path(file))
    config = record.config
    plural = "s" * (config["devices"] != 1)
    replicas = f"{config['replicas']} times " if config.get("replicas", 1) > 1 else ""
    codec = f"gradients by {config['compress']}, " if config.get("compress", "none") != "none" else ""
    print(
        f"{config['network']} on {replicas}{config['devices']} device{plural} ({config['cluster']}), {codec}"
        f"{config['schedule']}, batch {config['batch']}, seed {config['seed']}, "
        f"data {config['data']} ({config['samples']} images)"
    )
    shown = ("emuchain", "python", "numpy", "numba")
    print("versions: " + ", ".join(f"{name} {record.versions[name]}" for name in shown))
    print(f"mpi: {record.versions['mpi']}; on {record.versions['platform']}")
    _history(record)
    figures = figures_of(record)
    if figures is not None:
        device_rows(figures)
        if figures.links:
            link_rows(figures)
    if record.exchange:
        exchange_rows(record.exchange, record.history["virtual_time_ps"])
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


def _weights(record: Record) -> None:
    rows = []
    for layer, arrays in record.weights.items():
        weight = arrays["weight"]
        norm = float(np.sqrt(np.square(weight, dtype=np.float64).mean()))
        rows.append([layer, "x".join(map(str, weight.shape)), f"{norm:.5f}", "yes" if "bias" in arrays else "no"])
    table("Weights", ["layer", "oc x ic x kh x kw", "root mean square", "bias"], rows, left=("layer",))
