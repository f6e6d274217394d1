"""Rows on engines: a lane for each engine, stream, memory port and exchange of a chain, and what
each has served.

A run of them is shown as spans of samples or of single rows, as charts, and as flows, which follow
the data.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
import string
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ....comm import Times
from ....kernels.number import FP32
from ...mapping import DataPath, StreamKey, activation_bytes
from ...network import Phase
from ...plan import ChainPlan
from ...timing import Course, DeviceClock, course_of, exchange_name
from .samples import RunSamples, SpanRecorder, Versions, Window, kept_by
from .spans import Chart, ChartLine, Flow, Lane, Look, Span, Timeline, lines_by_device


class Level(enum.Enum):
    """The detail of a trace: a slice for each sample on each resource, or for each of its rows."""

    SAMPLE = "sample"
    ROW = "row"


class LaneKind(enum.Enum):
    """What a lane's resource is; the value is the category of its slices in a trace."""

    FP = "FP"
    EB = "EB"
    PG = "PG"
    LINK = "link"
    EXCHANGE = "exchange"
    MEMORY = "memory"


FORWARD_PATHS = DataPath.ACTIVATIONS, DataPath.PARTIAL_ACTIVATIONS, DataPath.STATES
ERROR_PATHS = DataPath.OUTPUT_ERRORS, DataPath.INPUT_ERRORS, DataPath.STATE_ERRORS
ENGINES = {Phase.FP: LaneKind.FP, Phase.EB: LaneKind.EB, Phase.PG: LaneKind.PG}


@dataclasses.dataclass(frozen=True)
class RowLane(Lane):
    """The lane of one resource, on the device that it belongs to; a link's stream belongs to the
    stage that sends.

    What it serves is numbered: samples, or mini-batches on the lane of an exchange. `item_bytes` is
    the size of one of these, or of one of its rows on a link; None where nothing travels. What is
    sent arrives `latency_ps` after it has left, on the stage `receiver`. With `last_first`, the
    rows of a sample come from the last on: errors where time runs backwards.
    """

    resource: str
    kind: LaneKind
    stage: int
    key: StreamKey | None = None
    item_bytes: int | None = None
    latency_ps: int = 0
    last_first: bool = False
    receiver: int = -1

    @property
    def counts_samples(self) -> bool:
        """Whether it serves samples, rather than mini-batches."""
        return self.kind is not LaneKind.EXCHANGE


def lanes_of(plan: ChainPlan) -> tuple[RowLane, ...]:
    """Return the lanes of a plan's chain, of the first replica if there are several, device by
    device.

    Engines come first, slice by slice; then what else serves on the board itself, its memory port;
    the links; and the exchange with other replicas. A device with several stages has those of each
    in turn.
    """
    stages = (stage for device in range(plan.devices) for stage in plan.fold.stages(device))
    return tuple(lane for stage in stages for lane in _stage_lanes(plan, stage))


