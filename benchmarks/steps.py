"""`bench precision --network`: training in number formats beside training in fp32.

Each format is a run of `emuchain train` with all devices in one process, and so is fp32. They train
in turns, as those of `chain` do: one continues while the others are stopped. Time is the processor
time of the run, so what else runs on the machine counts as far as it slows caches and memory; the
ratio is that to fp32's in the same round.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence

from ..emulator.common import InputError, plural
from ..emulator.number import precision_of
from ..kernels import python_command, safe_environment
from . import frame
from .chain import Run, Setting, Turn, ended_in_order, environment_of, ours_command
from .frame import Report, Sheet

BOARDS = "u55c"
"""A cluster whose boards have room for networks in fp32 as in other formats."""
FORMATS = "bf16,mxfp8,mxfp8 rounding=stochastic,mxint8 accumulate=dot:32"
BASE = "fp32"
NOTES = (
    "ms of the processor for a sample, one process; medians of {runs} turns. Ratio: over fp32's in"
    " the same round, the median; the least and the largest beside it."
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A format: milliseconds of the processor for a sample, and over fp32's in each round."""

    format: str
    sample_ms: float
    ratio: float
    least_ratio: float
    largest_ratio: float


def precisions(formats: str) -> list[str]:
    """Return the formats of a list with commas, each once, without fp32.

    Raises:
        InputError: one is unknown, or there is none.
    """
    try:
        names = dict.fromkeys(str(precision_of(name.strip())) for name in formats.split(","))
    except ValueError as error:
        raise InputError(f"--formats {formats!r}: {error}") from None
    others = [name for name in names if name != BASE]
    if not others:
        raise InputError(f"--formats {formats!r}: should have one beside fp32, such as bf16")
    return others


def report(setting: Setting, formats: str) -> Report:
    """Measure training steps in some formats, and in fp32."""
    names = [BASE, *precisions(formats)]
    frame.tell(f"training {setting.network} in turns …")
    rows = rows_of(take_turns(setting, names))
    fields = {**dataclasses.asdict(setting), "rows": [frame.fields_of(row) for row in rows]}
    host, notes = frame.describe_host(None), NOTES.format(runs=setting.runs)
    return Report(host, fields, answer(rows), [sheet(setting, rows)], notes)


def command(setting: Setting, name: str) -> list[str]:
    """Return the command that trains in a format."""
    return [*ours_command(setting), f"--cluster={BOARDS}", f"--precision={name}"]


def take_turns(setting: Setting, names: Sequence[str]) -> dict[str, list[Turn]]:
    """Return the turns of a run in each format."""
    environment = environment_of(1)
    with ended_in_order(), contextlib.ExitStack() as stack:
        warm = python_command("emuchain.kernels.warm")
        subprocess.run(warm, env=safe_environment(os.environ), check=True)
        runs = []
        for name in names:
            run = Run(name, command(setting, name), environment, of_processor=True)
            runs.append(stack.enter_context(run))
            run.turn(0)  # with its start
        turns: dict[str, list[Turn]] = {name: [] for name in names}
        for _ in range(setting.runs):
            for name, run in zip(names, runs, strict=True):
                turns[name].append(run.turn(0))
    return turns


def rows_of(turns: Mapping[str, Sequence[Turn]]) -> list[Row]:
    """Return a row for each format, from its turns and fp32's."""
    rows, base = [], [1 / turn.rate for turn in turns[BASE]]
    for name, mine in turns.items():
        seconds = [1 / turn.rate for turn in mine]
        ratios = [one / other for one, other in zip(seconds, base, strict=True)]
        figures = statistics.median(ratios), min(ratios), max(ratios)
        rows.append(Row(name, 1e3 * statistics.median(seconds), *figures))
    return rows


def answer(rows: Sequence[Row]) -> list[str]:
    """Return each format's time over fp32's."""
    return [f"{row.format}: {row.ratio:.2f} of fp32's time" for row in rows if row.format != BASE]


def sheet(setting: Setting, rows: Sequence[Row]) -> Sheet:
    """Return a table with a row for each format."""
    boards = plural(setting.devices, "device")
    return frame.sheet_of(
        f"{setting.network} on {boards}, mini-batches of {setting.batch} in {setting.micro_batch}",
        1,
        rows,
        ("format", lambda row: row.format),
        ("a sample", lambda row: f"{row.sample_ms:.2f} ms"),
        ("ratio", lambda row: frame.as_ratio(row.ratio)),
        ("least", lambda row: frame.as_ratio(row.least_ratio)),
        ("largest", lambda row: frame.as_ratio(row.largest_ratio)),
    )
