"""Results from the arrays of a file: tables, settings and weights in the form in which emuchain writes them, or none.

What comes from here needs no further look before it is printed, drawn or timed. Settings that nothing is computed with
are plain values; who plans with them validates them by `settings_config`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....comm.exchange import BINS
from ....kernels.inceptionn import WIDTHS
from ...common import NAMES, escaped
from ...mapping import DataPath
from ...number import KINDS
from .results import Results
from .sizes import SentBy
from .steps import Weights
from .tables import Table
from .usage import PHASES

Arrays = Mapping[str, NDArray[Any]]
"""Columns, texts and attributes by name."""

_MOST = 1 << 62  # ps, bytes: sums of two fit into 64 bits
_MARK = "\ufeff"  # which a text in UTF-8 may begin with


class _Column(NamedTuple):
    """The form of a column: its type, the range of its values and, in some, of their sum, and its rows' shape."""

    dtype: type[np.generic] = np.int64
    least: float = 0
    most: float = _MOST
    or_nan: bool = False
    shape: tuple[int, ...] = ()
    is_summed: bool = False

    def check(self, values: NDArray[Any], name: str) -> NDArray[Any]:
        """Return values in this column's type.

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
        if self.is_summed and values.sum(dtype=np.float64) > _MOST:
            raise ValueError(f"{name} has values too large")
        return values


_Forms = Mapping[str, _Column]

_COUNT, _ORDINAL, _TEXT = _Column(), _Column(least=1), _Column(np.str_)
_BYTES, _SOME_BYTES = _Column(is_summed=True), _Column(least=1, is_summed=True)
_LOSS = _Column(np.float64, -math.inf, math.inf, or_nan=True)  # flips of bits make any
_SHARE, _REAL = _Column(np.float64, 0, 1, or_nan=True), _Column(np.float64, 0, 1e38)
_BUSY = _Column(np.float64, -1, 2)
_NONE: _Forms = {}

_HISTORY = {
    **{"epoch": _ORDINAL, "learning_rate": _REAL, "train_loss": _LOSS, "train_accuracy": _SHARE},
    **{"test_loss": _LOSS, "test_accuracy": _SHARE, "virtual_time_ps": _COUNT, "host_time_s": _REAL},
}
_BITS = dict.fromkeys(("test_bits", "unigram_bits", "bigram_bits"), _LOSS)
_DEVICES = {
    **{"device": _COUNT, "board": _TEXT, "slices": _TEXT, "multipliers": _COUNT},
    **{f"{phase.lower()}_busy": _BUSY._replace(or_nan=phase != "FP") for phase in PHASES},
    **{f"{phase.lower()}_idle": _BUSY._replace(or_nan=phase != "FP") for phase in PHASES},
    **dict.fromkeys(("lpram_bytes", "lgb_bytes", "act_ram_bytes"), _BYTES),
    "board_memory_bytes": _SOME_BYTES,
}
_LATER_OF_DEVICES = {
    **dict.fromkeys(("bpram_bytes", "bgb_bytes", "off_chip_bytes", "port_bytes"), _BYTES),
    "port_utilisation": _REAL,
}
_LINKS = {
    **{"sender": _COUNT, "receiver": _COUNT, "utilisation": _REAL},
    **{f"path{path.value}_bytes": _BYTES for path in DataPath},
}
_EXCHANGE = {
    **{"epoch": _ORDINAL, "value_bytes": _SOME_BYTES, "compressed_bytes": _SOME_BYTES, "device_ps": _COUNT},
    **{f"width_{bits}": _BYTES for bits in WIDTHS},
}
_HISTOGRAM = {"histogram": _Column(shape=(2, BINS), is_summed=True)}
_MESSAGES = {**dict.fromkeys(SentBy._fields, _Column(least=-1)), "value_bytes": _SOME_BYTES}
_RESOURCES = {"resource": _TEXT, "busy_ps": _COUNT, "carried_bytes": _BYTES, "longest": _TEXT}
_STEPS = {"epoch": _ORDINAL, "step": _ORDINAL, "loss": _LOSS, "learning_rate": _REAL, "virtual_time_ps": _COUNT}
_ROUNDING = {
    "epoch": _ORDINAL,
    **{f"{kind}_{what}": _SHARE for kind in KINDS for what in ("saturated", "flushed")},
    "weights_unmoved": _SHARE,
}

_NAMES = ("network", "cluster", "schedule", "data", "compress")
_COUNTS = {"epochs": 1, "batch": 1, "samples": 1, "devices": 1, "replicas": 1, "seed": 0}
"""Keys that are numbers, and the least of each."""

_EARLIER = {"replicas": 1, "compress": "none"}
"""What keys that files of earlier versions lack meant then; those files may leave `devices` open, too."""


def checked_results(groups: Mapping[str, Arrays], weights: Mapping[str, Arrays]) -> Results:
    """Return the results that columns, texts, and attributes (`@` before the name) by group are.

    Raises:
        KeyError, ValueError: something is missing, or has another form.
    """
    devices = _table("devices", groups, _DEVICES, _LATER_OF_DEVICES)
    results = Results(
        _config(groups["config"], len(devices["device"]) if devices else 1),
        _descriptions(groups["descriptions"]),
        {name: str(value) for name, value in _attributes(groups["versions"]).items()},
        _columns("history", groups, _HISTORY, _BITS),
        devices,
        _table("links", groups, _LINKS),
        _weights(weights),
        _exchange(groups),
        _messages(groups),
        _table("resources", groups, _RESOURCES),
        _table("steps", groups, _STEPS),
        _table("rounding", groups, _ROUNDING),
    )
    _check_times(results)
    _check_places(results)
    return results


def _table(group: str, groups: Mapping[str, Arrays], forms: _Forms, later: _Forms = _NONE) -> Table:
    """Return a table that not all runs have."""
    return _columns(group, groups, forms, later) if groups[group] else {}


def _columns(group: str, groups: Mapping[str, Arrays], forms: _Forms, later: _Forms = _NONE) -> Table:
    """Return the columns of a group that have forms, all of the same length; some of `later` may be missing."""
    columns = groups[group]
    names = [*forms, *(name for name in later if name in columns)]
    table = {name: {**forms, **later}[name].check(columns[name], f"{group}/{name}") for name in names}
    if len({len(column) for column in table.values()}) > 1:
        raise ValueError(f"columns of {group} have several lengths")
    return table


def _exchange(groups: Mapping[str, Arrays]) -> Table:
    """Return the table of exchanges, with what else the codec counts."""
    others = dict.fromkeys(groups["exchange"].keys() - _EXCHANGE.keys() - _HISTOGRAM.keys(), _BYTES)
    return _table("exchange", groups, _EXCHANGE, {**_HISTOGRAM, **others})


def _messages(groups: Mapping[str, Arrays]) -> Table:
    table = _table("messages", groups, _MESSAGES)
    if table:
        sizes = _Column(np.uint32, 1, shape=table["value_bytes"].shape, is_summed=True)
        table["compressed_bytes"] = sizes.check(groups["messages"]["compressed_bytes"], "messages/compressed_bytes")
    return table


def _weights(weights: Mapping[str, Arrays]) -> Weights:
    for layer, arrays in weights.items():
        for name, array in arrays.items():
            if array.dtype != np.float32 or not array.ndim or not array.size:
                raise ValueError(f"weights/{layer}/{name} is {array.dtype} {array.shape}")
    return {layer: dict(arrays) for layer, arrays in weights.items()}


def _attributes(group: Arrays) -> dict[str, Any]:
    """Return attributes as numbers, truths, text, and lists of numbers."""
    values: dict[str, Any] = {}
    for key, value in group.items():
        name = key.removeprefix("@")
        if name == key or value.ndim > 1 or value.dtype.kind not in ("biufU" if not value.ndim else "if"):
            raise ValueError(f"{name} is {value.dtype} {value.shape}")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise ValueError(f"{name} is {value}")
        values[name] = value if value.ndim else _text(value.item()) if value.dtype.kind == "U" else value.item()
    return values


def _text(value: str) -> str:
    """Return text as it is if it is printable, apart from bytes of a file's name that are no UTF-8; else escaped."""
    return value if value.encode("utf-8", NAMES).decode("utf-8", "ignore").isprintable() else escaped(value)


