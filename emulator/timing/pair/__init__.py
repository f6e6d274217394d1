"""A GPU and an FPGA that train recurrent layers together (FARNN): work, tasks, and their timeline. Pure functions."""

from .devices import Pair, check_gpu_memory, gpu_bytes, pair_of, standard_step_ps
from .fpga import (
    Content,
    LayerNeeds,
    PairKey,
    all_needs,
    mvm_cycles,
    needs_as_json,
    pair_streams,
    pe_words,
    step_cycles,
    streams_of,
    unheld_bytes,
    unsplit_cycles,
)
from .result import Busy, PairTimes, time_mini_batch, times_as_json
from .tasks import Resource, Task, TimedTask
from .work import Cell, OtherWork, Part, Phase, RecurrentWork, Workload, work_of, workload_of

__all__ = [
    "Busy",
    "Cell",
    "Content",
    "LayerNeeds",
    "OtherWork",
    "Pair",
    "PairKey",
    "PairTimes",
    "Part",
    "Phase",
    "RecurrentWork",
    "Resource",
    "Task",
    "TimedTask",
    "Workload",
    "all_needs",
    "check_gpu_memory",
    "gpu_bytes",
    "mvm_cycles",
    "needs_as_json",
    "pair_of",
    "pair_streams",
    "pe_words",
    "standard_step_ps",
    "step_cycles",
    "streams_of",
    "time_mini_batch",
    "times_as_json",
    "unheld_bytes",
    "unsplit_cycles",
    "work_of",
    "workload_of",
]
