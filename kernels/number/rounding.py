"""Ways to round onto a grid."""

from __future__ import annotations

import enum


class Rounding(enum.Enum):
    """To the nearest value, where two are equally near the even one or that away from zero; to zero; or by chance."""

    EVEN = 0
    AWAY = 1
    ZERO = 2
    STOCHASTIC = 3
