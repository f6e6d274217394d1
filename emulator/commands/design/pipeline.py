"""`emuchain pipeline`: the timeline of a pipeline schedule on stages of given times."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from ... import view
from ...common import InputError, format_bytes, percent, plural
from ..frame.command import Answer, FileCommand, drawn_in, json_option, plot_option
from ..frame.kernels import pause_collector, starting
from ..frame.named import ORDER, OUTPUT, count_option, word_option
from ..frame.output import tell_warning
from .searched import (
    by_times,
    check_offload,
    courses_of,
    feature_bytes_of,
    kept_of_micro_batch,
    kind_of,
    refuse_recompute,
    searched_of,
    write_order,
)
from .times import number_of, times_of

if TYPE_CHECKING:
    from ...common import WholeFile
    from ...schedule import Machine, PipelineKind, Shape
    from ...timing import Course, Timed

_FEW_ACTIONS = 100_000
_PLAIN = "1f1b-sno"
_MOST_ACTIONS = 200_000
_ROWS = 8
_MEANT = {
    "--devices": "--stages",
    "--ranks": "--stages",
    "--batch": "--micro-batches",
    "--bandwidth": "--transfer",
}


@click.command(cls=FileCommand, meant={**_MEANT, "--csv": "emuchain schedule --csv"})
@click.option(
    "--schedule",
    type=ORDER,
    required=True,
    metavar="NAME|FILE",
    help=(
        "1f1b-as, fbp-as, 1f1b-sno, 1f1b-so, 1f1b-min, gpipe, interleaved, zero-bubble, pipedream,"
        " 2bw, search, zb-2p, zb-v, or a file."
    ),
)
@count_option("--stages", "Devices of the chain; a file says how many.", most=1024)
@count_option(
    "--micro-batches", "Micro-batches of a mini-batch; a file says how many.", metavar="M"
)
@word_option("--forward", "F", "Time of F on a device, in any unit.", required=True)
@word_option("--backward", "B", "Time of B, including the parameter gradients.", required=True)
@word_option(
    "--gradient", "W", "Time of W, the part of B for parameter gradients.  [default: half]"
)
@word_option(
    "--transfer", "SR", "Time of a message between devices.", default="0", show_default=True
)
@word_option(
    "--latency",
    "L",
    "Latency added to each message; the link is free meanwhile.",
    default="0",
    show_default=True,
)
@click.option(
    "--engines",
    type=click.Choice(["split", "shared", "turns"]),
    help=(
        "What runs on a device at the same time: F and B on separate engines, on one pool, or in"
        " turns."
    ),
)
@click.option(
    "--transport",
    type=click.Choice(["stored", "hidden", "streamed"]),
    help="Send a message after its action, while that is computed, or row by row.",
)
@count_option("--rows", "Rows of a micro-batch, if streamed.  [default: 8]", most=4096, metavar="R")
@click.option(
    "--fused/--not-fused",
    default=None,
    help="Whether B includes W, so that errors leave after both.  [default: as published]",
)
@word_option(
    "--warm-up", "EXPR", "Warm-up forwards of stage i, counted from 1, such as `2(N-i)+1`."
)
@count_option("--chunks", "Stages per device, for `interleaved`.", most=1024, metavar="V")
@word_option(
    "--memory",
    "K",
    "Micro-batches that a device keeps at most, or bytes, such as 24GiB, for `search`, `zb-2p`,"
    " `zb-v`.",
)
@word_option("--features", "BYTES", "Bytes that a micro-batch keeps on a device, such as 1.5GiB.")
@word_option(
    "--gradient-features",
    "PART",
    "Part of them that is kept from B to W.  [default: 1; of zb-2p, zb-v 16/37]",
)
@word_option(
    "--recompute",
    "R",
    "Time of R, an action of a file; `search` may then place some.  [default: F]",
)
@word_option("--offload", "O", "Time of O, and of L, actions of a file.")
@word_option("--recompute-features", "PART", "Part of them that is kept from F to R.  [default: 0]")
@click.option(
    "-o", "--out", type=OUTPUT, metavar="FILE.csv", help="Write the order, for --schedule FILE.csv."
)
@json_option()
@plot_option("Draw the timeline, as .svg, .pdf or .png.  [needs matplotlib]", "FILE")
@click.option(
    "--trace",
    type=OUTPUT,
    metavar="FILE.json",
    help="Write the timeline as a trace for https://ui.perfetto.dev.",
)
def pipeline(trace: str | None, out: str | None, **flags: Any) -> Answer:
    """Time a pipeline schedule: mini-batch, bubble, memory by stage, and a drawing.

    Each time is one value for all stages, or a list such as 10,12,9: of F, B and W one for each
    stage, of SR one for each link. Engines and transport default to those that the schedule was
    published for. `search` finds an order for these times within --memory; `zb-2p` and `zb-v` do so
    for mini-batches that follow one another without a common wait.
    """
    with starting():
        from ...view import trace_file

    pause_collector()  # what is made stays until the end
    with contextlib.nullcontext() if trace is None else trace_file(trace) as traced:
        run = _Run(flags)
        if traced is not None:
            view.write_trace(traced, run.drawing.timeline())
    if out is not None:
        run.write(out)
    written = [
        f"{done} {path}"
        for done, path in (("drawn in", drawn_in()), ("trace in", trace), ("order in", out))
        if path is not None
    ]
    return Answer(lambda: run.print(written), run.as_json, run.draw)


class _Run:
    """A schedule in time, in the user's unit of time, which is `scale` ps."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        from ...timing import schedule_of, time_pipeline

        self.kind, flags = _sized(flags)
        given, self.scale = _shape_of(self.kind, flags)
        self.shape = by_times(self.kind, given)
        self._is_timed = self.shape is not given
        _heed_work(self.kind, self.shape)
        self.feature_bytes = feature_bytes_of(flags["features"], self.shape.devices)
        self.searched = searched_of(self.shape, flags, self.feature_bytes)
        self.schedule, self.form = (
            schedule_of(self.kind, self.shape)
            if self.searched is None
            else (self.searched.schedule, None)
        )
        self.result = time_pipeline(self.schedule, self.shape.costs, self.shape.machine)
        self._kept = kept_of_micro_batch(flags)
        if self.searched is None and not self.result.recomputes:
            refuse_recompute(flags)
        check_offload(flags, offloads=self.result.offloads)
        self.courses = () if self.feature_bytes is None else self._courses(self.feature_bytes)
        self.drawing = view.PipelineDrawing(self.shape, self.result, self.scale, self.courses)
        self.plain_ps = _plain_1f1b_ps(self.kind, self.shape)
        self.to_try = _to_try(flags, self.shape, self.scale, plain=self._plain_is_faster)

    def _courses(self, sizes: Sequence[Fraction]) -> tuple[Course, ...]:
        """Return what each device keeps over time, of micro-batches of these sizes by device."""
        return courses_of(
            self.result.timed, self.schedule.fold, self.shape.machine, self._kept, sizes
        )

    def write(self, path: str) -> None:
        """Write the order.

        Raises:
            InputError: the file cannot be written, or is a .csv, and the order has several
                mini-batches.
        """
        write_order(self.schedule, path)

    def draw(self, picture: WholeFile) -> None:
        """Draw the timeline.

        Raises:
            InputError: the file cannot be written.
        """
        title = f"{self.kind.name}, N = {self.shape.devices}, M = {self.shape.micro_batches}"
        title += f": time {_shown(self.time)}, bubble {percent(float(self.bubble))}"
        view.draw_chart(self.drawing.chart(title), picture)

    @property
    def _plain_is_faster(self) -> bool:
        return self.plain_ps is not None and self.plain_ps < self.result.makespan_ps

    @property
    def _taken_ps(self) -> int:
        return self.result.makespan_ps if self.searched is None else self.searched.time_ps

    @property
    def time(self) -> Fraction:
        """The time of the mini-batch; where these follow one another without a common wait, the
        longest of a device.
        """
        return Fraction(self._taken_ps, self.scale)

    @property
    def bubble(self) -> Fraction:
        """The idle share of that time of all devices."""
        return 1 - sum(self.busy, Fraction()) / self.shape.devices

    @property
    def busy(self) -> list[Fraction]:
        """By device, the share of that time in which it works."""
        return [Fraction(busy_ps, self._taken_ps) for busy_ps in self.result.busy_ps]

    @property
    def memory(self) -> tuple[Fraction, ...]:
        """By device, the most that it keeps, in micro-batches."""
        if self.searched is not None:
            return self.searched.memory
        if not self.result.recomputes:
            return self.result.features
        # Courses are of whole numbers: a micro-batch is as many as make all its parts whole.
        unit = self.schedule.chunks * self._kept.unit
        courses = self._courses([Fraction(unit)] * self.shape.devices)
        return tuple(Fraction(course.peak_bytes, unit) for course in courses)

    @property
    def _memory_bytes(self) -> list[int]:
        if self.feature_bytes is None:
            return []
        kept = zip(self.memory, self.feature_bytes, strict=True)
        return [math.ceil(count * size) for count, size in kept]

    @property
    def formula(self) -> Fraction | None:
        """The time by the closed form."""
        return None if self.form is None else Fraction(self.form.time_ps, self.scale)

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        result, machine = self.result, self.shape.machine
        features = [_plain(feature) for feature in result.features]
        path = [self._name(timed) for timed in result.critical_path]
        return {
            "schedule": self.kind.name,
            "stages": self.shape.devices,
            "micro_batches": self.shape.micro_batches,
            "chunks": self.shape.chunks,
            "engines": machine.engines.value,
            "transport": machine.transport.value,
            "backward": machine.backward.value,
            **({"rows": self.shape.costs[0].rows} if machine.transport.value == "streamed" else {}),
            "time": _plain(self.time),
            "bubble": _plain(self.bubble),
            **self._searched_json(),
            "busy": [_plain(busy) for busy in self.busy],
            "features": features,
            "weight_copies": list(result.weight_copies),
            "send_peak": _plain(result.send_peak * self.scale),
            "plain_1f1b": (
                None if self.plain_ps is None else _plain(Fraction(self.plain_ps, self.scale))
            ),
            "formula": None if self.formula is None else _plain(self.formula),
            "formula_holds": None if self.formula is None else self.formula == self.time,
            "critical_path": path,
        }

    def _searched_json(self) -> dict[str, Any]:
        """Return what is known of a searched order, and of memory in bytes."""
        sizes: dict[str, Any] = {}
        if self.feature_bytes is not None:
            courses = [self._course_json(course) for course in self.courses]
            sizes = {"memory_bytes": self._memory_bytes, "memory_over_time": courses}
        if self.searched is None:
            again = {"memory": [_plain(kept) for kept in self.memory]}
            return {**(again if self.result.recomputes else {}), **sizes}
        bound = Fraction(self.searched.bound_ps, self.scale)
        return {
            "bound": _plain(bound),
            "within": _plain(self.time / bound - 1),
            "makespan": _plain(Fraction(self.result.makespan_ps, self.scale)),
            "memory": [_plain(kept) for kept in self.memory],
            **sizes,
        }

    def _course_json(self, course: Course) -> dict[str, Any]:
        times = [_plain(Fraction(time_ps, self.scale)) for time_ps in course.times_ps]
        return {"times": times, "kept_bytes": list(course.kept_bytes)}

    def _name(self, timed: Timed) -> str:
        """Return the name of an action as a schedule has it, without the version of its weights."""
        kind, micro_batch, stage = timed.step
        chunk = stage // self.shape.devices
        return f"{timed.device}{kind.value}{micro_batch}" + (f"c{chunk}" if chunk else "")

    def print(self, written: Sequence[str]) -> None:
        """Print the answer, a table by stage, a drawing, and what was written into files."""
        result, shape = self.result, self.shape
        machine = shape.machine
        backward = "B includes W" if machine.backward.value == "fused" else "W apart from B"
        path = result.critical_path
        view.print_answer(
            [
                (
                    f"{self.kind.name}, {plural(shape.devices, 'stage')},"
                    f" {plural(shape.micro_batches, 'micro-batch')}: a mini-batch takes"
                    f" {_shown(self.time)}, bubble {percent(float(self.bubble))}"
                ),
                *self._busiest(),
                *(self._search_lines() if self.searched else [self._formula_line()]),
                *self._order_lines(),
                (
                    f"machine: {machine.engines.value} engines, {machine.transport.value}"
                    f" transport, {backward}"
                ),
                (
                    f"send peak: features of {_shown(result.send_peak * self.scale)} micro-batches"
                    " in a unit of time"
                ),
                (
                    f"critical path: {plural(len(path), 'action')}, from device {path[0].device} to"
                    f" device {path[-1].device}"
                ),
                view.next_line(self.to_try),
            ]
        )
        columns = ["stage", "features kept", "weight copies", "busy"]
        if shape.chunks > 1:
            columns[0] = "device"
        rows = [
            [str(device), _shown(features), str(copies), percent(float(busy))]
            for device, (features, copies, busy) in enumerate(
                zip(result.features, result.weight_copies, self.busy, strict=True)
            )
        ]
        if self.searched is not None or result.recomputes:
            columns.append("memory")
            for row, kept in zip(rows, self.memory, strict=True):
                row.append(_shown(kept))
        if self.feature_bytes is not None:
            columns.append("in bytes")
            for row, size in zip(rows, self._memory_bytes, strict=True):
                row.append(format_bytes(size))
        view.table("By stage: features in micro-batches", columns, rows)
        print()
        for line in (
            *view.gantt_lines(self.drawing.chart(), view.screen_width()),
            self.drawing.legend,
            *written,
        ):
            print(line)

    def _search_lines(self) -> list[str]:
        """Return lines with the bound, and what one mini-batch takes alone, if that is longer."""
        assert self.searched is not None
        bound = Fraction(self.searched.bound_ps, self.scale)
        near = (
            "no order is shorter"
            if bound == self.time
            else f"this is within {percent(float(self.time / bound - 1))}"
        )
        lines = [f"bound: {_shown(bound)}; {near}"]
        if self.time < Fraction(self.result.makespan_ps, self.scale):
            alone = Fraction(self.result.makespan_ps, self.scale)
            lines.append(
                f"alone it takes {_shown(alone)}; here each follows the one before at once"
            )
        return lines

    def _order_lines(self) -> list[str]:
        """Return a line where the order is one for stages that are equal, and these are not."""
        if not self.kind.equal_stages or self.shape.uniform:
            return []
        if self.searched is not None or self._is_timed:
            return ["order: searched for these times; in training it is that of equal stages"]
        if self.plain_ps is None:
            return ["order: that of equal stages; on stages that differ another may be faster"]
        apart = ", W apart," if self.shape.machine.backward.value == "split" else ""
        said = (
            f"order: that of equal stages; {_PLAIN}{apart} takes"
            f" {_shown(Fraction(self.plain_ps, self.scale))} here"
        )
        return [
            (
                f"{said}, {percent(1 - self.plain_ps / self.result.makespan_ps)} less"
                if self._plain_is_faster
                else said
            )
        ]

    def _busiest(self) -> list[str]:
        """Return a line with the busiest device, if one has more work than another."""
        busy = self.busy
        if len({*busy}) == 1:
            return []
        most = max(busy)
        return [
            f"busiest: device {busy.index(most)}, for {percent(float(most))} of the time; the"
            " bubble is of all devices"
        ]

    def _formula_line(self) -> str:
        if self.form is None or self.formula is None:
            why = "this schedule on this machine" if self.shape.uniform else "stages that differ"
            return f"formula: none for {why}"
        holds = "holds" if self.formula == self.time else "does not hold here"
        return f"formula: {_shown(self.formula)}, {holds}; exact where {self.form.valid}"