def _stage_lanes(plan: ChainPlan, stage: int) -> Iterator[RowLane]:
    clock, last_first = plan.timing.clock(stage), plan.network.last_first
    engines = {engine.name: phase for part in clock.slices for phase, engine in part.engines()}
    links = {resource.name for resource in clock.links.values()}
    device, several = plan.fold.device(stage), plan.chunks > 1

    def title(name: str) -> str:
        """Return a resource's name without its device; links of devices with several stages are
        named after these.
        """
        named = name.replace(f" on device {stage}", "").replace(f" of device {stage}", "")
        return named.replace("link ", "stages ") if several else named

    for name, phase in engines.items():
        backwards = last_first and phase is not Phase.FP
        yield RowLane(device, title(name), name, ENGINES[phase], stage, last_first=backwards)
    moved = zip(clock.slices, plan.timing.memory(stage), strict=True)
    ports = {part.ports[stream.phase].name: stream for part, streams in moved for stream in streams}
    for name in (resource.name for resource in clock.resources()):
        if name not in engines and name not in links:
            port = ports.get(name)
            size = None if port is None else port.sample_bytes // port.rows
            backwards = last_first and port is not None and port.phase is not Phase.FP
            yield RowLane(
                device, title(name), name, LaneKind.MEMORY, stage, None, size, 0, backwards
            )
    for key, resource in clock.links.items():
        link = stage - (not key.path.is_forward)
        [stream] = (stream for stream in plan.timing.links[link] if stream.key == key)
        path = f"{title(resource.name)} ({key.path.name.lower().replace('_', ' ')})"
        size, backwards = stream.row_bytes, last_first and key.path in ERROR_PATHS
        sent = size, resource.latency_ps, backwards, plan.timing.routes.receiver(link, key)
        yield RowLane(device, path, resource.name, LaneKind.LINK, stage, key, *sent)
    if plan.data_parallel.replicas > 1:
        size = FP32.bytes_of(clock.streams.gradient_values)
        name = exchange_name(stage)
        named = f"{title(name)} of stage {stage}" if several else title(name)
        yield RowLane(device, named, name, LaneKind.EXCHANGE, stage, None, size)


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a sample, or of a mini-batch's exchange, on a lane: when each was ready and when
    it left, in ps.

    Each row took `row_ps`; between rows the lane may have been idle. `row` is the number of the row
    where these are but one of several. `share` of their full bytes was sent.
    """

    lane: RowLane
    number: int
    ready_ps: Times
    left_ps: Times
    row_ps: int
    share: float = 1.0
    row: int | None = None

    @property
    def start_ps(self) -> int:
        """When the first row started."""
        return int(self.left_ps[0]) - self.row_ps

    @property
    def end_ps(self) -> int:
        """When the last row left."""
        return int(self.left_ps[-1])

    @property
    def arrival_ps(self) -> int:
        """When the first row arrived at the receiver."""
        return int(self.left_ps[0]) + self.lane.latency_ps

    @property
    def busy_ps(self) -> int:
        """Time for which the rows occupied the lane, without what lies between them."""
        return self.row_ps * len(self.left_ps)

    @property
    def bytes(self) -> int | None:
        """Bytes that were sent; those of an exchange are the gradient's before compression."""
        if self.lane.item_bytes is None:
            return None
        return round(self.lane.item_bytes * len(self.left_ps) * self.share)

    @property
    def pieces_ps(self) -> NDArray[np.int64]:
        """Begin and end in ps of the rows that follow one another without a gap."""
        starts = self.left_ps - self.row_ps
        # A row that starts later than the one before has left begins another piece.
        breaks = np.flatnonzero(starts[1:] > self.left_ps[:-1])
        return np.column_stack(
            [starts[np.r_[0, breaks + 1]], self.left_ps[np.r_[breaks, len(starts) - 1]]]
        )

    def at(self, level: Level) -> Iterator[Rows]:
        """Yield the rows of a level: all together, or each of them."""
        if level is Level.SAMPLE or self.lane.kind is LaneKind.EXCHANGE:
            yield self
            return
        rows = len(self.left_ps)
        for place in range(rows):
            one, row = slice(place, place + 1), rows - 1 - place if self.lane.last_first else place
            yield dataclasses.replace(
                self, ready_ps=self.ready_ps[one], left_ps=self.left_ps[one], row=row
            )


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
        return SpanRecorder(
            {ln.resource: self.window.numbers if ln.counts_samples else steps for ln in self.lanes}
        )

    def rows(self, recorders: Collection[SpanRecorder]) -> RecordedRows:
        """Return what the recorders of all ranks have kept, lane by lane and in order."""
        kept, rows = kept_by(recorders), {}
        for lane in self.lanes:
            served = sorted(kept.get(lane.resource, {}).items())
            rows[lane.resource] = tuple(Rows(lane, number, *spans) for number, spans in served)
        return RecordedRows(self, rows)

    def timeline(self, recorders: Collection[SpanRecorder], level: Level) -> Timeline:
        """Return the spans of samples, or of their rows, and the flows between them."""
        return self.rows(recorders).timeline(level)

    def chart(
        self, recorders: Collection[SpanRecorder], shown: Window, *, all_lanes: bool
    ) -> Chart:
        """Return the chart of the time in which the shown samples are worked on, with all that runs
        then.

        `all_lanes` gives each lane a line of its own, rather than FP, EB and PG of each device.
        """
        return self.rows(recorders).chart(shown, all_lanes=all_lanes)

    def courses(self, recorders: Collection[SpanRecorder]) -> tuple[Course, ...]:
        """Return what each device keeps over time of the features of the window's samples."""
        return self.rows(recorders).courses


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
        return Timeline(
            self.run.samples.devices, self.run.lanes, self._spans(level), self._flows(level)
        )

    def chart(self, shown: Window, *, all_lanes: bool) -> Chart:
        """Return the chart of the time in which the shown samples are worked on, as `RowRun.chart`
        does.
        """
        worked = [
            rows for rows in self.all if rows.lane.counts_samples and rows.number in shown.numbers
        ]
        begin_ps = min(rows.start_ps for rows in worked)
        end_ps = max(rows.end_ps for rows in worked)
        return Chart(
            tuple(self._lane_lines() if all_lanes else self._phase_lines()),
            begin_ps=begin_ps,
            end_ps=end_ps,
            axis="virtual time, µs; numbers and colours are samples",
            marks="marks: samples 0-9 a-z A-Z in turn; ",
            courses=self.courses,
        )

    @property
    def courses(self) -> tuple[Course, ...]:
        """What each device keeps over time of the features of whole samples: on a slice from the
        start of a sample's FP to the end of its EB and PG.
        """
        plan = self.run.samples.plan
        changes = [collections.defaultdict[int, int](int) for _ in range(plan.devices)]
        for stage in range(plan.stage_count):
            clock, change = plan.timing.clock(stage), changes[plan.fold.device(stage)]
            for part, engines in zip(clock.streams.slices, clock.slices, strict=True):
                size = activation_bytes(part, plan.timing.cluster.storage)
                served = [self.by_resource[engine.name] for _, engine in engines.engines()]
                ends_ps: dict[int, int] = {}
                for rows in itertools.chain(*served):
                    ends_ps[rows.number] = max(ends_ps.get(rows.number, 0), rows.end_ps)
                for rows in self.by_resource[engines.fp.name]:
                    change[rows.start_ps] += size
                    change[ends_ps[rows.number]] -= size
        return tuple(map(course_of, changes))

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
        return Span(
            lane,
            rows.start_ps,
            rows.end_ps,
            label,
            lane.kind.value,
            args,
            _look(rows),
            rows.pieces_ps,
        )

    def _origin(self, rows: Rows) -> dict[str, int]:
        """Return the sample of rows, its place in the run, and the version of the weights, where
        these matter.
        """
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
        """Yield the flows of a level; each enters when its target begins, or when it arrives, if
        that has begun.
        """
        for source, target in self.feeds(level):
            enters_ps = max(target.start_ps, source.arrival_ps)
            yield Flow(source.lane, source.start_ps, target.lane, enters_ps)

    def feeds(self, level: Level) -> Iterator[tuple[Rows, Rows]]:
        """Yield what leaves on a stream with the first work that was ready no earlier than it
        arrived.
        """
        # link 0 -> 1   [row 0][row 1]
        #                    \      \        each arrives latency_ps after it has left; what was ready
        # FP of 1       [...] [row 0] [row 1]   before cannot have needed it, so the arrow goes to the next
        plan = self.run.samples.plan
        clocks = [plan.timing.clock(stage) for stage in range(plan.stage_count)]
        by_number = {}
        for name, served in self.by_resource.items():
            by_number[name] = {rows.number: rows for rows in served}
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
                yield ChartLine(
                    f"  {title[:_MOST_TITLE]}", f"{title}, device {device}", self._drawn([lane])
                )

    def _drawn(self, lanes: Sequence[RowLane]) -> list[Span]:
        """Return the spans of lanes, those of the first samples first."""
        drawn = [rows for lane in lanes for rows in self.by_resource[lane.resource]]
        return [self._span(rows) for rows in sorted(drawn, key=lambda rows: rows.number)]


