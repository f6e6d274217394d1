from .fifo import FifoResource, Observer, Served, Times
from .host import ALL_RANKS, Awaited, Mailbox, Pump, StalledError, others_first, run
from .interconnect import COMPRESSIBLE_TOS, Interconnect, NicEngines
from .message import Format, Message, join_messages, split
from .packet_flow import NicBurst, NicFlow, NicStage, egress, ingress, packet_header, payload_of
from .topology import Chain, Cycle, Switch, Topology, TopologyError, Torus, squarest, topologies, topology_of
from .transport import Gate, Receiver, Sender, drain

__all__ = [
    "ALL_RANKS",
    "COMPRESSIBLE_TOS",
    "Awaited",
    "Chain",
    "Cycle",
    "FifoResource",
    "Format",
    "Gate",
    "Interconnect",
    "Mailbox",
    "Message",
    "NicBurst",
    "NicEngines",
    "NicFlow",
    "NicStage",
    "Observer",
    "Pump",
    "Receiver",
    "Sender",
    "Served",
    "StalledError",
    "Switch",
    "Times",
    "Topology",
    "TopologyError",
    "Torus",
    "drain",
    "egress",
    "ingress",
    "join_messages",
    "others_first",
    "packet_header",
    "payload_of",
    "run",
    "split",
    "squarest",
    "topologies",
    "topology_of",
]
