"""Other ways to train on the same boards: data, layer, model and hybrid parallelism."""

from .comparison import METRICS, Comparison, Metric, compare
from .methods import Method
from .outcome import Outcome
from .pictures import draw_comparison, draw_topologies
from .pipelines import whole_layers
from .workload import Workload

__all__ = [
    "METRICS",
    "Comparison",
    "Method",
    "Metric",
    "Outcome",
    "Workload",
    "compare",
    "draw_comparison",
    "draw_topologies",
    "whole_layers",
]
