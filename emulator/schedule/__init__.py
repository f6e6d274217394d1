"""Schedules as data: the actions of each device in order, printed, parsed, and dry-run before anything starts."""

from .action import Action, Kind, MicroBatch, SampleSpan, Schedule, cut_samples
from .complete import check_complete
from .csv_text import parse_csv, to_csv
from .dry_run import dry_run
from .features import kept_micro_batches
from .kind import EpochShape, ScheduleKind, Staleness, schedules
from .offload import Offload
from .pipeline import pipeline
from .span_store import SpanStore
from .text import parse, to_text
from .versions import VersionedAction, weight_copies, with_versions
from .warm_up import warm_up

__all__ = [
    "Action",
    "EpochShape",
    "Kind",
    "MicroBatch",
    "Offload",
    "SampleSpan",
    "Schedule",
    "ScheduleKind",
    "SpanStore",
    "Staleness",
    "VersionedAction",
    "check_complete",
    "cut_samples",
    "dry_run",
    "kept_micro_batches",
    "parse",
    "parse_csv",
    "pipeline",
    "schedules",
    "to_csv",
    "to_text",
    "warm_up",
    "weight_copies",
    "with_versions",
]
