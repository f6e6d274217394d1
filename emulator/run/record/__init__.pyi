from .epoch_result import EpochResult, SoFar, Weights
from .exchanged import Exchanged
from .history import ROW, STEP, History, Piece, accuracy, bits_per_step, mean_loss
from .sizes import (
    EpochSizes,
    GivenSizes,
    MeanRatio,
    OtherMessages,
    RecordedSizes,
    SentBy,
    compressed_bytes,
    message_columns,
    recorded_sizes,
)
from .spool import Spool
from .step_log import StepLog, open_log
from .steps import StepReports, StepResult, StepShares, StepTable, diverged
from .usage import PHASES, DeviceCounters, DeviceUsage, LinkUsage, MemoryUsage, ResourceUse, Usage, usage_of

__all__ = [
    "PHASES",
    "ROW",
    "STEP",
    "DeviceCounters",
    "DeviceUsage",
    "EpochResult",
    "EpochSizes",
    "Exchanged",
    "GivenSizes",
    "History",
    "LinkUsage",
    "MeanRatio",
    "MemoryUsage",
    "OtherMessages",
    "Piece",
    "RecordedSizes",
    "ResourceUse",
    "SentBy",
    "SoFar",
    "Spool",
    "StepLog",
    "StepReports",
    "StepResult",
    "StepShares",
    "StepTable",
    "Usage",
    "Weights",
    "accuracy",
    "bits_per_step",
    "compressed_bytes",
    "diverged",
    "mean_loss",
    "message_columns",
    "open_log",
    "recorded_sizes",
    "usage_of",
]
