"""Checkpoints of a run: all ranks give what they keep, rank 0 writes it, and a later run begins
with it.

A checkpoint is taken where the chain is empty. Then there is one version of the weights, and no
message under way: what is left are the layers' arrays, clocks and counters, and the history. The
order of samples and dropout follow from the seed and the number of the epoch and the sample.

    device 0   F F F . . . . B B B W W W U | F F F
    device 1     F F F . . B B B W W W U   |   F F
    device 2       F F F B B B W W W U     |     F
                                           ^ the chain is empty: a leg ends

Of the history, the use of devices and links is left out: it follows from clocks and counters at the
end of the next epoch.

What codecs have dropped of gradients (`error_feedback`) is a row of values for each phase of a
sender. Rows follow the gradients of a device, so they fit only where the network is cut and
replicated as before. They travel one by one, so that no rank ever holds those of all senders.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....comm.exchange import BINS
from ....launch import Ranks
from ...common import InputError, WholeFile, escaped, plural
from ...device import Tally
from ...network import Network
from ..results import (
    MOST_COUNT,
    ROW,
    STEP,
    EpochRecord,
    Exchanged,
    History,
    Pace,
    Piece,
    ResourceUse,
    SentBy,
    SoFar,
    Spool,
    StepResult,
    Usage,
    Weights,
)
from ..segments import Position
from ..trainer import Trainer
from .checkpoint_file import CheckpointReader, CheckpointWriter, checked
from .layer_states import add_shares, deal_state, deal_weights, gathered_state, kept_kinds

Residuals = Mapping[str, NDArray[np.float32]]
"""The rows on a rank, by replica, device and phase."""


def write_residuals(ranks: Ranks, own: Residuals, writer: CheckpointWriter | None) -> None:
    """Add all ranks' rows to a checkpoint, which rank 0 writes; for all ranks together."""
    for name in _names(ranks, own):
        rows = [row for row in ranks.gather(own.get(name)) if row is not None]
        if writer is not None:
            writer.array(_member(name), rows[0])


def restore_residuals(ranks: Ranks, own: Residuals, reader: CheckpointReader | None) -> None:
    """Set all ranks' rows, in place, to those that rank 0 reads; for all ranks together.

    Raises:
        InputError: the checkpoint has others, as of another number of replicas or another cut.
    """
    said = None
    for name in _names(ranks, own):
        counts = ranks.gather(None if name not in own else own[name].size)
        rows: list[NDArray[np.float32] | None] = [None] * len(counts)
        if reader is not None and said is None:
            [count] = {count for count in counts if count is not None}
            try:
                row = reader.array(_member(name), np.float32, (count,))
                rows = [None if count is None else row for count in counts]
            except InputError as error:
                said = str(error)
        dealt = ranks.deal(rows)
        if dealt is not None:
            own[name][...] = dealt
    for wrong in filter(None, ranks.share(said)):
        raise InputError(wrong)


def _names(ranks: Ranks, own: Residuals) -> list[str]:
    return sorted({name for names in ranks.share([*own]) for name in names})


def _member(name: str) -> str:
    return f"residuals/{name}"


_EXCHANGED = Exchanged().plain()
# Of numbers, none is right or wrong: `correct` is negative.
_TALLY = dataclasses.astuple(Tally(loss=math.nan, correct=-1, step_loss=math.nan))
_SHARE = (0, 0, _TALLY, 0, math.nan, 0)
_USE = dataclasses.astuple(ResourceUse("", 0, 0, ""))


