"""Results of a run: configuration, history, usage of devices and links, weights (`results_file.py` writes them)."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...common import format_time_ps, html_table, plural, system_name
from ...data import NgramBits, is_text
from ...mapping import DataPath
from ...plan import ChainPlan, Plan, data_of
from ..record import (
    PHASES,
    ROW,
    DeviceUsage,
    EpochResult,
    History,
    LinkUsage,
    MemoryUsage,
    ResourceUse,
    Usage,
    Weights,
    message_columns,
)
from .growing import GROWING, Table, epoch_steps, growing_of, history_rows

_MEMORY = ("lpram", "lgb", "act_ram", "board_memory", "bpram", "bgb", "off_chip")


@dataclasses.dataclass(frozen=True, eq=False)
class Results:
    """Content of a results file: tables by column, and the weights after the last epoch, if they were gathered."""

    config: dict[str, Any]
    descriptions: dict[str, str]
    versions: dict[str, str]
    history: Table
    devices: Table
    links: Table
    weights: Weights
    exchange: Table = dataclasses.field(default_factory=dict)
    messages: Table = dataclasses.field(default_factory=dict)
    resources: Table = dataclasses.field(default_factory=dict)
    steps: Table = dataclasses.field(default_factory=dict)

    @property
    def epochs(self) -> int:
        """Number of finished epochs."""
        return len(self.history.get("epoch", ()))

    @property
    def virtual_time_ps(self) -> int:
        """Virtual time at the end of the last epoch; 0 before the first."""
        return int(self.history["virtual_time_ps"][-1]) if self.epochs else 0

    @property
    def test_accuracy(self) -> float:
        """Share of test images classified correctly, after the last epoch; NaN before the first."""
        return float(self.history["test_accuracy"][-1]) if self.epochs else float("nan")

    @property
    def weight_arrays(self) -> dict[str, np.ndarray]:
        """The weights without biases by layer; of recurrent layers, by layer and name, since they have several."""
        return {
            layer if name == "weight" else f"{layer} {name}": array
            for layer, arrays in self.weights.items()
            for name, array in arrays.items()
            if name == "weight" or name.startswith("weight_")
        }

    @property
    def bits(self) -> tuple[float, NgramBits] | None:
        """Bits per character of the test set after the last epoch, and of the simplest models; None without a text."""
        if not self.epochs or "test_bits" not in self.history:
            return None
        test, unigram, bigram = (float(self.history[f"{of}_bits"][-1]) for of in ("test", "unigram", "bigram"))
        return test, NgramBits(unigram, bigram)

    @property
    def images_per_s(self) -> float:
        """Rate on the cluster, of all epochs; NaN before the first, or where they took no time."""
        time_s = self.virtual_time_ps * 1e-12
        return self.config["samples"] * self.epochs / time_s if time_s else float("nan")

    @property
    def sample_noun(self) -> str:
        """What a sample is called: "image", or "sample" of a text."""
        return "sample" if is_text(str(self.config["data"])) else "image"

    @property
    def missing_bytes(self) -> int:
        """Bytes of memory that were missing and that the times ignore; 0 where the file does not say it."""
        return int(self.descriptions.get("missing_bytes", 0))

    @property
    def usage(self) -> Usage | None:
        """Usage of devices and links; None before the first epoch, and of a pair, which has `resources`."""
        return _usage(self) if self.epochs and self.devices else None

    def __repr__(self) -> str:
        if not self.epochs:
            return f"<Results of {self.config['network']}: no epoch finished>"
        epochs = f"{self.epochs} epoch{'s' * (self.epochs != 1)}"
        return (
            f"<Results of {self.config['network']}: {epochs} in {format_time_ps(self.virtual_time_ps)},"
            f" loss {self.history['train_loss'][-1]:.4f}, test accuracy {_percent(self.test_accuracy)}>"
        )

    def _repr_html_(self) -> str:
        h = self.history
        rows = [
            [
                str(h["epoch"][i]),
                f"{h['train_loss'][i]:.4f}",
                _percent(h["train_accuracy"][i]),
                _percent(h["test_accuracy"][i]),
                format_time_ps(int(h["virtual_time_ps"][i])),
            ]
            for i in range(self.epochs)
        ]
        config = self.config
        title = (
            f"{config['network']} on {plural(config['devices'], 'device')} ({config['cluster']}), {config['schedule']}"
        )
        columns = ["epoch", "loss", "accuracy", "test accuracy", "virtual time"]
        return html_table(f"Results of {title}", rows, columns)


def _percent(share: float) -> str:
    return "unknown" if np.isnan(share) else f"{100 * share:.1f} %"


def results_of(
    plan: Plan,
    samples: int,
    history: Sequence[EpochResult],
    weights: Weights,
    versions: Mapping[str, str],
    ngrams: NgramBits | None = None,
) -> Results:
    """Return the results of a run of a plan with `samples` training images; open settings are filled in.

    `ngrams` are the bits per character of the simplest models, to compare with those of a text's network.
    """
    growing = growing_of(plan, samples, history := History.of(history), ngrams).joined()
    found = fixed_results(plan, samples, history, weights, versions, ngrams)
    tables = {group: getattr(found, group) | growing.get(group, {}) for group in GROWING}
    return dataclasses.replace(found, **tables)


def fixed_results(
    plan: Plan,
    samples: int,
    history: History,
    weights: Weights,
    versions: Mapping[str, str],
    ngrams: NgramBits | None = None,
) -> Results:
    """Return `results_of` without what grows with the history."""
    config = {
        **plan.config.model_dump(),
        "devices": plan.config.devices or (plan.nodes if plan.config.schedule.replicates else plan.devices),
        "data": data_of(plan),
        "samples": samples,
    }
    descriptions = {
        "network.toml": plan.network.text,
        "cluster.toml": plan.cluster.text,
        "mapping": plan.mapping_text,
        "missing_bytes": str(plan.missing_bytes),
    }
    if isinstance(plan, ChainPlan) and plan.config.faults is not None:
        descriptions["faults.json"] = plan.faults.text
    usage = history[-1].usage if history else None
    columns = {} if history else history_rows(np.empty(0, ROW), ngrams)
    messages = message_columns(history[0].sizes, epoch_steps(plan, samples)) if history else {}
    resources = resource_table(history[-1].resources if history else ())
    tables = columns, device_table(usage), link_table(usage), weights
    return Results(config, descriptions, dict(versions), *tables, messages=messages, resources=resources)


def versions(mpi: str) -> dict[str, str]:
    """Return the versions of everything that a run depends on; `mpi` is that of the MPI library."""
    import h5py

    from .... import __version__

    return {
        "emuchain": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": importlib.metadata.version("numba"),
        "llvmlite": importlib.metadata.version("llvmlite"),
        "h5py": h5py.__version__,
        "hdf5": h5py.version.hdf5_version,
        "mpi": mpi,
        "platform": system_name(),
        "processor": platform.machine(),
        "command": " ".join(sys.argv),
    }


def device_table(usage: Usage | None) -> Table:
    """Return the devices' columns; {} of a pair."""
    if usage is None or not usage.devices:
        return {}
    rows = usage.devices
    table: dict[str, Any] = {
        "device": np.array([row.device for row in rows], np.int64),
        "board": np.array([row.board for row in rows], np.str_),
        "slices": np.array([", ".join(row.slices) for row in rows], np.str_),
        "multipliers": np.array([row.multipliers for row in rows], np.int64),
    }
    for phase in PHASES:
        # NaN where a device has no such engine: the first layer needs no EB.
        busy = np.array([row.busy.get(phase, np.nan) for row in rows])
        table[f"{phase.lower()}_busy"], table[f"{phase.lower()}_idle"] = busy, 1 - busy
    for name in ("lpram", "lgb", "act_ram", "bpram", "bgb", "off_chip"):
        table[f"{name}_bytes"] = np.array([getattr(row.memory, name) for row in rows], np.int64)
    table["board_memory_bytes"] = np.array([row.memory.board for row in rows], np.int64)
    table["port_bytes"] = np.array([row.port_bytes for row in rows], np.int64)
    table["port_utilisation"] = np.array([row.port_utilisation for row in rows], np.float64)
    return table


