"""A schedule is data: for every device the ordered list of its actions.

Written `0F3v1`: device 0 does the forward propagation (F) of micro-batch 3 with version 1 of its weights. B is error
back-propagation (EB), W the parameter gradients (PG), U the update that makes the next version of the weights, after
all W of a mini-batch: `0W3`, `0U1`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterator, Sequence


class Kind(enum.Enum):
    """What a device does."""

    FORWARD = "F"
    BACKWARD = "B"
    GRADIENT = "W"
    UPDATE = "U"


@dataclasses.dataclass(frozen=True)
class Action:
    """One action; `index` is a micro-batch for F, B and W, and the version made for U. `version` matters to F and B."""

    kind: Kind
    index: int
    version: int | None = None

    def __str__(self) -> str:
        return f"{self.kind.value}{self.index}" + ("" if self.version is None else f"v{self.version}")


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """Samples begin … end-1 of the epoch, all of one mini-batch, which is also called a step."""

    index: int
    step: int
    begin: int
    end: int

    @property
    def samples(self) -> int:
        """How many samples it holds."""
        return self.end - self.begin


@dataclasses.dataclass(frozen=True)
class Schedule:
    """An epoch's schedule: its micro-batches in order, and each device's actions.

    `programs` gives the actions of the devices asked for, made as they are read, so that a device needs no more memory
    for an epoch of a million samples than for one of a hundred.
    """

    name: str
    devices: int
    micro_batches: Sequence[MicroBatch]
    programs: Callable[[Collection[int]], dict[int, Iterator[Action]]]

    @property
    def steps(self) -> int:
        """The number of mini-batches."""
        return self.micro_batches[-1].step + 1 if self.micro_batches else 0
