"""Collectives as data: rounds of steps that say who sends which pieces to whom, added or stored.

A collective is a pure function of the number of ranks and of the topology: a row of phases, each
of which cuts the data into pieces of its own. A step carries pieces that its sender has as its
round begins, and its receiver adds them to its own or stores them. Rounds order steps; a node waits
at the end of its phases, and nothing waits for a round as a whole. Recursive doubling of 4 ranks,
each with one piece, which is a sum of the ranks in brackets:

    round            0         1         2         3
    1      0<>1, 2<>3    [01]      [01]      [23]      [23]
    2      0<>2, 1<>3    [0123]    [0123]    [0123]    [0123]

A dry run (`check`) follows what every piece holds, and refuses a collective that loses or doubles
one. `player.py` times steps; `comm.exchange.played` carries them out, with values.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import by_name, registry, spelled, subclasses
from ..topology import Switch, Topology

ROOT = 0
"""The rank from which data go out, or at which they arrive."""

ON_SWITCH = Switch()
"""Where ranks have one place like any other."""


class CollectiveError(ValueError):
    """A collective cannot have a number of ranks, or its steps are wrong."""


class Way(enum.Flag):
    """How a message is sent and received, other than one while the other goes on."""

    PLAIN = 0
    ACKNOWLEDGED = enum.auto()
    """Its sender sends again once it has arrived."""
    SUM_AFTER_SENDING = enum.auto()
    """Its receiver adds once its own messages of the round are sent."""
    SUM_BEFORE_RECEIVING = enum.auto()
    """Its receiver takes it once its phase has begun, and the next one once the sum is made."""
    AT_A_PORT_OF_ITS_OWN = enum.auto()
    """It is to or from a switch."""


class Step(NamedTuple):
    """A message with the pieces from `first` on, before `stop`; its receiver adds or stores
    them.
    """

    sender: int
    receiver: int
    first: int
    stop: int
    adds: bool = False
    way: Way = Way.PLAIN

    def __str__(self) -> str:
        last = f"-{self.stop - 1}" if self.stop > self.first + 1 else ""
        adds = " add" if self.adds else ""
        return f"{self.sender}>{self.receiver} {self.first}{last}{adds}"


Round = Sequence[Step]
"""Steps that carry what their senders have as the round begins; a rank sends, and receives, its own
in their order.
"""


class Phase(NamedTuple):
    """Rounds of steps with data in a number of equal pieces, or blocks; what stands for weights is
    not compressed.
    """

    pieces: int
    rounds: Sequence[Round]
    of_weights: bool = False


class Goal(enum.Enum):
    """What ranks have before and after: all have the sum, or have the root's data, and so on."""

    SENDRECV = "sendrecv"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALL_REDUCE = "allreduce"
    REDUCE_SCATTER = "reduce-scatter"
    SCATTER = "scatter"
    GATHER = "gather"
    ALL_GATHER = "allgather"
    ALL_TO_ALL = "alltoall"

    @property
    def is_a_sum(self) -> bool:
        """Whether what ranks have after it are sums of what they had."""
        return self in (Goal.REDUCE, Goal.ALL_REDUCE, Goal.REDUCE_SCATTER)

    @property
    def is_in_blocks(self) -> bool:
        """Whether each rank has a block of its own, before or after."""
        return self in (Goal.SCATTER, Goal.GATHER, Goal.ALL_GATHER, Goal.ALL_TO_ALL)


Parts = NDArray[np.uint8]
"""Whether each rank's piece holds the part of each rank, a bit each: (rank, piece, part / 8)."""


@dataclasses.dataclass(frozen=True)
class Collective(abc.ABC):
    """A way to reach a goal; keys of its own are fields."""

    name: ClassVar[str]
    goal: ClassVar[Goal] = Goal.ALL_REDUCE
    needs_switch: ClassVar[bool] = False
    """Whether a node of it is a switch, which some topologies do not have."""
    nodes_beside: ClassVar[int] = 0
    """Nodes that take part beside the ranks, numbered behind them."""

    def problem(self, ranks: int) -> str | None:
        """Return why it cannot have this many ranks; None if it can."""
        return None

    def nodes(self, ranks: int) -> int:
        """Return the number of nodes that take part: the ranks, and those beside them."""
        return ranks + self.nodes_beside

    @abc.abstractmethod
    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """Return the phases; the topology may order ranks.

        Of blocks there is one piece for each rank or, of all-to-all, for each pair of ranks.
        """


