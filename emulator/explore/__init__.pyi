from .candidate import DATA_PARALLEL, Candidate, Wires, data_parallel, deal, pipelined
from .explore import FURTHEST, Exploration, Question, Turn, explore, micro_batches_of, time_again
from .partition import Cut, Partition, Step, filled_cut, fits_at_all, least_cut, partition
from .pieces import Demand, Pieces, all_cuts_ps, cuts_between_layers_ps, ideal

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
    "time_again",
]
