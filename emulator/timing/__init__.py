"""The virtual time of engines, links and memory ports, as pure functions of mapping and cluster."""

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
from .device_clock import DeviceClock
from .free_run import Trace, free_run
from .hurt import Hurt
from .slice_clock import SliceClock
from .stage_clock import EpochCourse, StageClock, StageTimes
from .stage_device import StageDevice, Wire
from .timing import Timing

__all__ = [
    "Bottleneck",
    "DeviceClock",
    "EngineLoad",
    "EpochCourse",
    "ExchangeLoad",
    "Hurt",
    "LinkLoad",
    "Load",
    "MemoryLoad",
    "SliceClock",
    "StageClock",
    "StageDevice",
    "StageTimes",
    "Timing",
    "Trace",
    "Wire",
    "engine_loads",
    "exchange_name",
    "find_bottleneck",
    "free_run",
    "link_loads",
    "loads_of",
    "memory_loads",
]
