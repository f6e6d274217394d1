"""`emuchain schedule`: schedules as text or CSV, and the dry run."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from ...common import InputError, escaped, plural
from ...config import blaming, load_config
from ...plan import asked_chunks, long_timing, make_plan, warm_ups_of
from ...schedule import (
    EpochShape,
    Schedule,
    check_complete,
    dry_run,
    read_schedule,
    schedules,
    to_csv,
    to_text,
)
from ...view import next_line, print_answer, table
from ..frame.command import Answer
from ..frame.output import tell_warning

_OF_ORDERS = ("schedule", "devices", "chunks", "warm_up")
_MOST_ACTIONS = 1_000_000
_BYTES_OF_ACTION = 12
"""In a file, with what is around it."""


def list_schedules() -> None:
    """Print a line for each schedule: its name, and what it does."""
    kinds = schedules()
    print_answer(
        [
            (
                f"{plural(len(kinds), 'schedule')}; your own is a file or a Python function:"
                " docs/schedules.md"
            ),
            next_line("emuchain schedule --schedule gpipe --devices 3 --batch 4 --micro-batch 2"),
        ]
    )
    rows = [[kind.name, kind.summary] for kind in kinds.values()]
    table(
        "Schedules", ["schedule", "what it does"], rows, left=("what it does",), names=("schedule",)
    )


def run_schedule(config_file: str | None, flags: dict[str, Any], steps: int) -> Schedule:
    """Return the first `steps` mini-batches of a run's schedule.

    Raises:
        InputError: the configuration is invalid.
    """
    with blaming(config_file, flags):
        config = load_config(config_file, flags)
        plan = make_plan(config, 1)
    most = _MOST_ACTIONS // (plan.devices * plan.chunks * plan.batch)
    if steps > max(most, 1):
        size = f"of {plural(plan.batch, 'sample')} on {plural(plan.devices * plan.chunks, 'stage')}"
        raise InputError(f"`steps` = {steps}: mini-batches {size}, at most {max(most, 1):,}")
    return plan.schedule(steps * plan.batch)


def order_of(
    config_file: str | None, flags: dict[str, Any], micro_batches: int, steps: int
) -> Schedule:
    """Return the order of a kind of schedule, of mini-batches of `micro_batches` micro-batches,
    without a network.

    Raises:
        InputError: a flag is missing or has no part in it, or the schedule cannot be made for this
            shape.
    """
    others = [*([] if config_file is None else [config_file]), *(flags.keys() - set(_OF_ORDERS))]
    if others:
        raise InputError(
            f"`micro_batches` = {micro_batches}: prints an order without a network, so"
            f" {min(others)} has no effect"
        )
    for key in ("schedule", "devices"):
        if key not in flags:
            raise InputError(f"`micro_batches` = {micro_batches}: needs --{key}")
    config = load_config(None, flags)
    kind, devices = config.schedule, config.devices or 1
    if not kind.aligned or kind.replicates or kind.offload is not None:
        raise InputError(
            f"`schedule` = {kind.name!r}: has no order without a network; leave out --micro-batches"
        )
    chunks = asked_chunks(config)
    if devices * chunks * micro_batches * steps > _MOST_ACTIONS:
        raise InputError(
            f"`micro_batches` = {micro_batches}: of {plural(steps, 'mini-batch')} on"
            f" {plural(devices * chunks, 'stage')}, at most"
            f" {_MOST_ACTIONS // (devices * chunks * steps)}"
        )
    forwards = warm_ups_of(config, devices, micro_batches)
    epoch = EpochShape(
        devices, steps * micro_batches, micro_batches, 1, chunks=chunks, warm_ups=forwards
    )
    actions = kind.schedule_of(epoch)
    dry_run(actions, aligned=True)
    return actions


def print_schedule(schedule: Schedule, as_csv: bool) -> None:
    """Print a schedule as text or CSV.

    Raises:
        InputError: it cannot be written as CSV.
    """
    print(to_csv(schedule) if as_csv else to_text(schedule), end="")


def checked_schedule(file: str, form: str | None = None) -> Answer:
    """Parse the schedule in `file`, which is text or CSV, and dry-run it; return that it holds, or
    with a `form`, `text` or `csv`, itself.

    Raises:
        InputError: the file cannot be read or parsed, the schedule fails the dry run, or cannot be
            written so.
    """
    warning = (
        long_timing(f"checking {file}", os.path.getsize(file) / _BYTES_OF_ACTION)
        if os.path.isfile(file)
        else None
    )
    tell_warning(warning)
    schedule = read_schedule(file)
    named, kind = dataclasses.replace(schedule, name=escaped(file)), schedules().get(schedule.name)
    check_complete(named)
    dry_run(named, aligned=kind is None or kind.aligned)
    if form is not None:
        as_csv = form == "csv"
        return Answer(lambda: print_schedule(named if as_csv else schedule, as_csv))
    shape = f"{plural(schedule.devices, 'device')}, {plural(schedule.steps, 'mini-batch')}"
    return Answer(lambda: print(f"{file}: {shape}: complete, in order, free of deadlock"))
