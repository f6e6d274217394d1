"""Sweeps: the rate of a network over ranges of any keys, most of all over the number of boards;
best point and knee.

`space.py` makes the points, `run.py` the figures of each, of all in parallel, `journal.py` a CSV
file of those that are finished; `search.py` and `trials.py` say which are computed, where these are
not all. `result.py` and `findings.py` say what comes out, `pareto.py` which points no other one
dominates, `picture.py` draws it.
"""

from .findings import chosen_rows, findings, front_table, table_of
from .journal import INTERNAL, Journal
from .pareto import OBJECTIVES, Front, Objective, find_front, front_places, objectives_of
from .picture import draw_sweep
from .result import (
    DEVICES,
    REPLICAS,
    SCHEDULES,
    Choice,
    Series,
    SweepResult,
    Target,
    choose,
    find_target,
    knee,
    reaches,
)
from .run import (
    Announce,
    Interrupted,
    Measured,
    figures,
    identities,
    measure,
    run_space,
)
from .search import seeking_values
from .space import Point, Space, points_of, sweepable_keys

__all__ = [
    "DEVICES",
    "INTERNAL",
    "OBJECTIVES",
    "REPLICAS",
    "SCHEDULES",
    "Announce",
    "Choice",
    "Front",
    "Interrupted",
    "Journal",
    "Measured",
    "Objective",
    "Point",
    "Series",
    "Space",
    "SweepResult",
    "Target",
    "choose",
    "chosen_rows",
    "draw_sweep",
    "figures",
    "find_front",
    "find_target",
    "findings",
    "front_places",
    "front_table",
    "identities",
    "knee",
    "measure",
    "objectives_of",
    "points_of",
    "reaches",
    "run_space",
    "seeking_values",
    "sweepable_keys",
    "table_of",
]
