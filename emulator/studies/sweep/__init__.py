"""Sweeps: the rate of a network over ranges of any keys, most of all over the number of boards; best point and knee.

`space.py` makes the points, `measure.py` the figures of one, `run.py` all of them, in parallel; `journal.py` keeps what
is finished in a CSV file. `series.py` and `findings.py` say what comes out, `picture.py` draws it.
"""

from .findings import findings
from .journal import Journal
from .measure import FIGURES, Measured, measure
from .picture import draw_sweep
from .result import SweepResult
from .run import Interrupted, run_space
from .series import Series, knee
from .space import Point, Space, points_of, sweepable_keys
from .table import chosen_rows, table_of

__all__ = [
    "FIGURES",
    "Interrupted",
    "Journal",
    "Measured",
    "Point",
    "Series",
    "Space",
    "SweepResult",
    "chosen_rows",
    "draw_sweep",
    "findings",
    "knee",
    "measure",
    "points_of",
    "run_space",
    "sweepable_keys",
    "table_of",
]
