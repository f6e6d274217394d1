"""How far a run is where a chain's clocks begin."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Begun:
    """What a chain has behind it where its clocks begin at 0: samples, mini-batches, and virtual time in ps.

    Faults are counted from the start of training, clocks from here.
    """

    samples: int = 0
    steps: int = 0
    time_ps: int = 0
