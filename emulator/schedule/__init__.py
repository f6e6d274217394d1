"""Schedules as data: the actions of each device in order, printed, parsed, and dry-run before
anything starts.
"""

from .action import (
    MICRO_BATCH_KINDS,
    MOVES,
    PASSES,
    Action,
    Fold,
    Kind,
    MicroBatch,
    SampleSpan,
    Schedule,
    cut_samples,
    parse,
    step_micro_batches,
    to_text,
)
from .bapipe import warm_up, warm_ups
from .dry_run import check_complete, dry_run
from .edited import EditedKind, edited_kind, is_schedule_file, read_schedule
from .fpdeep import pipeline
from .kind import Offload, PipelineKind, ScheduleKind, pipeline_kind, pipelines, schedules
from .pipedream import unflushed_in_order
from .pytorch import parse_csv, to_csv
from .shape import (
    Backward,
    ClosedForm,
    Engines,
    EpochShape,
    Machine,
    Shape,
    StageCosts,
    Staleness,
    Transport,
)
from .versions import SpanStore, kept_micro_batches, weight_copies, with_versions

__all__ = [
    "MICRO_BATCH_KINDS",
    "MOVES",
    "PASSES",
    "Action",
    "Backward",
    "ClosedForm",
    "EditedKind",
    "Engines",
    "EpochShape",
    "Fold",
    "Kind",
    "Machine",
    "MicroBatch",
    "Offload",
    "PipelineKind",
    "SampleSpan",
    "Schedule",
    "ScheduleKind",
    "Shape",
    "SpanStore",
    "StageCosts",
    "Staleness",
    "Transport",
    "check_complete",
    "cut_samples",
    "dry_run",
    "edited_kind",
    "is_schedule_file",
    "kept_micro_batches",
    "parse",
    "parse_csv",
    "pipeline",
    "pipeline_kind",
    "pipelines",
    "read_schedule",
    "schedules",
    "step_micro_batches",
    "to_csv",
    "to_text",
    "unflushed_in_order",
    "warm_up",
    "warm_ups",
    "weight_copies",
    "with_versions",
]