def link_table(usage: Usage | None) -> Table:
    """Return the links' columns; {} of a pair."""
    if usage is None or not usage.devices:
        return {}
    rows = usage.links
    table = {
        "sender": np.array([row.sender for row in rows], np.int64),
        "receiver": np.array([row.receiver for row in rows], np.int64),
    }
    for path in DataPath:
        table[f"path{path.value}_bytes"] = np.array([row.path_bytes.get(path, 0) for row in rows], np.int64)
    table["utilisation"] = np.array([row.utilisation for row in rows], np.float64)
    return table


def resource_table(rows: Sequence[ResourceUse]) -> Table:
    """Return the columns of a pair's resources; {} if there are none."""
    if not rows:
        return {}
    return {
        "resource": np.array([row.name for row in rows], np.str_),
        "busy_ps": np.array([row.busy_ps for row in rows], np.int64),
        "carried_bytes": np.array([row.carried_bytes for row in rows], np.int64),
        "longest": np.array([row.longest for row in rows], np.str_),
    }


def _usage(results: Results) -> Usage:
    """Return the usage that the tables hold."""
    d, li = results.devices, results.links
    devices = [
        DeviceUsage(
            int(d["device"][i]),
            str(d["board"][i]),
            tuple(str(d["slices"][i]).split(", ")),
            {p: float(d[f"{p.lower()}_busy"][i]) for p in PHASES if not np.isnan(d[f"{p.lower()}_busy"][i])},
            int(d["multipliers"][i]),
            MemoryUsage(*(int(d[f"{name}_bytes"][i]) for name in _MEMORY if f"{name}_bytes" in d)),
            int(d["port_bytes"][i]) if "port_bytes" in d else 0,
            float(d["port_utilisation"][i]) if "port_utilisation" in d else 0.0,
        )
        for i in range(len(d["device"]))
    ]
    links = [
        LinkUsage(
            int(li["sender"][i]),
            int(li["receiver"][i]),
            {path: int(li[f"path{path.value}_bytes"][i]) for path in DataPath if li[f"path{path.value}_bytes"][i]},
            float(li["utilisation"][i]),
        )
        for i in range(len(li["sender"]))
    ]
    return Usage(results.virtual_time_ps, tuple(devices), tuple(links))
