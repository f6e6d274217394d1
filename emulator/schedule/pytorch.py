"""Schedules as the CSV of PyTorch's pipelining schedules (2.13: `_dump_csv` and `_load_csv`).

It has a row for each rank, a cell for each action, its stage first: `0F3`, and for the backward
pass `0B3`, or its two parts `0I3` (errors, our B) and `0W3` (parameter gradients). B in a cell
includes W. R, O and L, as `0R3`, are emuchain's own: PyTorch recomputes within B, if at all.
`(0F3;7B1)OVERLAP_F_B` has F and B that PyTorch runs as one, here one after the other.
Cells may be empty: the rank waits, as it does anyway. It is one mini-batch, whose update comes at
its end, and all of it uses the same weights. Stages lie in a loop, or in a V.

Cells of communication (`compute_comms`) are checked, and not kept: where messages travel follows
from the order. They are carried out with tokens beside the computations of their cells. SEND never
waits, RECV waits at its place for its SEND, F and B for their RECV, as in PyTorch's own simulator
(`_simulate_comms_compute`). What that takes and would still go wrong is refused, too: a cell twice,
and RECVs of a rank in another order than the SENDs to it, since libraries match these by their
order alone. UNSHARD, RESHARD and REDUCE_GRAD, which the simulator does not know, are held to what
the runtime needs of them (`_step_microbatches`): weights are there whenever a stage computes, and
gradients are reduced once, at the end.
"""

from __future__ import annotations

import collections
import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..common import InputError, plural
from .action import MOVES, Action, Fold, Kind, MicroBatch, Schedule, listed

_MOST_TOLD = 8
_SENDS, _RECEIVES = ("SEND_F", "SEND_B"), ("RECV_F", "RECV_B")
_SHARDING, _REDUCES = {"UNSHARD", "RESHARD"}, "REDUCE_GRAD"
"""Where a file has any of these, each stage needs them."""


class Cell(NamedTuple):
    """A cell: F, R, B, I or W of a micro-batch on a stage, or communication, some of which is of no
    micro-batch.
    """

    stage: int
    kind: str
    micro_batch: int | None

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{'' if self.micro_batch is None else self.micro_batch}"

    @property
    def computes(self) -> bool:
        """Whether it is no communication."""
        return len(self.kind) == 1


def has_messages(rows: Sequence[Sequence[Cell]]) -> bool:
    """Return whether cells say where messages are sent; REDUCE_GRAD alone is in tables that leave
    that to PyTorch.
    """
    return not {cell.kind for row in rows for cell in row} <= {*"FRBIWOL", _REDUCES}


def check_comms(rows: Sequence[Sequence[Cell]], fold: Fold, source: str) -> None:
    """Check the communication in the cells of each rank, whose stages are on the ranks that `fold`
    says.

    Raises:
        InputError: which cell waits for ever, and for what; or would do harm. `source` begins the
            message.
    """
    kinds = {cell.kind for row in rows for cell in row}
    if kinds <= {*"FRBIWOL"}:
        return
    for rank, row in enumerate(rows):
        seen = set[Cell]()
        for cell in row:
            if cell in seen and cell.kind in (*_SENDS, *_RECEIVES, _REDUCES):
                raise InputError(f"{source}: rank {rank}: {cell} is done twice")
            if cell.kind in (*_SENDS, *_RECEIVES):
                _check_ends(cell, rank, fold, source)
            seen.add(cell)
        for why in (
            *(_unsharded(row) if kinds & _SHARDING else ()),
            *(_reduced(row) if _REDUCES in kinds else ()),
        ):
            raise InputError(f"{source}: rank {rank}: {why}")
    if has_messages(rows):
        _Run(rows, fold, source).work_off()


def _check_ends(cell: Cell, rank: int, fold: Fold, source: str) -> None:
    """Check that the other end of a message is a stage on another rank."""
    other = _other_end(cell)
    if not 0 <= other < fold.count:
        side = "first" if other < 0 else "last"
        raise InputError(
            f"{source}: rank {rank}: {cell}: stage {cell.stage} is the {side}; there is none beyond"
        )
    if fold.device(other) == rank:
        raise InputError(
            f"{source}: rank {rank}: {cell}: stage {other} is on the same rank, which needs no"
            " message"
        )