def _sized(flags: Mapping[str, Any]) -> tuple[PipelineKind, Mapping[str, Any]]:
    """Return the kind of schedule, and the flags with the devices, micro-batches and chunks of a
    schedule from a file.

    Raises:
        InputError: the schedule is not known, or flags say other than its file.
        click.MissingParameter: a flag is missing, and no file says it.
    """
    from ...explore import SEARCHES
    from ...schedule import edited_kind, is_schedule_file, pipeline_kind, pipelines

    name = flags["schedule"]
    if name in SEARCHES or name in pipelines() or not is_schedule_file(name):
        for flag in ("stages", "micro_batches"):
            if flags[flag] is None:
                raise click.MissingParameter(
                    param_hint=f"'--{flag.replace('_', '-')}'", param_type="option"
                )
        return kind_of(SEARCHES[name]) if name in SEARCHES else pipeline_kind(name, SEARCHES), flags
    kind = edited_kind(name)
    order = kind.order
    own = {
        "stages": order.devices,
        "micro_batches": order.micro_batches * order.steps,
        "chunks": order.chunks,
    }
    for flag, count in own.items():
        if flags[flag] not in (None, count):
            raise InputError(
                f"`{flag}` = {flags[flag]}: `schedule` = {name!r} has {count}; leave it out"
            )
    return kind, {**flags, **own}


