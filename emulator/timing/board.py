"""A board that takes actions as a whole: when its engines are free, and when its messages arrive.

Under `turns` all actions share one queue; under `split`, F, B and W have one each, and under `shared` one pool. A link
carries one message at a time in each direction. The stages of a board (interleaved schedules) share both. Faults may
slow either. Both the course of a whole chain and the clock of a stage, which learns of messages as they come, ask here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...comm import Observer, Served
from ..schedule import Engines, Kind, Machine, StageCosts, Transport


class Ran(NamedTuple):
    """Start and end of an action, in ps."""

    start_ps: int
    end_ps: int


class Message(NamedTuple):
    """What a stage sends to another for a micro-batch: its time on the link in ps, and its bytes if these are known."""

    takes_ps: int
    size_bytes: int = 0


class Carried(NamedTuple):
    """A message on its link, from `start_ps` to `end_ps`; all of it has come at `arrival_ps`."""

    start_ps: int
    end_ps: int
    arrival_ps: int


@dataclasses.dataclass(frozen=True)
class StageLoads:
    """What the `count` stages of a chain take on a machine.

    `costs` are those of a stage for a number of samples, without transfers. `message` is what a stage sends after F, or
    after B, of a number of samples.
    """

    count: int
    machine: Machine
    costs: Callable[[int, int], StageCosts]
    message: Callable[[Kind, int, int], Message]


Pace = Callable[[int, int, int], int]
"""How long an action takes, from its start in ps, its first sample, and what it would take in ps."""


WirePace = Callable[[int, int, Message], tuple[int, int]]
"""How long a message takes and how much later it arrives, in ps, from its start in ps, its first sample, and itself."""


@dataclasses.dataclass
class Wire:
    """One direction of a link, which carries whole messages in order."""

    name: str
    latency_ps: int
    free_ps: int = 0
    observer: Observer | None = None
    pace: WirePace | None = None

    def carry(self, ran: Ran, message: Message, transport: Transport, sample: int) -> Carried:
        """Carry the message of an action, whose first sample this is since the start of training."""
        begin_ps = max(ran.end_ps if transport is Transport.STORED else ran.start_ps, self.free_ps)
        takes_ps, late_ps = message.takes_ps, 0
        if self.pace is not None:
            takes_ps, late_ps = self.pace(begin_ps, sample, message)
        self.free_ps = begin_ps + takes_ps
        return Carried(begin_ps, self.free_ps, max(ran.end_ps, self.free_ps + self.latency_ps + late_ps))

    def has_carried(self, carried: Carried) -> None:
        """Tell the observer of a message that has been carried."""
        _tell(self.observer, self.name, carried.start_ps, carried.end_ps)


class ActionBoard:
    """The engines of a board, and the links on which it sends, by the receiving board."""

    def __init__(self, number: int, machine: Machine, wires: Mapping[int, Wire]) -> None:
        self.number, self.machine, self.wires = number, machine, wires
        self.observer: Observer | None = None
        self.pace: Pace | None = None
        self.room_ps = 0  # when the features are freed whose room the next F needs
        self.updated_ps: dict[int, int] = {}  # when what an update waits for had come, by stage
        self._free_ps: dict[str, int] = {}  # by queue

    @property
    def free_ps(self) -> int:
        """Time in ps at which nothing runs any more."""
        return max(self._free_ps.values(), default=0)

    def run(self, kind: Kind, ready_ps: int, work_ps: int, sample: int) -> Ran:
        """Run an action, whose first sample this is since the start of training, once its inputs are there."""
        queue = "all" if self.machine.engines is Engines.TURNS else kind.value
        start_ps = max(ready_ps, self._free_ps.get(queue, 0))
        ran = Ran(start_ps, start_ps + self.takes_ps(start_ps, work_ps, sample))
        self._free_ps[queue] = ran.end_ps
        return self.has_run(kind, ran)

    def has_run(self, kind: Kind, ran: Ran) -> Ran:
        """Tell the observer of an action that has run, and return it."""
        _tell(self.observer, f"{kind.value} of device {self.number}", *ran)
        return ran

    def takes_ps(self, start_ps: int, work_ps: int, sample: int) -> int:
        """Return how long work takes that begins at a time in ps."""
        return work_ps if self.pace is None else self.pace(start_ps, sample, work_ps)

    def rest_from(self, time_ps: int) -> None:
        """Let nothing begin before a time in ps."""
        self._free_ps["all"] = max(self._free_ps.get("all", 0), time_ps)

    def observe(self, observer: Observer) -> None:
        """Call `observer` for everything that engines and links serve from now on."""
        self.observer = observer
        for wire in self.wires.values():
            wire.observer = observer

    def state(self) -> dict[str, Any]:
        """Return the training state."""
        wires = [wire.free_ps for wire in self.wires.values()]
        updated = [list(entry) for entry in self.updated_ps.items()]
        return {"free_ps": dict(self._free_ps), "room_ps": self.room_ps, "updated_ps": updated, "wires": wires}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self._free_ps, self.room_ps = dict(state["free_ps"]), state["room_ps"]
        self.updated_ps = dict(state.get("updated_ps", ()))
        for wire, free_ps in zip(self.wires.values(), state["wires"], strict=True):
            wire.free_ps = free_ps


def _tell(observer: Observer | None, name: str, begin_ps: int, end_ps: int) -> None:
    if observer is not None:
        observer(Served(name, np.array([[begin_ps]]), np.array([[end_ps]]), end_ps - begin_ps))
