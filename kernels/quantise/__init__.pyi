from .block import on_blocks
from .grid import on_grid
from .philox import PhiloxStream, philox
from .source import Draws
from .warming import warm

__all__ = ["Draws", "PhiloxStream", "on_blocks", "on_grid", "philox", "warm"]
