from .emulator.api import plan, rate_range, register, simulate, study, sweep, train
from .emulator.calibrate import (
    BoardCalibration,
    CollectiveCalibration,
    Coverage,
    LinkCalibration,
    calibrate_board,
    calibrate_check,
    calibrate_collective,
    calibrate_link,
)
from .emulator.cluster import Cluster, load_cluster
from .emulator.common import InputError
from .emulator.config import RateSchedule
from .emulator.data import Dataset, as_data, load_data
from .emulator.finished import evaluate, export, generate, predict, report, results, retime
from .emulator.network import Network, TorchNetwork, from_torch, load_network
from .emulator.plan import ChainPlan, PairPlan, Plan
from .emulator.run import (
    AnswerRange,
    EpochResult,
    Evaluation,
    PairSimulation,
    Results,
    SeedRuns,
    Simulation,
    SteadyState,
)
from .emulator.run.steady_state import steady_state
from .emulator.schedule import Schedule
from .emulator.studies import Retiming, Study
from .emulator.studies.sweep import SweepResult

__version__: str

__all__ = [
    "AnswerRange",
    "BoardCalibration",
    "ChainPlan",
    "Cluster",
    "CollectiveCalibration",
    "Coverage",
    "Dataset",
    "EpochResult",
    "Evaluation",
    "InputError",
    "LinkCalibration",
    "Network",
    "PairPlan",
    "PairSimulation",
    "Plan",
    "RateSchedule",
    "Results",
    "Retiming",
    "Schedule",
    "SeedRuns",
    "Simulation",
    "SteadyState",
    "Study",
    "SweepResult",
    "TorchNetwork",
    "__version__",
    "as_data",
    "calibrate_board",
    "calibrate_check",
    "calibrate_collective",
    "calibrate_link",
    "evaluate",
    "export",
    "from_torch",
    "generate",
    "load_cluster",
    "load_data",
    "load_network",
    "plan",
    "predict",
    "rate_range",
    "register",
    "report",
    "results",
    "retime",
    "simulate",
    "steady_state",
    "study",
    "sweep",
    "train",
]
