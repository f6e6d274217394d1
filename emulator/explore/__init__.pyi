from .bound import all_cuts_ps, cuts_between_layers_ps
from .candidate import Candidate, Wires, pipelined
from .explore import FURTHEST, Exploration, Question, Turn, explore, micro_batches_of
from .ideal import ideal
from .inter_layer import Cut, least_cut
from .intra_layer import filled_cut, fits_at_all
from .partition import Partition, Step, partition
from .pieces import Demand, Pieces
from .replicated import DATA_PARALLEL, data_parallel, deal

__all__ = [
    "DATA_PARALLEL",
    "FURTHEST",
    "Candidate",
    "Cut",
    "Demand",
    "Exploration",
    "Partition",
    "Pieces",
    "Question",
    "Step",
    "Turn",
    "Wires",
    "all_cuts_ps",
    "cuts_between_layers_ps",
    "data_parallel",
    "deal",
    "explore",
    "filled_cut",
    "fits_at_all",
    "ideal",
    "least_cut",
    "micro_batches_of",
    "partition",
    "pipelined",
]
