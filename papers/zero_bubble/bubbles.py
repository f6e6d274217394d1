"""Bubbles and rates of schedules for the times that the paper's authors measured (Tables 4 to 6, 8
and 9).

The paper's cost of a schedule is the longest time of a device from its first action to its last. A
rate is of samples a GPU and second. What launches, optimiser and data take is in no time of a
stage: one factor for all, fitted to the model of 1.5 billion parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from ...emulator.explore import SEARCHES, search_order
from ...emulator.schedule import Backward, Machine, Schedule, Shape, StageCosts, pipeline_kind
from ...emulator.timing import schedule_of, time_shape
from ..accl.rows import Row, witnesses
from ..claim import Measured, NoEvidence
from ..constants import kept

_KINDS = {"1f1b": "1f1b-sno", "interleaved": "interleaved", "zb-h1": "zero-bubble"}
_FITTED = "1.5B"
TOKENS = 1024


class Model(NamedTuple):
    """A model of Table 3: heads, and features of a token."""

    heads: int
    features: int

    @property
    def kept_bytes(self) -> int:
        """Bytes that a layer keeps of a sample from F to B."""
        return TOKENS * (34 * self.features + 5 * self.heads * TOKENS)

    @property
    def late(self) -> Fraction:
        """The part of these that is kept from B to W."""
        return Fraction(32 * TOKENS * self.features, self.kept_bytes)


MODELS = {
    "1.5B": Model(24, 2304),
    "6.2B": Model(32, 4096),
    "14.6B": Model(40, 5120),
    "28.3B": Model(48, 6144),
}


def _rows(schedule: str = "") -> list[Row]:
    """Return the rows of both tables, or those of one schedule; times are of a device's stages.

    Raises:
        NoEvidence: there are none.
    """
    rows = [*witnesses("zero_bubble.csv")]
    for row in witnesses("zero_bubble_v.csv"):
        halves = {key.removeprefix("chunk_"): value for key, value in row.items()}
        for key in ("forward_us", "backward_us", "gradient_us"):
            halves[key] = str(2 * int(halves[key]))
        rows.append(halves)
    chosen = [row for row in rows if schedule in ("", row["schedule"])]
    if not chosen:
        raise NoEvidence(f"the folder has no rows of {schedule}")
    return chosen


@kept
def _order(
    name: str, devices: int, count: int, chunks: int, times: tuple[int, ...], late: Fraction
) -> tuple[Schedule, float]:
    """Return the order of a schedule, of whose features a part is kept `late`, and its bubble."""
    forward, errors, gradients, sent = times
    # A chunk's times are whole numbers in a unit of which a device's are as many times as much.
    costs = StageCosts(forward, errors + gradients, gradients, sent * chunks)
    stages = (costs,) * (devices * chunks)
    if name in SEARCHES:
        machine = Machine(backward=Backward.SPLIT)
        shape = Shape(devices, count, stages, machine, chunks)
        searched = search_order(SEARCHES[name], shape, share=late)
        return searched.schedule, float(
            1 - Fraction(costs.work_ps * chunks * count, searched.time_ps)
        )
    kind = pipeline_kind(_KINDS[name])
    shape = Shape(devices, count, stages, kind.machine, chunks)
    return schedule_of(kind, shape)[0], float(time_shape(kind, shape).bubble)


def _of_row(row: Row) -> tuple[Schedule, float]:
    """Return the order of a row's schedule, and its bubble."""
    name, devices = row["schedule"], int(row["stages"])
    chunks = 2 if name == "zb-v" else 1
    if name == "interleaved":
        chunks = int(row["layers"]) // devices  # a layer is a stage
    keys = "forward_us", "backward_us", "gradient_us", "transfer_us"
    times = tuple(int(row[key]) for key in keys)
    late = MODELS[row["model"]].late
    return _order(name, devices, int(row["micro_batches"]), chunks, times, late)


def order_of(row: Row) -> Schedule:
    """Return the order of a row's schedule, for the row's times."""
    return _of_row(row)[0]


def _bubble_of(row: Row) -> float:
    """Return the bubble of a row's schedule."""
    return _of_row(row)[1]


def _worst(deviations: Sequence[float], what: str) -> Measured:
    worst = max(deviations, key=abs)
    return Measured(abs(worst), f"{what}: {len(deviations)} rows, the worst by {worst:+.4f}")


def bubble_points(schedule: str) -> Measured:
    """Return by how much the bubbles of a schedule differ at most from the paper's, as a share of
    time.
    """
    rows = [row for row in _rows(schedule) if row["bubble"]]
    return _worst([_bubble_of(row) - float(row["bubble"]) for row in rows], "ours - published")


def bubble_excess(schedule: str) -> Measured:
    """Return by how much the bubble of a searched order is at most above the paper's, as a share of
    time.
    """
    rows = [row for row in _rows(schedule) if row["bubble"]]
    above = [_bubble_of(row) - float(row["bubble"]) for row in rows]
    least = min(above)
    return Measured(max(above), f"{len(rows)} rows, {least:+.4f} to {max(above):+.4f}")


def bubble_percent(schedule: str) -> Measured:
    """Return by how many percent of the paper's the bubbles of a schedule differ at most."""
    rows = [row for row in _rows(schedule) if row["bubble"]]
    return _worst(
        [100 * (_bubble_of(row) / float(row["bubble"]) - 1) for row in rows], "% of published"
    )


def _ideal_rate(row: Row) -> float:
    """Return the samples a GPU and second of a row's schedule, if only its stages took time."""
    keys = "forward_us", "backward_us", "gradient_us"
    work_us = sum(int(row[key]) for key in keys)
    samples = int(row["samples_per_micro_batch"]) / int(row["stages"])
    return 1e6 * samples * (1 - _bubble_of(row)) / work_us


@kept
def overhead() -> float:
    """Return the part of the ideal rate that is measured, of all rows of 1.5 billion parameters."""
    shares = [
        float(row["rate_measured"]) / _ideal_rate(row) for row in _rows() if row["model"] == _FITTED
    ]
    return sum(shares) / len(shares)


def rate_percent(part: str, schedules: str = "") -> Measured:
    """Return by how many percent rates differ at most from the measured ones: of the `fitted`
    model, or of the `others`; of some schedules, or of all.
    """
    rows = [row for row in _rows() if (row["model"] == _FITTED) is (part == "fitted")]
    share = overhead()
    return _worst(
        [
            100 * (share * _ideal_rate(row) / float(row["rate_measured"]) - 1)
            for row in rows
            if _is_of(row, schedules)
        ],
        "%",
    )


def speed_up_percent(schedules: str = "") -> Measured:
    """Return by how many percent speed-ups over 1F1B differ at most from the measured ones; of some
    schedules, or of all.
    """
    base = {_case(row): row for row in _rows("1f1b")}
    off = []
    for row in _rows():
        plain = base[_case(row)]
        if row["schedule"] != "1f1b" and _is_of(row, schedules):
            ours = _ideal_rate(row) / _ideal_rate(plain)
            measured = float(row["rate_measured"]) / float(plain["rate_measured"])
            off.append(100 * (ours / measured - 1))
    return _worst(off, "%")


def _is_of(row: Row, schedules: str) -> bool:
    return not schedules or row["schedule"] in schedules.split()


def _case(row: Row) -> tuple[str, ...]:
    """Return what rows have in common that differ in their schedule alone."""
    keys = "model", "stages", "micro_batches", "samples_per_micro_batch"
    return tuple(row[key] for key in keys)
