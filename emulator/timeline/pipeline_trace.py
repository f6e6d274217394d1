"""A pipeline's timeline in Chrome's trace event format: a device is a process, a queue of actions or a link a thread.

The user's unit of time is a microsecond of the trace; arguments have times exactly, in that unit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fractions import Fraction

from ..schedule import Engines, Kind, Shape
from ..timing import PipelineResult, Sent, Step, Timed
from .chrome import Event, micros, named, write_events

_PS_OF_MICRO = 10**6


def write_pipeline_trace(path: str | os.PathLike[str], shape: Shape, result: PipelineResult, unit_ps: int) -> None:
    """Write actions, messages on links, and arrows from an action to the one that its message feeds.

    Raises:
        InputError: the file cannot be written.
    """
    write_events(path, _Trace(shape, result, unit_ps).events())


class _Trace:
    """The events of a timeline whose unit of time is `unit_ps`."""

    def __init__(self, shape: Shape, result: PipelineResult, unit_ps: int) -> None:
        self._shape, self._result, self._unit_ps = shape, result, unit_ps
        by_turns = shape.machine.engines is Engines.TURNS
        kinds = [kind for kind in Kind if any(each.step.kind is kind for each in result.timed)]
        together = ", ".join(kind.value for kind in kinds)
        self._queue = {kind: together if by_turns else kind.value for kind in kinds}
        self._queues = list(dict.fromkeys(self._queue.values()))

    def events(self) -> Iterator[Event]:
        """Yield names, actions, messages, and arrows."""
        for device in range(self._shape.devices):
            yield from named({"pid": device + 1}, "process", f"device {device}", device + 1)
            for number, queue in enumerate(self._queues):
                thread = self._thread(device, number)
                yield from named(thread, "thread", queue, thread["tid"])
        for sender, receiver in sorted({(sent.sender, sent.receiver) for sent in self._result.sent}):
            thread = self._link(sender, receiver)
            yield from named(thread, "thread", f"link {sender} -> {receiver}", thread["tid"])
        by_step = {timed.step: timed for timed in self._result.timed}
        for timed in self._result.timed:
            args = {"released_by": None if timed.released_by is None else _name(timed.released_by)}
            yield self._slice(self._of(timed), timed.step, timed.start_ps, timed.end_ps, args)
        for number, sent in enumerate(self._result.sent, 1):
            link = self._link(sent.sender, sent.receiver)
            yield self._slice(link, sent.step, sent.start_ps, sent.end_ps, {"arrival": self._plain(sent.arrival_ps)})
            yield from self._arrow(number, sent, by_step)

    def _thread(self, device: int, place: int) -> Event:
        """Return a thread of a device; no two of all devices have the same number."""
        return {"pid": device + 1, "tid": device * (len(self._queues) + self._shape.devices) + place + 1}

    def _of(self, timed: Timed) -> Event:
        return self._thread(timed.device, self._queues.index(self._queue[timed.step.kind]))

    def _link(self, sender: int, receiver: int) -> Event:
        """Return the thread of a link, which is below the device that sends."""
        return self._thread(sender, len(self._queues) + receiver)

    def _slice(self, thread: Event, step: Step, start_ps: int, end_ps: int, args: Event) -> Event:
        times = {"start": self._plain(start_ps), "end": self._plain(end_ps)}
        where = {"micro_batch": step.micro_batch, "stage": step.stage}
        return {
            "ph": "X",
            **thread,
            "ts": self._micros(start_ps),
            "dur": micros(self._trace_ps(end_ps) - self._trace_ps(start_ps)),
            "name": _name(step),
            "cat": step.kind.value,
            "args": {**where, **times, **args},
        }

    def _arrow(self, number: int, sent: Sent, by_step: dict[Step, Timed]) -> Iterator[Event]:
        """Yield the start and the end of the arrow from a message to the action that takes it."""
        onwards = 1 if sent.step.kind is Kind.FORWARD else -1
        target = by_step[sent.step._replace(stage=sent.step.stage + onwards)]
        same = {"id": number, "name": "feeds", "cat": "flow"}
        yield {"ph": "s", **self._link(sent.sender, sent.receiver), "ts": self._micros(sent.start_ps), **same}
        yield {"ph": "f", "bp": "e", **self._of(target), "ts": self._micros(target.start_ps), **same}

    def _trace_ps(self, time_ps: int) -> int:
        return time_ps * _PS_OF_MICRO // self._unit_ps

    def _micros(self, time_ps: int) -> float:
        return micros(self._trace_ps(time_ps))

    def _plain(self, time_ps: int) -> int | float:
        value = Fraction(time_ps, self._unit_ps)
        return int(value) if value.denominator == 1 else float(value)


def _name(step: Step) -> str:
    return f"{step.kind.value}{step.micro_batch} of stage {step.stage}"
