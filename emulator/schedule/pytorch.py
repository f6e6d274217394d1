"""Schedules as the CSV of PyTorch's pipelining schedules (2.13: `_dump_csv` and `_load_csv`).

It has a row for each rank, a cell for each action, its stage first: `0F3`, and for the backward pass `0B3`, or its two
parts `0I3` (errors, our B) and `0W3` (parameter gradients). B in a cell includes W. `(0F3;7B1)OVERLAP_F_B` has F and B
that PyTorch runs as one, here one after the other. Cells may be empty: the rank waits, as it does anyway. It is one
mini-batch, whose update comes at its end, and all of it uses the same weights. Stages lie in a loop, or in a V.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..common import InputError, plural
from .action import Action, Kind, MicroBatch, Schedule
from .fold import Fold
from .text import listed

_COMPUTES = re.compile(r"(?P<stage>\d{1,9})(?P<kind>[FBIW])(?P<micro_batch>\d{1,9})")
_OVERLAPS = re.compile(r"\((?P<forward>\d{1,9}F\d{1,9});(?P<backward>\d{1,9}[BI]\d{1,9})\)OVERLAP_F_B")
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
        actions = list(program)
        for action in actions:
            if action.span is not None:
                raise InputError(
                    f"schedule {schedule.name}: device {device}: {action}: as CSV, it must be all of a micro-batch"
                )
        writer.writerow(_cells(device, actions, schedule.fold))
    return written.getvalue()


def _cells(device: int, actions: Sequence[Action], fold: Fold) -> Iterator[str]:
    """Yield the cells of a device."""
    overlapped, fused = "", False
    for action, following in itertools.zip_longest(actions, actions[1:]):
        if fused:
            fused = False
            continue
        yield from [""] * action.idle
        if action.kind is Kind.UPDATE:
            continue
        letter = action.kind.value
        if action.kind is Kind.BACKWARD:
            fused = action.joined is not False and following is not None and _is_gradient_of(following, action)
            letter = "B" if fused else "I"
        cell = f"{fold.stage(device, action.chunk)}{letter}{action.index}"
        if action.kind is Kind.FORWARD and action.joined and _is_backward(following):
            overlapped = cell
            continue
        yield f"({overlapped};{cell})OVERLAP_F_B" if overlapped else cell
        overlapped = ""


def _is_backward(action: Action | None) -> bool:
    return action is not None and action.kind is Kind.BACKWARD


def _is_gradient_of(action: Action, backward: Action) -> bool:
    return action.kind is Kind.GRADIENT and (action.index, action.chunk) == (backward.index, backward.chunk)


def parse_csv(text: str, source: str = "schedule", name: str = "csv") -> Schedule:
    """Return the schedule that CSV describes; `source` begins the message of an error.

    Micro-batches have one sample each.

    Raises:
        InputError: a cell cannot be read, or stages lie neither in a loop nor in a V.
    """
    try:
        rows = list(csv.reader(io.StringIO(text.rstrip()), strict=True))
    except csv.Error as error:
        raise InputError(f"{source}: is not CSV: {error}") from None
    if not rows:
        raise InputError(f"{source}: is empty; there must be a row for each rank, of cells such as 0F0 and 0B0")
    of_ranks = [_row_actions(row, rank, source) for rank, row in enumerate(rows)]
    fold = _fold_of([placed for placed, _ in of_ranks], source)
    actions = [[action.action(fold) for action in _apart(placed)] for placed, _ in of_ranks]
    count = 1 + max((action.index for program in actions for action in program), default=-1)
    if not 0 < count <= max(map(len, actions)):
        raise InputError(
            f"{source}: has {plural(count, 'micro-batch')}; they are counted from 0 on, and each has cells F and B"
        )
    for program, (_, idle) in zip(actions, of_ranks, strict=True):
        program.append(Action(Kind.UPDATE, 1, idle=idle))
    micro_batches = [MicroBatch(index, 0, index, index + 1) for index in range(count)]
    return listed(name, micro_batches, actions, source, in_v=fold.in_v)


class _Placed(NamedTuple):
    """F, B or W of a micro-batch on a stage, as a cell has it; `joined` and `idle` are those of an `Action`."""

    stage: int
    kind: Kind
    micro_batch: int
    cell: str
    joined: bool | None = None
    idle: int = 0

    def action(self, fold: Fold) -> Action:
        """Return the action of the stage's device."""
        version = None if self.kind is Kind.GRADIENT else 0
        return Action(self.kind, self.micro_batch, version, None, fold.chunk(self.stage), self.joined, self.idle)


def _row_actions(row: Sequence[str], rank: int, source: str) -> tuple[list[_Placed], int]:
    """Return the actions of a rank, and the number of empty cells behind them."""
    actions, idle = list[_Placed](), 0
    for cell in map(str.strip, row):
        if not cell:
            idle += 1
        elif _FOLLOWS.fullmatch(cell) is None:
            first, *others = _of_cell(cell, rank, source)
            actions += [first._replace(idle=idle), *others]
            idle = 0
    return actions, idle


def _of_cell(cell: str, rank: int, source: str) -> Iterator[_Placed]:
    """Yield the actions of a cell."""
    pair = _OVERLAPS.fullmatch(cell)
    if pair is not None:
        yield from _passes(pair["forward"], cell, joined=True)
        yield from _passes(pair["backward"], cell)
    elif _COMPUTES.fullmatch(cell):
        yield from _passes(cell, cell)
    else:
        raise InputError(
            f"{source}: rank {rank}: {cell!r} is not an action such as {rank}F0, {rank}B0, {rank}I0, {rank}W0"
        )


def _passes(word: str, cell: str, joined: bool | None = None) -> Iterator[_Placed]:
    """Yield the actions of a word, which is a cell or half of one."""
    match = _COMPUTES.fullmatch(word)
    assert match is not None
    stage, letter, index = int(match["stage"]), match["kind"], int(match["micro_batch"])
    for kind in _KINDS[letter]:
        yield _Placed(stage, kind, index, cell, False if letter == "I" else joined)


def _apart(row: Sequence[_Placed]) -> Iterator[_Placed]:
    """Yield the actions of a rank, and say of B that W is in a cell of its own where it follows at once."""
    for placed, following in itertools.zip_longest(row, row[1:]):
        w_follows = following is not None and following[:3] == (placed.stage, Kind.GRADIENT, placed.micro_batch)
        yield placed._replace(joined=None) if placed.joined is False and not w_follows else placed


def _fold_of(rows: Sequence[Sequence[_Placed]], source: str) -> Fold:
    """Return how the stages lie on the ranks: in a loop, or all of them in a V.

    Raises:
        InputError: they lie neither way; it says where the first stage should be in the one that is closer.
    """
    ranks, stages = len(rows), {placed.stage for row in rows for placed in row}
    chunks = -(-(max(stages, default=0) + 1) // ranks)
    folds = [Fold(ranks, chunks), *([Fold(ranks, chunks, in_v=True)] if len(stages) == ranks * chunks else [])]
    wrong = [
        [(rank, placed) for rank, row in enumerate(rows) for placed in row if fold.device(placed.stage) != rank]
        for fold in folds
    ]
    fold, misplaced = min(zip(folds, wrong, strict=True), key=lambda tried: len(tried[1]))
    if misplaced:
        rank, placed = misplaced[0]
        raise InputError(
            f"{source}: rank {rank}: {placed.cell!r}: stage {placed.stage} must be on rank {fold.device(placed.stage)}"
            f" of {ranks}{', in a V' * fold.in_v}"
        )
    return fold