def write_history(
    writer: CheckpointWriter, epochs: Sequence[EpochRecord]
) -> tuple[Iterator[list[dict[str, Any]]], dict[str, Any]]:
    """Add the arrays of finished epochs to a checkpoint; return its JSON key `history` in pieces,
    and other keys.

    What every epoch has is in arrays, so that a checkpoint takes little longer after thousands of
    them.
    """
    history = History.of(epochs)
    _write_columns(writer, history.rows, "history")
    _write_columns(writer, history.steps, "history/steps")
    count = len(history)
    if history.statistics is not None:
        histograms = map(_histograms, history.pieces())
        writer.pieces("history/histogram", np.dtype(np.int64), (count, 2, BINS), histograms)
    sizes = next(history.pieces()).sizes[0] if history else {}
    for number, (source, first) in enumerate(sizes.items()):
        pieces = (_source_sizes(piece, source) for piece in history.pieces())
        writer.pieces(f"history/sizes/{number}", first.dtype, (count, *first.shape), pieces)
    resources = [dataclasses.astuple(use) for use in history[-1].resources] if history else []
    rounded = (
        [dict(counts) for piece in history.pieces() for counts in piece.rounded]
        if history.is_rounded
        else []
    )
    return _rows(history), {"history_sources": [*sizes], "resources": resources, "rounded": rounded}


def _histograms(piece: Piece) -> NDArray[Any]:
    """Return the histograms of a piece's epochs as one array."""
    return np.stack([exchange.histogram for exchange in piece.exchanged])


def _source_sizes(piece: Piece, source: SentBy) -> NDArray[np.int64]:
    """Return the sizes of a source in a piece's epochs as one array."""
    return np.stack([sizes[source] for sizes in piece.sizes])


def _rows(history: History) -> Iterator[list[dict[str, Any]]]:
    for piece in history.pieces():
        if history.statistics is None:
            yield [{}] * len(piece.rows)
        else:
            yield [exchange.plain() for exchange in piece.exchanged]


def _write_columns(writer: CheckpointWriter, records: Spool, place: str) -> None:
    for name, key in _columns(records.dtype, place):
        dtype = _field(np.empty(0, records.dtype), key).dtype
        writer.pieces(
            name, dtype, (len(records),), (_field(piece, key) for piece in records.pieces())
        )


def _read_columns(
    reader: CheckpointReader, dtype: np.dtype[Any], place: str, count: int
) -> NDArray[Any]:
    """Return records of a type from their columns, which are all read before there is room for
    them.
    """
    columns, none = [*_columns(dtype, place)], np.empty(0, dtype)
    read = [reader.array(name, _field(none, key).dtype.type, (count,)) for name, key in columns]
    records = np.empty(count, dtype)
    for (_, key), values in zip(columns, read, strict=True):
        _field(records, key)[:] = values
    return records


def _field(values: NDArray[Any], key: Sequence[str]) -> NDArray[Any]:
    return functools.reduce(lambda values, name: values[name], key, values)