def _config(group: Arrays, devices: int) -> dict[str, Any]:
    config = {**_EARLIER, **_attributes(group)}
    if config.get("devices", "") == "":
        config["devices"] = max(1, devices)
    for key in (*_NAMES, *_COUNTS):
        if key not in config:
            raise ValueError(f"the setting {key} is missing")
        value, kind = config[key], str if key in _NAMES else int
        if type(value) is not kind or (isinstance(value, int) and not _COUNTS[key] <= value < 1 << 63):
            raise ValueError(f"the setting {key} is {value!r}")
    return config


def _descriptions(group: Arrays) -> dict[str, str]:
    for name, text in group.items():
        if text.ndim or text.dtype.kind != "S":
            raise ValueError(f"descriptions/{name} is {text.dtype} {text.shape}")
    texts = {name: _described(text.item().decode()) for name, text in group.items()}
    if not 0 <= int(texts.get("missing_bytes", 0)) <= _MOST:
        raise ValueError(f"missing_bytes is {texts['missing_bytes']}")
    return texts


def _described(text: str) -> str:
    """Return a file's text as it is, with its line ends and byte order mark, but for what a terminal obeys."""
    mark = _MARK if text.startswith(_MARK) else ""
    return mark + "\r\n".join(map(escaped, text.removeprefix(_MARK).split("\r\n")))


