from .codes import Coded, codes_of, decoded, encoded, values_of
from .hadamard import HADAMARD_SIZES, transform
from .philox import Draws, PhiloxStream, philox
from .rounding import on_blocks, on_grid, warm

__all__ = [
    "HADAMARD_SIZES",
    "Coded",
    "Draws",
    "PhiloxStream",
    "codes_of",
    "decoded",
    "encoded",
    "on_blocks",
    "on_grid",
    "philox",
    "transform",
    "values_of",
    "warm",
]
