"""The communication in PyTorch's CSV (`compute_comms`), carried out with tokens beside the computations of its cells.

SEND never waits, RECV waits at its place for its SEND, F and B for their RECV, as in PyTorch's own simulator
(`_simulate_comms_compute`). What that takes and would still go wrong is refused, too: a cell twice, and RECVs of a rank
in another order than the SENDs to it, since libraries match these by their order alone.
UNSHARD, RESHARD and REDUCE_GRAD, which the simulator does not know, are held to what the runtime needs of them
(`_step_microbatches`): weights are there whenever a stage computes, and gradients are reduced once, at the end.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..common import InputError
from .fold import Fold

_MOST_TOLD = 8
_SENDS, _RECEIVES = ("SEND_F", "SEND_B"), ("RECV_F", "RECV_B")
_SHARDING, _REDUCES = {"UNSHARD", "RESHARD"}, "REDUCE_GRAD"
"""Where a file has any of these, each stage needs them."""


class Cell(NamedTuple):
    """A cell: F, B, I or W of a micro-batch on a stage, or communication, some of which is of no micro-batch."""

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
    """Return whether cells say where messages are sent; REDUCE_GRAD alone is in tables that leave that to PyTorch."""
    return not {cell.kind for row in rows for cell in row} <= {*"FBIW", _REDUCES}


def check_comms(rows: Sequence[Sequence[Cell]], fold: Fold, source: str) -> None:
    """Check the communication in the cells of each rank, whose stages are on the ranks that `fold` says.

    Raises:
        InputError: which cell waits for ever, and for what; or would do harm. `source` begins the message.
    """
    kinds = {cell.kind for row in rows for cell in row}
    if kinds <= {*"FBIW"}:
        return
    for rank, row in enumerate(rows):
        seen = set[Cell]()
        for cell in row:
            if cell in seen and cell.kind in (*_SENDS, *_RECEIVES, _REDUCES):
                raise InputError(f"{source}: rank {rank}: {cell} is done twice")
            if cell.kind in (*_SENDS, *_RECEIVES):
                _check_ends(cell, rank, fold, source)
            seen.add(cell)
        for why in (*(_unsharded(row) if kinds & _SHARDING else ()), *(_reduced(row) if _REDUCES in kinds else ())):
            raise InputError(f"{source}: rank {rank}: {why}")
    if has_messages(rows):
        _Run(rows, fold, source).work_off()


def _check_ends(cell: Cell, rank: int, fold: Fold, source: str) -> None:
    """Check that the other end of a message is a stage on another rank."""
    other = _other_end(cell)
    if not 0 <= other < fold.count:
        side = "first" if other < 0 else "last"
        raise InputError(f"{source}: rank {rank}: {cell}: stage {cell.stage} is the {side}; there is none beyond")
    if fold.device(other) == rank:
        raise InputError(f"{source}: rank {rank}: {cell}: stage {other} is on the same rank, which needs no message")


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
        yield f"{stage}UNSHARD: no {stage}RESHARD follows, which the next mini-batch's {stage}UNSHARD needs"


def _reduced(row: Sequence[Cell]) -> Iterator[str]:
    """Yield what is wrong with REDUCE_GRAD of a rank, of which each stage needs one behind all B and W."""
    reduced = set[int]()
    for cell in row:
        if cell.kind == _REDUCES:
            reduced.add(cell.stage)
        elif cell.kind in ("B", "W") and cell.stage in reduced:
            yield f"{cell} comes behind {cell.stage}REDUCE_GRAD, which reduces all gradients of the stage"
    for stage in sorted({cell.stage for cell in row if cell.computes} - reduced):
        yield f"never does {stage}REDUCE_GRAD, and other stages do"


class _Run:
    """All ranks, each of which does its cells in order."""

    def __init__(self, rows: Sequence[Sequence[Cell]], fold: Fold, source: str) -> None:
        self._rows, self._fold, self._source = rows, fold, source
        self._next = [0] * len(rows)
        self._done = set[Cell]()
        self._waiting = dict[Cell, list[int]]()  # ranks, by what they wait for
        self._under_way = collections.defaultdict[tuple[int, int], collections.deque[Cell]](collections.deque)

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
        """Note a cell as done; messages from one rank to another are taken in the order in which they were sent."""
        self._done.add(_token(cell))
        if cell.kind in _SENDS:
            self._under_way[rank, self._fold.device(_other_end(cell))].append(cell)
        elif cell.kind in _RECEIVES:
            sender = self._fold.device(_other_end(cell))
            first = self._under_way[sender, rank].popleft()
            if _taker(first) != cell:
                raise InputError(
                    f"{self._source}: rank {rank}: {cell} comes before {_taker(first)}, whose {first} is ahead of"
                    f" {_sender(cell)} on rank {sender}; libraries match messages of two ranks by their order"
                )

    def _awaited(self, cell: Cell) -> Cell | None:
        """Return what must be done before a cell; None if it waits for nothing."""
        stage, kind, index = cell
        if kind in _RECEIVES:
            return _sender(cell)
        if kind in _SENDS:
            return Cell(stage, kind[-1], index)
        behind = {"F": stage - 1, "B": stage + 1, "I": stage + 1}.get(kind, -1)
        if not 0 <= behind < self._fold.count:
            return None
        passes = "F" if kind == "F" else "B"
        if self._fold.device(behind) == self._fold.device(stage):
            return Cell(behind, passes, index)
        return Cell(stage, f"RECV_{passes}", index)

    def _complaint(self) -> str:
        """Return what ranks wait for: for what is in no row, if that is so for any, since others may follow from it."""
        held = {_token(cell): cell for row in self._rows for cell in row}
        told = self._waiting.keys() - held or self._waiting.keys()
        waits = sorted((rank, awaited) for awaited in told for rank in self._waiting[awaited])
        lines = [f"rank {rank} waits at {self._at(rank)} for {self._where(cell, held)}" for rank, cell in waits]
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