def _check_times(results: Results) -> None:
    """Check that epochs and mini-batches follow one another, as many as there must be."""
    history, steps, epochs = results.history, results.steps, results.epochs
    numbers = np.arange(1, epochs + 1)
    if not (np.array_equal(history["epoch"], numbers) and (np.diff(history["virtual_time_ps"]) >= 0).all()):
        raise ValueError("epochs do not follow one another")
    if results.exchange and not np.array_equal(results.exchange["epoch"], numbers):
        raise ValueError("exchange has other epochs than the history")
    if results.rounding and not np.array_equal(results.rounding["epoch"], numbers):
        raise ValueError("rounding has other epochs than the history")
    count = -(-results.config["samples"] // results.config["batch"])
    if steps and len(steps["epoch"]):
        # As many rows as that are in the file: no count makes arrays larger than what was read.
        rows = len(steps["epoch"])
        fits = rows == epochs * count
        if not (fits and np.array_equal(steps["epoch"], np.repeat(numbers, count))):
            raise ValueError(f"steps has {rows} mini-batches of {epochs} epochs of {count}")
        if not np.array_equal(steps["step"], np.tile(np.arange(1, count + 1), epochs)):
            raise ValueError("mini-batches do not follow one another")
    if results.messages and len(results.messages["compressed_bytes"]) != epochs * count:
        raise ValueError(f"messages has {len(results.messages['compressed_bytes'])} mini-batches, not {epochs * count}")


def _check_places(results: Results) -> None:
    """Check that devices are in order, and that links join two of them; which ones the topology says."""
    devices, links = results.devices, results.links
    count = len(devices["device"]) if devices else 0
    if devices and not np.array_equal(devices["device"], np.arange(count)):
        raise ValueError("devices do not follow one another")
    if links and len(links["sender"]):
        ends = np.array([links["sender"], links["receiver"]])
        if ends.max() >= count or (ends[0] == ends[1]).any():
            raise ValueError("links do not join two devices")
