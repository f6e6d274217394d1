from .end_request import Dismissed, EndRequest, RankFailed, Stopped, Terminated, ended_by, importing
from .launch import LaunchError, abort_ranks, check_shared_memory, join, launcher_rank, left_over
from .launcher import launch_command, launch_environment, listening_below, passed_on
from .pool import WorkerLost, in_parallel
from .processes import tell, usable_cores
from .ranks import MpiRanks, Ranks
from .single_process import SingleProcess
from .stall import STALL_STATUS, NoProgress
from .watch import Watch, introduce

__all__ = [
    "STALL_STATUS",
    "Dismissed",
    "EndRequest",
    "LaunchError",
    "MpiRanks",
    "NoProgress",
    "RankFailed",
    "Ranks",
    "SingleProcess",
    "Stopped",
    "Terminated",
    "Watch",
    "WorkerLost",
    "abort_ranks",
    "check_shared_memory",
    "ended_by",
    "importing",
    "in_parallel",
    "introduce",
    "join",
    "launch_command",
    "launch_environment",
    "launcher_rank",
    "left_over",
    "listening_below",
    "passed_on",
    "tell",
    "usable_cores",
]