def _columns(dtype: np.dtype[Any], place: str, *key: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the columns of a structured array: its name in a checkpoint, and the fields that lead
    to it.
    """
    for name in dtype.names or ():
        if dtype[name].names:
            yield from _columns(dtype[name], f"{place}/{name}", *key, name)
        else:
            yield f"{place}/{name}", (*key, name)


def history_from(reader: CheckpointReader) -> Iterator[EpochRecord]:
    """Yield the finished epochs of a checkpoint.

    Raises:
        InputError: they are damaged.
    """
    kept, sources = (
        checked([], reader.text["history"], "history"),
        _sources(reader.text["history_sources"]),
    )
    if not kept:
        return
    count = len(kept)
    rows = _read_columns(reader, ROW, "history", count)
    for name, key in _columns(ROW, "history"):
        column, least = _field(rows, key), -MOST_COUNT if key[-1] == "correct" else 0
        if column.dtype.kind == "i" and not least <= column.min() <= column.max() <= MOST_COUNT:
            raise ValueError(f"{name} is out of range")
    if np.diff(rows["steps_end"], prepend=0).min() < 0:
        raise ValueError("history/steps_end becomes less")
    steps = _read_columns(reader, STEP, "history/steps", rows["steps_end"][-1])
    exchanged = [Exchanged()] * count
    if any(kept):
        of_epochs = [checked(_EXCHANGED, row, "history") for row in kept]
        histograms = reader.array("history/histogram", np.int64, (count, 2, BINS))
        exchanged = [Exchanged.of_plain(*both) for both in zip(of_epochs, histograms, strict=True)]
    sizes = [
        reader.array(f"history/sizes/{number}", np.int64, (count, None, 2))
        for number in range(len(sources))
    ]
    uses = [
        ResourceUse(*checked(_USE, use, "resources"))
        for use in checked([], reader.text["resources"], "resources")
    ]
    rounded = [
        checked({}, counts, "rounded")
        for counts in checked([], reader.text.get("rounded", []), "rounded")
    ]
    if rounded and len(rounded) != count:
        raise ValueError(f"rounded has {len(rounded)} epochs, not {count}")
    by_epoch: list[dict[SentBy, NDArray[np.int64]]] = [{} for _ in range(count)]
    for source, column in zip(sources, sizes, strict=True):
        for epoch_sizes, values in zip(by_epoch, column, strict=True):
            epoch_sizes[source] = values
    piece = Piece(rows, steps, exchanged, by_epoch, rounded or [{}] * count)
    for place in range(count):
        epoch = piece.epoch(place)
        usage, own = Usage(epoch.virtual_time_ps, (), ()), tuple(uses) if place == count - 1 else ()
        yield dataclasses.replace(epoch, usage=usage, resources=own)


def so_far_text(writer: CheckpointWriter, so_far: SoFar) -> dict[str, Any]:
    """Return the JSON keys of an epoch that is not finished, after adding its arrays to a
    checkpoint.
    """
    for number, sizes in enumerate(so_far.sizes.values()):
        writer.array(f"sizes/{number}", sizes)
    return {
        "shares": [dataclasses.astuple(share) for share in so_far.shares],
        "sources": [*so_far.sizes],
    }


def so_far_from(reader: CheckpointReader) -> SoFar:
    """Return what a checkpoint knows of the epoch that is not finished.

    Raises:
        InputError: it is damaged.
    """
    rows = [
        checked(_SHARE, share, "shares") for share in checked([], reader.text["shares"], "shares")
    ]
    shares = [StepResult(epoch, step, Tally(*tally), *rest) for epoch, step, tally, *rest in rows]
    sources = _sources(reader.text["sources"])
    sizes = {
        source: reader.array(f"sizes/{number}", np.int64, (None, 2))
        for number, source in enumerate(sources)
    }
    return SoFar(shares, sizes)


def _sources(text: Sequence[Sequence[int]]) -> list[SentBy]:
    return [SentBy(*checked(SentBy(0, 0), row, "sources")) for row in checked([], text, "sources")]


@dataclasses.dataclass(frozen=True)
class Keeping:
    """What all ranks do about checkpoints; the same on each.

    With `same_machine`, clocks and counters continue, too. Otherwise those of a run on other
    devices begin anew, and virtual time continues from the checkpoint's. Where `replicas_differ`,
    as where bits flip, each has its own parameters. With `given_weights`, a run begins with those
    of a file, but for layers that are `drawn`. From the end of `epochs` on, each checkpoint is
    written; before, as `Pace` says. A run that `moves` goes on with another file than it has read.
    Where each replica `shares` what updates keep, a checkpoint has it whole, as of a run where none
    does.
    """

    resumes: bool
    saves: bool
    same_machine: bool = True
    replicas_differ: bool = False
    given_weights: bool = False
    epochs: int = 0
    drawn: frozenset[str] = frozenset()
    moves: bool = False
    shares: bool = False


OnBegin = Callable[[Sequence[EpochRecord], Sequence[StepResult], Position], None]


@dataclasses.dataclass(frozen=True)
class Leader:
    """What rank 0 has: the checkpoint to begin with, the file for those to come, and what to write
    besides.

    `on_begin` is called with the finished epochs, what is known of the next one, and where training
    begins. `weights` are those that a run begins with, if they are given.
    """

    start: CheckpointReader | None
    target: WholeFile | None
    settings: Mapping[str, Any]
    on_begin: OnBegin = lambda *_: None
    weights: Weights | None = None


@dataclasses.dataclass(frozen=True)
class Ended:
    """Where a run ended because a signal asked for it, to some rank."""

    at: Position
    signal: signal.Signals

    @property
    def status(self) -> int:
        """The exit status, by the shell's convention."""
        return 128 + self.signal


class RunCheckpoints:
    """The checkpoints of one run, after each leg and after each epoch. Only rank 0 has a
    `leader`.
    """

    def __init__(
        self, network: Network, ranks: Ranks, keeping: Keeping, leader: Leader | None = None
    ) -> None:
        self._network, self._ranks, self.keeping, self._leader = network, ranks, keeping, leader
        self._pace = Pace()
        self.ended_at: Ended | None = None

    @property
    def saves(self) -> bool:
        """Whether a run that is asked to end can wait until its next checkpoint."""
        return self.keeping.saves

    def begin(self, trainer: Trainer) -> tuple[Trainer, Position]:
        """Make all ranks go on where an earlier run was; return what trains, and where that is."""
        if not self.keeping.resumes:
            if self.keeping.given_weights:
                weights = None if self._leader is None else self._leader.weights
                deal_weights(
                    self._ranks, self._network, trainer.learnt(), weights, self.keeping.drawn
                )
            return trainer, Position()
        reader = None if self._leader is None else self._leader.start
        text = None if reader is None else _of_all_ranks(reader)
        text_at, clocks, (began, began_ps), now_ps = self._ranks.share(text)[0]
        at, same_machine = Position(*text_at), self.keeping.same_machine
        self._check(_no_leg(trainer, at, Position(*began)))
        trainer = (
            trainer.begin_at(Position(*began), began_ps)
            if same_machine
            else trainer.begin_at(at, now_ps, ended=True)
        )
        config = trainer.plan.config
        for layer in trainer.plan.network.layers:
            kinds = kept_kinds(config, config.precision.of(layer.formats))
            for replica, learnt in enumerate(trainer.learnt()):
                read = _nothing if reader is None else reader.of_layer
                whole = replica == 0 or self.keeping.replicas_differ
                deal_state(self._ranks, layer, learnt, read, kinds, replica, whole=whole)
        restore_residuals(self._ranks, trainer.residuals(), reader)
        if same_machine:
            self._check(_restore_clocks(trainer, clocks))
        else:
            self._check(_restored(trainer.take_loss_scale, clocks))
        if reader is not None and self._leader is not None:
            with reader.reading():
                trainer.started_s = time.perf_counter() - float(reader.text["host_time_s"])
                trainer.history[:] = []
                trainer.history.extend(history_from(reader))
                trainer.so_far = so_far_from(reader)
                _check_steps(trainer, at.step)
            reader.close()
            self._leader.on_begin(trainer.history, trainer.so_far.shares, at)
        return trainer, at

    def reach(self, trainer: Trainer, position: Position, ends: bool = False) -> bool:
        """Write a checkpoint, if there is a file for it, and it is due, as it is where training
        `ends`; return whether a signal ends the run here.
        """
        if not self.keeping.saves:
            return False
        number = self._ranks.end_wanted()
        if number:
            self.ended_at = Ended(position, signal.Signals(number))
        shared = self._ranks.share(
            (self._pace.due(trainer.history.nbytes), trainer.now_ps(position))
        )
        if number or ends or position.epoch >= self.keeping.epochs or shared[0][0]:
            self._write(trainer, position, max(now_ps for _, now_ps in shared))
        return bool(number)

    def _write(self, trainer: Trainer, position: Position, now_ps: int) -> None:
        with self._ranks.away(), self._pace.writing(), contextlib.ExitStack() as stack:
            writer = None
            if self._leader is not None and self._leader.target is not None:
                writer = CheckpointWriter(stack.enter_context(self._leader.target.building()))
            for layer in self._network.layers:
                for replica, learnt in enumerate(trainer.learnt()):
                    whole = replica == 0 or self.keeping.replicas_differ
                    state = gathered_state(self._ranks, layer, learnt, whole=whole)
                    if replica == 0 and self.keeping.shares:
                        for others in trainer.learnt()[1:]:
                            add_shares(state, gathered_state(self._ranks, layer, others))
                    if writer is not None:
                        writer.layer(layer, state, replica)
            write_residuals(self._ranks, trainer.residuals(), writer)
            clocks: dict[str, Any] = {}
            for of_rank in self._ranks.gather(trainer.clocks()):
                clocks |= of_rank
            if writer is not None and self._leader is not None:
                rows, text = write_history(writer, trainer.history)
                text |= so_far_text(writer, trainer.so_far)
                host_time_s = time.perf_counter() - trainer.started_s
                writer.finish(
                    {
                        **self._leader.settings,
                        "position": position,
                        "virtual_time_ps": now_ps,
                        "began": trainer.began,
                    }
                    | {"host_time_s": host_time_s, "clocks": clocks, **text},
                    rows,
                )

    def _check(self, wrong: str) -> None:
        """Raise InputError on all ranks if there is something wrong on any."""
        for said in filter(None, self._ranks.share(wrong)):
            raise InputError(
                f"`resume`: the checkpoint is damaged: {said}; begin with an earlier one, or a"
                " new run"
            )

    def close(self) -> None:
        """Let others write the file."""
        if self._leader is not None and self._leader.target is not None:
            self._leader.target.close()


def _of_all_ranks(
    reader: CheckpointReader,
) -> tuple[list[int], dict[str, Any], tuple[list[int], int], int]:
    """Return what all ranks need: position, clocks, where and when these began, and the virtual
    time.
    """
    with reader.reading():
        form = {"position": [0, 0], "virtual_time_ps": 0, "host_time_s": 0.0, "began": [[0, 0], 0]}
        text = checked(form, reader.text, "it")
        if text["position"][0] != len(text["history"]):
            raise ValueError(
                f"its history has {len(text['history'])} epochs, not {text['position'][0]}"
            )
        return text["position"], dict(text["clocks"]), text["began"], text["virtual_time_ps"]


def _check_steps(trainer: Trainer, step: int) -> None:
    """Raise ValueError unless finished epochs, and the one that is not, have as many mini-batches
    as they must.
    """
    if len(trainer.so_far.shares) != step * len(trainer.learnt()):
        raise ValueError(f"it has {len(trainer.so_far.shares)} results of {step} mini-batches")
    if any(len(row.steps.loss) != trainer.legs[-1].last for row in trainer.history):
        raise ValueError("finished epochs have another number of mini-batches")


def _no_leg(trainer: Trainer, at: Position, began: Position) -> str:
    """Return which of a checkpoint's positions is not between two legs; nothing where both are."""
    firsts = {leg.first for leg in trainer.legs}
    for position in (at, began):
        if position.step not in firsts or position > at:
            return (
                f"no checkpoint comes after {plural(position.step, 'mini-batch')} of epoch"
                f" {position.epoch + 1}"
            )
    return ""


def _restore_clocks(trainer: Trainer, clocks: dict[str, Any]) -> str:
    """Let this rank's trainer go on with clocks, if it has any; return what is wrong with them, or
    nothing.
    """
    own = trainer.clocks()
    if not own:  # an idle rank, of more than there are devices
        return ""

    def restore(state: dict[str, Any]) -> None:
        checked(own, state, "its clocks")
        trainer.restore_clocks(state)

    return _restored(restore, clocks)


def _restored(restore: Callable[[dict[str, Any]], None], clocks: dict[str, Any]) -> str:
    """Restore clocks; return what is wrong with them, or nothing."""
    try:
        restore(clocks)
    except (LookupError, TypeError, ValueError) as error:
        return escaped(" ".join(str(error).split()))
    return ""


def _nothing(*_: object) -> Any:
    raise AssertionError("only rank 0 reads")
