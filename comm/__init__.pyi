from .awaited import Awaited
from .end_request import EndRequest, Terminated, ended_by, importing
from .fifo import FifoResource, Observer, Served, Times
from .host import Mailbox, Pump, StalledError, others_first, run
from .interconnect import COMPRESSIBLE_TOS, Interconnect, NicEngines
from .launch import LaunchError, abort_ranks, check_shared_memory, join, launcher_rank, left_over
from .launcher import launch_command, launch_environment, listening_below, passed_on
from .launchers_stderr import tell
from .message import Format, Message, join_messages, split
from .mpi import Receiver, Sender, drain
from .packet_flow import NicBurst, NicFlow, NicStage, egress, ingress, packet_header, payload_of
from .pool import WorkerLost, in_parallel
from .processors import usable_cores
from .ranks import Dismissed, MpiRanks, RankFailed, Ranks, Stopped
from .single_process import SingleProcess
from .stall import STALL_STATUS, NoProgress
from .throttle import Gate
from .watch import Watch, introduce

__all__ = [
    "COMPRESSIBLE_TOS",
    "STALL_STATUS",
    "Awaited",
    "Dismissed",
    "EndRequest",
    "FifoResource",
    "Format",
    "Gate",
    "Interconnect",
    "LaunchError",
    "Mailbox",
    "Message",
    "MpiRanks",
    "NicBurst",
    "NicEngines",
    "NicFlow",
    "NicStage",
    "NoProgress",
    "Observer",
    "Pump",
    "RankFailed",
    "Ranks",
    "Receiver",
    "Sender",
    "Served",
    "SingleProcess",
    "StalledError",
    "Stopped",
    "Terminated",
    "Times",
    "Watch",
    "WorkerLost",
    "abort_ranks",
    "check_shared_memory",
    "drain",
    "egress",
    "ended_by",
    "importing",
    "in_parallel",
    "ingress",
    "introduce",
    "join",
    "join_messages",
    "launch_command",
    "launch_environment",
    "launcher_rank",
    "left_over",
    "listening_below",
    "others_first",
    "packet_header",
    "passed_on",
    "payload_of",
    "run",
    "split",
    "tell",
    "usable_cores",
]
