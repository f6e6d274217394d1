"""Tables of a run's results: those that grow with it, in pieces, and those of devices, links and resources."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....comm.exchange import step_sizes
from ....kernels.inceptionn import WIDTHS
from ...data import NgramBits
from ...mapping import DataPath
from ...number import KINDS
from ...plan import Plan
from .history import History, Piece, accuracy, bits_per_step, mean_loss
from .sizes import compressed_bytes
from .steps import EpochResult
from .usage import PHASES, DeviceUsage, LinkUsage, MemoryUsage, ResourceUse, Usage

GROWING = ("history", "exchange", "messages", "steps", "rounding")
"""Groups of a results file with such tables."""

_MEMORY = ("lpram", "lgb", "act_ram", "board_memory", "bpram", "bgb", "off_chip")

Table = dict[str, np.ndarray]
"""Columns by name."""


@dataclasses.dataclass(frozen=True)
class Growing:
    """Columns by group that have a row for each epoch or mini-batch of a history, in pieces; `rows` in all."""

    rows: Mapping[str, int]
    pieces: Iterable[Mapping[str, Table]]

    def joined(self) -> dict[str, Table]:
        """Return all of them as tables."""
        columns: dict[str, dict[str, list[np.ndarray]]] = {}
        for piece in self.pieces:
            for group, table in piece.items():
                for name, column in table.items():
                    columns.setdefault(group, {}).setdefault(name, []).append(column)
        return {
            group: {name: np.concatenate(parts) for name, parts in table.items()} for group, table in columns.items()
        }


def growing_of(plan: Plan, samples: int, history: History, ngrams: NgramBits | None = None) -> Growing:
    """Return the columns of `results_of` that grow with the history."""
    steps = epoch_steps(plan, samples)
    pieces = (
        {
            "history": history_rows(piece.rows, ngrams),
            "exchange": exchange_rows(piece, history.statistics, plan.nodes),
            "messages": {"compressed_bytes": compressed_bytes(piece.sizes, steps)} if piece.sizes[0] else {},
            "steps": step_rows(piece),
            "rounding": rounding_rows(piece) if history.is_rounded else {},
        }
        for piece in history.pieces()
    )
    epochs, mini_batches = len(history), len(history.steps)
    return Growing(dict(zip(GROWING, (epochs, epochs, mini_batches, mini_batches, epochs), strict=True)), pieces)


def rounding_rows(piece: Piece) -> Table:
    """Return the columns of what some epochs have rounded: shares of each kind that saturated, or became zero.

    Of weights also the share that updates left as they were. Shares of nothing are NaN.
    """

    def share(what: str, whole: str) -> np.ndarray:
        parts = np.array([counts.get(what, 0) for counts in piece.rounded], np.float64)
        wholes = np.array([counts.get(whole, 0) for counts in piece.rounded], np.float64)
        return np.divide(parts, wholes, out=np.full(len(parts), np.nan), where=wholes > 0)

    table = {"epoch": piece.rows["epoch"] + 1}
    for kind in KINDS:
        for what in ("saturated", "flushed"):
            table[f"{kind}_{what}"] = share(f"{kind}_{what}", f"{kind}_values")
    table["weights_unmoved"] = share("weights_unmoved", "weights_updated")
    return table


def rounding_table(history: Sequence[EpochResult]) -> Table:
    """Return the columns of what all epochs have rounded; {} where all was in single precision."""
    kept = History.of(history)
    pieces = ({"rounding": rounding_rows(piece)} for piece in kept.pieces()) if kept.is_rounded else ()
    return Growing({}, pieces).joined().get("rounding", {})


def epoch_steps(plan: Plan, samples: int) -> int:
    """Return the mini-batches of an epoch."""
    return len(step_sizes(samples, plan.config.batch))


def history_table(history: Sequence[EpochResult], ngrams: NgramBits | None = None) -> Table:
    """Return the history's columns; of a text's network bits per character, too, with those of the simplest models."""
    return history_rows(History.of(history).rows.read(), ngrams)


def history_rows(rows: NDArray[Any], ngrams: NgramBits | None) -> Table:
    """Return the columns of some of a history's rows; see `history_table`."""
    table = {
        "epoch": rows["epoch"] + 1,
        "learning_rate": rows["learning_rate"].copy(),
        "train_loss": mean_loss(rows["train"]),
        "train_accuracy": accuracy(rows["train"]),
        "test_loss": mean_loss(rows["test"]),
        "test_accuracy": accuracy(rows["test"]),
        "virtual_time_ps": rows["virtual_time_ps"].copy(),
        "host_time_s": rows["host_time_s"].copy(),
    }
    if ngrams is not None:
        table["test_bits"] = bits_per_step(rows["test"])
        table["unigram_bits"] = np.full(len(rows), ngrams.unigram)
        table["bigram_bits"] = np.full(len(rows), ngrams.bigram)
    return table


def step_rows(piece: Piece) -> Table:
    """Return the columns of the mini-batches of some epochs."""
    rows, counts = piece.rows, piece.counts
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    return {
        "epoch": np.repeat(rows["epoch"] + 1, counts),
        "step": np.arange(1, len(piece.steps) + 1) - begins,
        **{name: piece.steps[name].copy() for name in ("loss", "learning_rate", "virtual_time_ps")},
    }


def exchange_table(history: Sequence[EpochResult], nodes: int) -> Table:
    """Return the exchange's columns, for `nodes` devices; {} where nothing was exchanged.

    Besides INCEPTIONN's widths, there is a column for each other statistic of the codec.
    """
    kept = History.of(history)
    pieces = ({"exchange": exchange_rows(piece, kept.statistics, nodes)} for piece in kept.pieces())
    return Growing({}, pieces).joined().get("exchange", {})


def exchange_rows(piece: Piece, statistics: Iterable[str] | None, nodes: int) -> Table:
    """Return the columns of some epochs; see `exchange_table`. `statistics` are None where nothing was exchanged."""
    rows = piece.exchanged
    if statistics is None:
        return {}
    table = {
        "epoch": piece.rows["epoch"] + 1,
        "value_bytes": np.array([row.traffic.value_bytes for row in rows], np.int64),
        "compressed_bytes": np.array([row.traffic.compressed_bytes for row in rows], np.int64),
    }
    for name in dict.fromkeys([*(f"width_{bits}" for bits in WIDTHS), *statistics]):
        table[name] = np.array([row.traffic.statistics.get(name, 0) for row in rows], np.int64)
    table["device_ps"] = np.array([row.spent_ps // nodes for row in rows], np.int64)
    table["histogram"] = np.array([row.histogram for row in rows], np.int64)
    return table


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


def usage_from(d: Table, li: Table, virtual_time_ps: int) -> Usage:
    """Return the usage that the tables of devices and links hold."""
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
    return Usage(virtual_time_ps, tuple(devices), tuple(links))
