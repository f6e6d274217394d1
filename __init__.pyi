from .emulator.api import plan, rate_range, register, simulate, sweep, train
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
from .emulator.data import Dataset, load_data
from .emulator.finished import evaluate, export, predict, report, results, retime
from .emulator.network import Network, TorchNetwork, from_torch, load_network
from .emulator.plan import ChainPlan, PairPlan, Plan
from .emulator.run import (
    AnswerRange,
    Evaluation,
    PairSimulation,
    Results,
    SeedRuns,
    Simulation,
    SteadyState,
)
from .emulator.run.steady_state import steady_state
from .emulator.studies import Retiming

__version__: str

__all__ = [
    "AnswerRange",
    "BoardCalibration",
    "ChainPlan",
    "Cluster",
    "CollectiveCalibration",
    "Coverage",
    "Dataset",
    "Evaluation",
    "InputError",
    "LinkCalibration",
    "Network",
    "PairPlan",
    "PairSimulation",
    "Plan",
    "Results",
    "Retiming",
    "SeedRuns",
    "Simulation",
    "SteadyState",
    "TorchNetwork",
    "__version__",
    "calibrate_board",
    "calibrate_check",
    "calibrate_collective",
    "calibrate_link",
    "evaluate",
    "export",
    "from_torch",
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
    "sweep",
    "train",
]
