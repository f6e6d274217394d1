"""A schedule is data: for every device the ordered list of its actions.

Written `0F3v1`: device 0 does the forward propagation (F) of micro-batch 3 with version 1 of its weights. B is error
back-propagation (EB), W the parameter gradients (PG), U the update that makes the next version of the weights, after
all W of a mini-batch: `0W3`, `0U1`. F and B may do a micro-batch in spans of samples, with different weights:
`0F3[0:5]v0` and `0F3[5:16]v1` are its first 5 samples and the others. Where a device holds several stages (interleaved
schedules), `0F3c1v1` is the forward propagation of its chunk 1; chunk 0 is not written.
"""

from __future__ import annotations

import dataclasses
import enum
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence

from .fold import Fold


class Kind(enum.Enum):
    """The kind of an action."""

    FORWARD = "F"
    BACKWARD = "B"
    GRADIENT = "W"
    UPDATE = "U"

    __hash__ = object.__hash__  # members are singletons; Enum's hash is several times slower

    @property
    def before(self) -> Kind | None:
        """What a stage does with a micro-batch before; None for F, and for U, which is of no micro-batch."""
        if self is Kind.BACKWARD:
            return Kind.FORWARD
        return Kind.BACKWARD if self is Kind.GRADIENT else None


PASSES = Kind.FORWARD, Kind.BACKWARD, Kind.GRADIENT
"""What each stage does once with each micro-batch, in this order."""


@dataclasses.dataclass(frozen=True, slots=True)
class Action:
    """One action; `index` is a micro-batch for F, B and W, and the version made for U.

    `version` names the weights that F and B use. `span` is (begin, end) of the samples of the micro-batch, if these are
    not all. `chunk` is the number of the stage among those of the device. `joined` says whether a table of PyTorch's
    has the action after it in the same cell: an F with the B that overlaps it, a B with its W. None leaves that to what
    follows: B and a W of it that comes at once are one cell. `idle` is the number of empty cells ahead of it there.
    """

    kind: Kind
    index: int
    version: int | None = None
    span: tuple[int, int] | None = None
    chunk: int = 0
    joined: bool | None = None
    idle: int = 0

    def moved(self, micro_batches: int, versions: int = 0) -> Action:
        """Return the action with its micro-batch and version shifted by these numbers."""
        version = None if self.version is None else self.version + versions
        return Action(self.kind, self.index + micro_batches, version, self.span, self.chunk, self.joined, self.idle)

    def __str__(self) -> str:
        span = "" if self.span is None else f"[{self.span[0]}:{self.span[1]}]"
        chunk = f"c{self.chunk}" if self.chunk else ""
        return f"{self.kind.value}{self.index}{chunk}{span}" + ("" if self.version is None else f"v{self.version}")


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """Samples begin … end-1 of the epoch, all of one mini-batch, which is also called a step."""

    index: int
    step: int
    begin: int
    end: int

    @property
    def samples(self) -> int:
        """Number of its samples."""
        return self.end - self.begin

    def span_of(self, action: Action) -> SampleSpan:
        """Return the samples that an action works on."""
        return SampleSpan(self, *(action.span or (0, self.samples)))

    @property
    def whole(self) -> SampleSpan:
        """All its samples."""
        return SampleSpan(self, 0, self.samples)


def step_micro_batches(micro_batches: Sequence[MicroBatch], step: int) -> Sequence[MicroBatch]:
    """Return the micro-batches of a mini-batch, of all of an epoch in order."""
    begin, end = (
        bisect(micro_batches, step, key=lambda micro_batch: micro_batch.step) for bisect in (bisect_left, bisect_right)
    )
    return micro_batches[begin:end]


@dataclasses.dataclass(frozen=True)
class SampleSpan:
    """Samples begin … end-1 of a micro-batch, counted from its first."""

    micro_batch: MicroBatch
    begin: int
    end: int

    @property
    def samples(self) -> int:
        """Number of its samples."""
        return self.end - self.begin

    @property
    def is_whole(self) -> bool:
        """Whether this is all of the micro-batch."""
        return self.samples == self.micro_batch.samples

    @property
    def ends(self) -> bool:
        """Whether the micro-batch ends with it."""
        return self.end == self.micro_batch.samples

    @property
    def first(self) -> int:
        """Index of its first sample in the epoch."""
        return self.micro_batch.begin + self.begin

    @property
    def slice(self) -> slice:
        """Its samples as a slice of the epoch."""
        return slice(self.first, self.micro_batch.begin + self.end)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """An epoch's schedule: its micro-batches in order, and each device's actions.

    `programs` returns the actions of the given devices, which are generated as they are read, so that a device needs no
    more memory for an epoch of a million samples than for one of a hundred. There are `chunks` stages on each device,
    which lie in a loop or `in_v`.
    """

    name: str
    devices: int
    micro_batches: Sequence[MicroBatch]
    programs: Callable[[Collection[int]], dict[int, Iterator[Action]]]
    chunks: int = 1
    in_v: bool = False

    @property
    def fold(self) -> Fold:
        """How the stages lie on the devices."""
        return Fold(self.devices, self.chunks, self.in_v)

    @property
    def steps(self) -> int:
        """Number of mini-batches."""
        return self.micro_batches[-1].step + 1 if self.micro_batches else 0

    @property
    def step_samples(self) -> list[int]:
        """Number of samples of each mini-batch."""
        samples = [0] * self.steps
        for micro_batch in self.micro_batches:
            samples[micro_batch.step] += micro_batch.samples
        return samples


def cut_samples(samples: int, batch: int, micro_batch: int) -> list[MicroBatch]:
    """Return micro-batches of at most `micro_batch` samples, cut at mini-batches."""
    micro_batches: list[MicroBatch] = []
    for step, first in enumerate(range(0, samples, batch)):
        last = min(first + batch, samples)
        for begin in range(first, last, micro_batch):
            micro_batches.append(MicroBatch(len(micro_batches), step, begin, min(begin + micro_batch, last)))
    return micro_batches
