"""Flows: from what leaves on a stream to the work on the receiver that it feeds."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator

from ..mapping import DataPath, StreamKey
from ..timing import DeviceClock, SliceClock
from .lanes import LaneKind
from .span import Level, Span
from .timeline import Timeline


@dataclasses.dataclass(frozen=True, eq=False)
class Flow:
    """From `source`, which leaves on a stream, to `target`, the first work that was ready no earlier than it arrived.

    It enters the target at `enters_ps`.
    """

    source: Span
    target: Span

    @property
    def enters_ps(self) -> int:
        """When the target begins, or when the source arrives, if it has begun."""
        return max(self.target.start_ps, self.source.arrival_ps)


def flows_of(timeline: Timeline, level: Level) -> Iterator[Flow]:
    """Yield the flows between a timeline's spans of a level, stream by stream."""
    clocks = [timeline.course.plan.timing.clock(device) for device in range(timeline.course.plan.devices)]
    by_number = {name: {span.number: span for span in spans} for name, spans in timeline.spans.items()}
    for lane in timeline.lanes:
        if lane.kind is not LaneKind.LINK or lane.key is None:
            continue
        fed = fed_by(clocks[lane.receiver], lane.key)
        for sent in timeline.spans[lane.resource]:
            targets = [by_number[name][sent.number] for name in fed if sent.number in by_number[name]]
            yield from _flows(sent, targets, level)


def _flows(sent: Span, targets: list[Span], level: Level) -> Iterator[Flow]:
    """Yield the flows of a sample, each to the first of the targets that something is ready in, once it has arrived."""
    waiting = [collections.deque(target.at(level)) for target in targets]
    for source in sent.at(level):
        for rows in waiting:
            while rows and rows[0].ready_ps[-1] < source.arrival_ps:
                rows.popleft()
        target = next((rows[0] for rows in waiting if rows), None)
        if target is not None:
            yield Flow(source, target)


def fed_by(clock: DeviceClock, key: StreamKey) -> list[str]:
    """Return the resources of a device that work on what arrives on a stream, the nearest first.

    These are engines, and the stream on which it goes on to the next device.
    """
    parts = list(zip(clock.streams.slices, clock.slices, clock.streams.parameters, strict=True))
    found: list[str] = []
    for part, engines, used in parts if key.path.is_forward else reversed(parts):
        layer, number = part.layer, key.number
        read = number == layer.reads.number
        made = number in (layer.makes.number, *(step.makes.number for step in layer.sfu))
        forward = {
            DataPath.ACTIVATIONS: read or any(number == of.number for step in layer.sfu for of in step.reads),
            DataPath.PARTIAL_ACTIVATIONS: made,
            DataPath.PARAMETERS: number in used,
        }
        backward = {DataPath.OUTPUT_ERRORS: made, DataPath.INPUT_ERRORS: read or made}
        if forward.get(key.path):
            found.append(engines.fp.name)
        elif backward.get(key.path):
            found += _behind(engines)
    return [*found, *(resource.name for other, resource in clock.links.items() if other == key)]


def _behind(engines: SliceClock) -> list[str]:
    return [engine.name for engine in (engines.eb, engines.pg) if engine is not None]
