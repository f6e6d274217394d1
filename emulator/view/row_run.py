"""A run of rows as spans: those of samples or of single rows, charts of them, and flows, which follow the data."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import string
from collections.abc import Collection, Iterator, Mapping, Sequence

from ..mapping import DataPath, StreamKey
from ..timing import DeviceClock
from .rows import ENGINES, ERROR_PATHS, FORWARD_PATHS, LaneKind, Level, RowLane, Rows, lanes_of
from .samples import RunSamples, SpanRecorder, Versions, Window, kept_by
from .spans import Chart, ChartLine, Flow, Look, Span, Timeline, lines_by_device

_MARKS = string.digits + string.ascii_lowercase + string.ascii_uppercase
_COLOURS = tuple(
    f"#{colour}"
    for colour in (
        "1f77b4 aec7e8 ff7f0e ffbb78 2ca02c 98df8a d62728 ff9896 9467bd c5b0d5"
        " 8c564b c49c94 e377c2 f7b6d2 7f7f7f c7c7c7 bcbd22 dbdb8d 17becf 9edae5"
    ).split()
)
_MOST_TITLE = 32


@dataclasses.dataclass(frozen=True)
class RowRun:
    """A run of rows, of which a window of samples is shown."""

    samples: RunSamples
    window: Window

    @functools.cached_property
    def lanes(self) -> tuple[RowLane, ...]:
        """The lanes of the plan's chain."""
        return lanes_of(self.samples.plan)

    def recorder(self) -> SpanRecorder:
        """Return the observer of the run; the exchange of a mini-batch counts as its one row.

        Samples go through each resource in order, so the n-th that it serves is sample n.
        """
        steps = self.samples.steps(self.window)
        return SpanRecorder({ln.resource: self.window.numbers if ln.counts_samples else steps for ln in self.lanes})

    def rows(self, recorders: Collection[SpanRecorder]) -> RecordedRows:
        """Return what the recorders of all ranks have kept, lane by lane and in order."""
        kept = kept_by(recorders)
        rows = {
            lane.resource: tuple(
                Rows(lane, number, *spans) for number, spans in sorted(kept.get(lane.resource, {}).items())
            )
            for lane in self.lanes
        }
        return RecordedRows(self, rows)

    def timeline(self, recorders: Collection[SpanRecorder], level: Level) -> Timeline:
        """Return the spans of samples, or of their rows, and the flows between them."""
        return self.rows(recorders).timeline(level)

    def chart(self, recorders: Collection[SpanRecorder], shown: Window, *, all_lanes: bool) -> Chart:
        """Return the chart of the time in which the shown samples are worked on, with all that runs then.

        `all_lanes` gives each lane a line of its own, rather than FP, EB and PG of each device.
        """
        return self.rows(recorders).chart(shown, all_lanes=all_lanes)


