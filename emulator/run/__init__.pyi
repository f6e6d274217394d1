from .checkpoint import Ended, Keeping, Leader, RunCheckpoints
from .epoch_result import EpochResult, Weights
from .evaluation import Evaluation, evaluate
from .fault_costs import FaultCosts, fault_costs
from .growing import exchange_table, history_table
from .legs import Position
from .own_weights import Found, WeightsFile, found_of, read_found, read_weights, safetensors_image
from .pair_simulation import PairSimulation
from .placement import Placement
from .recorder import Recorder
from .replicas import Exchanged
from .results import Results, resource_table, results_of, versions
from .results_file import read_results, write_results
from .resume import Resumed, checkpoints_of, resumed
from .segment import Death, Segment
from .segments import segments_of
from .simulate import Simulation, simulate
from .sizes import GivenSizes, MeanRatio, RecordedSizes, recorded_sizes
from .steady_state import (
    DeviceUse,
    EngineUse,
    LinkUse,
    MemoryUse,
    SteadyState,
    Throughput,
    steady_period_ps,
    steady_state,
)
from .step_log import StepLog, open_log
from .steps import StepResult, StepTable
from .train import train
from .trainer import Trainer
from .usage import PHASES, DeviceUsage, LinkUsage, MemoryUsage, ResourceUse, Usage

__all__ = [
    "PHASES",
    "Death",
    "DeviceUsage",
    "DeviceUse",
    "Ended",
    "EngineUse",
    "EpochResult",
    "Evaluation",
    "Exchanged",
    "FaultCosts",
    "Found",
    "GivenSizes",
    "Keeping",
    "Leader",
    "LinkUsage",
    "LinkUse",
    "MeanRatio",
    "MemoryUsage",
    "MemoryUse",
    "PairSimulation",
    "Placement",
    "Position",
    "RecordedSizes",
    "Recorder",
    "ResourceUse",
    "Results",
    "Resumed",
    "RunCheckpoints",
    "Segment",
    "Simulation",
    "SteadyState",
    "StepLog",
    "StepResult",
    "StepTable",
    "Throughput",
    "Trainer",
    "Usage",
    "Weights",
    "WeightsFile",
    "checkpoints_of",
    "evaluate",
    "exchange_table",
    "fault_costs",
    "found_of",
    "history_table",
    "open_log",
    "read_found",
    "read_results",
    "read_weights",
    "recorded_sizes",
    "resource_table",
    "results_of",
    "resumed",
    "safetensors_image",
    "segments_of",
    "simulate",
    "steady_period_ps",
    "steady_state",
    "train",
    "versions",
    "write_results",
]
