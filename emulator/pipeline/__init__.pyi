from .costs import StageCosts
from .drawing import LEGEND, draw
from .engine import run_course, run_timeline
from .machine import Backward, Engines, Machine, Transport
from .program import Step, work_ps
from .result import PipelineResult, time_pipeline, time_shape
from .run import Course, Sent, Timed
from .search import least_time_ps, smallest_warm_ups
from .shape import ClosedForm, PipelineKind, Shape, pipeline_kind, pipeline_kinds
from .warm_ups import warm_ups

__all__ = [
    "LEGEND",
    "Backward",
    "ClosedForm",
    "Course",
    "Engines",
    "Machine",
    "PipelineKind",
    "PipelineResult",
    "Sent",
    "Shape",
    "StageCosts",
    "Step",
    "Timed",
    "Transport",
    "draw",
    "least_time_ps",
    "pipeline_kind",
    "pipeline_kinds",
    "run_course",
    "run_timeline",
    "smallest_warm_ups",
    "time_pipeline",
    "time_shape",
    "warm_ups",
    "work_ps",
]
