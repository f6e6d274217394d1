from .codes import Coded, codes_of, decoded, encoded, values_of
from .hadamard import HADAMARD_SIZES, transform
from .philox import Draws, PhiloxStream, philox
from .rounding import from_squares, in_squares, on_blocks, on_grid, on_squares, warm

__all__ = [
    "HADAMARD_SIZES",
    "Coded",
    "Draws",
    "PhiloxStream",
    "codes_of",
    "decoded",
    "encoded",
    "from_squares",
    "in_squares",
    "on_blocks",
    "on_grid",
    "on_squares",
    "philox",
    "transform",
    "values_of",
    "warm",
]
