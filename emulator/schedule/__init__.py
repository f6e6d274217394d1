"""Schedules as data: made by pure functions, printed, parsed, and dry-run before anything starts."""

from .action import Action, Kind, MicroBatch, Portion, Schedule
from .dry_run import dry_run
from .pipeline import Lags, cut_samples, fpdeep, sync
from .text import parse, to_text

__all__ = [
    "Action",
    "Kind",
    "Lags",
    "MicroBatch",
    "Portion",
    "Schedule",
    "cut_samples",
    "dry_run",
    "fpdeep",
    "parse",
    "sync",
    "to_text",
]
