from .fifo import FifoResource, Observer, Served, Times
from .host import Mailbox, Pump, StalledError, run
from .interconnect import COMPRESSIBLE_TOS, Interconnect, NicEngines
from .launch import LaunchError, join, launcher_rank
from .message import Format, Message, join_messages, split
from .mpi import Receiver, Sender
from .packet_flow import NicBurst, NicFlow, NicStage, egress, ingress, packet_header, payload_of
from .pool import WorkerLost, in_parallel, usable_cores
from .ranks import Dismissed, MpiRanks, RankFailed, Ranks, SingleProcess, Stopped
from .throttle import Gate

__all__ = [
    "COMPRESSIBLE_TOS",
    "Dismissed",
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
    "Times",
    "WorkerLost",
    "egress",
    "in_parallel",
    "ingress",
    "join",
    "join_messages",
    "launcher_rank",
    "packet_header",
    "payload_of",
    "run",
    "split",
    "usable_cores",
]