def _look(rows: Rows) -> Look:
    if not rows.lane.counts_samples:
        return Look("=", "grey")
    return Look(
        _MARKS[rows.number % len(_MARKS)], _COLOURS[rows.number % len(_COLOURS)], str(rows.number)
    )


def _feeds(sent: Rows, targets: Sequence[Rows], level: Level) -> Iterator[tuple[Rows, Rows]]:
    """Yield what a sample's rows feed: the first of the targets that something is ready in, once
    they have arrived.
    """
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
    # Maps come from the left and meet the first slice first, errors from the right and meet the
    # last.
    for part, engines, used in parts if key.path.is_forward else reversed(parts):
        layer, number = part.layer, key.number
        read = number == layer.reads.number
        made = number in (layer.makes.number, *(step.makes.number for step in layer.sfu))
        forward = {
            DataPath.ACTIVATIONS: (
                read or any(number == tensor.number for step in layer.sfu for tensor in step.reads)
            ),
            DataPath.PARTIAL_ACTIVATIONS: made,
            DataPath.PARAMETERS: number in used,
        }
        backward = {DataPath.OUTPUT_ERRORS: made, DataPath.INPUT_ERRORS: read or made}
        if forward.get(key.path):
            names.append(engines.fp.name)
        elif backward.get(key.path):
            names += [engine.name for engine in (engines.eb, engines.pg) if engine is not None]
    return [*names, *(resource.name for other, resource in clock.links.items() if other == key)]