@dataclasses.dataclass(frozen=True, eq=False)
class RecordedRows:
    """The rows that a run's resources have served, of each sample in its window."""

    run: RowRun
    by_resource: Mapping[str, tuple[Rows, ...]]

    @property
    def all(self) -> Iterator[Rows]:
        """All rows, lane by lane."""
        return (rows for lane in self.run.lanes for rows in self.by_resource[lane.resource])

    def timeline(self, level: Level) -> Timeline:
        """Return the spans of samples, or of their rows, and the flows between them."""
        return Timeline(self.run.samples.devices, self.run.lanes, self._spans(level), self._flows(level))

    def chart(self, shown: Window, *, all_lanes: bool) -> Chart:
        """Return the chart of the time in which the shown samples are worked on, as `RowRun.chart` does."""
        worked = [rows for rows in self.all if rows.lane.counts_samples and rows.number in shown.numbers]
        return Chart(
            tuple(self._lane_lines() if all_lanes else self._phase_lines()),
            begin_ps=min(rows.start_ps for rows in worked),
            end_ps=max(rows.end_ps for rows in worked),
            axis="virtual time, µs; numbers and colours are samples",
            marks="marks: samples 0-9 a-z A-Z in turn; ",
        )

    @functools.cached_property
    def _versions(self) -> Sequence[Mapping[int, Versions]]:
        return self.run.samples.versions(self.run.window.numbers)

    def _spans(self, level: Level) -> Iterator[Span]:
        """Yield the spans of a level, lane by lane."""
        for rows in self.all:
            for part in rows.at(level):
                yield self._span(part)

    def _span(self, rows: Rows) -> Span:
        lane, number = rows.lane, rows.number
        args = {
            **self._origin(rows),
            **({} if rows.row is None else {"row": rows.row}),
            **({} if rows.bytes is None else {"bytes": rows.bytes}),
            "start_ps": rows.start_ps,
            "end_ps": rows.end_ps,
            "busy_ps": rows.busy_ps,
        }
        label = f"{'sample' if lane.counts_samples else 'mini-batch'} {number}"
        label += "" if rows.row is None else f", row {rows.row}"
        return Span(lane, rows.start_ps, rows.end_ps, label, lane.kind.value, args, _look(rows), rows.pieces_ps)

    def _origin(self, rows: Rows) -> dict[str, int]:
        """Return the sample of rows, its place in the run, and the version of the weights, where these matter."""
        if not rows.lane.counts_samples:
            return self.run.samples.step_args(rows.number)
        origin = {"sample": rows.number, **self.run.samples.place(rows.number)._asdict()}
        version = self._version(rows)
        return origin if version is None else {**origin, "version": version}

    def _version(self, rows: Rows) -> int | None:
        """Return the version of the weights with which rows, or what they send, are computed."""
        lane, used = rows.lane, self._versions[rows.lane.stage][rows.number]
        path = None if lane.key is None else lane.key.path
        if lane.kind is LaneKind.FP or path in FORWARD_PATHS:
            return used.forward
        return used.backward if lane.kind is LaneKind.EB or path in ERROR_PATHS else None

    def _flows(self, level: Level) -> Iterator[Flow]:
        """Yield the flows of a level; each enters when its target begins, or when it arrives, if that has begun."""
        for source, target in self.feeds(level):
            enters_ps = max(target.start_ps, source.arrival_ps)
            yield Flow(source.lane, source.start_ps, target.lane, enters_ps)

    def feeds(self, level: Level) -> Iterator[tuple[Rows, Rows]]:
        """Yield what leaves on a stream with the first work that was ready no earlier than it arrived."""
        plan = self.run.samples.plan
        clocks = [plan.timing.clock(stage) for stage in range(plan.stage_count)]
        by_number = {name: {rows.number: rows for rows in served} for name, served in self.by_resource.items()}
        for lane in self.run.lanes:
            if lane.kind is not LaneKind.LINK or lane.key is None:
                continue
            fed = [by_number[name] for name in fed_by(clocks[lane.receiver], lane.key)]
            for sent in self.by_resource[lane.resource]:
                targets = [by_sample[sent.number] for by_sample in fed if sent.number in by_sample]
                yield from _feeds(sent, targets, level)

    def _phase_lines(self) -> Iterator[ChartLine]:
        """Yield a line for FP, EB and PG of each device, of all its slices."""
        lanes: dict[tuple[int, LaneKind], list[RowLane]] = {}
        for lane in self.run.lanes:
            lanes.setdefault((lane.device, lane.kind), []).append(lane)
        lines = [
            (device, kind.value, self._drawn(lanes[device, kind]))
            for device in range(self.run.samples.plan.devices)
            for kind in ENGINES.values()
            if (device, kind) in lanes
        ]
        return lines_by_device(lines, "{what}, device {device}")

    def _lane_lines(self) -> Iterator[ChartLine]:
        """Yield a line for each lane, below a heading for its device."""
        for device, lanes in itertools.groupby(self.run.lanes, key=lambda lane: lane.device):
            yield ChartLine(self.run.samples.devices[device], "", None)
            for lane in lanes:
                title = lane.title.partition(" (")[0]
                yield ChartLine(f"  {title[:_MOST_TITLE]}", f"{title}, device {device}", self._drawn([lane]))

    def _drawn(self, lanes: Sequence[RowLane]) -> list[Span]:
        """Return the spans of lanes, those of the first samples first."""
        drawn = [rows for lane in lanes for rows in self.by_resource[lane.resource]]
        return [self._span(rows) for rows in sorted(drawn, key=lambda rows: rows.number)]


def _look(rows: Rows) -> Look:
    if not rows.lane.counts_samples:
        return Look("=", "grey")
    return Look(_MARKS[rows.number % len(_MARKS)], _COLOURS[rows.number % len(_COLOURS)], str(rows.number))


def _feeds(sent: Rows, targets: Sequence[Rows], level: Level) -> Iterator[tuple[Rows, Rows]]:
    """Yield what a sample's rows feed: the first of the targets that something is ready in, once they have arrived."""
    waiting = [collections.deque(target.at(level)) for target in targets]
    for source in sent.at(level):
        for rows in waiting:
            while rows and rows[0].ready_ps[-1] < source.arrival_ps:
                rows.popleft()
        target = next((rows[0] for rows in waiting if rows), None)
        if target is not None:
            yield source, target


def fed_by(clock: DeviceClock, key: StreamKey) -> list[str]:
    """Return the resources of a stage that work on what arrives on a stream, the nearest first.

    These are engines, and the stream on which it goes on to the next stage.
    """
    parts = list(zip(clock.streams.slices, clock.slices, clock.streams.parameters, strict=True))
    names: list[str] = []
    for part, engines, used in parts if key.path.is_forward else reversed(parts):
        layer, number = part.layer, key.number
        read = number == layer.reads.number
        made = number in (layer.makes.number, *(step.makes.number for step in layer.sfu))
        forward = {
            DataPath.ACTIVATIONS: read or any(number == tensor.number for step in layer.sfu for tensor in step.reads),
            DataPath.PARTIAL_ACTIVATIONS: made,
            DataPath.PARAMETERS: number in used,
        }
        backward = {DataPath.OUTPUT_ERRORS: made, DataPath.INPUT_ERRORS: read or made}
        if forward.get(key.path):
            names.append(engines.fp.name)
        elif backward.get(key.path):
            names += [engine.name for engine in (engines.eb, engines.pg) if engine is not None]
    return [*names, *(resource.name for other, resource in clock.links.items() if other == key)]
