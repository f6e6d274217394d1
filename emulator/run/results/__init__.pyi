from .history import ROW, STEP, History, Pace, Spool
from .recorder import Recorder, StepLog, open_log
from .results import Results, SeedRuns, results_of, table_as_csv, versions
from .results_file import read_results, write_results
from .sizes import EpochSizes, GivenSizes, MeanRatio, OtherMessages, RecordedSizes, SentBy, recorded_sizes
from .steps import Diverged, EpochResult, Exchanged, SoFar, StepReports, StepResult, StepTable, Weights
from .tables import exchange_table, history_table, resource_table, rounding_table
from .usage import PHASES, DeviceCounters, DeviceUsage, LinkUsage, MemoryUsage, ResourceUse, Usage, usage_of

__all__ = [
    "PHASES",
    "ROW",
    "STEP",
    "DeviceCounters",
    "DeviceUsage",
    "Diverged",
    "EpochResult",
    "EpochSizes",
    "Exchanged",
    "GivenSizes",
    "History",
    "LinkUsage",
    "MeanRatio",
    "MemoryUsage",
    "OtherMessages",
    "Pace",
    "RecordedSizes",
    "Recorder",
    "ResourceUse",
    "Results",
    "SeedRuns",
    "SentBy",
    "SoFar",
    "Spool",
    "StepLog",
    "StepReports",
    "StepResult",
    "StepTable",
    "Usage",
    "Weights",
    "exchange_table",
    "history_table",
    "open_log",
    "read_results",
    "recorded_sizes",
    "resource_table",
    "results_of",
    "rounding_table",
    "table_as_csv",
    "usage_of",
    "versions",
    "write_results",
]
