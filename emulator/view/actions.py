"""Whole actions as spans: their lanes and looks, and the drawing of a pipeline in time."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ..schedule import PASSES, Engines, Kind, Shape
from ..timing import PipelineResult, Step
from .spans import Chart, ChartLine, Flow, Lane, Look, Span, Style, Timeline, lines_by_device

_MARKS = {Kind.FORWARD: string.digits, Kind.BACKWARD: string.ascii_lowercase, Kind.GRADIENT: string.ascii_uppercase}
_COLOURS = {Kind.FORWARD: "#56b4e9", Kind.BACKWARD: "#f0a830", Kind.GRADIENT: "#52b788"}
_IDLE = "#eeeeee"
_PALEST = 0.4
"""Share of the colour in that of the last of several chunks; the rest is white."""

ACTION_STYLE = Style(7.2, 0.26, 1.0, bar=0.84, points=6, digit_inches=0.06, edge=0.6, idle=_IDLE)
RANGES = {Kind.FORWARD: "F 0-9", Kind.BACKWARD: "B a-z", Kind.GRADIENT: "W A-Z"}
LEGEND = "F: digits 0-9, B: letters a-z, W: A-Z, each by micro-batch in turn; dot: idle"


class ActionLanes:
    """The lanes of devices: a queue for all actions, or one for each kind, and links below the device that sends."""

    def __init__(self, devices: int, kinds: Collection[Kind], engines: Engines, links: Collection[tuple[int, int]]):
        self.turns, self.kinds = engines is Engines.TURNS, [kind for kind in PASSES if kind in kinds]
        together = ", ".join(kind.value for kind in self.kinds)
        self.queues: dict[tuple[int, Kind], Lane] = {}
        self.links: dict[tuple[int, int], Lane] = {}
        for device in range(devices):
            for kind in self.kinds:
                self.queues[device, kind] = Lane(device, together if self.turns else kind.value)
            for sender, receiver in sorted(links):
                if sender == device:
                    self.links[sender, receiver] = Lane(device, f"link {sender} -> {receiver}")

    @property
    def all(self) -> list[Lane]:
        """All lanes, device by device."""
        lanes = dict.fromkeys([*self.queues.values(), *self.links.values()])
        return sorted(lanes, key=lambda lane: lane.device)

    def lines(self, spans: Sequence[Span]) -> Iterator[ChartLine]:
        """Yield a line for each queue of each device."""
        spans_of = by_lane(spans)
        lanes = [lane for lane in self.all if lane not in self.links.values()]
        lines = ((lane.device, "" if self.turns else lane.title, spans_of.get(lane, ())) for lane in lanes)
        return lines_by_device(lines, "device {device} {what}")


def by_lane(spans: Iterable[Span]) -> Mapping[Lane, list[Span]]:
    """Return the spans of each lane that has any."""
    spans_of = collections.defaultdict[Lane, list[Span]](list)
    for span in spans:
        spans_of[span.lane].append(span)
    return spans_of


def action_look(kind: Kind, micro_batch: int, chunk: int, chunks: int) -> Look:
    """Return how an action is drawn: in the colour of its kind, with the number of its micro-batch."""
    marks = _MARKS[kind]
    return Look(marks[micro_batch % len(marks)], _shade(kind, chunk, chunks), str(micro_batch))


@functools.cache
def _shade(kind: Kind, chunk: int, chunks: int) -> str:
    """Return the colour of a kind, paler from chunk to chunk."""
    share = 1 - (1 - _PALEST) * chunk / max(chunks - 1, 1)
    parts = (int(_COLOURS[kind][place : place + 2], 16) / 255 for place in (1, 3, 5))
    return "#" + "".join(f"{round(255 * (1 - share * (1 - part))):02x}" for part in parts)


def action_keys(kinds: Collection[Kind], chunks: int) -> dict[str, str]:
    """Return what colours mean: kinds of actions by chunk, and idle."""
    shades = {
        kind.value + (f", chunk {chunk}" if chunks > 1 else ""): _shade(kind, chunk, chunks)
        for kind in _COLOURS
        if kind in kinds
        for chunk in range(chunks)
    }
    return {**shades, "idle": _IDLE}


def step_name(step: Step) -> str:
    """Return a step as a slice names it, such as F3 of stage 1."""
    return f"{step.kind.value}{step.micro_batch} of stage {step.stage}"


@dataclasses.dataclass(frozen=True, eq=False)
class PipelineDrawing:
    """A pipeline in time, in the user's unit of time, which is `unit_ps`."""

    shape: Shape
    result: PipelineResult
    unit_ps: int

    def timeline(self) -> Timeline:
        """Return actions, messages on links, and arrows from a message to the action that takes it.

        The unit of time is a microsecond of the trace; arguments have times exactly, in that unit.
        """
        lanes, result = self._lanes, self.result
        by_step = {timed.step: timed for timed in result.timed}
        messages, flows = list[Span](), list[Flow]()
        for sent in result.sent:
            link, onwards = lanes.links[sent.sender, sent.receiver], 1 if sent.step.kind is Kind.FORWARD else -1
            args = {"arrival": self._plain(sent.arrival_ps)}
            messages.append(self._span(link, sent.step, sent.start_ps, sent.end_ps, args))
            taker = by_step[sent.step._replace(stage=sent.step.stage + onwards)]
            flows.append(Flow(link, sent.start_ps, lanes.queues[taker.device, taker.step.kind], taker.start_ps))
        devices = [f"device {device}" for device in range(self.shape.devices)]
        return Timeline(devices, lanes.all, [*self._described(), *messages], flows, self.unit_ps)

    def chart(self, title: str = "") -> Chart:
        """Return the chart of all actions."""
        end_ps = self.result.makespan_ps
        times_ps = (time_ps for timed in self.result.timed for time_ps in (timed.start_ps, timed.end_ps))
        return Chart(
            tuple(self._lanes.lines(self._undescribed)),
            begin_ps=0,
            end_ps=end_ps,
            axis="time; numbers are micro-batches",
            unit_ps=self.unit_ps,
            idle=".",
            grid_ps=math.gcd(end_ps, *times_ps),
            title=title,
            keys=action_keys(self._lanes.kinds, self.shape.chunks),
            style=ACTION_STYLE,
        )

    @functools.cached_property
    def _lanes(self) -> ActionLanes:
        kinds = {timed.step.kind for timed in self.result.timed}
        links = {(sent.sender, sent.receiver) for sent in self.result.sent}
        return ActionLanes(self.shape.devices, kinds, self.shape.machine.engines, links)

    @functools.cached_property
    def _undescribed(self) -> list[Span]:
        """All actions as a chart shows them, which has no words for one."""
        queues = self._lanes.queues
        return [
            Span(queues[device, step.kind], start_ps, end_ps, "", step.kind.value, {}, self._look(step))
            for step, device, start_ps, end_ps, _ in self.result.timed
        ]

    def _described(self) -> list[Span]:
        """All actions as a trace shows them."""
        spans = []
        for timed in self.result.timed:
            lane = self._lanes.queues[timed.device, timed.step.kind]
            args = {"released_by": None if timed.released_by is None else step_name(timed.released_by)}
            spans.append(self._span(lane, timed.step, timed.start_ps, timed.end_ps, args))
        return spans

    def _span(self, lane: Lane, step: Step, start_ps: int, end_ps: int, args: Mapping[str, Any]) -> Span:
        where = {"micro_batch": step.micro_batch, "stage": step.stage}
        times = {"start": self._plain(start_ps), "end": self._plain(end_ps)}
        args = {**where, **times, **args}
        return Span(lane, start_ps, end_ps, step_name(step), step.kind.value, args, self._look(step))

    def _look(self, step: Step) -> Look:
        return action_look(step.kind, step.micro_batch, step.stage // self.shape.devices, self.shape.chunks)

    def _plain(self, time_ps: int) -> int | float:
        value = Fraction(time_ps, self.unit_ps)
        return int(value) if value.denominator == 1 else float(value)
