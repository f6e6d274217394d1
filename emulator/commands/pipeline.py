"""`emuchain pipeline`: the timeline of a pipeline schedule on equal stages."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from ..common import InputError
from .kernels import starting

if TYPE_CHECKING:
    from ..pipeline import PipelineKind, Shape

_NUMBER = re.compile(r"\d{1,12}(\.\d{1,12})?")
_MOST_ACTIONS = 1_000_000
_OF_INTERLEAVED = 2


@click.command()
@click.option(
    "--schedule",
    required=True,
    metavar="NAME",
    help="1f1b-as, fbp-as, 1f1b-sno, 1f1b-so, 1f1b-min, gpipe, interleaved, zero-bubble, pipedream, 2bw.",
)
@click.option("--stages", type=click.IntRange(1, 1024), required=True, metavar="N", help="Devices of the chain.")
@click.option("--micro-batches", type=click.IntRange(min=1), required=True, metavar="M", help="Of a mini-batch.")
@click.option("--forward", required=True, metavar="F", help="Time of F on a device, in any unit.")
@click.option("--backward", required=True, metavar="B", help="Time of B, with the parameter gradients.")
@click.option("--gradient", metavar="W", help="The part of B for parameter gradients.  [default: half]")
@click.option("--transfer", default="0", show_default=True, metavar="SR", help="Time of a message between devices.")
@click.option(
    "--engines",
    type=click.Choice(["split", "shared", "turns"]),
    help="What a device does at a time: F and B on engines of their own, on one pool, or by turns.",
)
@click.option(
    "--transport",
    type=click.Choice(["stored", "hidden"]),
    help="Whether a message leaves when its action is done, or while that is computed.",
)
@click.option("--warm-up", metavar="EXPR", help="Warm-up forwards of stage i (from 1 on), as `2(N-i)+1`.")
@click.option("--chunks", type=click.IntRange(1, 1024), metavar="V", help="Stages of a device, for `interleaved`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def pipeline(as_json: bool, **flags: Any) -> None:
    """Time a pipeline schedule: mini-batch, bubble, memory by stage, and a drawing.

    All stages are equal. Engines and transport are by default what the schedule was meant for.
    """
    with starting():
        run = _Run.of(flags)
    if as_json:
        print(json.dumps(run.as_json(), indent=2))
    else:
        run.print()


class _Run:
    """A schedule in time, in the user's unit of time, which is `scale` ps."""

    def __init__(self, kind: PipelineKind, shape: Shape, scale: int, to_try: str) -> None:
        from ..pipeline import time_pipeline

        self.kind, self.shape, self.scale, self.to_try = kind, shape, scale, to_try
        schedule, self.form = kind.schedule(shape)
        self.result = time_pipeline(schedule, shape.costs, shape.machine)

    @classmethod
    def of(cls, flags: dict[str, Any]) -> _Run:
        """Time what the flags say.

        Raises:
            InputError: a value is invalid, or the schedule cannot be run with it.
        """
        from ..pipeline import Engines, Shape, StageCosts, Transport, pipeline_kind, warm_ups

        kind = pipeline_kind(flags["schedule"])
        stages, micro_batches = flags["stages"], flags["micro_batches"]
        chunks = flags["chunks"] or (_OF_INTERLEAVED if kind.interleaves else 1)
        if stages * micro_batches * chunks > _MOST_ACTIONS:
            raise InputError(f"`micro_batches` = {micro_batches}: on {stages} stages at most {_MOST_ACTIONS // stages}")
        forward, backward = (_positive(flags[name], name) for name in ("forward", "backward"))
        gradient = backward / 2 if flags["gradient"] is None else _number(flags["gradient"], "gradient")
        if gradient > backward:
            raise InputError(f"`gradient` = {flags['gradient']}: is part of `backward` = {flags['backward']}")
        transfer = _number(flags["transfer"], "transfer")
        # Times of a chunk, exact: the unit of time is as many ps as make all of them whole numbers.
        times = [forward / chunks, backward / chunks, gradient / chunks, transfer]
        scale = math.lcm(*(time.denominator for time in times))
        costs = StageCosts(*(int(time * scale) for time in times))
        machine = kind.machine
        if flags["engines"]:
            machine = dataclasses.replace(machine, engines=Engines(flags["engines"]))
        if flags["transport"]:
            machine = dataclasses.replace(machine, transport=Transport(flags["transport"]))
        forwards = None if flags["warm_up"] is None else warm_ups(flags["warm_up"], stages, micro_batches)
        shape = Shape(stages, micro_batches, (costs,) * (stages * chunks), machine, chunks, forwards)
        return cls(kind, shape, scale, _to_try(flags))

    @property
    def time(self) -> Fraction:
        """The time of the mini-batch."""
        return Fraction(self.result.makespan_ps, self.scale)

    @property
    def formula(self) -> Fraction | None:
        """The time by the closed form."""
        return None if self.form is None else Fraction(self.form.time_ps, self.scale)

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        result, machine = self.result, self.shape.machine
        return {
            "schedule": self.kind.name,
            "stages": self.shape.devices,
            "micro_batches": self.shape.micro_batches,
            "chunks": self.shape.chunks,
            "engines": machine.engines.value,
            "transport": machine.transport.value,
            "time": _plain(self.time),
            "bubble": _plain(result.bubble),
            "features": [_plain(each) for each in result.features],
            "weight_copies": list(result.weight_copies),
            "send_peak": _plain(result.send_peak * self.scale),
            "formula": None if self.formula is None else _plain(self.formula),
            "formula_holds": None if self.formula is None else self.formula == self.time,
        }

    def print(self) -> None:
        """Print the answer, a table by stage, and a drawing."""
        from ..pipeline import LEGEND, draw
        from ..report import next_line, percent, plural, print_answer, screen_width, table

        result, shape = self.result, self.shape
        machine = shape.machine
        backward = "B includes W" if machine.backward.value == "fused" else "W apart from B"
        path = result.critical_path
        print_answer(
            [
                f"{self.kind.name}, {plural(shape.devices, 'stage')}, {plural(shape.micro_batches, 'micro-batch')}:"
                f" a mini-batch takes {_shown(self.time)}, bubble {percent(float(result.bubble))}",
                self._formula_line(),
                f"machine: {machine.engines.value} engines, {machine.transport.value} transport, {backward}",
                f"send peak: features of {_shown(result.send_peak * self.scale)} micro-batches in a unit of time",
                f"critical path: {len(path)} actions, from device {path[0].device} to device {path[-1].device}",
                next_line(self.to_try),
            ]
        )
        columns = ["stage", "features kept", "weight copies", "busy"]
        if shape.chunks > 1:
            columns[0] = "device"
        rows: list[Sequence[str]] = [
            [str(device), _shown(features), str(copies), percent(busy / result.makespan_ps)]
            for device, (features, copies, busy) in enumerate(
                zip(result.features, result.weight_copies, result.busy_ps, strict=True)
            )
        ]
        table("By stage: features in micro-batches", columns, rows)
        print()
        for line in draw(result.timed, shape.devices, machine.engines, screen_width()):
            print(line)
        print(LEGEND)

    def _formula_line(self) -> str:
        if self.form is None or self.formula is None:
            return "formula: none for this schedule on this machine"
        holds = "holds" if self.formula == self.time else "does not hold here"
        return f"formula: {_shown(self.formula)}, {holds}; exact where {self.form.valid}"


def _to_try(flags: dict[str, Any]) -> str:
    """Return the command that times another schedule on the same stages."""
    other = "1f1b-min" if flags["schedule"] != "1f1b-min" else "zero-bubble"
    names = ("stages", "micro_batches", "forward", "backward", "transfer")
    given = (f"--{name.replace('_', '-')} {flags[name]}" for name in names if flags[name] != "0")
    return f"emuchain pipeline --schedule {other} {' '.join(given)}"


def _number(text: str, name: str) -> Fraction:
    if _NUMBER.fullmatch(text) is None:
        raise InputError(f"`{name}` = {text!r}: must be a number that is not negative, such as 3 or 2.5")
    return Fraction(text)


def _positive(text: str, name: str) -> Fraction:
    value = _number(text, name)
    if not value:
        raise InputError(f"`{name}` = {text!r}: must be more than 0")
    return value


def _plain(value: Fraction) -> int | float:
    """Return a number for JSON."""
    return int(value) if value.denominator == 1 else float(value)


def _shown(value: Fraction) -> str:
    return f"{value.numerator:,}" if value.denominator == 1 else f"{float(value):,.6g}"
