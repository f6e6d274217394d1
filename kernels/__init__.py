"""Numba kernels on arrays: no MPI, no devices, no files."""

from .arena import Arena
from .buffers import CodecError
from .extensions import instances, subclasses
from .fifo import serve
from .pages import ALIGNMENT, aligned
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
