from .codes import Coded, codes_of, decoded, encoded, values_of
from .philox import Draws, PhiloxStream, philox
from .rounding import on_blocks, on_grid, warm

__all__ = [
    "Coded",
    "Draws",
    "PhiloxStream",
    "codes_of",
    "decoded",
    "encoded",
    "on_blocks",
    "on_grid",
    "philox",
    "values_of",
    "warm",
]
