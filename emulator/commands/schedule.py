"""`emuchain schedule`: schedules as text, and the dry run."""

from __future__ import annotations

import pathlib
from typing import Any

from ..common import InputError
from ..config import blaming, load_config
from ..plan import make_plan
from ..schedule import dry_run, parse, to_text


def print_schedule(config_file: str | None, flags: dict[str, Any], steps: int) -> None:
    """Print the first `steps` mini-batches of a run's schedule.

    Raises:
        InputError: the configuration is invalid.
    """
    with blaming(config_file, flags):
        config = load_config(config_file, flags)
        plan = make_plan(config, 1)
    print(to_text(plan.schedule(steps * plan.batch)), end="")


def check_schedule(file: str) -> None:
    """Parse the schedule in `file` and dry-run it.

    Raises:
        InputError: the file cannot be read or parsed, or the schedule fails the dry run.
    """
    try:
        text = pathlib.Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from None
    schedule = parse(text, file)
    dry_run(schedule)
    print(f"{file}: {schedule.devices} devices, {schedule.steps} mini-batches: complete, in order, free of deadlock")
