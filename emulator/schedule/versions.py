"""What a device keeps: versions of its weights and features, as its actions want them, and arrays
of micro-batches.

Under `sync` and `fpdeep` every F and B uses the newest version, and an update overwrites it. If a
schedule continues to use older versions (PipeDream's weight stashing: B uses the version of its F),
an update makes a copy, and the older version is freed after its last use. F, B and W each name
versions in ascending order, so a version has had its last use when the next versions that they name
are newer. W names versions from its first action on, or never.

Arrays are put and read in spans of samples. A micro-batch that is put as a whole is kept without a
copy. One that is put in spans is assembled, and may be read in other spans.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .action import MOVES, PASSES, Action, Kind, MicroBatch, SampleSpan


class VersionedAction(NamedTuple):
    """An action, and its effect on the device's versions.

    For an update, `keeps` says whether the version before it, or an older one, may be used again;
    `frees` are the versions whose last use this action was.
    """

    action: Action
    keeps: bool
    frees: tuple[int, ...]


def with_versions(program: Iterable[Action]) -> Iterator[VersionedAction]:
    """Yield the actions of a program with their effect on the versions; read ahead no further than
    needed.
    """
    ahead = _Ahead(program)
    newest, older = 0, collections.deque[int]()  # in ascending order
    for action in ahead:
        keeps, frees = False, list[int]()
        # Otherwise there is nothing to keep or to free, and the program need not be read ahead.
        if older or action.kind is Kind.UPDATE:
            least = ahead.least_version()
            if action.kind is Kind.UPDATE:
                keeps = least is not None and newest >= least
                if keeps:
                    older.append(newest)
                newest = action.index
            while older and (least is None or older[0] < least):
                frees.append(older.popleft())
        yield VersionedAction(action, keeps, tuple(frees))


def weight_copies(program: Iterable[Action]) -> int:
    """Return the most versions of its weights that a device keeps at a time."""
    kept = peak = 1
    for versioned in with_versions(program):
        # An update makes its copy before older versions are freed: at that moment both are there.
        kept += versioned.keeps
        peak = max(peak, kept)
        kept -= len(versioned.frees)
    return peak


def kept_micro_batches(
    program: Iterable[Action], chunks: int, last: Kind, first: Kind = Kind.FORWARD
) -> tuple[int, ...]:
    """Return for each chunk of a device the most micro-batches between the action from which on
    their features are there and the one that needs them last.

    Args:
        program: the device's actions.
        chunks: number of its stages.
        last: the kind of the action that needs a micro-batch's features last.
        first: the kind of the action from which on they are there: B of those that it recomputes;
            R, or F of micro-batches without one. O and L take them away, and bring them back.
    """
    kept, most = [0] * chunks, [0] * chunks
    for action in program:
        begins = action.span is None or not action.span[0]
        kind = action.kind
        if first is Kind.RECOMPUTE and kind is Kind.FORWARD and not action.recomputed:
            kind = first
        moved = kind in MOVES and first is not Kind.BACKWARD
        if (kind is first and begins) or (moved and kind is Kind.LOAD):
            kept[action.chunk] += 1
            most[action.chunk] = max(most[action.chunk], kept[action.chunk])
        elif (action.kind is last and begins) or moved:
            kept[action.chunk] -= 1
    return tuple(most)


class _Ahead:
    """A program that can be read ahead."""

    def __init__(self, program: Iterable[Action]) -> None:
        self._program = iter(program)
        self._read: collections.deque[Action] = collections.deque()
        self._versions = {kind: collections.deque[int]() for kind in PASSES}
        """What actions that are read ahead name, by kind."""
        self._naming = {Kind.FORWARD, Kind.BACKWARD}  # and W, if it names versions

    def __iter__(self) -> Iterator[Action]:
        while self._read or self._reads_on():
            action = self._read.popleft()
            if _names(action):
                self._versions[action.kind].popleft()
                self._naming.add(action.kind)
            yield action

    def least_version(self) -> int | None:
        """Return the least version that F, B and W name next; None if there are no more."""
        while not all(self._versions[kind] for kind in self._naming) and self._reads_on():
            pass
        return min((versions[0] for versions in self._versions.values() if versions), default=None)

    def _reads_on(self) -> bool:
        """Read one more action, and return whether there was one."""
        action = next(self._program, None)
        if action is None:
            return False
        self._read.append(action)
        if action.version is not None and _names(action):
            self._versions[action.kind].append(action.version)
        return True


def _names(action: Action) -> bool:
    """Return whether an action's version matters to what is kept: R has that of its B, which comes
    later.
    """
    return action.version is not None and action.kind is not Kind.RECOMPUTE


Arrays = NDArray[Any]


class SpanStore:
    """Arrays (samples, …) of micro-batches, several of each; `take` allocates an array of a shape
    and a type.
    """

    def __init__(self, take: Callable[[tuple[int, ...], Any], Arrays] = np.empty) -> None:
        self._take = take
        self._held: dict[int, list[Arrays]] = {}

    def __len__(self) -> int:
        """Return the number of micro-batches of which something is held."""
        return len(self._held)

    def room(self, span: SampleSpan, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return the array to write a span's maps into; `shape` is that of one sample. They are
        then kept.
        """
        [held] = self._held_of(span.micro_batch, [(shape, np.float32)])
        return held[span.begin : span.end]

    def put(self, span: SampleSpan, *arrays: Arrays) -> None:
        """Keep the arrays of a span."""
        if span.is_whole:
            self._held[span.micro_batch.index] = list(arrays)
            return
        forms = ((maps.shape[1:], maps.dtype) for maps in arrays)
        for held, maps in zip(self._held_of(span.micro_batch, forms), arrays, strict=True):
            held[span.begin : span.end] = maps

    def _held_of(
        self, micro_batch: MicroBatch, forms: Iterable[tuple[tuple[int, ...], Any]]
    ) -> list[Arrays]:
        """Return a micro-batch's arrays, made now if it has none: of these shapes and types."""
        held = self._held.get(micro_batch.index)
        if held is None:
            shapes = (((micro_batch.samples, *shape), dtype) for shape, dtype in forms)
            held = self._held[micro_batch.index] = [self._take(*form) for form in shapes]
        return held

    def discard(self, index: int) -> None:
        """Forget a micro-batch, if something of it is held."""
        self._held.pop(index, None)

    def give(self, index: int) -> list[Arrays] | None:
        """Return copies of a micro-batch's arrays, and forget it; None if nothing of it is held."""
        held = self._held.pop(index, None)
        return None if held is None else [maps.copy() for maps in held]

    def take_back(self, index: int, arrays: Sequence[Arrays] | None) -> None:
        """Keep what `give` returned."""
        if arrays is None:
            return
        self._held[index] = [self._take(maps.shape, maps.dtype) for maps in arrays]
        for held, maps in zip(self._held[index], arrays, strict=True):
            held[...] = maps

    def read(self, span: SampleSpan) -> list[Arrays]:
        """Return a span of each array that was put; reading the last span frees the micro-batch."""
        index = span.micro_batch.index
        held = self._held.pop(index) if span.ends else self._held[index]
        return held if span.is_whole else [maps[span.begin : span.end] for maps in held]