def _shape_of(kind: PipelineKind, flags: Mapping[str, Any]) -> tuple[Shape, int]:
    """Return the shape that flags describe, and how many ps of it are the user's unit of time.

    Raises:
        InputError: a value is invalid.
    """
    from ...schedule import Fold, Shape, StageCosts, warm_ups

    stages, micro_batches = flags["stages"], flags["micro_batches"]
    chunks = flags["chunks"] or kind.chunks
    machine = _machine(kind.machine, flags)
    rows = _rows(machine, flags["rows"])
    most = _MOST_ACTIONS * _ROWS // (stages * chunks * max(rows, _ROWS))
    if micro_batches > most:
        of_rows = f" of {rows} rows" if rows > _ROWS else ""
        raise InputError(
            f"`micro_batches` = {micro_batches}:{of_rows} on {plural(stages * chunks, 'stage')} at"
            f" most {most}"
        )
    columns = times_of(flags, Fold(stages, chunks, kind.in_v))
    latency = number_of(flags["latency"], "latency")
    # Times are exact: the unit of time is as many ps as make all of them, and those of rows, whole
    # numbers.
    scale = rows * math.lcm(
        latency.denominator, *(time.denominator for column in columns for time in column)
    )
    costs = []
    for times in zip(*columns, strict=True):
        f, b, w, r, o, sr = (int(time * scale) for time in times)
        costs.append(StageCosts(f, b, w, sr, rows=rows, recompute_ps=r, offload_ps=o))
    machine = dataclasses.replace(machine, latency_ps=int(latency * scale))
    forwards = (
        None if flags["warm_up"] is None else warm_ups(flags["warm_up"], stages, micro_batches)
    )
    return Shape(stages, micro_batches, tuple(costs), machine, chunks, forwards), scale


