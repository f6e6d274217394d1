"""The virtual time of engines, links and memory ports, of rows and of actions, as pure functions."""

from .bottleneck import (
    Bottleneck,
    EngineLoad,
    ExchangeLoad,
    LinkLoad,
    Load,
    MemoryLoad,
    engine_loads,
    exchange_name,
    find_bottleneck,
    link_loads,
    loads_of,
    memory_loads,
)
from .course import Course, Sent, Timed
from .device_clock import DeviceClock
from .free_run import Trace, free_run
from .hurt import Hurt
from .pipeline import (
    PipelineResult,
    least_time_ps,
    run_course,
    run_timeline,
    schedule_of,
    smallest_warm_ups,
    time_pipeline,
    time_shape,
    warm_ups_of,
)
from .program import Step, work_ps
from .slice_clock import SliceClock
from .stage_clock import EpochCourse, StageClock, StageTimes
from .stage_device import StageDevice, Wire
from .timing import Timing

__all__ = [
    "Bottleneck",
    "Course",
    "DeviceClock",
    "EngineLoad",
    "EpochCourse",
    "ExchangeLoad",
    "Hurt",
    "LinkLoad",
    "Load",
    "MemoryLoad",
    "PipelineResult",
    "Sent",
    "SliceClock",
    "StageClock",
    "StageDevice",
    "StageTimes",
    "Step",
    "Timed",
    "Timing",
    "Trace",
    "Wire",
    "engine_loads",
    "exchange_name",
    "find_bottleneck",
    "free_run",
    "least_time_ps",
    "link_loads",
    "loads_of",
    "memory_loads",
    "run_course",
    "run_timeline",
    "schedule_of",
    "smallest_warm_ups",
    "time_pipeline",
    "time_shape",
    "warm_ups_of",
    "work_ps",
]
