"""Checkpoints of a run: all ranks give what they keep, rank 0 writes it, and a later run begins with it.

A checkpoint is taken where the chain is empty. Then there is one version of the weights, and no message under way: what
is left are the layers' arrays, clocks and counters, and the history. The order of samples and dropout follow from the
seed and the number of the epoch and the sample.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...launch import Ranks
from ..common import InputError, WholeFile, escaped, plural
from ..network import Network
from .checkpoint_file import CheckpointReader, CheckpointWriter, checked
from .history import Pace
from .history_text import history_from, so_far_from, so_far_text, write_history
from .layer_states import deal_state, deal_weights, gathered_state
from .residuals import restore_residuals, write_residuals
from .segments import Position
from .steps import EpochResult, StepResult, Weights
from .trainer import Trainer


@dataclasses.dataclass(frozen=True)
class Keeping:
    """What all ranks do about checkpoints; the same on each.

    With `same_machine`, clocks and counters continue, too. Otherwise those of a run on other devices begin anew, and
    virtual time continues from the checkpoint's. Where `replicas_differ`, as where bits flip, each has its own
    parameters. With `given_weights`, a run begins with those of a file, but for layers that are `drawn`. From the end
    of `epochs` on, each checkpoint is written; before, as `Pace` says. A run that `moves` goes on with another file
    than it has read.
    """

    resumes: bool
    saves: bool
    same_machine: bool = True
    replicas_differ: bool = False
    given_weights: bool = False
    epochs: int = 0
    drawn: frozenset[str] = frozenset()
    moves: bool = False


OnBegin = Callable[[Sequence[EpochResult], Sequence[StepResult], Position], None]


@dataclasses.dataclass(frozen=True)
class Leader:
    """What rank 0 has: the checkpoint to begin with, the file for those to come, and what to write besides.

    `kinds` are what is kept of each parameter: its value, and what the optimiser keeps. `on_begin` is called with the
    finished epochs, what is known of the next one, and where training begins. `weights` are those that a run begins
    with, if they are given.
    """

    start: CheckpointReader | None
    target: WholeFile | None
    settings: Mapping[str, Any]
    kinds: tuple[str, ...]
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
    """The checkpoints of one run, after each leg and after each epoch. Only rank 0 has a `leader`."""

    def __init__(self, network: Network, ranks: Ranks, keeping: Keeping, leader: Leader | None = None) -> None:
        self._network, self._ranks, self.keeping, self._leader = network, ranks, keeping, leader
        self._kinds, self._pace = () if leader is None else leader.kinds, Pace()
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
                deal_weights(self._ranks, self._network, trainer.learnt(), weights, self.keeping.drawn)
            return trainer, Position()
        reader = None if self._leader is None else self._leader.start
        text = None if reader is None else _of_all_ranks(reader)
        text_at, clocks, (began, began_ps), now_ps = self._ranks.share(text)[0]
        at, same_machine = Position(*text_at), self.keeping.same_machine
        self._check(_no_leg(trainer, at, Position(*began)))
        trainer = trainer.begin_at(Position(*began), began_ps) if same_machine else trainer.begin_at(at, now_ps)
        for layer in self._network.layers:
            for replica, learnt in enumerate(trainer.learnt()):
                read = _nothing if reader is None else reader.of_layer
                whole = replica == 0 or self.keeping.replicas_differ
                deal_state(self._ranks, layer, learnt, read, self._kinds, replica, whole=whole)
        restore_residuals(self._ranks, trainer.residuals(), reader)
        if same_machine:
            self._check(_restore_clocks(trainer, clocks))
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

    def reach(self, trainer: Trainer, position: Position) -> bool:
        """Write a checkpoint, if there is a file for it, and it is due; return whether the run ends here."""
        if not self.keeping.saves:
            return False
        number = self._ranks.end_wanted()
        if number:
            self.ended_at = Ended(position, signal.Signals(number))
        shared = self._ranks.share((self._pace.due(trainer.history.nbytes), trainer.now_ps(position)))
        if number or position.epoch >= self.keeping.epochs or shared[0][0]:
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
                    {**self._leader.settings, "position": position, "virtual_time_ps": now_ps, "began": trainer.began}
                    | {"host_time_s": host_time_s, "clocks": clocks, **text},
                    rows,
                )

    def _check(self, wrong: str) -> None:
        """Raise InputError on all ranks if there is something wrong on any."""
        for said in filter(None, self._ranks.share(wrong)):
            raise InputError(f"`resume`: the checkpoint is damaged: {said}; begin with an earlier one, or a new run")

    def close(self) -> None:
        """Let others write the file."""
        if self._leader is not None and self._leader.target is not None:
            self._leader.target.close()


def _of_all_ranks(reader: CheckpointReader) -> tuple[list[int], dict[str, Any], tuple[list[int], int], int]:
    """Return what all ranks need: position, clocks, where and when these began, and the virtual time."""
    with reader.reading():
        form = {"position": [0, 0], "virtual_time_ps": 0, "host_time_s": 0.0, "began": [[0, 0], 0]}
        text = checked(form, reader.text, "it")
        if text["position"][0] != len(text["history"]):
            raise ValueError(f"its history has {len(text['history'])} epochs, not {text['position'][0]}")
        return text["position"], dict(text["clocks"]), text["began"], text["virtual_time_ps"]


def _check_steps(trainer: Trainer, step: int) -> None:
    """Raise ValueError unless finished epochs, and the one that is not, have as many mini-batches as they must."""
    if len(trainer.so_far.shares) != step * len(trainer.learnt()):
        raise ValueError(f"it has {len(trainer.so_far.shares)} results of {step} mini-batches")
    if any(len(row.steps.loss) != trainer.legs[-1].last for row in trainer.history):
        raise ValueError("finished epochs have another number of mini-batches")


def _no_leg(trainer: Trainer, at: Position, began: Position) -> str:
    """Return which of a checkpoint's positions is not between two legs; nothing where both are."""
    firsts = {leg.first for leg in trainer.legs}
    for position in (at, began):
        if position.step not in firsts or position > at:
            return f"no checkpoint comes after {plural(position.step, 'mini-batch')} of epoch {position.epoch + 1}"
    return ""


def _restore_clocks(trainer: Trainer, clocks: dict[str, Any]) -> str:
    """Let this rank's trainer go on with clocks, if it has any; return what is wrong with them, or nothing."""
    own = trainer.clocks()
    if not own:  # an idle rank, of more than there are devices
        return ""
    try:
        checked(own, clocks, "its clocks")
        trainer.restore_clocks(clocks)
    except (LookupError, TypeError, ValueError) as error:
        return escaped(" ".join(str(error).split()))
    return ""


def _nothing(*_: object) -> Any:
    raise AssertionError("only rank 0 reads")
