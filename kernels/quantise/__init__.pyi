from .block import BlockGrid, on_blocks
from .grid import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, FP16, INT8, FloatGrid, Rounding, fixed_point, on_grid
from .names import Grid, grid_of
from .philox import PhiloxStream, philox

__all__ = [
    "BF16",
    "E2M1",
    "E2M3",
    "E3M2",
    "E4M3",
    "E5M2",
    "FP16",
    "INT8",
    "BlockGrid",
    "FloatGrid",
    "Grid",
    "PhiloxStream",
    "Rounding",
    "fixed_point",
    "grid_of",
    "on_blocks",
    "on_grid",
    "philox",
]
