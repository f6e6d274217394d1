from .cause import Cause, WiderLinks, cause_of, draining_limits, draining_share, is_waiting, limiting_kind
from .chain_trainer import ChainTrainer, trained_mini_batches
from .checkpoints import Ended, Keeping, Leader, RunCheckpoints
from .epochs import train
from .evaluation import Evaluation, evaluate
from .placement import Placement, check_needs, needed_bytes
from .plain_results import table_as_csv
from .ranges import (
    AnswerRange,
    Slopes,
    by_slopes,
    drawn_range,
    pair_range,
    rate_range,
    roofs_of,
    run_range,
    slope_roofs,
    steady_range,
)
from .recorder import Recorder
from .results import Results, results_of, versions
from .results_file import read_results, write_results
from .resume import Resumed, checkpoints_of, resumed
from .seeds import SeedRuns
from .segments import Death, Position, Segment
from .simulate import FaultCosts, PairSimulation, Simulation, fault_costs, segments_of, simulate
from .sizes import GivenSizes, MeanRatio, OtherMessages, RecordedSizes, recorded_sizes
from .steady_state import (
    DeviceUse,
    EngineUse,
    LinkUse,
    MemoryUse,
    SteadyState,
    Throughput,
    steady_actions,
    steady_period_ps,
    steady_rate,
    steady_state,
)
from .step_log import StepLog, open_log
from .steps import Diverged, EpochResult, Exchanged, StepResult, StepTable, Weights
from .tables import exchange_table, history_table, resource_table, rounding_table
from .training import StoppedRun, Training, ending_together, prepared_on_all
from .usage import PHASES, DeviceUsage, LinkUsage, MemoryUsage, ResourceUse, Usage
from .variants import ALONE, Runs, going_on, of_beside, own_name, runs_of, seed_variants
from .weights_files import RunWeights, WeightsFile, read_run_weights, read_weights, run_weights_of, safetensors_image

__all__ = [
    "ALONE",
    "PHASES",
    "AnswerRange",
    "Cause",
    "ChainTrainer",
    "Death",
    "DeviceUsage",
    "DeviceUse",
    "Diverged",
    "Ended",
    "EngineUse",
    "EpochResult",
    "Evaluation",
    "Exchanged",
    "FaultCosts",
    "GivenSizes",
    "Keeping",
    "Leader",
    "LinkUsage",
    "LinkUse",
    "MeanRatio",
    "MemoryUsage",
    "MemoryUse",
    "OtherMessages",
    "PairSimulation",
    "Placement",
    "Position",
    "RecordedSizes",
    "Recorder",
    "ResourceUse",
    "Results",
    "Resumed",
    "RunCheckpoints",
    "RunWeights",
    "Runs",
    "SeedRuns",
    "Segment",
    "Simulation",
    "Slopes",
    "SteadyState",
    "StepLog",
    "StepResult",
    "StepTable",
    "StoppedRun",
    "Throughput",
    "Training",
    "Usage",
    "Weights",
    "WeightsFile",
    "WiderLinks",
    "by_slopes",
    "cause_of",
    "check_needs",
    "checkpoints_of",
    "draining_limits",
    "draining_share",
    "drawn_range",
    "ending_together",
    "evaluate",
    "exchange_table",
    "fault_costs",
    "going_on",
    "history_table",
    "is_waiting",
    "limiting_kind",
    "needed_bytes",
    "of_beside",
    "open_log",
    "own_name",
    "pair_range",
    "prepared_on_all",
    "rate_range",
    "read_results",
    "read_run_weights",
    "read_weights",
    "recorded_sizes",
    "resource_table",
    "results_of",
    "resumed",
    "roofs_of",
    "rounding_table",
    "run_range",
    "run_weights_of",
    "runs_of",
    "safetensors_image",
    "seed_variants",
    "segments_of",
    "simulate",
    "slope_roofs",
    "steady_actions",
    "steady_period_ps",
    "steady_range",
    "steady_rate",
    "steady_state",
    "table_as_csv",
    "train",
    "trained_mini_batches",
    "versions",
    "write_results",
]
