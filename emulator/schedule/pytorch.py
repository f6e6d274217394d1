"""Schedules as the CSV of PyTorch's pipelining schedules (2.13: `_dump_csv` and `_load_csv`).

It has a row for each rank, a cell for each action, its stage first: `0F3`, and for the backward pass `0B3`, or its two
parts `0I3` (errors, our B) and `0W3` (parameter gradients). B in a cell includes W. `(0F3;7B1)OVERLAP_F_B` has F and B
that PyTorch runs as one, here one after the other. Cells may be empty: the rank waits, as it does anyway. It is one
mini-batch, whose update comes at its end, and all of it uses the same weights. Stages lie in a loop, or in a V. Cells
of communication (`compute_comms`) are checked (`comms.py`), and not kept: where messages travel follows from the order.
"""

from __future__ import annotations

import collections
import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..common import InputError, plural
from .action import Action, Kind, MicroBatch, Schedule
from .comms import Cell, check_comms, has_messages
from .fold import Fold
from .text import listed

_CELL = re.compile(
    r"(?P<stage>\d{1,9})(?:(?P<kind>[FBIW]|(?:SEND|RECV)_[FB])(?P<index>\d{1,9})|(?P<whole>UNSHARD|RESHARD|REDUCE_GRAD))"
)
_OVERLAPS = re.compile(r"\((\d{1,9}F\d{1,9});(\d{1,9}[BI]\d{1,9})\)OVERLAP_F_B")
_MOST_RANKS = 8
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
    placed = [_placed(row, rank, source) for rank, row in enumerate(rows)]
    cells = [[each.cell for each in row] for row, _ in placed]
    fold = _fold_of(cells, source)
    if has_messages(cells):
        _check_full(rows, source)
    check_comms(cells, fold, source)
    actions = [list(_actions(row, fold)) for row, _ in placed]
    count = 1 + max((action.index for program in actions for action in program), default=-1)
    if not 0 < count <= max(map(len, actions)):
        raise InputError(
            f"{source}: has {plural(count, 'micro-batch')}; they are counted from 0 on, and each has cells F and B"
        )
    for program, (_, idle) in zip(actions, placed, strict=True):
        program.append(Action(Kind.UPDATE, 1, idle=idle))
    micro_batches = [MicroBatch(index, 0, index, index + 1) for index in range(count)]
    return listed(name, micro_batches, actions, source, in_v=fold.in_v)


class _Placed(NamedTuple):
    """A cell, or one half of it; `joined` and `idle` are those of an `Action`."""

    cell: Cell
    joined: bool | None = None
    idle: int = 0


def _placed(row: Sequence[str], rank: int, source: str) -> tuple[list[_Placed], int]:
    """Return the cells of a rank, and the number of empty ones behind them."""
    placed, idle = list[_Placed](), 0
    for word in map(str.strip, row):
        if not word:
            idle += 1
            continue
        pair = _OVERLAPS.fullmatch(word) if word.startswith("(") else None
        if pair is None:
            placed.append(_Placed(_cell(word, rank, source), None, idle))
        else:
            placed.append(_Placed(_cell(pair[1], rank, source), True, idle))
            placed.append(_Placed(_cell(pair[2], rank, source)))
        idle = 0
    return placed, idle


def _cell(word: str, rank: int, source: str) -> Cell:
    """Return what a word says, which is a cell or half of one."""
    match = _CELL.fullmatch(word)
    if match is None:
        raise InputError(
            f"{source}: rank {rank}: {word!r} is not an action such as {rank}F0, {rank}B0, {rank}I0, {rank}W0"
        )
    stage, kind, index, whole = match.groups()
    return Cell(int(stage), whole or kind, None if whole else int(index))


def _check_full(rows: Sequence[Sequence[str]], source: str) -> None:
    """Check that no cell is empty, beside communication.

    Raises:
        InputError: the first one that is.
    """
    for rank, row in enumerate(rows):
        for place, word in enumerate(row):
            if not word.strip():
                raise InputError(
                    f"{source}: rank {rank}: cell {place} is empty; beside cells of messages, PyTorch takes none;"
                    " leave it out"
                )


def _actions(row: Sequence[_Placed], fold: Fold) -> Iterator[Action]:
    """Yield the actions of a rank; of B, it says that W is in a cell of its own where that follows at once."""
    computing = [placed for placed in row if placed.cell.computes]
    for (cell, joined, idle), following in itertools.zip_longest(computing, computing[1:]):
        stage, letter, index = cell
        assert index is not None
        if letter == "I" and following is not None and following.cell == cell._replace(kind="W"):
            joined = False
        for kind in _KINDS[letter]:
            version = None if kind is Kind.GRADIENT else 0
            yield Action(kind, index, version, None, fold.chunk(stage), joined, idle)
            idle = 0


def _fold_of(rows: Sequence[Sequence[Cell]], source: str) -> Fold:
    """Return how the stages lie on the ranks: in a loop, or all of them in a V.

    Raises:
        InputError: they lie neither way; it says how PyTorch would have them on ranks, or where a stage that is on two
            ranks should be in the way that is closer.
    """
    ranks, stages = len(rows), {cell.stage for row in rows for cell in row}
    chunks = -(-(max(stages, default=0) + 1) // ranks)
    folds = [Fold(ranks, chunks), *([Fold(ranks, chunks, in_v=True)] if len(stages) == ranks * chunks else [])]
    places = [{stage: fold.device(stage) for stage in stages} for fold in folds]
    wrong = [
        [(rank, cell) for rank, row in enumerate(rows) for cell in row if place[cell.stage] != rank] for place in places
    ]
    fold, misplaced = min(zip(folds, wrong, strict=True), key=lambda tried: len(tried[1]))
    if misplaced:
        raise InputError(f"{source}: {_other_map(rows) or _misplaced(*misplaced[0], fold)}")
    return fold


def _misplaced(rank: int, cell: Cell, fold: Fold) -> str:
    """Return where a cell should be."""
    right = f"stage {cell.stage} must be on rank {fold.device(cell.stage)}"
    return f"rank {rank}: '{cell}': {right} of {fold.devices}{', in a V' * fold.in_v}"


def _other_map(rows: Sequence[Sequence[Cell]]) -> str:
    """Return how stages lie on ranks, and how they may; nothing unless each is on one rank with as many F as others."""
    held = [{cell.stage for cell in row} for row in rows]
    forwards = collections.Counter(cell.stage for row in rows for cell in row if cell.kind == "F")
    count = sum(map(len, held))
    if {*forwards} != {*range(count)} or len({*forwards.values()}) != 1 or not all(held):
        return ""
    chunks = -(-count // len(rows))
    ways = {name: Fold(len(rows), chunks, in_v) for name, in_v in (("a loop", False), ("a V", True)) if chunks > in_v}
    taken = " or ".join(f"{name} ({_by_rank(map(way.stages, range(len(rows))))})" for name, way in ways.items())
    return f"stages are on ranks as ({_by_rank(held)}), as PyTorch may have them; emuchain has {taken}, as many on each"


def _by_rank(stages: Iterable[Iterable[int]]) -> str:
    """Return the stages of each rank, cut short."""
    ranks = [", ".join(map(str, sorted(held))) for held in stages]
    return "; ".join([*ranks[:_MOST_RANKS], *["…"] * (len(ranks) > _MOST_RANKS)])
