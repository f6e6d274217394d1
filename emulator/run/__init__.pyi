from .placement import Placement
from .recorder import Recorder
from .replicas import Exchanged
from .results import Results, exchange_table, history_table, results_of, versions
from .results_file import check_writable, read_results, write_results
from .simulate import Simulation, simulate
from .steady_state import (
    DeviceUse,
    EngineUse,
    LinkUse,
    SteadyState,
    Throughput,
    steady_period_ps,
    steady_state,
)
from .train import EpochResult, StepResult, Trainer, Weights, train
from .usage import PHASES, DeviceUsage, LinkUsage, MemoryUsage, Usage

__all__ = [
    "PHASES",
    "DeviceUsage",
    "DeviceUse",
    "EngineUse",
    "EpochResult",
    "Exchanged",
    "LinkUsage",
    "LinkUse",
    "MemoryUsage",
    "Placement",
    "Recorder",
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
    "history_table",
    "read_results",
    "results_of",
    "simulate",
    "steady_period_ps",
    "steady_state",
    "train",
    "versions",
    "write_results",
]
