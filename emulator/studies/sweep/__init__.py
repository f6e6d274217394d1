"""Sweeps: the rate of a network over ranges of any keys, most of all over the number of boards;
best point and knee.

`space.py` makes the points, `run.py` the figures of each, of all in parallel, and a CSV file of
those that are finished. `result.py` and `findings.py` say what comes out, `picture.py` draws it.
"""

from .findings import chosen_rows, findings, table_of
from .picture import draw_sweep
from .result import (
    DEVICES,
    REPLICAS,
    Choice,
    Series,
    SweepResult,
    Target,
    choose,
    find_target,
    knee,
    reaches,
)
from .run import Interrupted, Journal, Measured, figures, measure, run_space
from .space import Point, Space, points_of, sweepable_keys

__all__ = [
    "DEVICES",
    "REPLICAS",
    "Choice",
    "Interrupted",
    "Journal",
    "Measured",
    "Point",
    "Series",
    "Space",
    "SweepResult",
    "Target",
    "choose",
    "chosen_rows",
    "draw_sweep",
    "figures",
    "find_target",
    "findings",
    "knee",
    "measure",
    "points_of",
    "reaches",
    "run_space",
    "sweepable_keys",
    "table_of",
]