def _other_end(cell: Cell) -> int:
    """Return the stage at the other end of a SEND or RECV."""
    return cell.stage + (1 if cell.kind in ("SEND_F", "RECV_B") else -1)


def _unsharded(row: Sequence[Cell]) -> Iterator[str]:
    """Yield what is wrong with UNSHARD and RESHARD of a rank, of which each stage needs some."""
    used = dict[int, bool]()  # stages whose weights are there, and whether they have computed since
    for cell in row:
        stage = cell.stage
        if cell.kind == "UNSHARD":
            if stage in used:
                yield f"{cell} comes twice without {stage}RESHARD between"
            used[stage] = False
        elif cell.kind == "RESHARD":
            if not used.pop(stage, False):
                yield f"{cell} comes without {stage}UNSHARD and a computation ahead of it"
        elif cell.computes:
            if stage not in used:
                yield f"{cell} comes without {stage}UNSHARD, and other stages have it"
            used[stage] = True
    for stage in used:
        yield (
            f"{stage}UNSHARD: no {stage}RESHARD follows, which the next mini-batch's {stage}UNSHARD"
            " needs"
        )


def _reduced(row: Sequence[Cell]) -> Iterator[str]:
    """Yield what is wrong with REDUCE_GRAD of a rank, of which each stage needs one behind all B
    and W.
    """
    reduced = set[int]()
    for cell in row:
        if cell.kind == _REDUCES:
            reduced.add(cell.stage)
        elif cell.kind in ("B", "W") and cell.stage in reduced:
            yield (
                f"{cell} comes behind {cell.stage}REDUCE_GRAD, which reduces all gradients of the"
                " stage"
            )
    for stage in sorted({cell.stage for cell in row if cell.computes} - reduced):
        yield f"never does {stage}REDUCE_GRAD, and other stages do"


class _Run:
    """All ranks, each of which does its cells in order."""

    def __init__(self, rows: Sequence[Sequence[Cell]], fold: Fold, source: str) -> None:
        self._rows, self._fold, self._source = rows, fold, source
        self._next = [0] * len(rows)
        self._done = set[Cell]()
        self._waiting = dict[Cell, list[int]]()  # ranks, by what they wait for
        self._under_way = collections.defaultdict[tuple[int, int], collections.deque[Cell]](
            collections.deque
        )

    def work_off(self) -> None:
        """Do all cells.

        Raises:
            InputError: some wait for ever, or messages do not fit.
        """
        awake = collections.deque(range(len(self._rows)))
        while awake:
            rank = awake.popleft()
            while self._next[rank] < len(self._rows[rank]):
                cell = self._at(rank)
                awaited = self._awaited(cell)
                if awaited is not None and awaited not in self._done:
                    self._waiting.setdefault(awaited, []).append(rank)
                    break
                self._do(cell, rank)
                self._next[rank] += 1
                awake += self._waiting.pop(_token(cell), ())
        if self._waiting:
            raise InputError(f"{self._source}: deadlock: {self._complaint()}")

    def _do(self, cell: Cell, rank: int) -> None:
        """Note a cell as done; messages from one rank to another are taken in the order in which
        they were sent.
        """
        self._done.add(_token(cell))
        if cell.kind in _SENDS:
            self._under_way[rank, self._fold.device(_other_end(cell))].append(cell)
        elif cell.kind in _RECEIVES:
            sender = self._fold.device(_other_end(cell))
            first = self._under_way[sender, rank].popleft()
            if _taker(first) != cell:
                raise InputError(
                    f"{self._source}: rank {rank}: {cell} comes before {_taker(first)}, whose"
                    f" {first} is ahead of {_sender(cell)} on rank {sender}; libraries match"
                    " messages of two ranks by their order"
                )

    def _awaited(self, cell: Cell) -> Cell | None:
        """Return what must be done before a cell; None if it waits for nothing."""
        stage, kind, index = cell
        if kind in _RECEIVES:
            return _sender(cell)
        if kind in _SENDS:
            return Cell(stage, kind[-1], index)
        # W, and what shards or reduces, waits for no other stage: -1 is none.
        behind = {"F": stage - 1, "B": stage + 1, "I": stage + 1}.get(kind, -1)
        if not 0 <= behind < self._fold.count:
            return None
        passes = "F" if kind == "F" else "B"
        if self._fold.device(behind) == self._fold.device(stage):
            return Cell(behind, passes, index)
        return Cell(stage, f"RECV_{passes}", index)

    def _complaint(self) -> str:
        """Return what ranks wait for: for what is in no row, if that is so for any, since others
        may follow from it.
        """
        held = {_token(cell): cell for row in self._rows for cell in row}
        missing = self._waiting.keys() - held or self._waiting.keys()
        waits = sorted((rank, awaited) for awaited in missing for rank in self._waiting[awaited])
        lines = [
            f"rank {rank} waits at {self._at(rank)} for {self._where(cell, held)}"
            for rank, cell in waits
        ]
        more = [f"{len(lines) - _MOST_TOLD} more ranks wait"] if len(lines) > _MOST_TOLD else []
        return "; ".join(lines[:_MOST_TOLD] + more)

    def _at(self, rank: int) -> Cell:
        return self._rows[rank][self._next[rank]]

    def _where(self, awaited: Cell, held: Mapping[Cell, Cell]) -> str:
        if awaited not in held:
            return f"{awaited}, which is in no row"
        return f"{held[awaited]}, which comes later on rank {self._fold.device(awaited.stage)}"


