from .end_request import ENDING, Dismissed, EndRequest, RankFailed, Stopped, Terminated, ended_by, importing, is_ignored
from .guard import MOST_RANKS
from .launch import LaunchError, abort_ranks, check_shared_memory, join, launcher_rank, left_over
from .launcher import Host, end_below, launch_command, launch_environment, listening_below, passed_on, read_hosts
from .pool import WorkerLost, in_parallel
from .processes import tell, usable_cores
from .ranks import MpiRanks, Ranks, SingleProcess
from .stall import STALL_STATUS, NoProgress
from .watch import Watch, introduce

__all__ = [
    "ENDING",
    "MOST_RANKS",
    "STALL_STATUS",
    "Dismissed",
    "EndRequest",
    "Host",
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
    "end_below",
    "ended_by",
    "importing",
    "in_parallel",
    "introduce",
    "is_ignored",
    "join",
    "launch_command",
    "launch_environment",
    "launcher_rank",
    "left_over",
    "listening_below",
    "passed_on",
    "read_hosts",
    "tell",
    "usable_cores",
]
