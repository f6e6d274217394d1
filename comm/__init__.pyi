from .fifo import FifoResource, Observer, Served, Times
from .host import Mailbox, Pump, StalledError, run
from .interconnect import COMPRESSIBLE_TOS, Interconnect, NicEngines
from .launch import LaunchError, join, launcher_rank
from .message import Format, Message, join_messages, split
from .mpi import Receiver, Sender
from .packet_flow import Burst, Flow, Stage, egress, header, ingress, payload_of
from .pool import WorkerLost, in_parallel, usable_cores
from .ranks import Dismissed, MpiRanks, RankFailed, Ranks, SingleProcess, Stopped
from .throttle import Gate

__all__ = [
    "COMPRESSIBLE_TOS",
    "Burst",
    "Dismissed",
    "FifoResource",
    "Flow",
    "Format",
    "Gate",
    "Interconnect",
    "LaunchError",
    "Mailbox",
    "Message",
    "MpiRanks",
    "NicEngines",
    "Observer",
    "Pump",
    "RankFailed",
    "Ranks",
    "Receiver",
    "Sender",
    "Served",
    "SingleProcess",
    "Stage",
    "StalledError",
    "Stopped",
    "Times",
    "WorkerLost",
    "egress",
    "header",
    "in_parallel",
    "ingress",
    "join",
    "join_messages",
    "launcher_rank",
    "payload_of",
    "run",
    "split",
    "usable_cores",
]
