"""Other ways to train on the same boards: data, layer and model parallelism beside FPDeep's hybrid, and a 2D topology.

All use the boards, layers, engines and links that the chain uses, so that they differ in the method alone.
"""

from .comparison import METRICS, Comparison, Metric, compare
from .methods import Method
from .outcome import Outcome
from .section import section
from .topology import Ports, Topology, chain_topology, direct_topology
from .workload import Workload

__all__ = [
    "METRICS",
    "Comparison",
    "Method",
    "Metric",
    "Outcome",
    "Ports",
    "Topology",
    "Workload",
    "chain_topology",
    "compare",
    "direct_topology",
    "section",
]
