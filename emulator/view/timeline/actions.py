"""Whole actions as spans: lanes and looks, a pipeline in time, and a run of boards that take
actions as a whole.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from ...schedule import MOVES, Action, Backward, Engines, Kind, Shape
from ...timing import (
    Course,
    FeatureBytes,
    PipelineResult,
    Step,
    Timed,
    exchange_name,
    kept_courses,
)
from .samples import Kept, RunSamples, SpanRecorder, Window, kept_by
from .spans import Chart, ChartLine, Flow, Lane, Look, Span, Style, Timeline, lines_by_device

_MARKS = {
    Kind.FORWARD: string.digits,
    Kind.RECOMPUTE: "αβγδεζηθικλμνξοπρστυφχψω",
    Kind.BACKWARD: string.ascii_lowercase,
    Kind.GRADIENT: string.ascii_uppercase,
    Kind.OFFLOAD: "<",
    Kind.LOAD: ">",
}
_COLOURS = {
    Kind.FORWARD: "#56b4e9",
    Kind.RECOMPUTE: "#b79ae0",
    Kind.BACKWARD: "#f0a830",
    Kind.GRADIENT: "#52b788",
    Kind.OFFLOAD: "#999999",
    Kind.LOAD: "#666666",
}
_IDLE = "#eeeeee"
_PALEST = 0.4
"""Share of the colour in that of the last of several chunks; the rest is white."""

ACTION_STYLE = Style(7.2, 0.26, 1.0, bar=0.84, points=6, digit_inches=0.06, edge=0.6, idle=_IDLE)
RANGES = {
    Kind.FORWARD: "F 0-9",
    Kind.RECOMPUTE: "R α-ω",
    Kind.BACKWARD: "B a-z",
    Kind.GRADIENT: "W A-Z",
    Kind.OFFLOAD: "O <",
    Kind.LOAD: "L >",
}


class ActionLanes:
    """The lanes of devices: a queue for all actions, or one for each kind, and links below the
    device that sends.
    """

    # Engines take turns:                      engines are split:
    #   device 0  F, B   [F0][F1]   [B0]         device 0  F   [F0][F1]
    #             0 -> 1     [F0][F1]                      B           [B0]
    #   device 1  F, B       [F0][B0]                      0 -> 1 [F0][F1]
    #             1 -> 0             [B0]        ...

    def __init__(
        self,
        devices: int,
        kinds: Collection[Kind],
        engines: Engines,
        links: Collection[tuple[int, int]],
    ):
        self.turns, self.kinds = (
            engines is Engines.TURNS,
            [kind for kind in RANGES if kind in kinds],
        )
        together = ", ".join(kind.value for kind in self.kinds if kind not in MOVES)
        self.queues: dict[tuple[int, Kind], Lane] = {}
        self.links: dict[tuple[int, int], Lane] = {}
        for device in range(devices):
            for kind in self.kinds:
                shared = self.turns and kind not in MOVES
                self.queues[device, kind] = Lane(device, together if shared else kind.value)
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
        apart = {kind.value for kind in MOVES}
        lines = (
            (
                lane.device,
                "" if self.turns and lane.title not in apart else lane.title,
                spans_of.get(lane, ()),
            )
            for lane in lanes
        )
        return lines_by_device(lines, "device {device} {what}")


def by_lane(spans: Iterable[Span]) -> Mapping[Lane, list[Span]]:
    """Return the spans of each lane that has any."""
    spans_of = collections.defaultdict[Lane, list[Span]](list)
    for span in spans:
        spans_of[span.lane].append(span)
    return spans_of


def action_look(kind: Kind, micro_batch: int, chunk: int, chunks: int) -> Look:
    """Return how an action is drawn: in the colour of its kind, with the number of its
    micro-batch.
    """
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
    """A pipeline in time, in the user's unit of time, which is `unit_ps`; `courses` are what its
    devices keep, if that is known in bytes.
    """

    shape: Shape
    result: PipelineResult
    unit_ps: int
    courses: Sequence[Course] = ()

    def timeline(self) -> Timeline:
        """Return actions, messages on links, and arrows from a message to the action that takes it.

        The unit of time is a microsecond of the trace; arguments have times exactly, in that unit.
        """
        lanes, result = self._lanes, self.result
        by_step = {timed.step: timed for timed in result.timed}
        messages, flows = list[Span](), list[Flow]()
        for sent in result.sent:
            link, onwards = (
                lanes.links[sent.sender, sent.receiver],
                1 if sent.step.kind is Kind.FORWARD else -1,
            )
            args = {"arrival": self._plain(sent.arrival_ps)}
            messages.append(self._span(link, sent.step, sent.start_ps, sent.end_ps, args))
            taker = by_step[sent.step._replace(stage=sent.step.stage + onwards)]
            flows.append(
                Flow(
                    link, sent.start_ps, lanes.queues[taker.device, taker.step.kind], taker.start_ps
                )
            )
        devices = [f"device {device}" for device in range(self.shape.devices)]
        return Timeline(devices, lanes.all, [*self._described(), *messages], flows, self.unit_ps)

    def chart(self, title: str = "") -> Chart:
        """Return the chart of all actions."""
        end_ps = self.result.makespan_ps
        times_ps = (
            time_ps for timed in self.result.timed for time_ps in (timed.start_ps, timed.end_ps)
        )
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
            courses=self.courses,
        )

    @property
    def legend(self) -> str:
        """What the marks of a chart mean."""
        again = ", R: α-ω" * (Kind.RECOMPUTE in self._lanes.kinds)
        moves = ", O: <, L: >" * (Kind.OFFLOAD in self._lanes.kinds)
        return (
            f"F: digits 0-9{again}, B: letters a-z, W: A-Z{moves}, each by micro-batch in turn;"
            " dot: idle"
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
            Span(
                queues[device, step.kind],
                start_ps,
                end_ps,
                "",
                step.kind.value,
                {},
                self._look(step),
            )
            for step, device, start_ps, end_ps, _ in self.result.timed
        ]

    def _described(self) -> list[Span]:
        """All actions as a trace shows them."""
        spans = []
        for timed in self.result.timed:
            lane = self._lanes.queues[timed.device, timed.step.kind]
            args = {
                "released_by": None if timed.released_by is None else step_name(timed.released_by)
            }
            spans.append(self._span(lane, timed.step, timed.start_ps, timed.end_ps, args))
        return spans

    def _span(
        self, lane: Lane, step: Step, start_ps: int, end_ps: int, args: Mapping[str, Any]
    ) -> Span:
        where = {"micro_batch": step.micro_batch, "stage": step.stage}
        times = {"start": self._plain(start_ps), "end": self._plain(end_ps)}
        args = {**where, **times, **args}
        return Span(
            lane, start_ps, end_ps, step_name(step), step.kind.value, args, self._look(step)
        )

    def _look(self, step: Step) -> Look:
        return action_look(
            step.kind, step.micro_batch, step.stage // self.shape.devices, self.shape.chunks
        )

    def _plain(self, time_ps: int) -> int | float:
        value = Fraction(time_ps, self.unit_ps)
        return int(value) if value.denominator == 1 else float(value)


class _Work(NamedTuple):
    """An action of a run on some samples, counted since the start of the run."""

    action: Action
    stage: int
    epoch: int
    samples: range


@dataclasses.dataclass(frozen=True)
class ActionRun:
    """A run of whole actions, of which those on a window of samples are shown."""

    samples: RunSamples
    window: Window

    def recorder(self) -> SpanRecorder:
        """Return the observer of the run: queues serve actions, and links their messages, in the
        order of programs.
        """
        steps = dict.fromkeys(self._exchanges, self.samples.steps(self.window))
        return SpanRecorder({**self._works, **steps})

    @functools.cached_property
    def _works(self) -> Mapping[str, Mapping[int, _Work]]:
        """For each queue and link, the work of the window by its number among all that the resource
        serves.
        """
        plan, schedule, length = self.samples.plan, self.samples.schedule, self.samples.samples
        epochs = range(self.window.first // length, self.window.last // length + 1)
        works: dict[str, dict[int, _Work]] = {}
        for device, program in schedule.programs(range(plan.devices)).items():
            served, shown = collections.Counter[str](), list[tuple[str, int, int, _Work]]()
            for action in program:
                if action.kind is Kind.UPDATE:
                    continue
                stage = plan.fold.stage(device, action.chunk)
                span = schedule.micro_batches[action.index].span_of(action)
                resources = [resource for resource, _ in self._resources(action.kind, stage)]
                for epoch in epochs:
                    samples = range(epoch * length + span.first, epoch * length + span.slice.stop)
                    if samples.start <= self.window.last and samples.stop > self.window.first:
                        work = _Work(action, stage, epoch + 1, samples)
                        shown += [
                            (resource, epoch, served[resource], work) for resource in resources
                        ]
                served.update(resources)
            # Each epoch repeats the program, so in epoch e a resource has served e times all of it
            # before.
            for resource, epoch, number, work in shown:
                works.setdefault(resource, {})[epoch * served[resource] + number] = work
        return works

    def _resources(self, kind: Kind, stage: int) -> Iterator[tuple[str, Lane]]:
        """Yield what serves an action of a stage: a queue of its device, and the link that its
        message takes.
        """
        plan, device = self.samples.plan, self.samples.plan.fold.device(stage)
        if kind in self._lanes.kinds:
            yield f"{kind.value} of device {device}", self._lanes.queues[device, kind]
        # F is sent to the stage behind, B to the one before; W stays, and so does what the ends of
        # the pipeline make.
        taker = stage + {Kind.FORWARD: 1, Kind.BACKWARD: -1}.get(kind, 0)
        receiver = plan.fold.device(taker) if 0 <= taker < plan.stage_count else device
        if receiver != device:
            yield f"link {device} -> {receiver}", self._lanes.links[device, receiver]

    @functools.cached_property
    def _lanes(self) -> ActionLanes:
        plan = self.samples.plan
        assert plan.stages is not None
        machine, devices = plan.stages.machine, plan.devices
        kinds = [
            kind
            for kind in RANGES
            if (kind is not Kind.GRADIENT or machine.backward is Backward.SPLIT)
            and (kind is not Kind.RECOMPUTE or plan.config.schedule.recomputes)
            and (kind not in MOVES or plan.config.schedule.offloads)
        ]
        fold, stages = plan.fold, range(plan.stage_count - 1)
        pairs = ((fold.device(stage), fold.device(stage + 1)) for stage in stages)
        links = {
            link for one, other in pairs if one != other for link in ((one, other), (other, one))
        }
        return ActionLanes(devices, kinds, machine.engines, links)

    @functools.cached_property
    def _exchanges(self) -> Mapping[str, Lane]:
        """The lanes of exchanges with other replicas, by resource; each stage has one."""
        plan = self.samples.plan
        stages = range(plan.stage_count if plan.data_parallel.replicas > 1 else 0)
        ahead = {stage: f"stage {stage}: " if plan.chunks > 1 else "" for stage in stages}
        return {
            exchange_name(n): Lane(plan.fold.device(n), f"{ahead[n]}exchange of gradients")
            for n in stages
        }

    @property
    def lanes(self) -> list[Lane]:
        """All lanes, device by device."""
        return sorted([*self._lanes.all, *self._exchanges.values()], key=lambda lane: lane.device)

    def timeline(self, recorders: Collection[SpanRecorder], level: object = None) -> Timeline:
        """Return actions, messages and exchanges, and arrows from a message to the action that
        takes it.
        """
        works = [(span, work) for span, work in self._recorded(recorders) if work is not None]
        spans = sorted(
            (span for span, _ in self._recorded(recorders)), key=lambda span: span.start_ps
        )
        return Timeline(self.samples.devices, self.lanes, spans, self._flows(works))

    def chart(
        self, recorders: Collection[SpanRecorder], shown: Window, *, all_lanes: bool
    ) -> Chart:
        """Return the chart of the time in which the shown samples are worked on, with all that runs
        then.

        `all_lanes` gives each lane a line of its own, links and exchanges too.
        """
        recorded = self._recorded(recorders)
        spans, numbers = [span for span, _ in recorded], shown.numbers
        worked = [
            s
            for s, w in recorded
            if w and w.samples.start < numbers.stop and w.samples.stop > numbers.start
        ]
        kinds, chunks = self._lanes.kinds, self.samples.plan.chunks
        begin_ps = min(span.start_ps for span in worked)
        end_ps = max(span.end_ps for span in worked)
        return Chart(
            tuple(self._lane_lines(spans) if all_lanes else self._lanes.lines(spans)),
            begin_ps=begin_ps,
            end_ps=end_ps,
            axis="virtual time, µs; numbers are micro-batches",
            marks=f"marks: {', '.join(RANGES[kind] for kind in kinds)} by micro-batch in turn; ",
            keys=action_keys(kinds, chunks),
            style=ACTION_STYLE,
            courses=self.courses(recorders),
        )

    def courses(self, recorders: Collection[SpanRecorder]) -> tuple[Course, ...]:
        """Return what each device keeps over time of the features of the window's samples."""
        plan, micro_batches = self.samples.plan, self.samples.schedule.micro_batches
        stages, queues = plan.stages, {*self._lanes.queues.values()}
        assert stages is not None
        timed = []
        for span, work in self._recorded(recorders):
            if work is not None and span.lane in queues:
                index = (work.epoch - 1) * len(micro_batches) + work.action.index
                step = Step(work.action.kind, index, work.stage)
                timed.append(Timed(step, span.lane.device, span.start_ps, span.end_ps, None))

        def sizes(step: Step) -> FeatureBytes:
            samples = micro_batches[step.micro_batch % len(micro_batches)].samples
            return stages.feature_bytes(step.stage, samples)

        last, apart = stages.machine.frees_features, plan.config.schedule.recomputes
        return kept_courses(timed, plan.devices, last, sizes, apart=apart)

    def _lane_lines(self, spans: Sequence[Span]) -> Iterator[ChartLine]:
        spans_of = by_lane(spans)
        for device, lanes in itertools.groupby(self.lanes, key=lambda lane: lane.device):
            yield ChartLine(self.samples.devices[device], "", None)
            for lane in lanes:
                yield ChartLine(
                    f"  {lane.title}", f"{lane.title}, device {device}", spans_of.get(lane, ())
                )

    def _recorded(self, recorders: Collection[SpanRecorder]) -> list[tuple[Span, _Work | None]]:
        """Return the spans that the recorders of all ranks have kept, with the work that they
        are.
        """
        kept, recorded = kept_by(recorders), list[tuple[Span, _Work | None]]()
        for resource, works in self._works.items():
            for number, work in works.items():
                if number in kept.get(resource, {}):
                    recorded.append((self._span(resource, work, kept[resource][number]), work))
        for resource, lane in self._exchanges.items():
            for step, times in kept.get(resource, {}).items():
                args = {**self.samples.step_args(step), **_times(times)}
                look = Look("=", "grey")
                recorded.append(
                    (
                        Span(
                            lane,
                            times.start_ps,
                            times.end_ps,
                            f"mini-batch {step}",
                            "exchange",
                            args,
                            look,
                        ),
                        None,
                    )
                )
        return recorded

    def _span(self, resource: str, work: _Work, times: Kept) -> Span:
        action, plan = work.action, self.samples.plan
        lane = dict(self._resources(action.kind, work.stage))[resource]
        micro_batch = self.samples.schedule.micro_batches[action.index]
        args = {
            **{
                "epoch": work.epoch,
                "mini_batch": micro_batch.step,
                "micro_batch": action.index,
                "stage": work.stage,
            },
            **{"first_sample": work.samples.start, "last_sample": work.samples.stop - 1},
            **({} if action.version is None else {"version": action.version}),
            **_times(times),
        }
        if resource.startswith("link"):
            assert plan.stages is not None
            sent = plan.timing.sent(
                work.stage - (action.kind is Kind.BACKWARD), forward=action.kind is Kind.FORWARD
            )
            args["bytes"] = plan.stages.message_bytes(sent, len(work.samples))
        look = action_look(action.kind, action.index, action.chunk, plan.chunks)
        label = step_name(Step(action.kind, action.index, work.stage))
        return Span(lane, times.start_ps, times.end_ps, label, action.kind.value, args, look)

    def _flows(self, works: Sequence[tuple[Span, _Work]]) -> Iterator[Flow]:
        """Yield the arrows from messages to the actions that take them, those of the first of their
        samples first.
        """
        queues, takers = (
            set(self._lanes.queues.values()),
            dict[tuple[Kind, int, int], list[tuple[Span, _Work]]](),
        )
        for span, work in works:
            if span.lane in queues:
                takers.setdefault((work.action.kind, work.action.index, work.stage), []).append(
                    (span, work)
                )
        for span, work in works:
            if span.lane not in queues:
                onwards = 1 if work.action.kind is Kind.FORWARD else -1
                for target, taken in takers.get(
                    (work.action.kind, work.action.index, work.stage + onwards), ()
                ):
                    if (
                        taken.samples.start < work.samples.stop
                        and work.samples.start < taken.samples.stop
                    ):
                        yield Flow(span.lane, span.start_ps, target.lane, target.start_ps)


def _times(kept: Kept) -> dict[str, int]:
    return {"start_ps": kept.start_ps, "end_ps": kept.end_ps}
