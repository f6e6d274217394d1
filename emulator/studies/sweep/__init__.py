"""Sweeps: the rate of a network over ranges of any keys, most of all over the number of boards; best point and knee.

`space.py` makes the points, `measure.py` the figures of one, `run.py` all of them, in parallel, and a CSV file of those
that are finished. `result.py` and `findings.py` say what comes out, `picture.py` draws it.
"""

from .choice import Choice, choose, standing
from .findings import chosen_rows, findings, table_of
from .measure import Measured, figures, measure
from .picture import draw_sweep
from .result import DEVICES, REPLICAS, Series, SweepResult, Target, find_target, knee, reaches
from .run import Interrupted, Journal, run_space
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
    "standing",
    "sweepable_keys",
    "table_of",
]
