"""The schema of what a run leaves behind: each table and each of its columns is declared once,
here.

From a declaration follow the columns that records of a run fill, the groups of the results file,
JSON, CSV and the head of a log, and the check of what a file holds, which may be damaged, hostile,
or of an earlier version.

Units are in the names: ps, s, bytes; shares are from 0 to 1; epochs and steps are counted from 1.
Losses are means over samples. What there is none of is NaN.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....comm.exchange import BINS, step_sizes
from ....kernels.inceptionn import WIDTHS
from ...data import NgramBits
from ...mapping import DataPath
from ...number import KINDS
from ...plan import Plan
from .history import MOST_COUNT, History, Piece, accuracy, bits_per_step, mean_loss
from .steps import EpochRecord, SentBy, compressed_bytes
from .usage import PHASES, DeviceUsage, LinkUsage, MemoryUsage, ResourceUse, Usage

Table = dict[str, np.ndarray]
"""Columns by name."""


class Values(NamedTuple):
    """What a column may hold: its type, the range of values and, in some, of their sum, and the
    shape of a row's.
    """

    dtype: type[np.generic] = np.int64
    least: float = 0
    most: float = MOST_COUNT
    or_nan: bool = False
    shape: tuple[int, ...] = ()
    is_summed: bool = False

    def check(self, values: NDArray[Any], name: str) -> NDArray[Any]:
        """Return values in this type.

        Raises:
            ValueError: they have another kind or shape, or one is out of range.
        """
        kind = np.dtype(self.dtype).kind
        if values.dtype.kind not in ("iu" if kind == "i" else kind):
            raise ValueError(f"{name} is {values.dtype}")
        if not values.ndim or values.shape[1:] != self.shape:
            raise ValueError(f"{name} has the shape {values.shape}")
        if kind == "U":
            return values
        if not np.can_cast(values.dtype, self.dtype):
            raise ValueError(f"{name} is {values.dtype}")
        values = values.astype(self.dtype)
        fits = (values >= self.least) & (values <= self.most)
        if not (fits | np.isnan(values) if self.or_nan else fits).all():
            raise ValueError(f"{name} has a value that it cannot have")
        if self.is_summed and values.sum(dtype=np.float64) > MOST_COUNT:
            raise ValueError(f"{name} has values too large")
        return values


class Column(NamedTuple):
    """A column: its name, what it may hold, and how its values are taken from the records of the
    table.

    Files of earlier versions, and some runs, lack a column that is `later`.
    """

    name: str
    values: Values
    take: Callable[[Any], Any]
    later: bool = False


class Form(NamedTuple):
    """A table: its name, and its columns in order. One that `grows` has rows for each epoch or
    mini-batch.

    Files of earlier versions lack a table that is `later`.
    """

    name: str
    columns: tuple[Column, ...]
    grows: bool = False
    later: bool = False

    def of(self, records: Any, *, whole: bool = True) -> Table:
        """Return the table of some records; unless `whole`, without later columns."""
        columns = (column for column in self.columns if whole or not column.later)
        return {
            column.name: np.array(column.take(records), column.values.dtype) for column in columns
        }

    def checked(self, columns: Mapping[str, NDArray[Any]]) -> Table:
        """Return the table that the columns of a file are, without those that are not declared.

        Raises:
            KeyError, ValueError: a column is missing, or is not what it should be.
        """
        present = [column for column in self.columns if not column.later or column.name in columns]
        table = {
            column.name: column.values.check(columns[column.name], f"{self.name}/{column.name}")
            for column in present
        }
        if len({len(values) for values in table.values()}) > 1:
            raise ValueError(f"columns of {self.name} have several lengths")
        return table


def _each(path: str) -> Callable[[Iterable[Any]], list[Any]]:
    """Return what takes an attribute of each record."""
    get = operator.attrgetter(path)
    return lambda records: [get(record) for record in records]


def _map(get: Callable[[Any], Any]) -> Callable[[Iterable[Any]], list[Any]]:
    return lambda records: [get(record) for record in records]


_COUNT, _ORDINAL, _TEXT = Values(), Values(least=1), Values(np.str_)
_BYTES, _SOME_BYTES, _PLACE = (
    Values(is_summed=True),
    Values(least=1, is_summed=True),
    Values(least=-1),
)
_LOSS = Values(np.float64, -math.inf, math.inf, or_nan=True)  # flips of bits make any
_SHARE, _REAL = Values(np.float64, 0, 1, or_nan=True), Values(np.float64, 0, 1e38)
_HISTOGRAM = Values(shape=(2, BINS), is_summed=True)
_COMPRESSED = Values(np.uint32, 1, is_summed=True)


class _Tested(NamedTuple):
    """Rows of a history, and the bits per character of the simplest models, where the network
    predicts a text.
    """

    rows: NDArray[Any]
    ngrams: NgramBits | None


HISTORY = Form(
    "history",
    (
        Column("epoch", _ORDINAL, lambda of: of.rows["epoch"] + 1),
        Column("learning_rate", _REAL, lambda of: of.rows["learning_rate"]),
        Column("train_loss", _LOSS, lambda of: mean_loss(of.rows["train"])),
        Column("train_accuracy", _SHARE, lambda of: accuracy(of.rows["train"])),
        Column("test_loss", _LOSS, lambda of: mean_loss(of.rows["test"])),
        Column("test_accuracy", _SHARE, lambda of: accuracy(of.rows["test"])),
        Column("virtual_time_ps", _COUNT, lambda of: of.rows["virtual_time_ps"]),
        Column("host_time_s", _REAL, lambda of: of.rows["host_time_s"]),
        Column("test_bits", _LOSS, lambda of: bits_per_step(of.rows["test"]), later=True),
        Column(
            "unigram_bits", _LOSS, lambda of: np.full(len(of.rows), of.ngrams.unigram), later=True
        ),
        Column(
            "bigram_bits", _LOSS, lambda of: np.full(len(of.rows), of.ngrams.bigram), later=True
        ),
    ),
    grows=True,
)
"""Epochs: their times are since the start of training. Bits are per character of a text, and of the
simplest models.
"""


def _busy(phase: str, *, idle: bool) -> Column:
    """Return the column of the share of time in which engines of a phase are busy; NaN where a
    device has none.
    """
    values = Values(np.float64, -1, 2, or_nan=phase != "FP")  # the first layer needs no EB
    if idle:
        return Column(
            f"{phase.lower()}_idle", values, _map(lambda row: 1 - row.busy.get(phase, np.nan))
        )
    return Column(f"{phase.lower()}_busy", values, _map(lambda row: row.busy.get(phase, np.nan)))


def _memory_bytes(name: str, *, later: bool = False) -> Column:
    return Column(f"{name}_bytes", _BYTES, _each(f"memory.{name}"), later=later)


DEVICES = Form(
    "devices",
    (
        Column("device", _COUNT, _each("device")),
        Column("board", _TEXT, _each("board")),
        Column("slices", _TEXT, _map(lambda row: ", ".join(row.slices))),
        Column("multipliers", _COUNT, _each("multipliers")),
        *(_busy(phase, idle=idle) for idle in (False, True) for phase in PHASES),
        *map(_memory_bytes, ("lpram", "lgb", "act_ram")),
        Column("board_memory_bytes", _SOME_BYTES, _each("memory.board")),
        _memory_bytes("bpram", later=True),
        _memory_bytes("bgb", later=True),
        _memory_bytes("off_chip", later=True),
        Column("port_bytes", _BYTES, _each("port_bytes"), later=True),
        Column("port_utilisation", _REAL, _each("port_utilisation"), later=True),
    ),
)
"""Devices of the first chain: what each holds, how busy it is, its memory, and bytes over its
memory port.
"""


def _path_bytes(path: DataPath) -> Column:
    return Column(f"path{path.value}_bytes", _BYTES, _map(lambda row: row.path_bytes.get(path, 0)))


LINKS = Form(
    "links",
    (
        Column("sender", _COUNT, _each("sender")),
        Column("receiver", _COUNT, _each("receiver")),
        Column("utilisation", _REAL, _each("utilisation")),
        *map(_path_bytes, DataPath),
    ),
)
"""Directions of links between two devices: bytes of each data path, and the share of the bandwidth
that they take.
"""


class _Exchanges(NamedTuple):
    """Some epochs of replicas of `nodes` devices in all."""

    piece: Piece
    nodes: int


def _statistic(name: str, *, later: bool = False) -> Column:
    return Column(
        name,
        _BYTES,
        lambda of: [row.traffic.statistics.get(name, 0) for row in of.piece.exchanged],
        later=later,
    )


def _device_ps(exchanges: _Exchanges) -> list[int]:
    """Return a device's mean time for the exchange of each epoch."""
    return [row.spent_ps // exchanges.nodes for row in exchanges.piece.exchanged]


EXCHANGE = Form(
    "exchange",
    (
        Column("epoch", _ORDINAL, lambda of: of.piece.rows["epoch"] + 1),
        Column(
            "value_bytes", _SOME_BYTES, lambda of: _each("traffic.value_bytes")(of.piece.exchanged)
        ),
        Column(
            "compressed_bytes",
            _SOME_BYTES,
            lambda of: _each("traffic.compressed_bytes")(of.piece.exchanged),
        ),
        Column("device_ps", _COUNT, _device_ps),
        *(_statistic(f"width_{bits}") for bits in WIDTHS),
        Column(
            "histogram", _HISTOGRAM, lambda of: _each("histogram")(of.piece.exchanged), later=True
        ),
    ),
    grows=True,
    later=True,
)
"""What replicas exchange in each epoch: gradients before and after the codec, and a device's mean
time for it.
"""


def exchange_form(names: Iterable[str]) -> Form:
    """Return the form of a table of exchanges with these columns, some of which are statistics of
    the codec alone.
    """
    declared = {column.name for column in EXCHANGE.columns}
    others = (_statistic(name, later=True) for name in names if name not in declared)
    return EXCHANGE._replace(columns=(*EXCHANGE.columns, *others))


MESSAGES = Form(
    "messages",
    (
        *(Column(name, _PLACE, operator.itemgetter(name)) for name in SentBy._fields),
        Column("value_bytes", _SOME_BYTES, operator.itemgetter("value_bytes")),
    ),
    grows=True,
    later=True,
)
"""Messages of a mini-batch that pass a codec; `compressed_bytes` besides has a row of them for each
mini-batch.
"""

RESOURCES = Form(
    "resources",
    (
        Column("resource", _TEXT, _each("name")),
        Column("busy_ps", _COUNT, _each("busy_ps")),
        Column("carried_bytes", _BYTES, _each("carried_bytes")),
        Column("longest", _TEXT, _each("longest")),
    ),
    later=True,
)
"""Resources of a pair: their time, what they carried, and the longest task of each."""


def _step_numbers(piece: Piece) -> NDArray[np.int64]:
    begins = np.repeat(np.cumsum(piece.counts) - piece.counts, piece.counts)
    return np.arange(1, len(piece.steps) + 1) - begins


STEPS = Form(
    "steps",
    (
        Column("epoch", _ORDINAL, lambda piece: np.repeat(piece.rows["epoch"] + 1, piece.counts)),
        Column("step", _ORDINAL, _step_numbers),
        Column("loss", _LOSS, lambda piece: piece.steps["loss"]),
        Column("learning_rate", _REAL, lambda piece: piece.steps["learning_rate"]),
        Column("virtual_time_ps", _COUNT, lambda piece: piece.steps["virtual_time_ps"]),
    ),
    grows=True,
    later=True,
)
"""Mini-batches; a CSV log has the same columns."""


def _rounded(name: str, what: str, whole: str) -> Column:
    """Return the column of the share of numbers of a kind that were rounded so; of nothing it is
    NaN.
    """

    def share(piece: Piece) -> NDArray[np.float64]:
        parts = np.array([counts.get(what, 0) for counts in piece.rounded], np.float64)
        wholes = np.array([counts.get(whole, 0) for counts in piece.rounded], np.float64)
        return np.divide(parts, wholes, out=np.full(len(parts), np.nan), where=wholes > 0)

    return Column(name, _SHARE, share)


ROUNDING = Form(
    "rounding",
    (
        Column("epoch", _ORDINAL, lambda piece: piece.rows["epoch"] + 1),
        *(
            _rounded(f"{kind}_{what}", f"{kind}_{what}", f"{kind}_values")
            for kind in KINDS
            for what in ("saturated", "flushed")
        ),
        _rounded("weights_unmoved", "weights_unmoved", "weights_updated"),
        _rounded("updates_skipped", "updates_skipped", "updates_scaled")._replace(later=True),
        Column(
            "loss_scale",
            _COUNT,
            lambda piece: [counts.get("loss_scale", 1) for counts in piece.rounded],
            later=True,
        ),
    ),
    grows=True,
    later=True,
)
"""Shares of numbers in narrow formats that saturate, or become zero, and of weights that updates
leave as they were. Where the loss scale follows overflows, also the share of updates that were
skipped, and the scale.
"""


def _rounding_of(piece: Piece) -> Table:
    follows = any("loss_scale" in counts for counts in piece.rounded)
    return ROUNDING.of(piece, whole=follows)


TABLES = {
    form.name: form
    for form in (HISTORY, DEVICES, LINKS, EXCHANGE, MESSAGES, RESOURCES, STEPS, ROUNDING)
}
"""In the order of a results file."""


def checked_table(name: str, columns: Mapping[str, NDArray[Any]]) -> Table:
    """Return the table of this name that the columns of a file are; {} of one that not all runs
    have.

    Raises:
        KeyError, ValueError: a column is missing, or is not what it should be.
    """
    if not columns and name != HISTORY.name:
        return {}
    if name == EXCHANGE.name:
        return exchange_form(columns).checked(columns)
    table = TABLES[name].checked(columns)
    if name == MESSAGES.name:
        sizes = _COMPRESSED._replace(shape=table["value_bytes"].shape)
        table["compressed_bytes"] = sizes.check(
            columns["compressed_bytes"], "messages/compressed_bytes"
        )
    return table


@dataclasses.dataclass(frozen=True)
class Growing:
    """Columns by group that have a row for each epoch or mini-batch of a history, in pieces; `rows`
    in all.
    """

    rows: Mapping[str, int]
    pieces: Iterable[Mapping[str, Table]]

    def joined(self) -> dict[str, Table]:
        """Return all of them as tables."""
        columns: dict[str, dict[str, list[np.ndarray]]] = {}
        for piece in self.pieces:
            for group, table in piece.items():
                for name, column in table.items():
                    columns.setdefault(group, {}).setdefault(name, []).append(column)
        tables: dict[str, Table] = {}
        for group, pieces in columns.items():
            tables[group] = {name: np.concatenate(parts) for name, parts in pieces.items()}
        return tables


def growing_of(
    plan: Plan, samples: int, history: History, ngrams: NgramBits | None = None
) -> Growing:
    """Return the columns of `results_of` that grow with the history."""
    steps, epochs, mini_batches = epoch_steps(plan, samples), len(history), len(history.steps)
    rows = {name: epochs for name, form in TABLES.items() if form.grows}
    pieces = (
        {
            "history": history_rows(piece.rows, ngrams),
            "exchange": _exchange_rows(piece, history, plan.nodes),
            "messages": {"compressed_bytes": compressed_bytes(piece.sizes, steps)}
            if piece.sizes[0]
            else {},
            "steps": STEPS.of(piece),
            "rounding": _rounding_of(piece) if history.is_rounded else {},
        }
        for piece in history.pieces()
    )
    return Growing(rows | dict.fromkeys(("messages", "steps"), mini_batches), pieces)


def epoch_steps(plan: Plan, samples: int) -> int:
    """Return the mini-batches of an epoch."""
    return len(step_sizes(samples, plan.config.batch))


def history_rows(rows: NDArray[Any], ngrams: NgramBits | None) -> Table:
    """Return the columns of some of a history's rows; see `history_table`."""
    return HISTORY.of(_Tested(rows, ngrams), whole=ngrams is not None)


def history_table(history: Sequence[EpochRecord], ngrams: NgramBits | None = None) -> Table:
    """Return the history's columns; of a text's network bits per character, too, with those of the
    simplest models.
    """
    return history_rows(History.of(history).rows.read(), ngrams)


def _exchange_rows(piece: Piece, history: History, nodes: int) -> Table:
    names = history.statistics
    return {} if names is None else exchange_form(names).of(_Exchanges(piece, nodes))


def exchange_table(history: Sequence[EpochRecord], nodes: int) -> Table:
    """Return the exchange's columns, for `nodes` devices; {} where nothing was exchanged.

    Besides INCEPTIONN's widths, there is a column for each other statistic of the codec.
    """
    kept = History.of(history)
    pieces = ({"exchange": _exchange_rows(piece, kept, nodes)} for piece in kept.pieces())
    return Growing({}, pieces).joined().get("exchange", {})


def rounding_table(history: Sequence[EpochRecord]) -> Table:
    """Return the columns of what all epochs have rounded; {} where all was in single precision."""
    kept = History.of(history)
    pieces = (
        ({"rounding": _rounding_of(piece)} for piece in kept.pieces()) if kept.is_rounded else ()
    )
    return Growing({}, pieces).joined().get("rounding", {})


def device_table(usage: Usage | None) -> Table:
    """Return the devices' columns; {} of a pair."""
    return {} if usage is None or not usage.devices else DEVICES.of(usage.devices)


def link_table(usage: Usage | None) -> Table:
    """Return the links' columns; {} of a pair."""
    return {} if usage is None or not usage.devices else LINKS.of(usage.links)


def resource_table(rows: Sequence[ResourceUse]) -> Table:
    """Return the columns of a pair's resources; {} if there are none."""
    return RESOURCES.of(rows) if rows else {}


_MEMORY = ("lpram", "lgb", "act_ram", "board_memory", "bpram", "bgb", "off_chip")


def usage_from(d: Table, li: Table, virtual_time_ps: int) -> Usage:
    """Return the usage that the tables of devices and links hold."""
    devices = [_device_usage(d, i) for i in range(len(d["device"]))]
    links = [_link_usage(li, i) for i in range(len(li["sender"]))]
    return Usage(virtual_time_ps, tuple(devices), tuple(links))


def _device_usage(d: Table, i: int) -> DeviceUsage:
    """Return the usage that a row of the table of devices holds."""
    shares = {p: float(d[f"{p.lower()}_busy"][i]) for p in PHASES}
    busy = {p: share for p, share in shares.items() if not math.isnan(share)}
    memory = [int(d[f"{name}_bytes"][i]) for name in _MEMORY if f"{name}_bytes" in d]
    return DeviceUsage(
        int(d["device"][i]),
        str(d["board"][i]),
        tuple(str(d["slices"][i]).split(", ")),
        busy,
        int(d["multipliers"][i]),
        MemoryUsage(*memory),
        int(d["port_bytes"][i]) if "port_bytes" in d else 0,
        float(d["port_utilisation"][i]) if "port_utilisation" in d else 0.0,
    )


def _link_usage(li: Table, i: int) -> LinkUsage:
    """Return the usage that a row of the table of links holds."""
    sizes = {path: int(li[f"path{path.value}_bytes"][i]) for path in DataPath}
    return LinkUsage(
        int(li["sender"][i]),
        int(li["receiver"][i]),
        {path: size for path, size in sizes.items() if size},
        float(li["utilisation"][i]),
    )
