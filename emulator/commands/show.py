"""`emuchain show`: a results file as tables."""

from __future__ import annotations

import pathlib

import numpy as np

from ..common import format_time_ps
from ..report import device_rows, exchange_rows, link_rows, percent, table
from ..run import Results, read_results


def show_results(file: str) -> None:
    """Print a results file.

    Raises:
        InputError: the file cannot be read.
    """
    results = read_results(pathlib.Path(file))
    config = results.config
    plural = "s" * (config["devices"] != 1)
    replicas = f"{config['replicas']} times " if config.get("replicas", 1) > 1 else ""
    codec = f"gradients by {config['compress']}, " if config.get("compress", "none") != "none" else ""
    print(
        f"{config['network']} on {replicas}{config['devices']} device{plural} ({config['cluster']}), {codec}"
        f"{config['schedule']}, batch {config['batch']}, seed {config['seed']}, "
        f"data {config['data']} ({config['samples']} images)"
    )
    shown = ("emuchain", "python", "numpy", "numba")
    print("versions: " + ", ".join(f"{name} {results.versions[name]}" for name in shown))
    print(f"mpi: {results.versions['mpi']}; on {results.versions['platform']}")
    _history(results)
    usage = results.usage
    if usage is not None:
        device_rows(usage)
        if usage.links:
            link_rows(usage)
    if results.exchange:
        exchange_rows(results.exchange, results.history["virtual_time_ps"])
    if results.weights:
        _weights(results)


def _history(results: Results) -> None:
    h = results.history
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


def _weights(results: Results) -> None:
    rows = []
    for layer, arrays in results.weights.items():
        weight = arrays["weight"]
        norm = float(np.sqrt(np.square(weight, dtype=np.float64).mean()))
        rows.append([layer, "x".join(map(str, weight.shape)), f"{norm:.5f}", "yes" if "bias" in arrays else "no"])
    table("Weights", ["layer", "oc x ic x kh x kw", "root mean square", "bias"], rows, left=("layer",))
