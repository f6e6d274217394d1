"""Finished epochs, and the unfinished one so far, in a checkpoint.

The use of devices and links is left out: it follows from clocks and counters at the end of the next epoch.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...comm.exchange import BINS, Traffic
from ..device import Tally
from .checkpoint_file import CheckpointReader, CheckpointWriter, checked
from .history import ROW, STEP, History, Spool
from .sizes import SentBy
from .steps import EpochResult, Exchanged, SoFar, StepResult, StepTable
from .usage import ResourceUse, Usage

_EXCHANGED = {"traffic": dataclasses.asdict(Traffic()), "spent_ps": 0}
_TALLY = dataclasses.astuple(Tally(loss=math.nan, step_loss=math.nan))
_SHARE = (0, 0, _TALLY, 0, math.nan, 0)
_WHOLE = ("epoch", "samples", "correct", "steps", "virtual_time_ps", "steps_end")
_MOST = 1 << 62
_USE = dataclasses.astuple(ResourceUse("", 0, 0, ""))


def write_history(
    writer: CheckpointWriter, epochs: Sequence[EpochResult]
) -> tuple[Iterator[list[dict[str, Any]]], dict[str, Any]]:
    """Add the arrays of finished epochs to a checkpoint; return its JSON key `history` in pieces, and other keys.

    What every epoch has is in arrays, so that a checkpoint takes little longer after thousands of them.
    """
    history = History.of(epochs)
    _write_columns(writer, history.rows, "history")
    _write_columns(writer, history.steps, "history/steps")
    count = len(history)
    if history.statistics is not None:
        histograms = ([exchange.histogram for exchange in piece.exchanged] for piece in history.pieces())
        writer.pieces("history/histogram", np.dtype(np.int64), (count, 2, BINS), map(np.stack, histograms))
    sizes = next(history.pieces()).sizes[0] if history else {}
    for number, (source, first) in enumerate(sizes.items()):
        of_epochs = ([size[source] for size in piece.sizes] for piece in history.pieces())
        writer.pieces(f"history/sizes/{number}", first.dtype, (count, *first.shape), map(np.stack, of_epochs))
    resources = [dataclasses.astuple(use) for use in history[-1].resources] if history else []
    rounded = [dict(counts) for piece in history.pieces() for counts in piece.rounded] if history.is_rounded else []
    return _rows(history), {"history_sources": [*sizes], "resources": resources, "rounded": rounded}


def _rows(history: History) -> Iterator[list[dict[str, Any]]]:
    for piece in history.pieces():
        if history.statistics is None:
            yield [{}] * len(piece.rows)
        else:
            yield [
                {"traffic": dataclasses.asdict(exchange.traffic), "spent_ps": exchange.spent_ps}
                for exchange in piece.exchanged
            ]


def _write_columns(writer: CheckpointWriter, records: Spool, place: str) -> None:
    for name, key in _columns(records.dtype, place):
        dtype = _field(np.empty(0, records.dtype), key).dtype
        writer.pieces(name, dtype, (len(records),), (_field(piece, key) for piece in records.pieces()))


def _field(values: NDArray[Any], key: Sequence[str]) -> NDArray[Any]:
    return functools.reduce(lambda values, name: values[name], key, values)


def _columns(dtype: np.dtype[Any], place: str, *key: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the columns of a structured array: its name in a checkpoint, and the fields that lead to it."""
    for name in dtype.names or ():
        if dtype[name].names:
            yield from _columns(dtype[name], f"{place}/{name}", *key, name)
        else:
            yield f"{place}/{name}", (*key, name)


def history_from(reader: CheckpointReader) -> Iterator[EpochResult]:
    """Yield the finished epochs of a checkpoint.

    Raises:
        InputError: they are damaged.
    """
    kept, sources = checked([], reader.text["history"], "history"), _sources(reader.text["history_sources"])
    if not kept:
        return
    count = len(kept)
    rows = np.zeros(count, ROW)
    for name, key in _columns(ROW, "history"):
        column = _field(rows, key)
        column[:] = reader.array(name, column.dtype.type, (count,))
        if name.endswith(_WHOLE) and not 0 <= column.min() <= column.max() <= _MOST:
            raise ValueError(f"{name} is out of range")
    ends = rows["steps_end"]
    counts = np.diff(ends, prepend=0)
    if counts.min() < 0:
        raise ValueError("history/steps_end becomes less")
    steps = {name: reader.array(f"history/steps/{name}", STEP[name].type, (ends[-1],)) for name in STEP.names or ()}
    exchanged = [Exchanged()] * count
    if any(kept):
        of_epochs = [checked(_EXCHANGED, row, "history") for row in kept]
        histograms = reader.array("history/histogram", np.int64, (count, 2, BINS))
        exchanged = [
            Exchanged(Traffic(**row["traffic"]), int(row["spent_ps"]), histogram)
            for row, histogram in zip(of_epochs, histograms, strict=True)
        ]
    sizes = [reader.array(f"history/sizes/{number}", np.int64, (count, None, 2)) for number in range(len(sources))]
    uses = [ResourceUse(*checked(_USE, use, "resources")) for use in checked([], reader.text["resources"], "resources")]
    rounded = [checked({}, counts, "rounded") for counts in checked([], reader.text.get("rounded", []), "rounded")]
    if rounded and len(rounded) != count:
        raise ValueError(f"rounded has {len(rounded)} epochs, not {count}")
    for place, row in enumerate(rows):
        yield EpochResult(
            int(row["epoch"]),
            float(row["learning_rate"]),
            Tally(*row["train"].item()),
            Tally(*row["test"].item()),
            int(row["virtual_time_ps"]),
            float(row["host_time_s"]),
            Usage(int(row["virtual_time_ps"]), (), ()),
            exchanged[place],
            {source: column[place] for source, column in zip(sources, sizes, strict=True)},
            tuple(uses) if place == count - 1 else (),
            StepTable(**{name: column[ends[place] - counts[place] : ends[place]] for name, column in steps.items()}),
            rounded[place] if rounded else {},
        )


def so_far_text(writer: CheckpointWriter, so_far: SoFar) -> dict[str, Any]:
    """Return the JSON keys of an epoch that is not finished, after adding its arrays to a checkpoint."""
    for number, sizes in enumerate(so_far.sizes.values()):
        writer.array(f"sizes/{number}", sizes)
    return {"shares": [dataclasses.astuple(share) for share in so_far.shares], "sources": [*so_far.sizes]}


def so_far_from(reader: CheckpointReader) -> SoFar:
    """Return what a checkpoint knows of the epoch that is not finished.

    Raises:
        InputError: it is damaged.
    """
    rows = [checked(_SHARE, share, "shares") for share in checked([], reader.text["shares"], "shares")]
    shares = [StepResult(epoch, step, Tally(*tally), *rest) for epoch, step, tally, *rest in rows]
    sources = _sources(reader.text["sources"])
    sizes = {source: reader.array(f"sizes/{number}", np.int64, (None, 2)) for number, source in enumerate(sources)}
    return SoFar(shares, sizes)


def _sources(text: Sequence[Sequence[int]]) -> list[SentBy]:
    return [SentBy(*checked(SentBy(0, 0), row, "sources")) for row in checked([], text, "sources")]
