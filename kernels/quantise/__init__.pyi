from .block import on_blocks
from .grid import on_grid
from .philox import PhiloxStream, philox
from .warming import warm

__all__ = ["PhiloxStream", "on_blocks", "on_grid", "philox", "warm"]
