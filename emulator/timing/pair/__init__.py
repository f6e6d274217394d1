"""A GPU and an FPGA that train recurrent layers together (FARNN): work, tasks, and their timeline. Pure functions."""

from .devices import Pair, check_gpu_memory, gpu_bytes, pair_of, standard_step_ps
from .fpga import (
    LayerNeeds,
    StepCycles,
    all_needs,
    mvm_cycles,
    needs_as_json,
    pe_words,
    step_cycles,
    unheld_bytes,
    unsplit_cycles,
)
from .messages import Content, PairKey, PairStream, pair_streams, streams_of
from .result import Busy, PairTimes, time_mini_batch, times_as_json
from .tasks import Resource, Task, TimedTask, run_tasks
from .work import Cell, OtherWork, Part, Phase, RecurrentWork, Workload, work_of, workload_of

__all__ = [
    "Busy",
    "Cell",
    "Content",
    "LayerNeeds",
    "OtherWork",
    "Pair",
    "PairKey",
    "PairStream",
    "PairTimes",
    "Part",
    "Phase",
    "RecurrentWork",
    "Resource",
    "StepCycles",
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
    "run_tasks",
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
