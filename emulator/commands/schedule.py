"""`emuchain schedule`: schedules for people, and the dry run."""

from __future__ import annotations

import pathlib
from typing import Any

from ..common.errors import InputError
from ..config.config import blaming, load_config
from ..plan.plan import make_plan
from ..schedule.dry_run import dry_run
from ..schedule.text import parse, to_text


def print_schedule(config_file: str | None, flags: dict[str, Any], steps: int) -> None:
    """Print the first mini-batches of a run's schedule.

    Raises:
        InputError: the configuration does not hold.
    """
    with blaming(config_file, flags):
        config = load_config(config_file, flags)
        plan = make_plan(config, 1)
    print(to_text(plan.schedule(steps * plan.batch)), end="")


def check_schedule(file: str) -> None:
    """Parse a schedule and dry-run it.

    Raises:
        InputError: it cannot be read, is not of the form, or would go wrong.
    """
    try:
        text = pathlib.Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from None
    schedule = parse(text, file)
    dry_run(schedule)
    print(f"{file}: {schedule.devices} devices, {schedule.steps} mini-batches: complete, in order, free of deadlock")
