"""Topologies: which links a message between two nodes takes; each is a file here."""

from .chain import Chain
from .cycle import Cycle
from .hosts import Hosts
from .switch import Switch
from .topology import Topology, TopologyError, topologies, topology_of
from .torus import Torus, squarest

__all__ = [
    "Chain",
    "Cycle",
    "Hosts",
    "Switch",
    "Topology",
    "TopologyError",
    "Torus",
    "squarest",
    "topologies",
    "topology_of",
]
