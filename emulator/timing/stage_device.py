"""A device that takes actions as a whole: when its engines are free, and when its messages leave.

Under `turns` all actions share one queue. Under `split`, F, B and W have engines of their own, and F waits for the room
of the features that are freed ahead of it. A link carries one message at a time in each direction. The stages of a
device (interleaved schedules) share both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...comm import Observer, Served
from ..cluster import Link
from ..schedule import Engines, Kind, Machine, Transport


class Ran(NamedTuple):
    """Start and end of an action, in ps."""

    start_ps: int
    end_ps: int


Pace = Callable[[int, int, int], int]
"""How long an action takes, from its start in ps, its first sample, and what it would take in ps."""


WirePace = Callable[[int, int, int], tuple[int, int]]
"""How long a message takes and how much later it arrives, in ps, from its start in ps, its first sample, its bytes."""


@dataclasses.dataclass
class Wire:
    """One direction of a link, which carries whole messages in order."""

    name: str
    link: Link
    free_ps: int = 0
    observer: Observer | None = None
    pace: WirePace | None = None

    def carry(self, ran: Ran, sent_bytes: int, transport: Transport, sample: int) -> int:
        """Return the arrival time in ps of the message of an action, whose first sample this is since the start."""
        begin_ps = max(ran.end_ps if transport is Transport.STORED else ran.start_ps, self.free_ps)
        if self.pace is None:
            takes_ps, late_ps = self.link.transfer_ps(sent_bytes), 0
        else:
            takes_ps, late_ps = self.pace(begin_ps, sample, sent_bytes)
        self.free_ps = begin_ps + takes_ps
        _tell(self.observer, self.name, begin_ps, self.free_ps)
        return max(ran.end_ps, self.free_ps + self.link.latency_ps + late_ps)


class StageDevice:
    """The engines of a device, and the links on which it sends, by the receiving device."""

    def __init__(self, number: int, machine: Machine, wires: dict[int, Wire]) -> None:
        self.number, self.machine, self.wires = number, machine, wires
        self.observer: Observer | None = None
        self.pace: Pace | None = None
        self._free_ps: dict[str, int] = {}
        self._room_ps = 0  # when the features are freed whose room the next F needs

    def run(self, kind: Kind, ready_ps: int, work_ps: int, sample: int, *, frees: bool) -> Ran:
        """Run an action once its inputs are there.

        `frees` says whether it needs its features last; `sample` is its first one, from the start of training.
        """
        turns = self.machine.engines is Engines.TURNS
        queue = "all" if turns else kind.value
        start_ps = max(ready_ps, self._free_ps.get(queue, 0))
        if kind is Kind.FORWARD and not turns:
            start_ps = max(start_ps, self._room_ps)
        if self.pace is not None:
            work_ps = self.pace(start_ps, sample, work_ps)
        ran = Ran(start_ps, start_ps + work_ps)
        self._free_ps[queue] = ran.end_ps
        if frees:
            self._room_ps = max(self._room_ps, ran.end_ps)
        return self.ran(kind, ran)

    def ran(self, kind: Kind, ran: Ran) -> Ran:
        """Tell observers of an action that has run, and return it."""
        _tell(self.observer, f"{kind.value} of device {self.number}", *ran)
        return ran

    def observe(self, observer: Observer) -> None:
        """Call `observer` for everything that engines and links serve from now on."""
        self.observer = observer
        for wire in self.wires.values():
            wire.observer = observer

    def state(self) -> dict[str, Any]:
        """Return the training state."""
        wires = [wire.free_ps for wire in self.wires.values()]
        return {"free_ps": dict(self._free_ps), "room_ps": self._room_ps, "wires": wires}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._free_ps, self._room_ps = dict(state["free_ps"]), state["room_ps"]
        for wire, free_ps in zip(self.wires.values(), state["wires"], strict=True):
            wire.free_ps = free_ps


def _tell(observer: Observer | None, name: str, begin_ps: int, end_ps: int) -> None:
    if observer is not None:
        observer(Served(name, np.array([[begin_ps]]), np.array([[end_ps]]), end_ps - begin_ps))
