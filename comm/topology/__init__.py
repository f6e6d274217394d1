"""Topologies: which links a message between two nodes takes; each is a file here."""

from .chain import Chain
from .switch import Switch
from .topology import Topology, topologies

__all__ = ["Chain", "Switch", "Topology", "topologies"]
