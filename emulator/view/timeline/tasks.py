"""The tasks of a GPU, alone or with an FPGA, as spans: a lane for each device and each direction of
the link.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...common import format_time_ps
from ...plan import PairPlan
from ...timing.pair import PairTimes, Part, Phase, Resource, TimedTask
from .spans import Chart, ChartLine, Flow, Lane, Look, Span, Style, Timeline

_DEVICES = {Resource.GPU: 0, Resource.TO_FPGA: 0, Resource.FPGA: 1, Resource.TO_GPU: 1}
"""The device below which each resource stands: a link is below the one that sends."""

_DRAWN = {
    Part.INPUTS: ("i", "#52b788"),
    Part.STEPS: ("r", "#56b4e9"),
    Part.WEIGHTS: ("w", "#f0a830"),
    Part.VALUES: ("v", "#e9d8a6"),
    Part.TRANSPOSE: ("t", "#b08968"),
    Part.GRADIENTS: ("g", "#c77dff"),
    Part.UPDATE: ("u", "#7b2cbf"),
    Part.OTHERS: ("o", "#999999"),
}
"""Marks, of FW, and colours; in BW, GC and WU marks are capitals, and boxes hatched."""

_STREAMED, _STREAM_HEIGHT = "#cfe8f6", 0.375
_STYLE = Style(9.0, 0.0, 2.9, bar=0.8, edge=0.4, dpi=150)


def pair_timeline(plan: PairPlan) -> Timeline:
    """Return the tasks of a mini-batch, what links carry meanwhile, and arrows from tasks to those
    that wait for them.

    While a link carries values of steps, it has a span of their name.
    """
    times = plan.times
    boards = [board.name for board in (plan.pair.gpu, plan.pair.fpga) if board is not None]
    devices = [f"device {device} ({board})" for device, board in enumerate(boards)]
    return Timeline(
        devices, [_lane(resource) for resource in times.busy], _spans(times), _flows(times)
    )


def pair_chart(times: PairTimes, title: str) -> Chart:
    """Return the chart of a mini-batch: a line for each resource, after FARNN's Fig. 6.

    Links have the marks of the tasks whose values they carry.
    """
    spans = list(_spans(times))
    parts = {timed.task.part for timed in times.timed}
    shown = {part: drawn for part, drawn in _DRAWN.items() if part in parts}
    meant = ", ".join(f"{mark} {part.value}" for part, (mark, _) in shown.items())
    lines = []
    for lane in map(_lane, times.busy):
        of_lane = [span for span in spans if span.lane == lane]
        lines.append(ChartLine(lane.title, lane.title, of_lane))
    return Chart(
        lines,
        begin_ps=0,
        end_ps=times.mini_batch_ps,
        axis="ms; hatched: BW, GC and WU",
        notes=f"marks: {meant}; capitals in BW, GC and WU",
        unit_ps=10**9,
        title=f"{title}: {format_time_ps(times.mini_batch_ps)} a mini-batch",
        keys={part.value: colour for part, (_, colour) in shown.items()},
        rule_ps=times.forward_ps,
        style=_STYLE,
    )


def _lane(resource: Resource) -> Lane:
    return Lane(_DEVICES[resource], resource.value)


def _spans(times: PairTimes) -> Iterator[Span]:
    for timed in times.timed:
        yield _span(timed, timed.task.resource, timed.task.duration_ps)
        for link, busy_ps in timed.task.streams:
            yield _span(timed, link, busy_ps)


def _span(timed: TimedTask, resource: Resource, busy_ps: int) -> Span:
    task, (mark, colour) = timed.task, _DRAWN[timed.task.part]
    forward = task.phase is Phase.FORWARD
    look = Look(mark if forward else mark.upper(), colour, hatch=None if forward else "////")
    if resource is not task.resource:
        look = look._replace(colour=_STREAMED, height=_STREAM_HEIGHT, hatch=None)
    args = {
        "part": task.part.value,
        "phase": task.phase.value,
        "layer": task.layer,
        "direction": task.direction,
        "start_ps": timed.start_ps,
        "end_ps": timed.end_ps,
        "busy_ps": busy_ps,
    }
    lane = _lane(resource)
    return Span(
        lane, timed.start_ps, timed.end_ps, task.name, task.part.value, args, look, busy_ps=busy_ps
    )


def _flows(times: PairTimes) -> Iterator[Flow]:
    for timed in times.timed:
        for other in timed.task.after:
            source = times.timed[other]
            lanes = _lane(source.task.resource), _lane(timed.task.resource)
            yield Flow(lanes[0], source.start_ps, lanes[1], timed.start_ps)
