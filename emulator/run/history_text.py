"""Finished epochs, and the unfinished one so far, in a checkpoint.

The use of devices and links is left out: it follows from clocks and counters at the end of the next epoch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...comm.exchange import BINS, Traffic
from ..device import Tally
from .checked import checked
from .checkpoint_file import CheckpointReader, CheckpointWriter
from .epochs import EpochResult, SoFar
from .replicas import Exchanged
from .sizes import SentBy
from .steps import StepResult, StepTable
from .usage import ResourceUse, Usage

_OF_STEPS: dict[str, type] = {"loss": np.float64, "learning_rate": np.float64, "virtual_time_ps": np.int64}
_PLAIN = {"epoch": 0, "learning_rate": math.nan, "virtual_time_ps": 0, "host_time_s": 0.0}
_TALLY = dataclasses.astuple(Tally(loss=math.nan, step_loss=math.nan))
_ROW = {**_PLAIN, "train": _TALLY, "test": _TALLY, "traffic": dataclasses.asdict(Traffic()), "spent_ps": 0}
_SHARE = (0, 0, _TALLY, 0, math.nan, 0)
_USE = dataclasses.astuple(ResourceUse("", 0, 0, ""))


def history_text(writer: CheckpointWriter, history: Sequence[EpochResult]) -> dict[str, Any]:
    """Return the JSON keys of finished epochs, after adding their arrays to a checkpoint."""
    rows = [
        {name: getattr(row, name) for name in _PLAIN}
        | {"train": dataclasses.astuple(row.train), "test": dataclasses.astuple(row.test)}
        | {"traffic": dataclasses.asdict(row.exchanged.traffic), "spent_ps": row.exchanged.spent_ps}
        | {"resources": [dataclasses.astuple(use) for use in row.resources]}
        for row in history
    ]
    sources: list[SentBy] = []
    if history:
        writer.array("history/histogram", np.stack([row.exchanged.histogram for row in history]))
        sources = [*history[0].sizes]
        for number, source in enumerate(sources):
            writer.array(f"history/sizes/{number}", np.stack([row.sizes[source] for row in history]))
        for name in _OF_STEPS:
            writer.array(f"history/steps/{name}", np.stack([getattr(row.steps, name) for row in history]))
    return {"history": rows, "history_sources": sources}


def history_from(reader: CheckpointReader) -> list[EpochResult]:
    """Return the finished epochs of a checkpoint.

    Raises:
        InputError: they are damaged.
    """
    rows, sources = checked([], reader.text["history"], "history"), _sources(reader.text["history_sources"])
    if not rows:
        return []
    histograms = reader.array("history/histogram", np.int64, (len(rows), 2, BINS))
    sizes = [reader.array(f"history/sizes/{number}", np.int64, (len(rows), None, 2)) for number in range(len(sources))]
    columns = {name: reader.array(f"history/steps/{name}", kind, (len(rows), None)) for name, kind in _OF_STEPS.items()}
    return [
        _row(
            row,
            histograms[place],
            {of: each[place] for of, each in zip(sources, sizes, strict=True)},
            StepTable(**{name: column[place] for name, column in columns.items()}),
        )
        for place, row in enumerate(rows)
    ]


def _row(
    row: Mapping[str, Any],
    histogram: NDArray[np.int64],
    sizes: dict[SentBy, NDArray[np.int64]],
    steps: StepTable,
) -> EpochResult:
    checked(_ROW, row, "history")
    end_ps = int(row["virtual_time_ps"])
    return EpochResult(
        int(row["epoch"]),
        float(row["learning_rate"]),
        Tally(*row["train"]),
        Tally(*row["test"]),
        end_ps,
        float(row["host_time_s"]),
        Usage(end_ps, (), ()),
        Exchanged(Traffic(**row["traffic"]), int(row["spent_ps"]), histogram),
        sizes,
        tuple(ResourceUse(*checked(_USE, use, "resources")) for use in checked([], row["resources"])),
        steps,
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
    found = [checked(_SHARE, share, "shares") for share in checked([], reader.text["shares"], "shares")]
    shares = [StepResult(epoch, step, Tally(*of), *rest) for epoch, step, of, *rest in found]
    sources = _sources(reader.text["sources"])
    sizes = {of: reader.array(f"sizes/{number}", np.int64, (None, 2)) for number, of in enumerate(sources)}
    return SoFar(shares, sizes)


def _sources(text: Sequence[Sequence[int]]) -> list[SentBy]:
    return [SentBy(*checked(SentBy(0, 0), of, "sources")) for of in checked([], text, "sources")]