def _machine(machine: Machine, flags: Mapping[str, Any]) -> Machine:
    """Return the schedule's own machine with the engines and the transport that the flags name."""
    from ...schedule import Backward, Engines, Transport

    engines, transport, fused = flags["engines"], flags["transport"], flags["fused"]
    backward = machine.backward if fused is None else Backward.FUSED if fused else Backward.SPLIT
    return dataclasses.replace(
        machine,
        engines=Engines(engines) if engines else machine.engines,
        transport=Transport(transport) if transport else machine.transport,
        backward=backward,
    )


def _rows(machine: Machine, rows: int | None) -> int:
    if machine.transport.value == "streamed":
        return rows or _ROWS
    if rows is not None:
        raise InputError(
            f"`rows` = {rows}: messages are {machine.transport.value}; rows need `--transport"
            " streamed`"
        )
    return 1


def _heed_work(kind: PipelineKind, shape: Shape) -> None:
    """Say how long the timing of a schedule takes, if that is long."""
    actions = 3 * len(shape.costs) * shape.micro_batches
    tried = 2 * shape.devices if kind.searches and shape.warm_ups is None else 1
    if actions * tried > _FEW_ACTIONS:
        from ...plan import long_timing

        times = f" with up to {tried:,} warm-ups" if tried > 1 else ""
        tell_warning(
            long_timing(f"timing {kind.name} of {actions:,} actions{times}", actions * tried)
        )


