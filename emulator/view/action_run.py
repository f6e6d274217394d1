"""A run of whole actions as spans: what boards that take actions as a whole did with a window of samples."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..schedule import PASSES, Action, Backward, Kind
from ..timing import Step, exchange_name
from .actions import ACTION_STYLE, RANGES, ActionLanes, action_keys, action_look, by_lane, step_name
from .samples import Kept, RunSamples, SpanRecorder, Window, kept_by
from .spans import Chart, ChartLine, Flow, Lane, Look, Span, Timeline


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
        """Return the observer of the run: queues serve actions, and links their messages, in the order of programs."""
        steps = dict.fromkeys(self._exchanges, self.samples.steps(self.window))
        return SpanRecorder({**self._works, **steps})

    @functools.cached_property
    def _works(self) -> Mapping[str, Mapping[int, _Work]]:
        """For each queue and link, the work of the window by its number among all that the resource serves."""
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
                        shown += [(resource, epoch, served[resource], work) for resource in resources]
                served.update(resources)
            for resource, epoch, number, work in shown:
                works.setdefault(resource, {})[epoch * served[resource] + number] = work
        return works

    def _resources(self, kind: Kind, stage: int) -> Iterator[tuple[str, Lane]]:
        """Yield what serves an action of a stage: a queue of its device, and the link that its message takes."""
        plan, device = self.samples.plan, self.samples.plan.fold.device(stage)
        if kind in self._lanes.kinds:
            yield f"{kind.value} of device {device}", self._lanes.queues[device, kind]
        taker = stage + {Kind.FORWARD: 1, Kind.BACKWARD: -1}.get(kind, 0)
        receiver = plan.fold.device(taker) if 0 <= taker < plan.stage_count else device
        if receiver != device:
            yield f"link {device} -> {receiver}", self._lanes.links[device, receiver]

    @functools.cached_property
    def _lanes(self) -> ActionLanes:
        plan = self.samples.plan
        assert plan.stages is not None
        machine, devices = plan.stages.machine, plan.devices
        kinds = [kind for kind in PASSES if kind is not Kind.GRADIENT or machine.backward is Backward.SPLIT]
        fold, stages = plan.fold, range(plan.stage_count - 1)
        pairs = ((fold.device(stage), fold.device(stage + 1)) for stage in stages)
        links = {link for one, other in pairs if one != other for link in ((one, other), (other, one))}
        return ActionLanes(devices, kinds, machine.engines, links)

    @functools.cached_property
    def _exchanges(self) -> Mapping[str, Lane]:
        """The lanes of exchanges with other replicas, by resource; each stage has one."""
        plan = self.samples.plan
        stages = range(plan.stage_count if plan.data_parallel.replicas > 1 else 0)
        ahead = {stage: f"stage {stage}: " if plan.chunks > 1 else "" for stage in stages}
        return {exchange_name(n): Lane(plan.fold.device(n), f"{ahead[n]}exchange of gradients") for n in stages}

    @property
    def lanes(self) -> list[Lane]:
        """All lanes, device by device."""
        return sorted([*self._lanes.all, *self._exchanges.values()], key=lambda lane: lane.device)

    def timeline(self, recorders: Collection[SpanRecorder], level: object = None) -> Timeline:
        """Return actions, messages and exchanges, and arrows from a message to the action that takes it."""
        works = [(span, work) for span, work in self._recorded(recorders) if work is not None]
        spans = sorted((span for span, _ in self._recorded(recorders)), key=lambda span: span.start_ps)
        return Timeline(self.samples.devices, self.lanes, spans, self._flows(works))

    def chart(self, recorders: Collection[SpanRecorder], shown: Window, *, all_lanes: bool) -> Chart:
        """Return the chart of the time in which the shown samples are worked on, with all that runs then.

        `all_lanes` gives each lane a line of its own, links and exchanges too.
        """
        recorded = self._recorded(recorders)
        spans, numbers = [span for span, _ in recorded], shown.numbers
        worked = [s for s, w in recorded if w and w.samples.start < numbers.stop and w.samples.stop > numbers.start]
        kinds, chunks = self._lanes.kinds, self.samples.plan.chunks
        return Chart(
            tuple(self._lane_lines(spans) if all_lanes else self._lanes.lines(spans)),
            begin_ps=min(span.start_ps for span in worked),
            end_ps=max(span.end_ps for span in worked),
            axis="virtual time, µs; numbers are micro-batches",
            marks=f"marks: {', '.join(RANGES[kind] for kind in kinds)} by micro-batch in turn; ",
            keys=action_keys(kinds, chunks),
            style=ACTION_STYLE,
        )

    def _lane_lines(self, spans: Sequence[Span]) -> Iterator[ChartLine]:
        spans_of = by_lane(spans)
        for device, lanes in itertools.groupby(self.lanes, key=lambda lane: lane.device):
            yield ChartLine(self.samples.devices[device], "", None)
            for lane in lanes:
                yield ChartLine(f"  {lane.title}", f"{lane.title}, device {device}", spans_of.get(lane, ()))

    def _recorded(self, recorders: Collection[SpanRecorder]) -> list[tuple[Span, _Work | None]]:
        """Return the spans that the recorders of all ranks have kept, with the work that they are."""
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
                    (Span(lane, times.start_ps, times.end_ps, f"mini-batch {step}", "exchange", args, look), None)
                )
        return recorded

    def _span(self, resource: str, work: _Work, times: Kept) -> Span:
        action, plan = work.action, self.samples.plan
        lane = dict(self._resources(action.kind, work.stage))[resource]
        micro_batch = self.samples.schedule.micro_batches[action.index]
        args = {
            **{"epoch": work.epoch, "mini_batch": micro_batch.step, "micro_batch": action.index, "stage": work.stage},
            **{"first_sample": work.samples.start, "last_sample": work.samples.stop - 1},
            **({} if action.version is None else {"version": action.version}),
            **_times(times),
        }
        if resource.startswith("link"):
            assert plan.stages is not None
            sent = plan.timing.sent(work.stage - (action.kind is Kind.BACKWARD), forward=action.kind is Kind.FORWARD)
            args["bytes"] = plan.stages.message_bytes(sent, len(work.samples))
        look = action_look(action.kind, action.index, action.chunk, plan.chunks)
        label = step_name(Step(action.kind, action.index, work.stage))
        return Span(lane, times.start_ps, times.end_ps, label, action.kind.value, args, look)

    def _flows(self, works: Sequence[tuple[Span, _Work]]) -> Iterator[Flow]:
        """Yield the arrows from messages to the actions that take them, those of the first of their samples first."""
        queues, takers = set(self._lanes.queues.values()), dict[tuple[Kind, int, int], list[tuple[Span, _Work]]]()
        for span, work in works:
            if span.lane in queues:
                takers.setdefault((work.action.kind, work.action.index, work.stage), []).append((span, work))
        for span, work in works:
            if span.lane not in queues:
                onwards = 1 if work.action.kind is Kind.FORWARD else -1
                for target, taken in takers.get((work.action.kind, work.action.index, work.stage + onwards), ()):
                    if taken.samples.start < work.samples.stop and work.samples.start < taken.samples.stop:
                        yield Flow(span.lane, span.start_ps, target.lane, target.start_ps)


def _times(kept: Kept) -> dict[str, int]:
    return {"start_ps": kept.start_ps, "end_ps": kept.end_ps}
