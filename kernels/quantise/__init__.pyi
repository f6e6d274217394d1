from .philox import Draws, PhiloxStream, philox
from .rounding import on_blocks, on_grid, warm

__all__ = ["Draws", "PhiloxStream", "on_blocks", "on_grid", "philox", "warm"]
