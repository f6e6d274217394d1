"""Whether a schedule leaves out an action, which the dry run would report where it is missed."""

from __future__ import annotations

import itertools

from ..common import InputError
from .action import Action, Kind, Schedule

_KINDS = (Kind.FORWARD, Kind.BACKWARD, Kind.GRADIENT)


def check_complete(schedule: Schedule) -> None:
    """Check that each device has F, B and W of every micro-batch on each of its stages; all programs are read.

    Raises:
        InputError: the first action that is missing, and its device.
    """
    for device, program in schedule.programs(range(schedule.devices)).items():
        done = {(action.kind, action.index, action.chunk) for action in program}
        for of, chunk, kind in itertools.product(schedule.micro_batches, range(schedule.chunks), _KINDS):
            if (kind, of.index, chunk) not in done:
                missing = Action(kind, of.index, chunk=chunk)
                raise InputError(f"schedule {schedule.name}: device {device}: never does {missing}")
