"""Numba kernels on arrays: no MPI, no devices, no files."""

from .arena import ALIGNMENT, Arena, aligned
from .buffers import CodecError
from .extensions import instances, subclasses
from .fifo import serve
from .window import MOST_PLACES

__all__ = [
    "ALIGNMENT",
    "MOST_PLACES",
    "Arena",
    "CodecError",
    "aligned",
    "instances",
    "serve",
    "subclasses",
]
