"""The flags of `emuchain pipeline` as a schedule's kind and the shape that it is made for."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import click

from ..common import InputError, plural
from ..schedule import (
    Backward,
    Engines,
    Fold,
    Machine,
    PipelineKind,
    Shape,
    StageCosts,
    Transport,
    edited_kind,
    is_schedule_file,
    pipeline_kind,
    pipelines,
    warm_ups,
)

_NUMBER = re.compile(r"(\d{1,12}(\.\d{0,12})?|\.\d{1,12})([eE][+-]?\d{1,2})?", re.ASCII)
_DIGITS = 12
"""Of a time, ahead of the decimal point and behind it."""
_MOST_ACTIONS = 200_000
_ROWS = 8


def sized(flags: Mapping[str, Any]) -> tuple[PipelineKind, Mapping[str, Any]]:
    """Return the kind of schedule, and the flags with the devices, micro-batches and chunks of a schedule from a file.

    Raises:
        InputError: the schedule is not known, or flags say other than its file.
        click.MissingParameter: a flag is missing, and no file says it.
    """
    name = flags["schedule"]
    if name in pipelines() or not is_schedule_file(name):
        for flag in ("stages", "micro_batches"):
            if flags[flag] is None:
                raise click.MissingParameter(param_hint=f"'--{flag.replace('_', '-')}'", param_type="option")
        return pipeline_kind(name), flags
    kind = edited_kind(name)
    order = kind.order
    own = {"stages": order.devices, "micro_batches": order.micro_batches * order.steps, "chunks": order.chunks}
    for flag, count in own.items():
        if flags[flag] not in (None, count):
            raise InputError(f"`{flag}` = {flags[flag]}: `schedule` = {name!r} has {count}; leave it out")
    return kind, {**flags, **own}


def shape_of(kind: PipelineKind, flags: Mapping[str, Any]) -> tuple[Shape, int]:
    """Return the shape that flags describe, and how many ps of it are the user's unit of time.

    Raises:
        InputError: a value is invalid.
    """
    stages, micro_batches = flags["stages"], flags["micro_batches"]
    chunks = flags["chunks"] or kind.chunks
    machine = _machine(kind.machine, flags)
    rows = _rows(machine, flags["rows"])
    most = _MOST_ACTIONS * _ROWS // (stages * chunks * max(rows, _ROWS))
    if micro_batches > most:
        of_rows = f" of {rows} rows" if rows > _ROWS else ""
        raise InputError(
            f"`micro_batches` = {micro_batches}:{of_rows} on {plural(stages * chunks, 'stage')} at most {most}"
        )
    columns = _times(flags, Fold(stages, chunks, kind.in_v))
    latency = _number(flags["latency"], "latency")
    # Times are exact: the unit of time is as many ps as make all of them, and those of rows, whole numbers.
    scale = rows * math.lcm(latency.denominator, *(time.denominator for column in columns for time in column))
    in_ps = ([int(time * scale) for time in column] for column in columns)
    costs = tuple(StageCosts(f, b, w, sr, rows=rows) for f, b, w, sr in zip(*in_ps, strict=True))
    machine = dataclasses.replace(machine, latency_ps=int(latency * scale))
    forwards = None if flags["warm_up"] is None else warm_ups(flags["warm_up"], stages, micro_batches)
    return Shape(stages, micro_batches, costs, machine, chunks, forwards), scale


def _machine(machine: Machine, flags: Mapping[str, Any]) -> Machine:
    """Return the schedule's own machine with the engines and the transport that the flags name."""
    engines, transport, fused = flags["engines"], flags["transport"], flags["fused"]
    backward = machine.backward if fused is None else Backward.FUSED if fused else Backward.SPLIT
    return dataclasses.replace(
        machine,
        engines=Engines(engines) if engines else machine.engines,
        transport=Transport(transport) if transport else machine.transport,
        backward=backward,
    )


def _rows(machine: Machine, rows: int | None) -> int:
    if machine.transport is Transport.STREAMED:
        return rows or _ROWS
    if rows is not None:
        raise InputError(f"`rows` = {rows}: messages are {machine.transport.value}; rows need `--transport streamed`")
    return 1


def _times(flags: Mapping[str, Any], fold: Fold) -> Sequence[Sequence[Fraction]]:
    """Return F, B, the part of B for gradients, and SR of each stage."""
    forward, backward = (_by_stage(flags, name, fold) for name in ("forward", "backward"))
    for name, times in (("forward", forward), ("backward", backward)):
        if not all(times):
            raise InputError(f"`{name}` = {flags[name]!r}: must be more than 0")
    if flags["gradient"] is None:
        gradient = [time / 2 for time in backward]
    else:
        gradient = _by_stage(flags, "gradient", fold)
    for stage, (part, whole) in enumerate(zip(gradient, backward, strict=True)):
        if part > whole:
            at = f" (stage {stage})" if "," in flags["gradient"] + flags["backward"] else ""
            raise InputError(f"`gradient` = {flags['gradient']}: is part of `backward` = {flags['backward']}{at}")
    return forward, backward, gradient, _by_link(flags["transfer"], fold.count)


def _by_stage(flags: Mapping[str, Any], name: str, fold: Fold) -> list[Fraction]:
    """Return the time of each stage: of one value, or one for each device, each chunk has an equal part."""
    times, devices, chunks = _list(flags[name], name), fold.devices, fold.chunks
    if len(times) not in (1, devices, fold.count):
        places = (
            plural(devices, "stage")
            if chunks == 1
            else f"{plural(devices, 'device')}, or of {plural(fold.count, 'stage')}"
        )
        raise InputError(
            f"`{name}` = {flags[name]!r}: has {plural(len(times), 'value')}; must be one, or one for each of {places}"
        )
    if len(times) == fold.count and len(times) > 1:
        return times
    of_devices = times * devices if len(times) == 1 else times
    return [of_devices[fold.device(stage)] / chunks for stage in range(fold.count)]


def _by_link(text: str, stages: int) -> list[Fraction]:
    """Return the time of a message behind each stage; that of the last is not used."""
    times = _list(text, "transfer")
    if len(times) not in (1, stages - 1, stages):
        raise InputError(
            f"`transfer` = {text!r}: has {plural(len(times), 'value')}; must be one, or one for each"
            f" link of {plural(stages, 'stage')}"
        )
    if len(times) == 1:
        return times * stages
    return [*times[: stages - 1], times[stages - 2]]


def _list(text: str, name: str) -> list[Fraction]:
    return [_number(entry, name) for entry in text.split(",")]


def _number(text: str, name: str) -> Fraction:
    value = Fraction(text.strip()) if _NUMBER.fullmatch(text.strip()) else Fraction(-1)
    if not 0 <= value < 10**_DIGITS or (value * 10**_DIGITS).denominator > 1:
        raise InputError(
            f"`{name}` = {text!r}: must be a number that is not negative, such as 3, 2.5 or 2e-3, of at most {_DIGITS}"
            f" digits ahead of the decimal point and {_DIGITS} behind it"
        )
    return value