def _plain_1f1b_ps(kind: PipelineKind, shape: Shape) -> int | None:
    """Return the time of plain 1F1B on the same machine, where that has the work of an order of
    equal stages.
    """
    if not kind.equal_stages or not kind.drains or shape.uniform or shape.chunks > 1:
        return None
    from ...schedule import pipeline_kind
    from ...timing import time_shape

    return time_shape(pipeline_kind(_PLAIN), dataclasses.replace(shape, warm_ups=None)).makespan_ps


def _to_try(flags: Mapping[str, Any], shape: Shape, scale: int, *, plain: bool) -> str:
    """Return the command that times another schedule on the same stages, each on a device of its
    own if they differ.

    With `plain` it is that of 1F1B on the same machine.
    """
    other = "1f1b-min" if flags["schedule"] != "1f1b-min" else "zero-bubble"
    names: tuple[str, ...] = (
        "stages",
        "micro_batches",
        "forward",
        "backward",
        "transfer",
        "latency",
    )
    if plain:
        machine = shape.machine
        fused = "fused" if machine.backward.value == "fused" else "not-fused"
        other = (
            f"{_PLAIN} --{fused} --engines {machine.engines.value} --transport"
            f" {machine.transport.value}"
        )
        names += ("gradient",) if flags["gradient"] is not None else ()
    if shape.chunks > 1 and not shape.uniform:
        forward_ps = [cost.forward_ps for cost in shape.costs]
        backward_ps = [cost.backward_ps for cost in shape.costs]
        times = {"forward": forward_ps, "backward": backward_ps}
        by_stage = {}
        for key, values in times.items():
            by_stage[key] = ",".join(f"{_plain(Fraction(time, scale))}" for time in values)
        flags = {**flags, **by_stage, "stages": len(shape.costs)}
    given = (f"--{name.replace('_', '-')} {flags[name]}" for name in names if flags[name] != "0")
    return f"emuchain pipeline --schedule {other} {' '.join(given)}"


def _plain(value: Fraction) -> int | float:
    """Return a number for JSON."""
    return int(value) if value.denominator == 1 else float(value)


def _shown(value: Fraction) -> str:
    return f"{value.numerator:,}" if value.denominator == 1 else f"{float(value):,.6g}"
