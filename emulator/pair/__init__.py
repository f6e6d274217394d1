"""A GPU and an FPGA that train recurrent layers together (FARNN): work, tasks, and their timeline. Pure functions."""

from .as_json import needs_as_json, times_as_json
from .devices import Pair, pair_of
from .gpu_memory import check_gpu_memory, gpu_bytes
from .layout import LayerNeeds, all_needs
from .messages import Content, PairKey, PairStream, streams_of
from .of_network import pair_streams, work_of, workload_of
from .pe_chain import mvm_cycles, unsplit_cycles
from .result import Busy, PairTimes, time_mini_batch
from .steps import StepCycles, pe_words, step_cycles, unheld_bytes
from .tasks import Part, Phase, Resource, Task
from .timeline import Timed, run
from .work import Cell, OtherWork, RecurrentWork, Workload

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
    "Timed",
    "Workload",
    "all_needs",
    "check_gpu_memory",
    "gpu_bytes",
    "mvm_cycles",
    "needs_as_json",
    "pair_of",
    "pair_streams",
    "pe_words",
    "run",
    "step_cycles",
    "streams_of",
    "time_mini_batch",
    "times_as_json",
    "unheld_bytes",
    "unsplit_cycles",
    "work_of",
    "workload_of",
]