def _token(cell: Cell) -> Cell:
    """Return a cell as what waits for it names it: I is B there."""
    return cell._replace(kind="B") if cell.kind == "I" else cell


def _taker(send: Cell) -> Cell:
    """Return the RECV of a SEND."""
    return Cell(_other_end(send), send.kind.replace("SEND", "RECV"), send.micro_batch)


def _sender(receive: Cell) -> Cell:
    """Return the SEND of a RECV."""
    return Cell(_other_end(receive), receive.kind.replace("RECV", "SEND"), receive.micro_batch)


_CELL = re.compile(
    r"(?P<stage>\d{1,9})(?:(?P<kind>[FRBIWOL]|(?:SEND|RECV)_[FB])(?P<index>\d{1,9})|(?P<whole>UNSHARD|RESHARD|REDUCE_GRAD))"
)
_OVERLAPS = re.compile(r"\((\d{1,9}F\d{1,9});(\d{1,9}[BI]\d{1,9})\)OVERLAP_F_B")
_MOST_RANKS = 8
_KINDS = {
    "F": (Kind.FORWARD,),
    "R": (Kind.RECOMPUTE,),
    "B": (Kind.BACKWARD, Kind.GRADIENT),
    "I": (Kind.BACKWARD,),
    "W": (Kind.GRADIENT,),
    "O": (Kind.OFFLOAD,),
    "L": (Kind.LOAD,),
}


