"""Schedules as the CSV of PyTorch's pipelining schedules (2.13: `_dump_csv` and `_load_csv`).

A row for each rank, a cell for each action, its stage first: `0F3`, and for the backward pass `0B3`, or its two parts
`0I3` (errors, our B) and `0W3` (parameter gradients). B in a cell includes W. Cells may be empty: the rank waits. It is
one mini-batch, whose update comes at its end, and all of it uses the same weights.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence

from ..common import InputError, plural
from .action import Action, Kind, MicroBatch, Schedule
from .text import listed

_COMPUTES = re.compile(r"(?P<stage>\d{1,9})(?P<kind>[FBIW])(?P<micro_batch>\d{1,9})")
_FOLLOWS = re.compile(r"\d{1,9}(UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)\d{0,9}")
"""Communication, which follows from the order of the other actions."""

_KINDS = {
    "F": (Kind.FORWARD,),
    "B": (Kind.BACKWARD, Kind.GRADIENT),
    "I": (Kind.BACKWARD,),
    "W": (Kind.GRADIENT,),
}


def to_csv(schedule: Schedule) -> str:
    """Return a schedule of one mini-batch as CSV; B that its W follows at once is one cell.

    Raises:
        InputError: it has several mini-batches, or does a micro-batch in parts.
    """
    if schedule.steps != 1:
        raise InputError(
            f"schedule {schedule.name}: has {plural(schedule.steps, 'mini-batch')}; as CSV, it must be one"
        )
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for device, program in schedule.programs(range(schedule.devices)).items():
        actions = [action for action in program if action.kind is not Kind.UPDATE]
        for action in actions:
            if action.span is not None:
                raise InputError(
                    f"schedule {schedule.name}: device {device}: {action}: as CSV, it must be all of a micro-batch"
                )
        writer.writerow(_cells(device, actions, schedule.devices))
    return written.getvalue()


def _cells(device: int, actions: Sequence[Action], devices: int) -> Iterator[str]:
    """Yield the cells of a device."""
    fused = False
    for action, following in itertools.zip_longest(actions, actions[1:]):
        if fused:
            fused = False
            continue
        letter = action.kind.value
        if action.kind is Kind.BACKWARD:
            fused = following is not None and _is_gradient_of(following, action)
            letter = "B" if fused else "I"
        yield f"{action.chunk * devices + device}{letter}{action.index}"


def _is_gradient_of(action: Action, backward: Action) -> bool:
    return action.kind is Kind.GRADIENT and (action.index, action.chunk) == (backward.index, backward.chunk)


def parse_csv(text: str, source: str = "schedule", name: str = "csv") -> Schedule:
    """Return the schedule that CSV describes; `source` begins the message of an error.

    Micro-batches have one sample each.

    Raises:
        InputError: a cell cannot be read, or a stage is not on its rank: c N + d on rank d of N.
    """
    try:
        rows = list(csv.reader(io.StringIO(text.rstrip()), strict=True))
    except csv.Error as error:
        raise InputError(f"{source}: is not CSV: {error}") from None
    if not rows:
        raise InputError(f"{source}: is empty; there must be a row for each rank, of cells such as 0F0 and 0B0")
    actions = [list(_actions(row, rank, len(rows), source)) for rank, row in enumerate(rows)]
    count = 1 + max((action.index for program in actions for action in program), default=-1)
    if not 0 < count <= max(map(len, actions)):
        raise InputError(
            f"{source}: has {plural(count, 'micro-batch')}; they are counted from 0 on, and each has cells F and B"
        )
    for program in actions:
        program.append(Action(Kind.UPDATE, 1))
    return listed(name, [MicroBatch(index, 0, index, index + 1) for index in range(count)], actions, source)


def _actions(row: Sequence[str], rank: int, ranks: int, source: str) -> Iterator[Action]:
    """Yield the actions of a rank."""
    for cell in map(str.strip, row):
        if not cell or _FOLLOWS.fullmatch(cell):
            continue
        match = _COMPUTES.fullmatch(cell)
        if match is None:
            raise InputError(
                f"{source}: rank {rank}: {cell!r} is not an action such as {rank}F0, {rank}B0, {rank}I0, {rank}W0"
            )
        chunk, of_rank = divmod(int(match["stage"]), ranks)
        if of_rank != rank:
            raise InputError(
                f"{source}: rank {rank}: {cell!r}: stage {match['stage']} must be on rank {of_rank} of {ranks}"
            )
        for kind in _KINDS[match["kind"]]:
            version = None if kind is Kind.GRADIENT else 0
            yield Action(kind, int(match["micro_batch"]), version, chunk=chunk)
