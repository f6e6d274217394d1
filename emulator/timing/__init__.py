"""The virtual time of engines, links and memory ports, of rows and of actions, as pure functions."""

from .board import ActionBoard, Message, StageLoads, Wire
from .bottleneck import (
    Bottleneck,
    EngineLoad,
    ExchangeLoad,
    LinkLoad,
    Load,
    MemoryLoad,
    TiedLoad,
    engine_loads,
    exchange_name,
    find_bottleneck,
    link_loads,
    loads_of,
    memory_loads,
)
from .course import Course, Sent, Timed, course_of
from .crossing import TiedHop, UpdateWaits, Ways, hop
from .device_clock import DeviceClock
from .draws import DRAWS, HIGHEST, LOWEST, TIMING_DRAWS, Floats, factors, middle, slows
from .faulty import FaultyTiming
from .pipeline import (
    PipelineResult,
    least_time_ps,
    run_timeline,
    schedule_of,
    smallest_warm_ups,
    time_pipeline,
    time_shape,
    warm_ups_of,
)
from .program import Step, work_ps
from .roofs import Parts, Roofs, Speed, load_parts, varied_timing
from .routes import Hop, Routes, hop_name
from .slice_clock import SliceClock
from .stage_clock import StageClock, StageTimes
from .timing import Timing

__all__ = [
    "DRAWS",
    "HIGHEST",
    "LOWEST",
    "TIMING_DRAWS",
    "ActionBoard",
    "Bottleneck",
    "Course",
    "DeviceClock",
    "EngineLoad",
    "ExchangeLoad",
    "FaultyTiming",
    "Floats",
    "Hop",
    "LinkLoad",
    "Load",
    "MemoryLoad",
    "Message",
    "Parts",
    "PipelineResult",
    "Roofs",
    "Routes",
    "Sent",
    "SliceClock",
    "Speed",
    "StageClock",
    "StageLoads",
    "StageTimes",
    "Step",
    "TiedHop",
    "TiedLoad",
    "Timed",
    "Timing",
    "UpdateWaits",
    "Ways",
    "Wire",
    "course_of",
    "engine_loads",
    "exchange_name",
    "factors",
    "find_bottleneck",
    "hop",
    "hop_name",
    "least_time_ps",
    "link_loads",
    "load_parts",
    "loads_of",
    "memory_loads",
    "middle",
    "run_timeline",
    "schedule_of",
    "slows",
    "smallest_warm_ups",
    "time_pipeline",
    "time_shape",
    "varied_timing",
    "warm_ups_of",
    "work_ps",
]