def check(collective: Collective, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
    """Return the phases of a collective after a dry run.

    Raises:
        CollectiveError: it cannot have as many ranks; a step is between ranks that are none, or of
            pieces that are none; a piece is lost or doubled.
    """
    problem = collective.problem(ranks)
    if problem is not None:
        raise CollectiveError(problem)
    nodes, phases = collective.nodes(ranks), collective.phases(ranks, topology)
    pieces = math.lcm(*(phase.pieces for phase in phases))
    held = _before(collective.goal, ranks, nodes, pieces)
    doubled = np.zeros_like(held)
    for phase in phases:
        ratio = pieces // phase.pieces
        for number, steps in enumerate(phase.rounds, 1):
            for step in steps:
                _check_step(step, number, nodes, phase.pieces)
            parts = [slice(step.first * ratio, step.stop * ratio) for step in steps]
            # Of before the round: partners exchange what they both had.
            moved = [
                (held[step.sender, part].copy(), doubled[step.sender, part].copy())
                for step, part in zip(steps, parts, strict=True)
            ]
            for step, part, (once, twice) in zip(steps, parts, moved, strict=True):
                own, own_twice = held[step.receiver, part], doubled[step.receiver, part]
                own_twice[...] = twice | own_twice | own & once if step.adds else twice
                own[...] = once | own if step.adds else once
    _check_after(collective.goal, ranks, held, doubled)
    return phases


def _check_step(step: Step, number: int, nodes: int, pieces: int) -> None:
    where = f"round {number}: {step}"
    ends = step.sender, step.receiver
    if not all(0 <= node < nodes for node in ends) or step.sender == step.receiver:
        raise CollectiveError(f"{where}: should be between two of {nodes} nodes, from 0 on")
    if not 0 <= step.first < step.stop <= pieces:
        raise CollectiveError(f"{where}: should have some of {pieces} pieces, from 0 on")


def _before(goal: Goal, ranks: int, nodes: int, pieces: int) -> Parts:
    """Return what pieces hold before."""
    held = np.zeros((nodes, pieces, -(-ranks // 8)), np.uint8)
    for rank in range(ranks):
        byte, bit = rank // 8, 1 << rank % 8
        if goal in (Goal.GATHER, Goal.ALL_GATHER):
            held[rank, rank, byte] = bit
        elif goal is Goal.ALL_TO_ALL:
            held[rank, rank * ranks : (rank + 1) * ranks, byte] = bit
        elif rank == ROOT or goal.is_a_sum:
            held[rank, :, byte] = bit
    return held


def _told_apart(parts: NDArray[np.uint8], ranks: int) -> NDArray[np.bool_]:
    """Return the parts of a rank, a value each: (piece, part)."""
    return np.unpackbits(parts, axis=-1, count=ranks, bitorder="little").astype(np.bool_)


def _check_after(goal: Goal, ranks: int, held: Parts, doubled: Parts) -> None:
    """Check that each rank has what it should, each part once."""
    blocks = np.arange(held.shape[1])
    of_pieces = np.ones((len(blocks), ranks), np.bool_)
    if not goal.is_a_sum:
        owners = {Goal.ALL_TO_ALL: blocks // ranks, Goal.GATHER: blocks, Goal.ALL_GATHER: blocks}
        of_pieces = np.eye(ranks, dtype=np.bool_)[owners.get(goal, blocks * 0 + ROOT)]
    for rank in range(ranks):
        if goal in (Goal.REDUCE, Goal.GATHER) and rank != ROOT:
            continue
        wanted = blocks
        if goal in (Goal.SCATTER, Goal.REDUCE_SCATTER):
            wanted = blocks[rank : rank + 1]
        elif goal is Goal.ALL_TO_ALL:
            wanted = blocks[rank::ranks]
        own, twice = (_told_apart(parts[rank, wanted], ranks) for parts in (held, doubled))
        for number, part in np.argwhere((own != of_pieces[wanted]) | twice).tolist():
            piece = wanted[number]
            what = "has more than once" if own[number, part] else "does not have"
            if not of_pieces[piece, part]:
                what = "should not have"
            raise CollectiveError(f"rank {rank}, piece {piece} {what} the part of rank {part}")


def piece_bounds(count: int, pieces: int) -> list[int]:
    """Return where pieces of `count` values begin, and the last one ends: of equal size, the first
    ones a value longer (INCEPTIONN, Algorithm 1, line 8).
    """
    size, longer = divmod(count, pieces)
    return [place * size + min(place, longer) for place in range(pieces + 1)]


@registry
def collectives() -> Mapping[str, type[Collective]]:
    """Return all kinds of collectives by their names."""
    return by_name(subclasses(__package__, Collective))  # type: ignore[type-abstract]


def sums() -> dict[str, type[Collective]]:
    """Return the kinds after which all ranks have the sum, by their names."""
    return {name: kind for name, kind in collectives().items() if kind.goal is Goal.ALL_REDUCE}


def collective_of(text: str) -> Collective:
    """Return the collective that a text names, perhaps with keys of its own: `ring`, or
    `rings:groups=2`; or that it writes down.

    Raises:
        ValueError: there is no such collective, it has no such keys, or steps are wrong.
    """
    if is_written(text):
        return _Written(tuple(phases_of(text)))
    kind, keys = spelled(text, collectives(), ())
    return kind(**keys)


def as_text(phases: Iterable[Phase]) -> str:
    """Return phases as text, a line for each round: `0>1 0-3 add, 2>3 0-3 add`; before those of a
    phase, its number of pieces: `pieces 4`.
    """
    lines = []
    for phase in phases:
        lines.append(f"pieces {phase.pieces}" + " of weights" * phase.of_weights)
        lines += [", ".join(map(str, steps)) for steps in phase.rounds]
    return "\n".join(lines)


def is_written(text: str) -> bool:
    """Return whether a text has the steps of a collective, and not its name."""
    return _PHASE.match(text) is not None


_STEP = re.compile(r"(\d{1,6})\s*>\s*(\d{1,6})\s+(\d{1,6})(?:\s*-\s*(\d{1,6}))?(\s+add)?")
_COMMENT = re.compile(r"^[ \t]*#.*", re.MULTILINE)
_PHASE = re.compile(r"pieces\s+(\d{1,6})(\s+of\s+weights)?")


def phases_of(text: str) -> list[Phase]:
    """Return the phases of a text as `as_text` writes it, where semicolons may stand for line ends;
    lines that begin with # are ignored.

    Raises:
        CollectiveError: a line is written otherwise.
    """
    phases: list[Phase] = []
    rounds: list[Round] = []
    # First, as a comment may have semicolons.
    lines = re.split("[\\n;]", _COMMENT.sub("", text))
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line:
            continue
        begins = _PHASE.fullmatch(line)
        if begins is not None:
            rounds = []
            phases.append(Phase(int(begins[1]), rounds, begins[2] is not None))
        elif phases:
            rounds.append(tuple(_step_of(part.strip(), number) for part in line.split(",")))
        else:
            raise CollectiveError(f"line {number}: {line!r} should be `pieces` and their number")
    return [phase._replace(rounds=tuple(phase.rounds)) for phase in phases]


@dataclasses.dataclass(frozen=True)
class _Written(Collective):
    """A sum whose steps a user wrote down, for as many ranks as these name."""

    written: tuple[Phase, ...]

    name: ClassVar[str] = "written"

    def problem(self, ranks: int) -> str | None:
        """See `Collective`."""
        rounds = itertools.chain(*(phase.rounds for phase in self.written))
        own = 1 + max((max(step[:2]) for step in itertools.chain(*rounds)), default=-1)
        return None if own == ranks else f"its steps are those of {own} ranks, not of {ranks}"

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        return [*self.written]


def _step_of(text: str, number: int) -> Step:
    match = _STEP.fullmatch(text)
    if match is None:
        raise CollectiveError(f"line {number}: {text!r} should be a step such as `0>1 0-3 add`")
    sender, receiver, first, last, adds = match.groups()
    return Step(int(sender), int(receiver), int(first), int(last or first) + 1, adds is not None)
