from .epochs import EpochResult, StepResult, Weights
from .fault_costs import FaultCosts, fault_costs
from .placement import Placement
from .recorder import Recorder
from .replicas import Exchanged
from .results import Results, exchange_table, history_table, resource_table, results_of, versions
from .results_file import check_writable, read_results, write_results
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
from .train import Trainer, train
from .usage import PHASES, DeviceUsage, LinkUsage, MemoryUsage, ResourceUse, Usage

__all__ = [
    "PHASES",
    "DeviceUsage",
    "DeviceUse",
    "EngineUse",
    "EpochResult",
    "Exchanged",
    "FaultCosts",
    "GivenSizes",
    "LinkUsage",
    "LinkUse",
    "MeanRatio",
    "MemoryUsage",
    "MemoryUse",
    "Placement",
    "RecordedSizes",
    "Recorder",
    "ResourceUse",
    "Results",
    "Simulation",
    "SteadyState",
    "StepResult",
    "Throughput",
    "Trainer",
    "Usage",
    "Weights",
    "check_writable",
    "exchange_table",
    "fault_costs",
    "history_table",
    "read_results",
    "recorded_sizes",
    "resource_table",
    "results_of",
    "simulate",
    "steady_period_ps",
    "steady_state",
    "train",
    "versions",
    "write_results",
]