def to_csv(schedule: Schedule) -> str:
    """Return a schedule of one mini-batch as CSV; B that its W follows at once is one cell.

    Raises:
        InputError: it has several mini-batches, or does a micro-batch in parts.
    """
    if schedule.steps != 1:
        raise InputError(
            f"schedule {schedule.name}: has {plural(schedule.steps, 'mini-batch')}; as CSV, it must"
            " be one"
        )
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for device, program in schedule.programs(range(schedule.devices)).items():
        actions = list(program)
        for action in actions:
            if action.span is not None:
                raise InputError(
                    f"schedule {schedule.name}: device {device}: {action}: as CSV, it must be all"
                    " of a micro-batch"
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
            fused = (
                action.joined is not False
                and following is not None
                and _is_gradient_of(following, action)
            )
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
    return action.kind is Kind.GRADIENT and (action.index, action.chunk) == (
        backward.index,
        backward.chunk,
    )


def parse_csv(text: str, source: str = "schedule", name: str = "csv") -> Schedule:
    """Return the schedule that CSV describes; `source` begins the message of an error.

    Micro-batches have one sample each.

    Raises:
        InputError: a cell cannot be read, or stages lie neither in a loop nor in a V.
    """
    try:
        # Empty lines at the end would be ranks without cells.
        rows = list(csv.reader(io.StringIO(text.rstrip()), strict=True))
    except csv.Error as error:
        raise InputError(f"{source}: is not CSV: {error}") from None
    if not rows:
        raise InputError(
            f"{source}: is empty; there must be a row for each rank, of cells such as 0F0 and 0B0"
        )
    placed = [_placed(row, rank, source) for rank, row in enumerate(rows)]
    cells = []
    for row, _ in placed:
        cells.append([work.cell for work in row])
    fold = _fold_of(cells, source)
    if has_messages(cells):
        _check_full(rows, source)
    check_comms(cells, fold, source)
    actions = [list(_actions(row, fold)) for row, _ in placed]
    count = 1 + max((action.index for program in actions for action in program), default=-1)
    # A rank has a cell of each micro-batch. Without the bound, one large number would make as many
    # micro-batches.
    if not 0 < count <= max(map(len, actions)):
        raise InputError(
            f"{source}: has {plural(count, 'micro-batch')}; they are counted from 0 on, and each"
            " has cells F and B"
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
            f"{source}: rank {rank}: {word!r} is not an action such as {rank}F0, {rank}B0,"
            f" {rank}I0, {rank}W0"
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
                    f"{source}: rank {rank}: cell {place} is empty; beside cells of messages,"
                    " PyTorch takes none; leave it out"
                )


def _actions(row: Sequence[_Placed], fold: Fold) -> Iterator[Action]:
    """Yield the actions of a rank; of B, it says that W is in a cell of its own where that follows
    at once.
    """
    computing = [placed for placed in row if placed.cell.computes]
    for (cell, joined, idle), following in itertools.zip_longest(computing, computing[1:]):
        stage, letter, index = cell
        assert index is not None
        if letter == "I" and following is not None and following.cell == cell._replace(kind="W"):
            joined = False
        for kind in _KINDS[letter]:
            version = None if kind is Kind.GRADIENT or kind in MOVES else 0
            yield Action(kind, index, version, None, fold.chunk(stage), joined, idle)
            idle = 0


def _fold_of(rows: Sequence[Sequence[Cell]], source: str) -> Fold:
    """Return how the stages lie on the ranks: in a loop, or all of them in a V.

    Raises:
        InputError: they lie neither way; it says how PyTorch would have them on ranks, or where a
            stage that is on two ranks should be in the way that is closer.
    """
    ranks, stages = len(rows), {cell.stage for row in rows for cell in row}
    chunks = -(-(max(stages, default=0) + 1) // ranks)
    folds = [
        Fold(ranks, chunks),
        *([Fold(ranks, chunks, in_v=True)] if len(stages) == ranks * chunks else []),
    ]
    wrong = []
    for fold in folds:
        place = {stage: fold.device(stage) for stage in stages}
        cells = ((rank, cell) for rank, row in enumerate(rows) for cell in row)
        wrong.append([(rank, cell) for rank, cell in cells if place[cell.stage] != rank])
    fold, misplaced = min(zip(folds, wrong, strict=True), key=lambda tried: len(tried[1]))
    if misplaced:
        raise InputError(f"{source}: {_other_map(rows) or _misplaced(*misplaced[0], fold)}")
    return fold


def _misplaced(rank: int, cell: Cell, fold: Fold) -> str:
    """Return where a cell should be."""
    right = f"stage {cell.stage} must be on rank {fold.device(cell.stage)}"
    return f"rank {rank}: '{cell}': {right} of {fold.devices}{', in a V' * fold.in_v}"


def _other_map(rows: Sequence[Sequence[Cell]]) -> str:
    """Return how stages lie on ranks, and how they may; nothing unless each is on one rank with as
    many F as others.
    """
    held = []
    for row in rows:
        held.append({cell.stage for cell in row})
    forwards = collections.Counter(cell.stage for row in rows for cell in row if cell.kind == "F")
    count = sum(map(len, held))
    if {*forwards} != {*range(count)} or len({*forwards.values()}) != 1 or not all(held):
        return ""
    chunks = -(-count // len(rows))
    ways = {
        name: Fold(len(rows), chunks, in_v)
        for name, in_v in (("a loop", False), ("a V", True))
        if chunks > in_v
    }
    taken = " or ".join(
        f"{name} ({_by_rank(map(way.stages, range(len(rows))))})" for name, way in ways.items()
    )
    return (
        f"stages are on ranks as ({_by_rank(held)}), as PyTorch may have them; emuchain has"
        f" {taken}, as many on each"
    )


def _by_rank(stages: Iterable[Iterable[int]]) -> str:
    """Return the stages of each rank, cut short."""
    ranks = [", ".join(map(str, sorted(held))) for held in stages]
    return "; ".join([*ranks[:_MOST_RANKS], *["…"] * (len(ranks) > _MOST_RANKS)])
